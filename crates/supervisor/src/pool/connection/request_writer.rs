//! The writer of requests to workers. It copies the client's request, leaves out the headers that
//! apply only to the client's connection, and adds the worker header, by which the supervisor tells
//! the worker about the request.

use std::io::Write as _;

use rookery_exchange::Exchange;
use rookery_worker_protocol::{BodyState, BorrowedWorkerHeader, Ticket, WORKER_HEADER};

use crate::pool::balancing::session_affinity::{Names, is_only_affinity};

/// The request headers that are not forwarded to workers, because they apply to one connection or
/// frame a message (RFC 9110, 7.6.1). Headers that a client's `Connection` header names are
/// forwarded nevertheless. Otherwise, a client could remove a header that a proxy in front of this
/// server has added.
pub(in crate::pool) const HOP_BY_HOP: [&str; 10] = [
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

/// The headers of a WebSocket handshake that this process writes itself for the worker. The
/// client's own values are not forwarded, because a client that uses HTTP/2 sends no key.
const HANDSHAKE: [&str; 2] = ["sec-websocket-key", "sec-websocket-version"];

/// The error for a request that cannot be sent to a worker, because it cannot be written as
/// HTTP/1.1.
#[derive(Debug)]
pub(in crate::pool) struct Unsendable;

/// Writes a request for a worker to `out`, which must be empty. Writes the head and, if the body is
/// in memory, also the body. Leaves out `Accept-Encoding` unless `accepts_compressed`.
pub(in crate::pool) fn write(
    out: &mut Vec<u8>,
    exchange: &Exchange,
    names: &Names,
    (ticket, body_is): (Ticket, BodyState),
    accepts_compressed: bool,
) -> Result<(), Unsendable> {
    write_line(out, exchange, exchange.query())?;
    let without: &[&str] = if accepts_compressed { &[] } else { &["accept-encoding"] };
    write_headers(out, exchange, names, (ticket, body_is), without)?;
    let body = exchange.body();
    // A request without a body has `content-length: 0` if the client sent a length, as for an empty
    // POST.
    let has_zero_length = || {
        exchange.header(b"content-length").is_some() && !matches!(body_is, BodyState::Deferred(_))
    };
    if !body.is_empty() || has_zero_length() {
        let _ = write!(out, "content-length: {}\r\n", body.len());
    }
    out.extend_from_slice(b"\r\n");
    body.segments().for_each(|segment| out.extend_from_slice(segment));
    Ok(())
}

/// Writes the opening handshake of a WebSocket for a worker to `out`. `key` is the value of
/// `Sec-WebSocket-Key`.
pub(in crate::pool) fn write_handshake(
    out: &mut Vec<u8>,
    exchange: &Exchange,
    names: &Names,
    ticket: Ticket,
    key: &[u8],
    is_shiny: bool,
) -> Result<(), Unsendable> {
    let is_only_affinity = is_shiny && is_only_affinity(exchange.query());
    write_line(out, exchange, if is_only_affinity { b"" } else { exchange.query() })?;
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
    // The server has already parsed the request line, so this check hardly ever fails.
    let is_plain = |bytes: &[u8]| bytes.iter().all(|byte| *byte > b' ' && *byte != 0x7F);
    if method.is_empty() || path.is_empty() || ![method, path, query].into_iter().all(is_plain) {
        return Err(Unsendable);
    }
    for part in [method, b" ", path, query, b" HTTP/1.1\r\n"] {
        out.extend_from_slice(part);
    }
    Ok(())
}

/// Writes the headers of a request for a worker: the client's headers except those in `without`,
/// and the worker header, by which the supervisor tells the worker about the request.
fn write_headers(
    out: &mut Vec<u8>,
    exchange: &Exchange,
    names: &Names,
    (ticket, body_is): (Ticket, BodyState),
    without: &[&str],
) -> Result<(), Unsendable> {
    let mut has_host = false;
    for header in exchange.headers() {
        let mut dropped = HOP_BY_HOP.iter().chain(without);
        let is_dropped = dropped.any(|name| name.as_bytes() == header.name);
        has_host |= header.name == b"host";
        if is_dropped {
            continue;
        }
        // The session cookie is meant for this process and not for the app, so it is removed.
        let others = if header.name == b"cookie" { names.without_own(header.value) } else { None };
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
        // An HTTP/1.0 request may have no Host header, but HTTP/1.1 requires one.
        out.extend_from_slice(b"host: \r\n");
    }
    let id = exchange.request_id();
    let header = BorrowedWorkerHeader {
        ticket: Some(ticket),
        is_https: exchange.is_https(),
        remote: exchange.remote(),
        local: exchange.local(),
        id: std::str::from_utf8(id.as_bytes()).ok(),
        client: exchange.client().map(|client| (&*client.fingerprint, &*client.subject)),
        body: body_is,
    };
    // Writing to a vector cannot fail.
    let _ = write!(out, "{WORKER_HEADER}: {header}\r\n");
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

    /// Parses a written request and returns its request line, headers and body.
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

    fn write_request(
        exchange: &Exchange,
        ticket: Ticket,
    ) -> (String, Vec<(String, String)>, String) {
        let mut out = Vec::new();
        write(&mut out, exchange, &Names::new(""), (ticket, BodyState::Included), true).unwrap();
        parts(&out)
    }

    fn handshake(exchange: &Exchange, is_shiny: bool) -> (String, Vec<(String, String)>) {
        let mut out = Vec::new();
        write_handshake(&mut out, exchange, &Names::new(""), ticket(1), b"ours", is_shiny).unwrap();
        let (line, headers, body) = parts(&out);
        assert_eq!(body, "");
        (line, headers)
    }

    #[test]
    fn drops_headers_of_the_clients_connection_and_the_session_cookie() {
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
        let (line, headers, body) = write_request(&exchange, ticket(3));
        assert_eq!((&*line, &*body), ("POST /a?b=c HTTP/1.1", ""));
        let mut names: Vec<_> = headers.iter().map(|header| &*header.0).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "cookie", "host", WORKER_HEADER, "x-forwarded-for"]);
        assert_eq!(value(&headers, "cookie"), Some("a=b; c=d"));
        let header =
            WorkerHeader::parse(value(&headers, WORKER_HEADER).unwrap().as_bytes()).unwrap();
        assert_eq!((header.ticket, header.is_https), (Some(ticket(3)), false));
        assert_eq!((header.remote, header.id.map(|id| id.len())), (exchange.remote(), Some(32)));
    }

    #[test]
    fn writes_the_length_of_a_body_also_where_it_is_zero() {
        let mut with = exchange("/", &[("host", "a"), ("transfer-encoding", "chunked")]);
        with.push_body(b"12345");
        let (_, headers, body) = write_request(&with, ticket(1));
        assert_eq!((value(&headers, "content-length"), &*body), (Some("5"), "12345"));
        let (_, headers, _) =
            write_request(&exchange("/", &[("host", "a"), ("content-length", "0")]), ticket(1));
        assert_eq!(value(&headers, "content-length"), Some("0"));
        let (_, headers, _) = write_request(&exchange("/", &[]), ticket(1));
        assert_eq!((value(&headers, "content-length"), value(&headers, "host")), (None, Some("")));
        // A spooled body is sent later. Only its length is written here.
        let mut spooled = exchange("/", &[("host", "a")]);
        spooled.body_mut().set_file(tempfile::tempfile().unwrap(), 7);
        let (_, headers, body) = write_request(&spooled, ticket(1));
        assert_eq!((value(&headers, "content-length"), &*body), (Some("7"), ""));
    }

    #[test]
    fn writes_the_length_of_a_deferred_body_only_into_the_worker_header() {
        let exchange = exchange("/", &[("host", "a"), ("content-length", "7000000")]);
        let mut out = Vec::new();
        let ticket = (ticket(1), BodyState::Deferred(BodyLength::Bytes(7_000_000)));
        write(&mut out, &exchange, &Names::new(""), ticket, true).unwrap();
        let (_, headers, body) = parts(&out);
        assert_eq!((value(&headers, "content-length"), &*body), (None, ""));
        let header =
            WorkerHeader::parse(value(&headers, WORKER_HEADER).unwrap().as_bytes()).unwrap();
        assert_eq!(header.body, BodyState::Deferred(BodyLength::Bytes(7_000_000)));
    }

    #[test]
    fn refuses_a_request_that_would_be_split() {
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
                write(
                    &mut Vec::new(),
                    &exchange,
                    &Names::new(""),
                    (ticket(1), BodyState::Included),
                    true
                )
                .is_err(),
                "{target:?} {name:?} {text:?}"
            );
        }
    }

    #[test]
    fn writes_a_handshake_with_its_own_key_and_version() {
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
        let (line, headers) = handshake(&exchange("/?w=", &theirs), false);
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
    fn removes_a_query_that_only_has_the_affinity_parameter() {
        for (target, seen) in [
            ("/websocket/?w=", "/websocket/"),
            ("/websocket/?w=00112233445566778899aabbccddeeff", "/websocket/"),
            ("/websocket/?w=mine", "/websocket/?w=mine"),
            ("/websocket/?w=&a=b", "/websocket/?w=&a=b"),
            ("/websocket/", "/websocket/"),
        ] {
            let (line, _) = handshake(&exchange(target, &[]), true);
            assert_eq!(line, format!("POST {seen} HTTP/1.1"));
        }
    }
}
