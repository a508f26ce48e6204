//! The timing of TLS connections: clients that read late, ends of the connection at any moment, and
//! the data after them.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rookery_exchange::{Command, Event, Payload, Share};
use rookery_server::{Config, Limits, ListenerConfig, Notice, Rejection, Server};
use rookery_test_support::client::tls_session;
use rookery_test_support::tls::client_config;

use crate::application::{Application, NoWaker};
use crate::support::tls::{app, settings, site};
use crate::support::{App, Client, TEST_TIMEOUT, echo, hello, masked_frame, wait_until};

#[cfg(unix)]
#[test]
fn a_websocket_may_be_idle_when_it_has_caught_up() {
    // A Unix socket buffers the same amount every time. For some of these sizes, everything but the
    // last record fits.
    let sizes = || (0..24).map(|at| (64 << 10) + at * (12 << 10));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let limits = Limits { ws_stall_timeout: Duration::from_secs(60), ..Limits::default() };
    let server = Server::new(Config { limits, ..Config::default() }, Box::new(NoWaker));
    let listener = server.listen_unix(&path, None, site(settings(&["localhost"]))).unwrap();
    let _application = Application::start(&server, |link, event| match event {
        Event::Request(mut exchange) => {
            exchange.begin_response(101);
            link.send(Command::Respond(exchange));
        }
        Event::Message { socket, kind, payload, .. } => {
            let size: usize = std::str::from_utf8(payload.as_bytes()).unwrap().parse().unwrap();
            link.send(Command::Send { socket, kind, payload: Payload::Pooled(vec![0; size]) });
        }
        _ => {}
    });
    let config = Arc::new(client_config(None));
    let mut buffer = vec![0; 65536];
    let mut clients: Vec<_> = sizes()
        .map(|_| {
            let socket = UnixStream::connect(&path).unwrap();
            socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
            let mut client = rustls::StreamOwned::new(tls_session(&config, "localhost"), socket);
            client
                .write_all(
                    b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
                )
                .unwrap();
            assert!(client.read(&mut buffer).unwrap() > 0);
            client
        })
        .collect();
    for (client, size) in clients.iter_mut().zip(sizes()) {
        client.write_all(&masked_frame(0x82, size.to_string().as_bytes())).unwrap();
    }
    wait_until("the clients are behind", || server.budget().used(Share::Outgoing) > 0);
    server.advance_clock(Duration::from_secs(2));
    for (client, size) in clients.iter_mut().zip(sizes()) {
        // The header of a frame of 64 KiB or more has 10 bytes.
        let mut left = size + 10;
        while left > 0 {
            left -= client.read(&mut buffer).unwrap();
        }
    }
    server.advance_clock(Duration::from_secs(100));
    assert_eq!(listener.connections(), clients.len(), "dropped while nothing waited for it");
}

/// A TLS record that was not encrypted.
const GARBAGE: [u8; 37] = {
    let mut record = [7; 37];
    [record[0], record[1], record[2], record[3], record[4]] = [23, 3, 3, 0, 32];
    record
};

#[test]
fn what_follows_a_record_that_cannot_be_opened_is_no_request() {
    let (goes_on, waits) = mpsc::channel::<()>();
    let app = app(Limits::default(), move |exchange| {
        if exchange.path() == b"/slow" {
            let _ = waits.recv_timeout(Duration::from_millis(300));
        }
        hello(exchange);
    });
    let plain = b"GET /plain HTTP/1.1\r\nHost: a\r\n\r\n";
    for before in [
        "",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /half HTTP/1.1\r\nHos",
        "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nabc",
        "POST /chunked HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\
         Sec-WebSocket-Version: 13\r\n\r\n",
    ] {
        let mut client = app.secure();
        if !before.is_empty() {
            client.send(before);
        }
        std::thread::sleep(Duration::from_millis(50));
        client.socket.write_all(&[&GARBAGE[..], plain].concat()).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let _ = client.socket.write_all(plain);
        let mut rest = Vec::new();
        let _ = client.socket.read_to_end(&mut rest);
        let text = String::from_utf8_lossy(&rest).into_owned();
        assert!(!text.contains("HTTP/1.1"), "{before:?}: answered in the clear: {text}");
    }
    drop(goes_on);
    let log = app.log.lock().unwrap().clone();
    assert!(!log.iter().any(|line| line.contains("/plain") || line.contains("/body")), "{log:?}");
    wait_until("all have gone", || app.listener().connections() == 0);
}

#[test]
fn an_upload_that_is_cut_off_is_none() {
    let app = app(Limits::default(), hello);
    for head in ["Content-Length: 10", "Transfer-Encoding: chunked"] {
        for says_so in [true, false] {
            let mut client = app.secure();
            client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n3\r\nabc\r\n"));
            if says_so {
                let tls = client.tls.as_mut().unwrap();
                tls.send_close_notify();
                tls.write_tls(&mut client.socket).unwrap();
            }
            client.socket.shutdown(Shutdown::Write).unwrap();
            if let Some(reply) = client.response() {
                assert_eq!(reply.status, 400);
            }
            assert!(client.wait_for_close());
        }
    }
    assert_eq!(app.requests(), 0);
}

#[test]
fn who_says_that_it_sends_no_more_is_answered() {
    let app = app(Limits::default(), hello);
    let mut client = app.secure();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    // The record follows the request in the same segment, follows without a FIN, or is the last of
    // the handshake.
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let config =
            Arc::new(rookery_test_support::tls::client_config_with_versions(None, &[version]));
        let mut client = Client::connect_tls(app.address, &config, "localhost").unwrap();
        let tls = client.tls.as_mut().unwrap();
        tls.writer().write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        tls.send_close_notify();
        let mut out = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut out).unwrap();
        }
        client.socket.write_all(&out).unwrap();
        assert_eq!(client.response().unwrap().body, b"Hello, World!");
        assert!(client.wait_for_close());
    }
}

static NOTICES: AtomicUsize = AtomicUsize::new(0);

#[test]
fn tls_within_tls_is_not_taken_for_tls_in_the_clear() {
    let notice = Notice(|_| {
        NOTICES.fetch_add(1, Ordering::SeqCst);
    });
    let app = App::with(
        Config::default(),
        ListenerConfig { notice, ..site(settings(&["localhost"])) },
        echo(hello),
    );
    let mut client = app.secure();
    client.send([22, 3, 1, 0, 5, 1, 0, 0, 1, 3]);
    assert_eq!(client.response().expect("an answer").status, 400);
    assert!(client.wait_for_close());
    assert_eq!(app.server.reports().count(Rejection::TlsOnPlain), 0);
    assert_eq!(NOTICES.load(Ordering::SeqCst), 0, "told to give the server a certificate");
}

/// Returns the first message of a client in one TLS record. Many protocol names make it long.
fn long_hello(len: usize) -> Vec<u8> {
    let mut config = client_config(None);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.alpn_protocols.extend((0..len / 201).map(|_| vec![b'x'; 200]));
    let mut bytes = Vec::new();
    tls_session(&Arc::new(config), "localhost").write_tls(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_hello_that_is_split_anywhere() {
    let app = app(Limits::default(), hello);
    let bytes = long_hello(300);
    for at in 1..bytes.len() {
        let mut client = app.connect();
        client.send(&bytes[..at]);
        if at % 16 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        client.send(&bytes[at..]);
        let mut first = [0; 6];
        client.socket.read_exact(&mut first).unwrap();
        assert!(first[0] == 22 && first[5] == 2, "{at}: no ServerHello: {first:?}");
    }
}

/// rustls buffers at most 64 KiB of a handshake message, including its record headers.
#[test]
fn a_hello_in_records_of_a_byte() {
    let app = app(Limits::default(), hello);
    for (len, is_fine) in [(300, true), (9_000, true), (16_000, false), (60_000, false)] {
        let bytes = long_hello(len);
        let records: Vec<u8> = bytes[5..].iter().flat_map(|byte| [22, 3, 1, 0, 1, *byte]).collect();
        let mut client = app.connect();
        // The server may close the connection before all bytes were sent.
        let _ = client.socket.write_all(&records);
        let mut first = [0; 6];
        let is_answered =
            client.socket.read_exact(&mut first).is_ok() && first[0] == 22 && first[5] == 2;
        assert_eq!(is_answered, is_fine, "{len}: {first:?}");
        let mut other = app.secure();
        assert_eq!(other.get("/").status, 200);
    }
}

#[test]
fn keys_that_change_all_the_time() {
    let app = app(Limits::default(), hello);
    let mut client = app.secure();
    for _ in 0..100 {
        client.tls.as_mut().unwrap().refresh_traffic_keys().unwrap();
        assert_eq!(client.get("/").status, 200);
    }
    // A client that sends without pauses and never reads is disconnected.
    let mut client = app.secure();
    for _ in 0..1000 {
        let tls = client.tls.as_mut().unwrap();
        let _ = tls.refresh_traffic_keys();
        if tls.write_tls(&mut client.socket).is_err() {
            break;
        }
    }
    wait_until("it has gone", || app.listener().connections() == 1);
}

#[test]
fn a_reply_that_is_not_read_is_cut_and_leaves_nothing() {
    let limits = Limits { idle_timeout: Duration::from_millis(500), ..Limits::default() };
    let app = app(limits, |exchange| {
        exchange.begin_response(200);
        exchange.set_response_body(&vec![1; 30 << 20]);
    });
    let mut clients: Vec<Client> = (0..5).map(|_| app.secure()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    wait_until("all have been cut", || app.listener().connections() == 0);
    let budget = app.server.budget();
    for share in Share::ALL {
        wait_until("nothing is charged", || budget.used(share) == 0);
    }
}

#[test]
fn a_stop_waits_for_who_reads_slowly_and_says_goodbye() {
    let limits = Limits { stop_timeout: Duration::from_secs(15), ..Limits::default() };
    let mut app = app(limits, |exchange| {
        exchange.begin_response(200);
        exchange.set_response_body(&vec![1; 12 << 20]);
    });
    let mut client = app.secure();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    app.await_event("request");
    let budget = Arc::clone(app.server.budget());
    wait_until("the response is on its way", || budget.used(Share::Outgoing) > 0);
    let stopping = std::thread::spawn(move || {
        app.stop();
        app
    });
    assert_eq!(client.response().unwrap().body.len(), 12 << 20);
    // rustls distinguishes a complete close from a truncation.
    assert!(client.wait_for_close());
    let app = stopping.join().unwrap();
    assert_eq!(app.server.budget().used(Share::Connections), 0);
}

#[test]
fn another_is_answered_among_handshakes() {
    // The number is more than twice the limit of concurrent handshakes.
    const CROWD: usize = 700;
    let app = app(Limits::default(), hello);
    let bytes = long_hello(100);
    let mut seated = app.secure();
    let address = app.address;
    let crowd = std::thread::spawn(move || {
        (0..CROWD)
            .filter_map(|_| {
                let mut socket = std::net::TcpStream::connect(address).ok()?;
                socket.write_all(&bytes).ok()?;
                Some(socket)
            })
            .collect::<Vec<_>>()
    });
    while !crowd.is_finished() {
        assert_eq!(seated.get("/").status, 200);
    }
    drop(crowd.join().unwrap());
    drop(seated);
    wait_until("all have gone", || app.listener().connections() == 0);
    wait_until("nothing is charged", || app.server.budget().used(Share::Connections) == 0);
}
