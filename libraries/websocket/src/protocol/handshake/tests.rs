use super::*;
use crate::protocol::deflate::{DeflateConfig, Refused, Takeover, WindowBits};

const ACCEPT: &str = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

fn request(change: impl Fn(&mut Vec<String>)) -> Vec<u8> {
    let mut lines: Vec<String> = [
        "GET /chat HTTP/1.1",
        "Host: server.example.com",
        "Upgrade: websocket",
        "Connection: keep-alive, Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Origin: http://server.example.com",
        "Sec-WebSocket-Version: 13",
    ]
    .map(str::to_owned)
    .to_vec();
    change(&mut lines);
    format!("{}\r\n\r\n", lines.join("\r\n")).into_bytes()
}

#[test]
fn the_example_of_the_rfc_is_answered() {
    let config = ServerConfig { subprotocols: vec!["chat".to_owned()], ..ServerConfig::default() };
    let head = request(|lines| lines.push("Sec-WebSocket-Protocol: superchat, chat".to_owned()));
    let accepted = config.answer_head(&head).unwrap();
    let mut response = Vec::new();
    accepted.write_response(&mut response);
    assert_eq!(
        String::from_utf8(response).unwrap(),
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: chat\r\n\r\n"
    );
}

#[test]
fn bad_requests_are_named() {
    let replace = |n: usize, line: &str| {
        let line = line.to_owned();
        request(move |lines| lines[n].clone_from(&line))
    };
    let table = [
        (replace(0, "POST /chat HTTP/1.1"), Refusal::Method, 405),
        (replace(0, "POST /chat HTTP/1.0"), Refusal::Method, 405),
        (replace(0, "GET /chat HTTP/1.0"), Refusal::HttpVersion, 400),
        (replace(0, "GET /chat"), Refusal::Head(BadHead::Malformed), 400),
        (replace(1, "X: y"), Refusal::Host, 400),
        (replace(2, "Upgrade: h2c"), Refusal::NoUpgrade, 400),
        (replace(2, "X: y"), Refusal::NoUpgrade, 400),
        (replace(3, "Connection: close"), Refusal::NoUpgrade, 400),
        (replace(4, "Sec-WebSocket-Key: short=="), Refusal::Key, 400),
        (replace(4, "Sec-WebSocket-Key: !GhlIHNhbXBsZSBub25jZQ=="), Refusal::Key, 400),
        (request(|lines| lines.push(format!("Sec-WebSocket-Key: {KEY}"))), Refusal::Key, 400),
        (replace(5, "Origin: http://evil.example.com"), Refusal::Origin, 403),
        (replace(6, "Sec-WebSocket-Version: 8"), Refusal::Version, 426),
        (request(|lines| lines.push("Content-Length: 3".to_owned())), Refusal::Body, 400),
        (
            request(|lines| lines.extend((0..100).map(|n| format!("X-{n}: y")))),
            Refusal::Head(BadHead::TooManyHeaders),
            431,
        ),
    ];
    for (head, refusal, status) in table {
        let shown = String::from_utf8_lossy(&head).into_owned();
        assert_eq!(ServerConfig::default().answer_head(&head), Err(refusal), "{shown}");
        assert_eq!(refusal.status(), status);
        let mut response = Vec::new();
        refusal.write_response(&mut response);
        let response = String::from_utf8(response).unwrap();
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")));
        // Only the response to a method that is not allowed has `Allow`.
        assert_eq!(
            response.contains("\r\nAllow: GET\r\n"),
            refusal == Refusal::Method,
            "{response}"
        );
    }
}

#[test]
fn a_head_of_20_mb_is_refused_at_64_kib_and_searched_once() {
    let mut bytes = b"GET / HTTP/1.1\r\nX: ".to_vec();
    let mut reader = HeadReader::default();
    let mut pushes = 0;
    while bytes.len() < 20 << 20 {
        bytes.extend_from_slice(&[b'a'; 100]);
        pushes += 1;
        match reader.find(&bytes) {
            Ok(None) => assert!(bytes.len() < HEAD_MAX),
            Ok(Some(_)) => panic!("no end was sent"),
            Err(bad) => {
                assert_eq!(bad, BadHead::TooLong);
                assert!(pushes <= HEAD_MAX / 100 + 1);
                return;
            }
        }
    }
    panic!("never refused");
}

#[test]
fn the_end_of_a_head_is_found_wherever_it_is_cut() {
    let head = request(|_| ());
    let bytes = [&head[..], b"rest\r\n\r\n"].concat();
    for first in (0..bytes.len()).step_by(if cfg!(miri) { 37 } else { 1 }) {
        let mut reader = HeadReader::default();
        let early = reader.find(&bytes[..first]).unwrap();
        assert_eq!(early, (first >= head.len()).then_some(head.len()));
        if early.is_none() {
            assert_eq!(reader.find(&bytes), Ok(Some(head.len())));
        }
    }
}

fn client(deflate: Option<DeflateConfig>) -> ClientRequest {
    let request = ClientRequest::new("server.example.com", "/chat", *b"the sample nonce").unwrap();
    request.subprotocol("superchat").unwrap().subprotocol("chat").unwrap().deflate(deflate)
}

#[test]
fn client_and_server_agree_on_extensions() {
    let small = DeflateConfig {
        own_bits: WindowBits::new(10).unwrap(),
        peer_bits: WindowBits::new(9).unwrap(),
        own_takeover: Takeover::Kept,
        ..DeflateConfig::default()
    };
    let kept = DeflateConfig {
        own_takeover: Takeover::Kept,
        peer_takeover: Takeover::Kept,
        ..DeflateConfig::default()
    };
    let offers = [None, Some(DeflateConfig::default()), Some(small), Some(kept)];
    for offer in offers {
        for grant in offers {
            let client = client(offer);
            let mut head = Vec::new();
            client.write(&mut head);
            let config = ServerConfig {
                subprotocols: vec!["chat".to_owned()],
                deflate: grant,
                ..ServerConfig::default()
            };
            let accepted = config.answer_head(&head).unwrap();
            let mut response = Vec::new();
            accepted.write_response(&mut response);
            let established = client.check(&response).unwrap();
            assert_eq!(established.subprotocol.as_deref(), Some("chat"));
            assert_eq!(established.deflate.is_some(), offer.is_some() && grant.is_some());
            if let (Some(theirs), Some(ours)) = (accepted.deflate, established.deflate) {
                assert_eq!(theirs.server_bits, ours.server_bits);
                assert_eq!(theirs.server_takeover, ours.server_takeover);
                assert!(ours.client_bits <= theirs.client_bits);
                assert!(
                    theirs.client_takeover == Takeover::Kept
                        || ours.client_takeover == Takeover::None
                );
            }
        }
    }
}

fn with(line: &str) -> [&str; 4] {
    ["Upgrade: WebSocket", "Connection: upgrade", ACCEPT, line]
}

#[test]
fn bad_responses_are_named() {
    let check = |lines: &[&str], deflate| {
        let head = format!("HTTP/1.1 101 Switching Protocols\r\n{}\r\n\r\n", lines.join("\r\n"));
        client(deflate).check(head.as_bytes())
    };
    let base = ["Upgrade: WebSocket", "Connection: upgrade", ACCEPT];
    assert!(check(&base, None).is_ok());
    assert_eq!(check(&base[1..], None), Err(HandshakeError::NoUpgrade));
    assert_eq!(check(&base[..2], None), Err(HandshakeError::Accept));
    assert_eq!(check(&with(ACCEPT), None), Err(HandshakeError::Accept));
    assert_eq!(
        check(&with("Sec-WebSocket-Protocol: other"), None),
        Err(HandshakeError::Subprotocol)
    );
    assert_eq!(
        check(&with("Sec-WebSocket-Extensions: permessage-deflate"), None),
        Err(HandshakeError::Extension(Refused::Unasked))
    );
    let kept = DeflateConfig { peer_takeover: Takeover::Kept, ..DeflateConfig::default() };
    for (answer, refused) in [
        ("permessage-deflate, permessage-deflate", Refused::Unasked),
        ("permessage-bzip2", Refused::Unasked),
        ("permessage-deflate; client_max_window_bits", Refused::Parameter),
        ("permessage-deflate; server_max_window_bits=16", Refused::Parameter),
        (
            "permessage-deflate; server_max_window_bits=9; server_max_window_bits=9",
            Refused::Parameter,
        ),
        ("permessage-deflate; server_no_context_takeover=1", Refused::Parameter),
        ("permessage-deflate; x", Refused::Parameter),
        ("permessage-deflate;", Refused::Malformed),
    ] {
        let line = format!("Sec-WebSocket-Extensions: {answer}");
        assert_eq!(
            check(&with(&line), Some(kept)),
            Err(HandshakeError::Extension(refused)),
            "{answer}"
        );
    }
    let alone = Some(DeflateConfig::default());
    assert_eq!(
        check(&with("Sec-WebSocket-Extensions: permessage-deflate"), alone),
        Err(HandshakeError::Extension(Refused::Ignored)),
        "no takeover was asked for"
    );
    assert_eq!(client(None).check(b"HTTP/1.1 503 No\r\n\r\n"), Err(HandshakeError::Status(503)));
}

#[test]
fn a_host_or_target_that_http_does_not_allow_is_an_error_at_construction() {
    for host in ["a b", "a\r\nX: y", "", "user@a", "a/b", "\u{fc}.org", "a#b", "a?b"] {
        let request = ClientRequest::new(host, "/", [0; 16]);
        assert_eq!(request.unwrap_err(), BadRequest::Host, "{host:?}");
    }
    for target in [
        "",
        "x",
        "*",
        "/ x",
        "/\r\n",
        "/\u{fc}?q=\u{20ac}",
        "/#top",
        "/\"",
        "/<",
        "/\\",
        "/{}",
        "/a|b",
        "/%",
        "/%2",
        "/%zz",
    ] {
        let request = ClientRequest::new("a", target, [0; 16]);
        assert_eq!(request.unwrap_err(), BadRequest::Target, "{target:?}");
    }
    for host in ["a", "A.example.org:8080", "[::1]:9", "127.0.0.1", "a_b"] {
        assert!(ClientRequest::new(host, "/", [0; 16]).is_ok(), "{host}");
    }
    for target in ["/", "/?", "/a/b;c=1/%C3%BC?x[]=1&y=a%20b/?@:!$'()*+,~-._"] {
        let mut head = Vec::new();
        ClientRequest::new("a", target, *b"the sample nonce").unwrap().write(&mut head);
        assert!(ServerConfig::default().answer_head(&head).is_ok(), "{target}");
    }
}

#[test]
fn a_header_that_the_handshake_sends_itself_cannot_be_set() {
    let request = || ClientRequest::new("a", "/", *b"the sample nonce").unwrap();
    // The fields that the request has by itself, and those that would frame a body or change the
    // connection.
    let mut head = Vec::new();
    request().subprotocol("chat").unwrap().deflate(DeflateConfig::default()).write(&mut head);
    let head = String::from_utf8(head).unwrap();
    let own = head.lines().skip(1).filter_map(|line| Some(line.split_once(':')?.0));
    let others = [
        "SEC-WEBSOCKET-KEY",
        "Sec-WebSocket-Accept",
        "sec-websocket-",
        "Content-Length",
        "Transfer-Encoding",
        "TE",
        "Trailer",
        "Keep-Alive",
        "Proxy-Connection",
        "Expect",
    ];
    for name in own.chain(others) {
        let refused = request().header(name, "x").unwrap_err();
        assert_eq!(refused, BadRequest::ReservedHeader(name.to_owned()));
        assert!(refused.to_string().contains(name), "{refused}");
    }
    for (name, value) in [("", "x"), ("X Y", "x"), ("X:", "x"), ("X\r\nY", "x"), ("\u{fc}", "x")] {
        assert_eq!(
            request().header(name, value).unwrap_err(),
            BadRequest::HeaderName(name.to_owned())
        );
    }
    for value in ["a\r\nb", "\n", "\0", "\u{7f}"] {
        let bad = BadRequest::HeaderValue("Cookie".to_owned());
        assert_eq!(request().header("Cookie", value).unwrap_err(), bad);
    }
    let mut head = Vec::new();
    request()
        .header("Origin", "http://a")
        .unwrap()
        .header("Cookie", "a=\u{fc}\tb")
        .unwrap()
        .write(&mut head);
    assert!(ServerConfig::default().answer_head(&head).is_ok());
}

#[test]
fn a_subprotocol_is_a_token_and_named_once() {
    let request = || ClientRequest::new("a", "/", [0; 16]).unwrap();
    for name in ["", "a b", "a,b", "a\r\nb", "\u{fc}"] {
        assert_eq!(
            request().subprotocol(name).unwrap_err(),
            BadRequest::Subprotocol(name.to_owned())
        );
    }
    let twice = request().subprotocol("chat").unwrap().subprotocol("chat");
    assert_eq!(twice.unwrap_err(), BadRequest::Subprotocol("chat".to_owned()));
}

#[test]
fn the_clients_first_subprotocol_that_the_server_speaks_is_taken() {
    let server = ServerConfig::default().subprotocol("one").subprotocol("two");
    for (asked, chosen) in
        [("two, one", Some("two")), ("other, one, two", Some("one")), ("other", None)]
    {
        let head = request(|lines| lines.push(format!("Sec-WebSocket-Protocol: {asked}")));
        assert_eq!(server.answer_head(&head).unwrap().subprotocol.as_deref(), chosen, "{asked}");
    }
}

#[test]
fn a_request_without_an_origin_is_accepted_whatever_the_policy() {
    let head = request(|lines| lines.retain(|line| !line.starts_with("Origin")));
    for policy in [OriginPolicy::SameHost, OriginPolicy::Hosts(Vec::new()), OriginPolicy::Any] {
        assert!(ServerConfig::default().origin(policy).answer_head(&head).is_ok());
    }
    let twice = request(|lines| lines.push(lines[5].clone()));
    assert_eq!(ServerConfig::default().answer_head(&twice), Err(Refusal::Origin));
}

/// Checks that the search for the end of a head does not search bytes again, except the last three,
/// which may be the beginning of that end.
#[test]
fn a_head_is_searched_once() {
    let mut bytes = vec![b'a'; 100];
    let mut reader = HeadReader::default();
    assert_eq!(reader.find(&bytes), Ok(None));
    bytes[50..54].copy_from_slice(b"\r\n\r\n");
    assert_eq!(reader.find(&bytes), Ok(None));
    bytes[97..].copy_from_slice(b"\r\n\r");
    bytes.push(b'\n');
    assert_eq!(reader.find(&bytes), Ok(Some(101)));
}
