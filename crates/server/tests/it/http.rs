//! HTTP/1.1 as clients see it.

use std::net::Shutdown;

use rookery_server::Limits;

use crate::support::{App, hello};

#[test]
fn a_connection_is_kept_and_requests_may_be_pipelined() {
    let app = App::new(Limits::default(), hello);
    let mut client = app.connect();
    for _ in 0..3 {
        let reply = client.get("/");
        assert_eq!((reply.status, &reply.body[..]), (200, &b"Hello, World!"[..]));
        assert_eq!(reply.header("content-length"), Some("13"));
        assert_eq!(reply.header("content-type"), Some("text/plain"));
        assert!(reply.header("date").is_some());
    }
    client.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.reply().unwrap().status, 200);
    assert_eq!(client.reply().unwrap().status, 200);
}

#[test]
fn a_complete_request_followed_by_a_fin_is_answered() {
    let app = App::new(Limits::default(), |exchange| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        hello(exchange);
    });
    let mut client = app.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.socket.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.reply().unwrap().body, b"Hello, World!");
    assert!(client.is_closed());
}
