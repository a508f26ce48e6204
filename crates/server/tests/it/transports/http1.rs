//! Behaviour of HTTP/1.1 that HTTP/2 has no part in, with and without TLS.

use std::io::Write as _;
use std::net::Shutdown;
use std::sync::mpsc::channel;
use std::time::Duration;

use rookery_exchange::StreamEnd;
use rookery_server::{Config, Limits, ListenerConfig};

use super::requests::target_and_body;
use super::streams::{Script, streaming};
use crate::support::transport::Transport;
use crate::support::{App, Client, TEST_TIMEOUT, hello, masked_frame, wait_until};

super::matrix! {
    plain: Http1, https12: Https12, https13: Https13;
    {
        pipelined_requests_are_answered_and_a_close_is_clean,
        a_query_may_arrive_in_any_parts,
        a_request_followed_by_a_fin_is_answered,
        a_client_that_expects_100_sends_its_body_after_it,
        a_stream_that_fails_over_http_1_0_has_no_clean_end,
        frames_in_the_segment_of_the_handshake_are_delivered,
        a_stop_closes_idle_connections_and_says_1001_to_websockets,
    }
}

fn pipelined_requests_are_answered_and_a_close_is_clean(on: Transport) {
    let app = on.app(Limits::default(), hello);
    let mut client = on.client(&app);
    // Over TLS, both requests are in one record.
    client.send(
        "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    );
    for closes in [None, Some("close")] {
        let reply = client.response().unwrap();
        assert_eq!((reply.status, reply.header("connection")), (200, closes));
    }
    assert_eq!(client.read_to_end(), (Vec::new(), true));
    assert_eq!(app.requests(), 2);
}

/// A server that recognises the head of a request by its bytes could mistake a body or a header
/// value for one.
fn a_query_may_arrive_in_any_parts(on: Transport) {
    const TARGET: &str = "/?q=\"a\"<b>{c}|d";
    let app = on.app(Limits::default(), target_and_body);
    let body = format!("GET {TARGET} HTTP/1.1\r\n\r\n");
    let get = format!("GET {TARGET} HTTP/1.1\r\nHost: a\r\nX-A: {TARGET} HTTP/1.1\r\n\r\n");
    let absolute = format!("GET http://a{TARGET} HTTP/1.1\r\nHost: a\r\n\r\n");
    let length = body.len();
    let post =
        format!("POST {TARGET} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}");
    // Without a query, so that a body or header value could be mistaken for a head.
    let plain = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}");
    let all = format!("{get}{post}\r\n{absolute}{plain}{get}");
    let expected = [
        format!("{TARGET} "),
        format!("{TARGET} {body}"),
        format!("http://a{TARGET} "),
        format!("/ {body}"),
        format!("{TARGET} "),
    ];
    let mut client = on.client(&app);
    let mut check = |parts: &[&str]| {
        for part in parts {
            client.send(part);
            client.wait_until_server_has_read();
        }
        for expected in &expected {
            let reply = client.response().expect("an answer");
            assert_eq!((reply.status, &reply.text()), (200, expected), "{parts:?}");
        }
    };
    check(&[&all]);
    // Each byte of the last request line, the first part of which is pipelined.
    let last = all.len() - get.len();
    for at in last..=last + "GET ".len() + TARGET.len() {
        check(&[&all[..at], &all[at..]]);
    }
    // At the boundaries of heads and bodies.
    for end in ["\r\n\r\n", "X-A: "] {
        for (at, _) in all.match_indices(end) {
            check(&[&all[..at + end.len()], &all[at + end.len()..]]);
        }
    }
    let by_line: Vec<_> = all.split_inclusive('\n').collect();
    check(&by_line);
}

fn a_request_followed_by_a_fin_is_answered(on: Transport) {
    let notifications = if on.is_tls() { &[false, true][..] } else { &[false] };
    for notifies in notifications {
        let (go, goes) = channel();
        let app = on.app(Limits::default(), move |exchange| {
            goes.recv_timeout(TEST_TIMEOUT).unwrap();
            hello(exchange);
        });
        let mut client = on.client(&app);
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        if *notifies {
            let tls = client.tls.as_mut().unwrap();
            tls.send_close_notify();
            tls.write_tls(&mut client.socket).unwrap();
        }
        client.socket.shutdown(Shutdown::Write).unwrap();
        app.await_event("request");
        // The server notices the FIN.
        app.advance(Duration::from_secs(2));
        go.send(()).unwrap();
        assert_eq!(client.response().unwrap().body, b"Hello, World!", "{notifies}");
        assert_eq!(client.read_to_end(), (Vec::new(), true), "{notifies}");
    }
}

fn a_client_that_expects_100_sends_its_body_after_it(on: Transport) {
    let app = on.app(Limits { max_body_size: 10, ..Limits::default() }, |exchange| {
        let body: Vec<u8> = exchange.body().segments().collect::<Vec<_>>().concat();
        exchange.begin_response(200);
        exchange.set_response_body(&body);
    });
    let mut client = on.client(&app);
    let head = |len| {
        format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\nExpect: 100-continue\r\n\r\n"
        )
    };
    client.send(head(3));
    assert_eq!(client.response().unwrap().status, 100);
    client.send("abc");
    assert_eq!(client.response().unwrap().body, b"abc");
    // The announced length exceeds the limit, so that the request is rejected before its body was
    // sent.
    client.send(head(11));
    let reply = client.response().unwrap();
    assert_eq!((reply.status, reply.header("connection")), (413, Some("close")));
    assert!(client.wait_for_close());
}

fn a_stream_that_fails_over_http_1_0_has_no_clean_end(on: Transport) {
    let (app, _) = streaming(on, Script::Cut(StreamEnd::Error));
    let mut client = on.client(&app);
    client.send("GET /cut HTTP/1.0\r\n\r\n");
    let (bytes, is_clean) = client.read_to_end();
    // Over TLS, the connection ends without a close notification.
    assert!(bytes.ends_with(b"first") && !is_clean, "{}", String::from_utf8_lossy(&bytes));
    app.await_event("departed Error");
}

fn frames_in_the_segment_of_the_handshake_are_delivered(on: Transport) {
    let app = on.app(Limits::default(), hello);
    let mut client = on.client(&app);
    let also = [masked_frame(0x81, b"first"), masked_frame(0x82, &[0, 1, 2])].concat();
    let reply = client.upgrade_with("/ws", "", &also);
    assert_eq!(reply.status, 101);
    assert_eq!(reply.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(client.frame(), Some((1, b"first".to_vec())));
    assert_eq!(client.frame(), Some((2, vec![0, 1, 2])));
}

fn a_stop_closes_idle_connections_and_says_1001_to_websockets(on: Transport) {
    let mut app: App =
        on.app_with(Config::default(), ListenerConfig::default(), crate::support::echo(hello));
    let mut idle: Client = on.client(&app);
    idle.get("/");
    let mut socket = on.client(&app);
    socket.upgrade("/ws");
    let stopping = std::thread::spawn(move || {
        app.stop();
        app
    });
    assert_eq!(idle.read_to_end(), (Vec::new(), true));
    assert_eq!(socket.frame(), Some((8, 1001u16.to_be_bytes().to_vec())));
    let _ = socket.socket.flush();
    socket.send(masked_frame(0x88, &1001u16.to_be_bytes()));
    assert_eq!(socket.read_to_end(), (Vec::new(), true));
    let app = stopping.join().unwrap();
    wait_until("it is told", || app.log.lock().unwrap().contains(&"closed 1001".to_owned()));
}
