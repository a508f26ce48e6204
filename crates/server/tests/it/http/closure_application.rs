//! A server whose application is a closure that runs on the I/O thread.

use std::fmt::Write as _;

use rookery_exchange::Exchange;
use rookery_server::{Config, Limits, Listener, ListenerConfig, Server};

use crate::support::{Client, masked_frame};

/// Responds with the path and the body.
fn echo(exchange: &mut Exchange) {
    let path = exchange.path().to_vec();
    let mut body = [path.as_slice(), &vec![0; exchange.body().len() as usize]].concat();
    let read = exchange.body().read_at(0, &mut body[path.len()..]).unwrap();
    assert_eq!(read as u64, exchange.body().len());
    exchange.begin_response(200);
    exchange.set_response_body(&body);
}

fn start(limits: Limits, site: ListenerConfig) -> (Server, Listener, Client) {
    let server = Server::with_closure_and_echo(Config { limits, ..Config::default() }, echo);
    let listener = server.listen_tcp("127.0.0.1:0".parse().unwrap(), site).unwrap();
    let client = Client::connect(listener.local_addr().unwrap());
    (server, listener, client)
}

#[test]
fn requests_are_answered_in_their_order() {
    let (_server, _listener, mut client) = start(Limits::default(), ListenerConfig::default());
    let mut requests = String::new();
    for i in 0..100 {
        let _ = write!(requests, "POST /{i} HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    }
    client.send(requests);
    for i in 0..100 {
        assert_eq!(client.response().unwrap().body, format!("/{i}body").into_bytes());
    }
}

#[test]
fn a_site_that_sees_heads_has_its_bodies_too() {
    let (_server, _listener, mut client) =
        start(Limits::default(), ListenerConfig { sees_heads: true, ..ListenerConfig::default() });
    let body = vec![7; 300_000];
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()));
    client.send(&body);
    let reply = client.response().unwrap();
    assert_eq!((reply.status, reply.body.len()), (200, body.len() + 1));
    assert!(client.get("/next").body == b"/next");
}

#[test]
fn a_message_comes_back_as_it_was() {
    let (_server, _listener, mut client) = start(Limits::default(), ListenerConfig::default());
    assert_eq!(client.upgrade("/ws").status, 101);
    client.send(masked_frame(0x81, b"text"));
    client.send(masked_frame(0x82, &[0, 255]));
    assert_eq!(client.frame(), Some((1, b"text".to_vec())));
    assert_eq!(client.frame(), Some((2, vec![0, 255])));
    client.send(masked_frame(0x88, &[0x03, 0xE8]));
    assert_eq!(client.frame(), Some((8, vec![0x03, 0xE8])));
    assert!(client.wait_for_close());
}

#[test]
fn limits_hold_without_a_second_thread() {
    let (_server, _listener, mut client) =
        start(Limits { max_body_size: 1000, ..Limits::default() }, ListenerConfig::default());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n");
    assert_eq!(client.response().unwrap().status, 413);
}
