//! A request as it goes to a worker: what of its head is the client's word to the app, and what was between the client and us.

use std::io::Write as _;

use rookery_exchange::Exchange;
use rookery_worker_protocol::{BodyState, BorrowedWorkerHeader, Ticket, WORKER_HEADER};

use super::session_affinity::{Names, is_ours_alone};

/// Headers that belong to one connection, and those that frame a message (RFC 9110, 7.6.1): the connection to the worker
/// has its own. Other headers go on whatever the client's `WorkerConnection` names: the server before a worker is the origin, as
/// one process is, so a client cannot take from a request what a proxy has added to it.
const NEIGHBOURS: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    WORKER_HEADER,
];

/// Of a handshake: those to the worker are ours, whatever version of HTTP the client speaks. What extends it is between the two.
const HANDSHAKE: [&str; 2] = ["sec-websocket-key", "sec-websocket-version"];

/// Why a request cannot go on. The server has read it, so hardly ever.
#[derive(Debug)]
pub(super) struct Unsendable;

/// Writes the request of an exchange, with this ticket: its head, and its body if that is here and in memory. `out` is empty.
pub(super) fn write(
    out: &mut Vec<u8>,
    exchange: &Exchange,
    names: &Names,
    ticket: Ticket,
    body_is: BodyState,
) -> Result<(), Unsendable> {
    write_line(out, exchange, exchange.query())?;
    write_headers(out, exchange, names, (ticket, body_is), &[])?;
    let body = exchange.body();
    // A POST of nothing says so.
    let says_none = || {
        exchange.header(b"content-length").is_some() && !matches!(body_is, BodyState::Deferred(_))
    };
    if !body.is_empty() || says_none() {
        let _ = write!(out, "content-length: {}\r\n", body.len());
    }
    out.extend_from_slice(b"\r\n");
    body.segments().for_each(|segment| out.extend_from_slice(segment));
    Ok(())
}

/// Writes the handshake that opens the WebSocket's other half, with a key of ours.
pub(super) fn write_handshake(
    out: &mut Vec<u8>,
    exchange: &Exchange,
    names: &Names,
    ticket: Ticket,
    key: &[u8],
    is_shiny: bool,
) -> Result<(), Unsendable> {
    let is_ours = is_shiny && is_ours_alone(exchange.query());
    write_line(out, exchange, if is_ours { b"" } else { exchange.query() })?;
    write_headers(out, exchange, names, (ticket, BodyState::Included), &HANDSHAKE)?;
    for part in [
        &b"connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: "[..],
        key,
        b"\r\n\r\n",
    ] {
        out.extend_from_slice(part);
    }
    Ok(())
}

fn write_line(out: &mut Vec<u8>, exchange: &Exchange, query: &[u8]) -> Result<(), Unsendable> {
    let (method, path) = (exchange.method(), exchange.path());
    // The server has read them: so hardly ever.
    let is_plain = |bytes: &[u8]| bytes.iter().all(|byte| *byte > b' ' && *byte != 0x7F);
    if method.is_empty() || path.is_empty() || ![method, path, query].into_iter().all(is_plain) {
        return Err(Unsendable);
    }
    for part in [method, b" ", path, query, b" HTTP/1.1\r\n"] {
        out.extend_from_slice(part);
    }
    Ok(())
}

/// Writes the headers that go on, without those of these names as well.
fn write_headers(
    out: &mut Vec<u8>,
    exchange: &Exchange,
    names: &Names,
    (ticket, body_is): (Ticket, BodyState),
    without: &[&str],
) -> Result<(), Unsendable> {
    let mut has_host = false;
    for header in exchange.headers() {
        let mut kept_back = NEIGHBOURS.iter().chain(without);
        let is_neighbours = kept_back.any(|name| name.as_bytes() == header.name);
        has_host |= header.name == b"host";
        if is_neighbours {
            continue;
        }
        let others = if header.name == b"cookie" { names.without_own(header.value) } else { None };
        // The cookie that names the worker is between the client and us as well.
        let value = others.as_deref().unwrap_or(header.value);
        if others.is_some() && value.is_empty() {
            continue;
        }
        if header.name.contains(&b'\n')
            || value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0))
        {
            return Err(Unsendable);
        }
        for part in [header.name, b": ", value, b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
    if !has_host {
        // Of HTTP/1.0, which need not have one.
        out.extend_from_slice(b"host: \r\n");
    }
    let id = exchange.request_id();
    let call = BorrowedWorkerHeader {
        ticket: Some(ticket),
        is_https: exchange.is_https(),
        remote: exchange.remote(),
        local: exchange.local(),
        id: std::str::from_utf8(id.as_bytes()).ok(),
        client: exchange.client().map(|client| (&*client.fingerprint, &*client.subject)),
        body: body_is,
    };
    // Into memory, which does not fail.
    let _ = write!(out, "{WORKER_HEADER}: {call}\r\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use rookery_exchange::Version;
    use rookery_worker_protocol::{BodyLength, WorkerHeader};

    use super::*;

    fn exchange(target: &str, headers: &[(&str, &str)]) -> Box<Exchange> {
        let mut exchange = Exchange::new();
        exchange.begin(7, 1, 0);
        exchange.set_request_line(b"POST", target.as_bytes(), Version::Http11);
        for (name, value) in headers {
            exchange.push_header(name.as_bytes(), value.as_bytes());
        }
        exchange.end_head(Some("192.0.2.1:5".parse().unwrap()), None, false);
        exchange
    }

    fn ticket(sequence: u64) -> Ticket {
        Ticket::new(sequence, 0).unwrap()
    }

    /// The first line of a request, its headers and its body.
    fn parts(request: &[u8]) -> (String, Vec<(String, String)>, String) {
        let text = String::from_utf8(request.to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let (line, headers) = head.split_once("\r\n").unwrap();
        let pair = |line: &str| {
            line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        (
            line.to_owned(),
            headers.split("\r\n").map(|line| pair(line).unwrap()).collect(),
            body.to_owned(),
        )
    }

    fn value<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
        let mut found = headers.iter().filter(|header| header.0 == name).map(|header| &*header.1);
        let value = found.next();
        assert!(found.next().is_none(), "{name} twice");
        value
    }

    fn written(exchange: &Exchange, ticket: Ticket) -> (String, Vec<(String, String)>, String) {
        let mut out = Vec::new();
        write(&mut out, exchange, &Names::new(""), ticket, BodyState::Included).unwrap();
        parts(&out)
    }

    fn shaken(exchange: &Exchange, is_shiny: bool) -> (String, Vec<(String, String)>) {
        let mut out = Vec::new();
        write_handshake(&mut out, exchange, &Names::new(""), ticket(1), b"ours", is_shiny).unwrap();
        let (line, headers, body) = parts(&out);
        assert_eq!(body, "");
        (line, headers)
    }

    #[test]
    fn what_was_between_the_client_and_us_stays_behind() {
        let exchange = exchange(
            "/a?b=c",
            &[
                ("host", "example.org"),
                ("connection", "keep-alive, x-forwarded-for, host"),
                ("connection", "Authorization, close"),
                ("x-forwarded-for", "192.0.2.7"),
                ("authorization", "Basic YTpi"),
                ("keep-alive", "timeout=5"),
                ("te", "trailers"),
                ("transfer-encoding", "chunked"),
                ("upgrade", "h2c"),
                ("expect", "100-continue"),
                ("rookery-call", "1 - https 10.0.0.1:1 - forged - -"),
                ("cookie", "a=b; rookery=theirs; c=d"),
            ],
        );
        let (line, headers, body) = written(&exchange, ticket(3));
        assert_eq!((&*line, &*body), ("POST /a?b=c HTTP/1.1", ""));
        let mut names: Vec<_> = headers.iter().map(|header| &*header.0).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "cookie", "host", WORKER_HEADER, "x-forwarded-for"]);
        assert_eq!(value(&headers, "cookie"), Some("a=b; c=d"));
        let call = WorkerHeader::parse(value(&headers, WORKER_HEADER).unwrap().as_bytes()).unwrap();
        assert_eq!((call.ticket, call.is_https), (Some(ticket(3)), false));
        assert_eq!((call.remote, call.id.map(|id| id.len())), (exchange.remote(), Some(32)));
    }

    #[test]
    fn a_body_has_its_length_and_one_of_nothing_says_so() {
        let mut with = exchange("/", &[("host", "a"), ("transfer-encoding", "chunked")]);
        with.push_body(b"12345");
        let (_, headers, body) = written(&with, ticket(1));
        assert_eq!((value(&headers, "content-length"), &*body), (Some("5"), "12345"));
        let (_, headers, _) =
            written(&exchange("/", &[("host", "a"), ("content-length", "0")]), ticket(1));
        assert_eq!(value(&headers, "content-length"), Some("0"));
        let (_, headers, _) = written(&exchange("/", &[]), ticket(1));
        assert_eq!((value(&headers, "content-length"), value(&headers, "host")), (None, Some("")));
        // One in a file has its length there, and is not here.
        let mut spooled = exchange("/", &[("host", "a")]);
        spooled.body_mut().set_file(tempfile::tempfile().unwrap(), 7);
        let (_, headers, body) = written(&spooled, ticket(1));
        assert_eq!((value(&headers, "content-length"), &*body), (Some("7"), ""));
    }

    #[test]
    fn a_head_alone_says_what_is_to_come_to_the_worker_and_not_to_its_server() {
        let exchange = exchange("/", &[("host", "a"), ("content-length", "7000000")]);
        let mut out = Vec::new();
        write(
            &mut out,
            &exchange,
            &Names::new(""),
            ticket(1),
            BodyState::Deferred(BodyLength::Bytes(7_000_000)),
        )
        .unwrap();
        let (_, headers, body) = parts(&out);
        assert_eq!((value(&headers, "content-length"), &*body), (None, ""));
        let call = WorkerHeader::parse(value(&headers, WORKER_HEADER).unwrap().as_bytes()).unwrap();
        assert_eq!(call.body, BodyState::Deferred(BodyLength::Bytes(7_000_000)));
    }

    #[test]
    fn what_would_be_another_request_is_not_sent() {
        for (target, name, text) in [
            ("/a b", "x", "y"),
            ("/a\r\nx: y", "x", "y"),
            ("/\x7F", "x", "y"),
            ("", "x", "y"),
            ("/", "x", "y\r\nz: w"),
            ("/", "x", "y\nz: w"),
            ("/", "x", "y\0"),
            ("/", "x\n", "y"),
        ] {
            let exchange = exchange(target, &[(name, text)]);
            assert!(
                write(&mut Vec::new(), &exchange, &Names::new(""), ticket(1), BodyState::Included)
                    .is_err(),
                "{target:?} {name:?} {text:?}"
            );
        }
    }

    #[test]
    fn a_handshake_is_our_own() {
        let theirs = [
            ("connection", "Upgrade"),
            ("host", "a"),
            ("origin", "https://a"),
            ("sec-websocket-extensions", "permessage-deflate"),
            ("sec-websocket-key", "theirs"),
            ("sec-websocket-protocol", "chat"),
            ("sec-websocket-version", "8"),
            ("upgrade", "websocket"),
        ];
        let (line, headers) = shaken(&exchange("/?w=", &theirs), false);
        assert_eq!(line, "POST /?w= HTTP/1.1");
        for (name, expected) in [
            ("sec-websocket-key", Some("ours")),
            ("sec-websocket-version", Some("13")),
            ("sec-websocket-extensions", Some("permessage-deflate")),
            ("sec-websocket-protocol", Some("chat")),
            ("origin", Some("https://a")),
            ("connection", Some("Upgrade")),
            ("upgrade", Some("websocket")),
            ("content-length", None),
        ] {
            assert_eq!(value(&headers, name), expected, "{name}");
        }
    }

    #[test]
    fn what_our_script_tells_us_is_not_told_the_app() {
        for (target, seen) in [
            ("/websocket/?w=", "/websocket/"),
            ("/websocket/?w=00112233445566778899aabbccddeeff", "/websocket/"),
            ("/websocket/?w=mine", "/websocket/?w=mine"),
            ("/websocket/?w=&a=b", "/websocket/?w=&a=b"),
            ("/websocket/", "/websocket/"),
        ] {
            let (line, _) = shaken(&exchange(target, &[]), true);
            assert_eq!(line, format!("POST {seen} HTTP/1.1"));
        }
    }
}
