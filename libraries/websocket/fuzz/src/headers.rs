//! Fuzz targets of the opening handshake and the extensions header.

use rookery_websocket::protocol::Extensions;
use rookery_websocket::protocol::deflate::{DeflateConfig, Takeover, WindowBits};
use rookery_websocket::protocol::handshake::{
    ClientRequest, HEAD_MAX, HeadReader, OriginPolicy, Refusal, ServerConfig,
};

/// Checks that a line that can be read is read as the same after it is written.
pub fn websocket_extensions(data: &[u8]) {
    let read = |line: &[u8]| {
        Extensions::parse(line)
            .map(|extension| {
                let extension = extension?;
                let params = extension.params().map(|(name, value)| {
                    (name.to_owned(), value.map(|value| value.chars().collect::<String>()))
                });
                Ok((extension.name().to_owned(), params.collect::<Vec<_>>()))
            })
            .collect::<Result<Vec<_>, rookery_websocket::protocol::Malformed>>()
    };
    if let Ok(list) = read(data) {
        let is_token = |text: &str| {
            !text.is_empty()
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(&byte))
        };
        let mut line = String::new();
        for (name, params) in &list {
            assert!(is_token(name));
            line += name;
            for (name, value) in params {
                assert!(is_token(name) && value.as_deref().is_none_or(is_token));
                line += &format!(" ; {name}");
                if let Some(value) = value {
                    line += &format!("=\"{value}\"");
                }
            }
            line += " ,";
        }
        assert_eq!(read(line.as_bytes()), Ok(list), "{line}");
    }
    let kept =
        DeflateConfig::default().takeover(Takeover::Kept).own_bits(WindowBits::new(12).unwrap());
    for config in [DeflateConfig::default(), kept] {
        if let Some(agreed) = config.choose(data) {
            assert!(
                agreed.server_bits <= config.own_bits && agreed.client_bits <= config.peer_bits
            );
            // A client without restrictions must accept our response.
            let open = config.takeover(Takeover::Kept);
            let answer = agreed.to_string();
            let checked = open.peer_bits(WindowBits::MAX).check([answer.as_bytes()]);
            let checked = checked
                .unwrap_or_else(|refused| panic!("{answer}: {refused}"))
                .expect("it was granted");
            assert_eq!(checked.server_bits, agreed.server_bits);
            assert_eq!(checked.server_takeover, agreed.server_takeover);
        }
        let _ = config.check([data]);
    }
}

/// Reads any bytes as a request and as a response. The response to an accepted request must satisfy
/// a strict parser and a client of ours, and a refused request must get a complete response. Any
/// text in a request of ours is either refused, or the result is one request with exactly the given
/// fields.
pub fn websocket_handshake(data: &[u8]) {
    let mut reader = HeadReader::default();
    let mut found = None;
    for end in (0..=data.len()).step_by(7).chain([data.len()]) {
        match reader.find(&data[..end]) {
            Ok(None) => {}
            Ok(Some(at)) => {
                found = Some(at);
                break;
            }
            Err(_) => {
                assert!(end >= HEAD_MAX);
                break;
            }
        }
    }
    let first = data.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
    assert_eq!(found, first.filter(|at| *at <= HEAD_MAX));
    let head = &data[..found.unwrap_or(data.len())];
    let config = ServerConfig::default()
        .subprotocol("chat")
        .deflate(DeflateConfig::default())
        .origin(OriginPolicy::SameHost);
    answer(&config, head);
    let request =
        ClientRequest::new("host", "/", [7; 16]).and_then(|request| request.subprotocol("chat"));
    let request = request.expect("HTTP allows all of it").deflate(DeflateConfig::default());
    let _ = request.check(head);
    ask(&config, data);
}

fn answer(config: &ServerConfig, head: &[u8]) {
    let mut response = Vec::new();
    let accepted = match config.answer_head(head) {
        Ok(accepted) => accepted,
        Err(refusal) => {
            refusal.write_response(&mut response);
            let (start, fields, body) = strict(&response);
            assert!(start.starts_with(&format!("HTTP/1.1 {} ", refusal.status())), "{start}");
            assert_eq!(values(&fields, "content-length"), [body.len().to_string()]);
            assert!(values(&fields, "connection").contains(&"close"));
            assert!(
                refusal != Refusal::Version || values(&fields, "sec-websocket-version") == ["13"]
            );
            return;
        }
    };
    accepted.write_response(&mut response);
    let (start, fields, body) = strict(&response);
    assert!(start.starts_with("HTTP/1.1 101 ") && body.is_empty(), "{start}");
    assert!(
        values(&fields, "content-length").is_empty()
            && values(&fields, "transfer-encoding").is_empty()
    );
    for name in ["upgrade", "connection", "sec-websocket-accept"] {
        assert_eq!(values(&fields, name).len(), 1, "{name}");
    }
    // A client that could have sent the request: with the same key, and without restrictions.
    let asked = String::from_utf8_lossy(head);
    let key = asked.lines().filter_map(|line| line.split_once(':'));
    let mut key = key
        .filter(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-key"))
        .map(|(_, key)| key.trim());
    let client = ClientRequest::new("host", "/", nonce(key.next_back().expect("it was accepted")));
    let client =
        client.and_then(|client| client.subprotocol("chat")).expect("HTTP allows all of it");
    let client = client.deflate(DeflateConfig::default().takeover(Takeover::Kept));
    let established =
        client.check(&response).unwrap_or_else(|error| panic!("{error}: {start} {fields:?}"));
    assert_eq!(established.subprotocol, accepted.subprotocol);
    assert_eq!(established.deflate.is_some(), accepted.deflate.is_some());
}

/// Uses the input as a host, a target, and the name and value of a field.
fn ask(config: &ServerConfig, data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut parts = text.splitn(4, '|');
    let mut next = || parts.next().unwrap_or_default().to_owned();
    let (host, target) = (next(), next());
    let (name, value) = (next(), next());
    let request = ClientRequest::new(host.as_str(), target.as_str(), [9; 16]);
    let Ok(request) = request.and_then(|request| request.header(name.as_str(), value.as_str()))
    else {
        return;
    };
    let mut head = Vec::new();
    request.deflate(DeflateConfig::default()).write(&mut head);
    let (start, fields, body) = strict(&head);
    assert_eq!((start, body), (format!("GET {target} HTTP/1.1"), &[][..]));
    assert_eq!(fields.len(), 7, "{fields:?}");
    assert_eq!(
        (&fields[0].1, &fields[6]),
        (&host, &(name.to_ascii_lowercase(), value.trim().to_owned()))
    );
    // Our own server accepts the request, unless it has another origin.
    if fields[6].0 != "origin" && head.len() < HEAD_MAX {
        let accepted = config.answer_head(&head);
        assert!(accepted.is_ok_and(|accepted| accepted.deflate.is_some()));
    }
}

/// A strict parser of RFC 9112. Returns the start line, the fields with lower-case names, and the
/// remaining bytes.
fn strict(message: &[u8]) -> (String, Vec<(String, String)>, &[u8]) {
    let end = message.windows(4).position(|four| four == b"\r\n\r\n").expect("a whole head");
    let head = std::str::from_utf8(&message[..end]).expect("a head of text");
    assert!(
        head.chars().all(|char| !char.is_control()
            || matches!(char, '\r' | '\n' | '\t')
            || !char.is_ascii())
    );
    let mut lines = head.split("\r\n");
    let start = lines.next().unwrap_or_default().to_owned();
    assert!(!start.contains(['\r', '\n', '\t']), "{start:?}");
    let fields = lines.map(|line| {
        assert!(!line.contains(['\r', '\n']), "{line:?}");
        let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("no field: {line:?}"));
        let is_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        assert!(!name.is_empty() && name.bytes().all(is_token), "no name: {name:?}");
        (name.to_ascii_lowercase(), value.trim().to_owned())
    });
    (start, fields.collect(), &message[end + 4..])
}

fn values<'f>(fields: &'f [(String, String)], name: &str) -> Vec<&'f str> {
    fields.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect()
}

/// Decodes the sixteen bytes of a key with a base64 decoder of its own.
fn nonce(key: &str) -> [u8; 16] {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = key.bytes().filter_map(|byte| alphabet.iter().position(|digit| *digit == byte));
    let bits: Vec<bool> =
        digits.flat_map(|digit| (0..6).rev().map(move |bit| digit >> bit & 1 == 1)).collect();
    let bytes: Vec<u8> = bits
        .chunks_exact(8)
        .map(|byte| byte.iter().fold(0, |all, bit| all << 1 | u8::from(*bit)))
        .collect();
    bytes.try_into().expect("22 digits are 16 bytes and 4 bits")
}
