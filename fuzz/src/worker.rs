//! The targets of what a supervisor and a worker tell one another.

use rookery_worker::{Call, MOST_CALL_BYTES, Message};

/// A packet: it is a message only as that message is written.
pub fn message(data: &[u8]) {
    if let Ok(message) = Message::decode(data) {
        assert_eq!(message.encode(), data);
    }
}

/// A header's value: what was understood is written so that the same is understood of it, in a value that may be sent.
pub fn call(data: &[u8]) {
    if let Ok(call) = Call::parse(data) {
        let text = call.to_string();
        assert!(text.len() <= MOST_CALL_BYTES && text.bytes().all(|byte| matches!(byte, b' '..=b'~')));
        assert_eq!(Call::parse(text.as_bytes()), Ok(call), "{text}");
    }
}

/// A query that may name a worker, and a `Cookie`: it names a worker only if it was signed here, which chance is not, and what the app is shown has none of ours.
pub fn cookie(data: &[u8]) {
    let (names_one, is_alone) = rookery_supervisor::told_for_fuzzer(data);
    assert!(!is_alone || data.starts_with(b"?w=") && (names_one || data.len() == 3));
    let (names, others) = rookery_supervisor::read_for_fuzzer(data);
    assert!(!names, "signed by chance");
    if let Some(others) = others {
        assert!(others.len() < data.len() && rookery_supervisor::read_for_fuzzer(&others).1.is_none());
    }
}
