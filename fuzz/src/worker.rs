//! Fuzz targets of what supervisor and worker send to each other.

pub mod record;
pub mod routes;

use rookery_server::track_frames_for_fuzzer;
use rookery_websocket::protocol::{Header, OpCode};
use rookery_worker_protocol::{
    ErrorReport, MAX_ERROR_REPORT_SIZE, MAX_WORKER_HEADER_SIZE, Message, WorkerHeader,
};

/// Reads a packet. A packet is only accepted as a message if the message is encoded as the same
/// bytes. Any bytes are an error report, whose text is safe to show and can be sent again.
pub fn message(data: &[u8]) {
    if let Ok(message) = Message::decode(data) {
        assert_eq!(message.encode(), data);
    }
    let report = ErrorReport::decode(data);
    let ErrorReport { request_id, route, label, message, trace } = &report;
    for text in [request_id, route, label, message, trace] {
        assert!(text.chars().all(|char| char == '\n' || !char.is_control()));
    }
    let encoded = report.encode();
    assert!(encoded.len() <= MAX_ERROR_REPORT_SIZE);
    assert_eq!(ErrorReport::decode(&encoded).encode(), encoded);
}

/// Reads a header value. What is read must be written as a valid value that is read as the same.
pub fn header(data: &[u8]) {
    if let Ok(header) = WorkerHeader::parse(data) {
        let text = header.to_string();
        assert!(
            text.len() <= MAX_WORKER_HEADER_SIZE
                && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        );
        assert_eq!(WorkerHeader::parse(text.as_bytes()), Ok(header), "{text}");
    }
}

/// Reads a query that may name a worker, and a `Cookie`. It may name a worker only if it is signed
/// here, which chance cannot achieve, and the app must not see a cookie of ours.
pub fn cookie(data: &[u8]) {
    let (names_one, is_alone) = rookery_supervisor::read_query_for_fuzzer(data);
    assert!(!is_alone || data.starts_with(b"?w=") && (names_one || data.len() == 3));
    let (names, others) = rookery_supervisor::read_cookies_for_fuzzer(data);
    assert!(!names, "signed by chance");
    if let Some(others) = others {
        assert!(
            others.len() < data.len()
                && rookery_supervisor::read_cookies_for_fuzzer(&others).1.is_none()
        );
    }
}

/// Reads two bytes that say where the input is cut, and frames of a worker. Frames must end where
/// their headers say, wherever the input is cut, and only the code of a frame that closes because
/// the worker goes away may change.
pub fn frames(data: &[u8]) {
    let [high, low, bytes @ ..] = data else { return };
    frames_cut(bytes, usize::from(u16::from_be_bytes([*high, *low])).min(bytes.len()));
}

/// Checks the frames with this cut.
pub fn frames_cut(bytes: &[u8], cut: usize) {
    let (ends, passed, is_closing) = track_frames_for_fuzzer(bytes, cut);
    let (mut expected, mut expected_ends, mut closes) = (bytes.to_vec(), Vec::new(), false);
    let mut at = 0;
    while let Ok(Ok((header, len))) = Header::parse(&bytes[at..]) {
        let (start, is_close) = (at + len, header.opcode == OpCode::Close);
        closes |= is_close;
        let payload = usize::try_from(header.len).unwrap_or(usize::MAX);
        let end = start.checked_add(payload).filter(|end| *end <= bytes.len());
        let shown = &mut expected[start..end.unwrap_or(bytes.len())];
        // With a mask the bytes would mean something else, and servers do not mask.
        if is_close && header.mask.is_none() && shown.starts_with(&1001_u16.to_be_bytes()) {
            shown[..2].copy_from_slice(&1012_u16.to_be_bytes());
        }
        let Some(end) = end else { break };
        expected_ends.push(end);
        at = end;
    }
    assert_eq!((ends, is_closing), (expected_ends, closes), "cut at {cut}");
    assert!(passed == expected, "cut at {cut}");
}
