//! A request as it goes to a worker: what of its head is the client's word to the app, and what was between the client and us.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use rookery_exchange::Exchange;
use rookery_worker::{CALL_HEADER, Call, Client, Ticket};

use super::request_body::RequestBody;
use super::sticky::{is_ours_alone, without_ours};

/// Headers that are between two neighbours, and those that say how a message is framed (RFC 9110, 7.6.1): the way to the worker has
/// its own. `Proxy` is nobody's, and would be taken for an address (httpoxy).
const NEIGHBOURS: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "proxy",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    CALL_HEADER,
];

/// Of a handshake: the way to the worker is a WebSocket of its own.
const HANDSHAKE: [&str; 3] = ["sec-websocket-extensions", "sec-websocket-key", "sec-websocket-version"];

/// Why a request cannot go on. The server has read it, so hardly ever.
#[derive(Debug)]
pub(super) struct Unsendable;

/// The request of an exchange, with this ticket.
pub(super) fn request(exchange: &Exchange, ticket: Ticket) -> Result<Request<RequestBody>, Unsendable> {
    let body = RequestBody::of(exchange).map_err(|_| Unsendable)?;
    let has_body = !exchange.body().is_empty();
    let mut request = Request::new(body);
    *request.method_mut() = Method::from_bytes(exchange.method()).map_err(|_| Unsendable)?;
    *request.uri_mut() = target(exchange)?;
    *request.headers_mut() = headers(exchange, ticket)?;
    // A POST of nothing says so: hyper would leave it out of other methods as well.
    let tells_none = exchange.header(b"content-length").is_some() && !has_body;
    if has_body || tells_none {
        request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(exchange.body().len()));
    }
    Ok(request)
}

/// The handshake that opens the WebSocket's other half, with a key of ours.
pub(super) fn handshake(
    exchange: &Exchange,
    ticket: Ticket,
    key: HeaderValue,
    is_shiny: bool,
) -> Result<Request<RequestBody>, Unsendable> {
    let mut request = request(exchange, ticket)?;
    if is_shiny && is_ours_alone(exchange.query()) {
        *request.uri_mut() = Uri::try_from(exchange.path()).map_err(|_| Unsendable)?;
    }
    let headers = request.headers_mut();
    headers.remove(CONTENT_LENGTH);
    for name in HANDSHAKE {
        headers.remove(name);
    }
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert("sec-websocket-version", HeaderValue::from_static("13"));
    headers.insert("sec-websocket-key", key);
    Ok(request)
}

fn target(exchange: &Exchange) -> Result<Uri, Unsendable> {
    let mut target = BytesMut::with_capacity(exchange.path().len() + exchange.query().len());
    target.put_slice(exchange.path());
    target.put_slice(exchange.query());
    Uri::from_maybe_shared(target.freeze()).map_err(|_| Unsendable)
}

fn headers(exchange: &Exchange, ticket: Ticket) -> Result<HeaderMap, Unsendable> {
    let named = exchange.header(b"connection").unwrap_or_default();
    let is_named = |name: &[u8]| {
        named.split(|byte| *byte == b',').any(|word| word.trim_ascii().eq_ignore_ascii_case(name))
    };
    let all: usize = exchange.headers().map(|header| header.value.len()).sum();
    // One piece of memory for all values.
    let mut values = BytesMut::with_capacity(all);
    let mut headers = HeaderMap::with_capacity(exchange.headers().len() + 2);
    for header in exchange.headers() {
        let is_neighbours = NEIGHBOURS.iter().any(|name| name.as_bytes() == header.name);
        // Whoever names Host there would have it taken from the request.
        if is_neighbours || (is_named(header.name) && header.name != b"host") {
            continue;
        }
        let others = if header.name == b"cookie" { without_ours(header.value) } else { None };
        match &others {
            // The cookie that names the worker is between the client and us as well.
            Some(others) if others.is_empty() => continue,
            Some(others) => values.put_slice(others),
            None => values.put_slice(header.value),
        }
        let name = HeaderName::from_bytes(header.name).map_err(|_| Unsendable)?;
        headers.insert(name, value(values.split().freeze())?);
    }
    // Of HTTP/1.0, which need not have one.
    headers.entry(HOST).or_insert(HeaderValue::from_static(""));
    headers.insert(CALL_HEADER, value(call(exchange, ticket).to_string().into())?);
    Ok(headers)
}

/// What the worker is told of a request.
fn call(exchange: &Exchange, ticket: Ticket) -> Call {
    let client = exchange
        .client()
        .map(|client| Client { fingerprint: client.fingerprint.clone(), subject: client.subject.clone() });
    Call {
        ticket: Some(ticket),
        is_https: exchange.is_https(),
        remote: exchange.remote(),
        local: exchange.local(),
        id: Some(String::from_utf8_lossy(exchange.request_id().as_bytes()).into_owned()),
        client,
    }
}

fn value(bytes: Bytes) -> Result<HeaderValue, Unsendable> {
    HeaderValue::from_maybe_shared(bytes).map_err(|_| Unsendable)
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;
    use rookery_exchange::Version;

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

    #[test]
    fn what_was_between_the_client_and_us_stays_behind() {
        let exchange = exchange(
            "/a?b=c",
            &[
                ("host", "example.org"),
                ("connection", "keep-alive, x-mine, host"),
                ("x-mine", "1"),
                ("x-theirs", "2"),
                ("keep-alive", "timeout=5"),
                ("te", "trailers"),
                ("transfer-encoding", "chunked"),
                ("upgrade", "h2c"),
                ("expect", "100-continue"),
                ("proxy", "http://evil"),
                ("rookery-call", "1 - https 10.0.0.1:1 - forged - -"),
                ("cookie", "a=b; rookery=theirs; c=d"),
            ],
        );
        let request = request(&exchange, ticket(3)).unwrap();
        assert_eq!(request.uri(), "/a?b=c");
        let mut names: Vec<_> = request.headers().keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["cookie", "host", CALL_HEADER, "x-theirs"]);
        assert_eq!(request.headers()["cookie"], "a=b; c=d");
        let call = Call::parse(request.headers()[CALL_HEADER].as_bytes()).unwrap();
        assert_eq!((call.ticket, call.is_https), (Some(ticket(3)), false));
        assert_eq!((call.remote, call.id.map(|id| id.len())), (exchange.remote(), Some(32)));
    }

    #[test]
    fn a_body_has_its_length_and_one_of_nothing_says_so() {
        let mut with = exchange("/", &[("host", "a"), ("transfer-encoding", "chunked")]);
        with.push_body(b"12345");
        let with = request(&with, ticket(1)).unwrap();
        assert_eq!(with.headers()[CONTENT_LENGTH], "5");
        assert_eq!(with.body().size_hint().exact(), Some(5));
        let nothing = request(&exchange("/", &[("host", "a"), ("content-length", "0")]), ticket(1)).unwrap();
        assert_eq!(nothing.headers()[CONTENT_LENGTH], "0");
        let none = request(&exchange("/", &[]), ticket(1)).unwrap();
        assert!(!none.headers().contains_key(CONTENT_LENGTH) && none.headers()[HOST].is_empty());
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
        let request =
            handshake(&exchange("/?w=", &theirs), ticket(1), HeaderValue::from_static("ours"), false)
                .unwrap();
        assert_eq!(request.uri(), "/?w=");
        let headers = request.headers();
        assert_eq!(
            (&headers["sec-websocket-key"], &headers["sec-websocket-version"]),
            (&"ours".parse().unwrap(), &"13".parse().unwrap())
        );
        assert!(!headers.contains_key("sec-websocket-extensions"));
        assert_eq!(headers["sec-websocket-protocol"], "chat");
        assert_eq!(headers["origin"], "https://a");
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
            let key = HeaderValue::from_static("ours");
            assert_eq!(handshake(&exchange(target, &[]), ticket(1), key, true).unwrap().uri(), seen);
        }
    }
}
