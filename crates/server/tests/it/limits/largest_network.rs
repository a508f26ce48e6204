//! Clients of one address take all connection slots, and make place for those of another one. Linux
//! has both addresses without being told.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rookery_exchange::Exchange;
use rookery_server::{Config, Limits, ListenerConfig};

use super::eviction::TRY_AGAIN_LATER;
use crate::http2::websocket::Sockets;
use crate::support::http2::{Heard, Peer, code, frame, get, kind};
use crate::support::transport::Transport;
use crate::support::{App, Client, echo, has_heard, hello, masked_frame};

/// Returns limits with this number of connections.
fn of_connections(max_connections: usize) -> Limits {
    Limits { max_connections, ..Limits::default() }
}

/// Connects to a server from another network than all other clients of the tests.
fn connect_from_elsewhere(address: SocketAddr) -> Client {
    Client::connect_from(Ipv4Addr::new(127, 0, 0, 2).into(), address)
}

#[test]
fn an_http2_connection_with_an_idle_websocket_makes_place_for_another_address() {
    let config = Config { limits: of_connections(5), ..Config::default() };
    let app = Transport::Http2.app_with(config, ListenerConfig::default(), echo(hello));
    let local = "127.0.0.1:0".parse().unwrap();
    let plain = app.server.listen_tcp(local, ListenerConfig::default()).unwrap();
    let address = plain.local_addr().unwrap();
    let mut flood: Vec<Sockets> = (0..5).map(|_| Sockets::at(app.address)).collect();
    for sockets in &mut flood {
        sockets.open(1);
    }
    let mut honest = Vec::new();
    for at in 0..2 {
        honest.push(connect_from_elsewhere(address));
        assert_eq!(honest[at].get("/").status, 200);
        let mut evicted = flood.pop().unwrap();
        assert_eq!(evicted.frame(1), Some((0x88, TRY_AGAIN_LATER.to_vec())));
        assert_eq!(evicted.peer.goodbye(), Some(code::NO_ERROR));
    }
    for sockets in &mut flood {
        sockets.send(1, &masked_frame(0x81, b"hello"));
        assert_eq!(sockets.frame(1), Some((0x81, b"hello".to_vec())));
    }
}

#[test]
fn requests_of_an_address_that_wait_for_the_application_make_place_for_another_address() {
    let config = Config { limits: of_connections(6), ..Config::default() };
    let holds = Arc::new(AtomicBool::new(true));
    let held = Arc::clone(&holds);
    let respond = move |exchange: &mut Exchange| {
        while exchange.path() == b"/held" && held.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        hello(exchange);
    };
    let app = Transport::Http2.app_with(config, ListenerConfig::default(), echo(respond));
    let local = "127.0.0.1:0".parse().unwrap();
    let plain = app.server.listen_tcp(local, ListenerConfig::default()).unwrap();
    let address = plain.local_addr().unwrap();
    let mut flood: Vec<Client> = (0..3).map(|_| Client::connect(address)).collect();
    flood[0].send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    app.await_event("request /held");
    for client in &mut flood[1..] {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        client.wait_until_server_has_read();
    }
    let mut streams: Vec<Peer> = (0..3).map(|_| Peer::new(&app)).collect();
    for peer in &mut streams {
        peer.ask(1, &get("/"));
        // The server has read the request when it answers the ping.
        peer.send(frame(kind::PING, 0, 0, &[0; 8]));
        assert!(peer.frame_of(kind::PING).is_some());
    }
    let mut honest: Vec<Client> = Vec::new();
    for _ in 0..3 {
        let mut client = connect_from_elsewhere(address);
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        client.wait_until_server_has_read();
        honest.push(client);
    }
    // The newest requests of the other address have got an error response.
    for peer in &mut streams {
        assert_eq!(peer.outcome(1), Heard::Status(503));
        assert_eq!(peer.goodbye(), Some(code::NO_ERROR));
    }
    holds.store(false, Ordering::Relaxed);
    for client in flood.iter_mut().chain(&mut honest) {
        assert_eq!(client.response().unwrap().status, 200);
    }
}

#[test]
fn uploads_and_downloads_of_an_address_make_place_for_another_address() {
    let page = vec![b'x'; 20_000_000];
    let app = App::new(of_connections(8), move |exchange| {
        exchange.begin_response(200);
        exchange.set_response_body(if exchange.path() == b"/large" { &page } else { b"small" });
    });
    let mut readers: Vec<Client> = (0..2).map(|_| app.connect()).collect();
    for client in &mut readers {
        client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
        client.fill();
    }
    let mut uploads: Vec<Client> = (0..6).map(|_| app.connect()).collect();
    for client in &mut uploads {
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nhello");
        client.wait_until_server_has_read();
    }
    let mut honest: Vec<Client> = Vec::new();
    // With the fifth, the honest address would have the most.
    for _ in 0..4 {
        let mut client = connect_from_elsewhere(app.address);
        assert_eq!(client.get("/").status, 200);
        honest.push(client);
    }
    let (evicted, kept): (Vec<_>, Vec<_>) = uploads.into_iter().partition(has_heard);
    assert_eq!(evicted.len(), 4);
    for mut client in evicted {
        let response = client.response().unwrap();
        assert_eq!((response.status, response.header("retry-after")), (503, Some("1")));
        assert!(client.wait_for_close());
    }
    for mut client in kept {
        client.send(vec![b'x'; 995]);
        assert_eq!(client.response().unwrap().status, 200);
    }
    for client in &mut honest {
        assert_eq!(client.get("/").status, 200);
    }
}
