//! HTTP/1.1 requests and responses, as clients see them.

use std::time::Duration;

use rookery_exchange::{BodySource, Exchange};
use rookery_server::Limits;

use crate::support::{App, hello};

/// Responds with the request: its method, path, query and headers, and the length and storage of
/// its body.
fn mirror(exchange: &mut Exchange) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let place = match exchange.body().source() {
        BodySource::Empty => "empty",
        BodySource::Memory => "memory",
        BodySource::File(_) => "file",
    };
    let mut sum = 0u64;
    let (mut at, mut buffer) = (0, [0; 4096]);
    loop {
        let n = exchange.body().read_at(at, &mut buffer).unwrap();
        if n == 0 {
            break;
        }
        at += n as u64;
        sum += buffer[..n].iter().map(|byte| u64::from(*byte)).sum::<u64>();
    }
    let mut page = format!(
        "{} {} {} {} {place} {sum}\n",
        text(exchange.method()),
        text(exchange.path()),
        text(exchange.query()),
        exchange.body().len()
    );
    for header in exchange.headers() {
        page += &[&text(header.cgi), "=", &text(header.value), "\n"].concat();
    }
    exchange.begin_response(200);
    exchange.set_response_body(page.as_bytes());
}

fn body(reply: &crate::support::Response) -> String {
    String::from_utf8(reply.body.clone()).unwrap()
}

#[test]
fn a_request_split_at_every_byte_is_the_same_request() {
    let app = App::new(Limits::default(), mirror);
    let request =
        b"POST /a%20b?c=d HTTP/1.1\r\nHost: a\r\nX-Foo: 1\r\nx-foo: 2\r\nContent-Length: 3\r\n\r\nabc";
    let mut whole = app.connect();
    whole.send(request);
    let expected = body(&whole.response().unwrap());
    assert!(expected.starts_with("POST /a%20b ?c=d 3 memory 294\n"), "{expected}");
    assert!(expected.contains("HTTP_X_FOO=1,2"), "{expected}");
    for at in 1..request.len() {
        let mut client = app.connect();
        client.send(&request[..at]);
        // The pause makes the rest of the request arrive in another segment.
        std::thread::sleep(Duration::from_millis(1));
        client.send(&request[at..]);
        assert_eq!(body(&client.response().unwrap()), expected, "split at {at}");
    }
}

#[test]
fn http_1_0_is_closed_unless_it_asks_to_be_kept() {
    let app = App::new(Limits::default(), hello);
    let mut client = app.connect();
    client.send("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(client.response().unwrap().body, b"Hello, World!");
    assert!(client.wait_for_close());
    let mut client = app.connect();
    for _ in 0..2 {
        client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        assert_eq!(client.response().unwrap().body, b"Hello, World!");
    }
}

#[test]
fn what_two_parsers_could_read_differently_is_refused_and_never_reaches_the_application() {
    let app = App::new(Limits::default(), hello);
    let head = "POST / HTTP/1.1\r\nHost: a\r\n";
    let refused: &[(&str, String)] = &[
        ("two lengths", format!("{head}Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd")),
        ("lengths in one line", format!("{head}Content-Length: 3, 4\r\n\r\nabcd")),
        ("a sign before the length", format!("{head}Content-Length: +3\r\n\r\nabc")),
        ("a length that is no number", format!("{head}Content-Length: 3x\r\n\r\nabc")),
        ("a folded header", format!("{head}X: a\r\n b\r\n\r\n")),
        ("a space before the colon", format!("{head}X : a\r\n\r\n")),
        ("a name that is no token", format!("{head}X(: a\r\n\r\n")),
        ("NUL in a value", format!("{head}X: a\0b\r\n\r\n")),
        ("no Host", "GET / HTTP/1.1\r\n\r\n".to_owned()),
        ("two Hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n".to_owned()),
        ("no version", "GET /\r\n\r\n".to_owned()),
        ("HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned()),
        ("CONNECT", "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n".to_owned()),
        ("another coding last", format!("{head}Transfer-Encoding: gzip\r\n\r\n")),
        ("chunked not last", format!("{head}Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n")),
        ("no request at all", "hello there\r\n\r\n".to_owned()),
    ];
    for (what, request) in refused {
        let mut client = app.connect();
        client.send(request);
        let reply = client.response().unwrap_or_else(|| panic!("{what}: no answer"));
        assert_eq!(reply.status, 400, "{what}: {reply:?}");
        assert_eq!(reply.header("connection"), Some("close"), "{what}");
        assert!(client.wait_for_close(), "{what}");
    }
    // A body is never read as another request. Each of these gets one response, and the connection
    // ends.
    for request in [
        format!(
            "{head}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
        ),
        format!(
            "{head}Transfer-Encoding: chunked\r\n\r\nzz\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
        ),
        format!(
            "{head}Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
        ),
        format!(
            "{head}Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
        ),
    ] {
        let mut client = app.connect();
        client.send(&request);
        let mut answers = 0;
        while client.response().is_some() {
            answers += 1;
        }
        assert!(answers <= 1, "{request:?}");
    }
    assert!(!app.log.lock().unwrap().iter().any(|line| line.contains("smuggled")));
    assert_eq!(app.connect().get("/").status, 200);
}

#[test]
fn a_head_of_two_thousand_lines_is_read_and_the_connection_goes_on() {
    let app = App::new(Limits::default(), mirror);
    let mut client = app.connect();
    assert_eq!(client.get("/before").status, 200);
    let lines: String =
        (0..1999).map(|at| format!("X-{at}: {at}\r\n")).collect::<Vec<_>>().concat();
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
    let reply = body(&client.response().unwrap());
    assert_eq!(reply.lines().count(), 2001);
    assert_eq!(client.get("/after").status, 200);
}
