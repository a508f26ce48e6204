//! Fuzz targets of what supervisor and worker send to each other.

pub mod record;
pub mod routes;

use rookery_worker_protocol::{ErrorReport, MAX_ERROR_REPORT_SIZE, Message};

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
