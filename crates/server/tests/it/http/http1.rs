//! HTTP/1.1 requests and responses, as clients see them.

use std::net::Shutdown;
use std::time::Duration;

use rookery_exchange::{BodySource, Exchange};
use rookery_server::Limits;

use crate::support::{App, Client, hello};

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
    assert_eq!(client.response().unwrap().status, 200);
    assert_eq!(client.response().unwrap().status, 200);
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
fn a_complete_request_followed_by_a_fin_is_answered() {
    let app = App::new(Limits::default(), |exchange| {
        std::thread::sleep(Duration::from_millis(50));
        hello(exchange);
    });
    let mut client = app.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.socket.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.response().unwrap().body, b"Hello, World!");
    assert!(client.wait_for_close());
}

#[test]
fn continue_is_said_when_the_body_is_wanted() {
    let app = App::new(Limits { max_body_size: 10, ..Limits::default() }, mirror);
    let mut client = app.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.response().unwrap().status, 100);
    client.send("abc");
    assert!(body(&client.response().unwrap()).starts_with("POST /  3 memory"));
    // The announced length exceeds the limit, so that the request is rejected before its body was
    // sent.
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\nExpect: 100-continue\r\n\r\n");
    let reply = client.response().unwrap();
    assert_eq!((reply.status, reply.header("connection")), (413, Some("close")));
    assert!(client.wait_for_close());
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
fn bodies_of_every_size_and_framing_arrive_whole() {
    let app = App::new(Limits { body_buffer_size: 100_000, ..Limits::default() }, mirror);
    let mut client = app.connect();
    for (len, place) in
        [(0, "empty"), (1, "memory"), (100_000, "memory"), (100_001, "file"), (3_000_000, "file")]
    {
        let bytes: Vec<u8> = (0..len).map(|at: u32| (at % 251) as u8).collect();
        let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
        let expected = format!("POST /  {len} {place} {sum}\n");
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n"));
        client.send(&bytes);
        let reply = body(&client.response().unwrap());
        assert!(reply.starts_with(&expected), "{reply}");
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        for chunk in bytes.chunks(70_000) {
            client.send(format!("{:x}\r\n", chunk.len()));
            client.send(chunk);
            client.send("\r\n");
        }
        client.send("0\r\nTrailer: dropped\r\n\r\n");
        let reply = body(&client.response().unwrap());
        assert!(reply.starts_with(&expected), "{reply}");
        assert!(!reply.contains("TRAILER="));
    }
}

#[test]
fn head_204_and_304_have_no_body() {
    let app = App::new(Limits::default(), |exchange| {
        let status = match exchange.path() {
            b"/204" => 204,
            b"/304" => 304,
            _ => 200,
        };
        exchange.begin_response(status);
        exchange.set_response_body(b"Hello, World!");
    });
    let mut client = app.connect();
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response_to("HEAD").unwrap().header("content-length"), Some("13"));
    assert_eq!(client.get("/204").header("content-length"), None);
    assert_eq!(client.get("/304").status, 304);
    assert_eq!(client.get("/").body, b"Hello, World!");
}

#[test]
fn the_application_decides_headers_and_the_server_framing() {
    let app = App::new(Limits::default(), |exchange| {
        exchange.begin_response(418);
        for (name, value) in [
            ("Set-Cookie", "a=1"),
            ("set-cookie", "b=2"),
            ("Date", "Thu, 01 Jan 1970 00:00:00 GMT"),
            ("Content-Length", "99999"),
            ("Transfer-Encoding", "chunked"),
            ("X-Custom", "v"),
        ] {
            exchange.push_response_header(name.as_bytes(), value.as_bytes()).unwrap();
        }
        if exchange.path() == b"/close" {
            exchange.push_response_header(b"Connection", b"close").unwrap();
        }
        exchange.set_response_body(b"short");
    });
    let mut client = app.connect();
    let reply = client.get("/");
    assert_eq!((reply.status, &reply.body[..]), (418, &b"short"[..]));
    assert_eq!(reply.head.matches("et-").count(), 2, "{}", reply.head);
    assert_eq!(reply.head.to_lowercase().matches("date:").count(), 1);
    assert_eq!(reply.header("date"), Some("Thu, 01 Jan 1970 00:00:00 GMT"));
    assert_eq!(reply.header("transfer-encoding"), None);
    assert_eq!(reply.header("x-custom"), Some("v"));
    let reply = client.get("/close");
    assert_eq!(reply.header("connection"), Some("close"));
    assert!(client.wait_for_close());
}

#[test]
fn a_text_is_compressed_for_those_who_ask() {
    let app = App::new(Limits::default(), |exchange| {
        let page = match exchange.path() {
            b"/large" => "0123456789".repeat(100_000),
            _ => "0123456789".repeat(100),
        };
        exchange.begin_response(200);
        exchange.push_response_header(b"Content-Type", b"text/plain").unwrap();
        exchange.set_response_body(page.as_bytes());
    });
    let mut client = app.connect();
    for (path, len) in [("/small", 1000), ("/large", 1_000_000), ("/small", 1000)] {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n"));
        let reply = client.response().unwrap();
        assert_eq!(reply.header("content-encoding"), Some("gzip"));
        assert_eq!(reply.header("vary"), Some("Accept-Encoding"));
        assert!(reply.body.len() < len / 10, "{}", reply.body.len());
        let mut plain = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&reply.body[..]), &mut plain)
            .unwrap();
        assert_eq!(plain, "0123456789".repeat(len / 10).as_bytes());
    }
    assert_eq!(client.get("/small").header("content-encoding"), None);
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

#[test]
fn a_client_that_reads_slowly_gets_all_of_it() {
    let page: Vec<u8> = (0..20_000_000u32).map(|at| (at % 253) as u8).collect();
    let sent = page.clone();
    let app = App::new(Limits::default(), move |exchange| {
        exchange.begin_response(200);
        exchange.set_response_body(&sent);
    });
    let mut client = app.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    std::thread::sleep(Duration::from_millis(200));
    assert!(Client::connect(app.address).get("/").body == page, "another client is not held up");
    assert!(client.response().unwrap().body == page);
}
