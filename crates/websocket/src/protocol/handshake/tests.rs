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
        (replace(0, "GET /chat HTTP/1.0"), Refusal::Method, 405),
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
        assert!(response.starts_with(format!("HTTP/1.1 {status} ").as_bytes()));
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
    let mut request = ClientRequest::new("server.example.com", "/chat", *b"the sample nonce");
    request.subprotocols = vec!["superchat".to_owned(), "chat".to_owned()];
    request.deflate = deflate;
    request
}

#[test]
fn both_sides_of_ours_agree() {
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
            client.write(&mut head).unwrap();
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
                assert!(theirs.client_takeover == Takeover::Kept || ours.client_takeover == Takeover::None);
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
    assert_eq!(check(&with("Sec-WebSocket-Protocol: other"), None), Err(HandshakeError::Subprotocol));
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
        ("permessage-deflate; server_max_window_bits=9; server_max_window_bits=9", Refused::Parameter),
        ("permessage-deflate; server_no_context_takeover=1", Refused::Parameter),
        ("permessage-deflate; x", Refused::Parameter),
        ("permessage-deflate;", Refused::Malformed),
    ] {
        let line = format!("Sec-WebSocket-Extensions: {answer}");
        assert_eq!(check(&with(&line), Some(kept)), Err(HandshakeError::Extension(refused)), "{answer}");
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
fn nothing_can_be_written_into_the_head() {
    for (host, target) in
        [("a b", "/"), ("a\r\nX: y", "/"), ("", "/"), ("a", "/ x"), ("a", "x"), ("a", "/\r\n")]
    {
        let mut out = Vec::new();
        let request = ClientRequest::new(host, target, [0; 16]);
        assert_eq!(request.write(&mut out), Err(HandshakeError::Request), "{host:?} {target:?}");
        assert!(out.is_empty());
    }
    let mut request = ClientRequest::new("a", "/", [0; 16]);
    request.headers.push(("Cookie".to_owned(), "a\r\nb".to_owned()));
    assert_eq!(request.write(&mut Vec::new()), Err(HandshakeError::Request));
}
