//! The opening handshake and the extensions header.

use rookery_websocket::protocol::Extensions;
use rookery_websocket::protocol::deflate::{DeflateConfig, Takeover, WindowBits};
use rookery_websocket::protocol::handshake::{
    ClientRequest, HEAD_MAX, HeadReader, OriginPolicy, ServerConfig,
};

/// A line that is read is read again, from what it was written as, to the same.
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
                && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(&byte))
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
    let kept = DeflateConfig {
        own_takeover: Takeover::Kept,
        peer_takeover: Takeover::Kept,
        own_bits: WindowBits::new(12).unwrap(),
        ..DeflateConfig::default()
    };
    for config in [DeflateConfig::default(), kept] {
        if let Some(agreed) = config.choose(data) {
            assert!(agreed.server_bits <= config.own_bits && agreed.client_bits <= config.peer_bits);
            // Our own answer is one that a client without wishes of its own takes.
            let open =
                DeflateConfig { own_takeover: Takeover::Kept, peer_takeover: Takeover::Kept, ..config };
            let answer = agreed.to_string();
            let checked = DeflateConfig { peer_bits: WindowBits::MAX, ..open }.check([answer.as_bytes()]);
            let checked =
                checked.unwrap_or_else(|refused| panic!("{answer}: {refused}")).expect("it was granted");
            assert_eq!(checked.server_bits, agreed.server_bits);
            assert_eq!(checked.server_takeover, agreed.server_takeover);
        }
        let _ = config.check([data]);
    }
}

/// Any bytes as a request and as a response; what is accepted is answered with a head that a client of ours takes.
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
    let config = ServerConfig {
        subprotocols: vec!["chat".to_owned()],
        deflate: Some(DeflateConfig::default()),
        origin: OriginPolicy::SameHost,
    };
    let mut response = Vec::new();
    match config.answer_head(head) {
        Ok(accepted) => accepted.write_response(&mut response),
        Err(refusal) => refusal.write_response(&mut response),
    }
    let mut headers = [httparse_headers(); 16];
    let mut parsed = httparse::Response::new(&mut headers);
    assert!(parsed.parse(&response).is_ok_and(|status| status.is_complete()));
    let mut request = ClientRequest::new("host", "/", [7; 16]);
    request.deflate = Some(DeflateConfig::default());
    request.subprotocols = vec!["chat".to_owned()];
    let _ = request.check(head);
}

fn httparse_headers() -> httparse::Header<'static> {
    httparse::EMPTY_HEADER
}
