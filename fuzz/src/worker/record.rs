//! The fuzz target of the records that a worker sends up the rings.

use std::fs::File;

use rookery_exchange::wire::{ResponseContent, Up, read_response, response_body};
use rookery_exchange::{Exchange, ResponseBody};

/// Reads a record. The first byte is its kind. The second is odd if a file was sent beside the
/// record, and its next bit says whether the record was sent in parts.
pub fn record(data: &[u8]) {
    let [kind, flags, bytes @ ..] = data else { return };
    let Ok(up) = Up::read(*kind, bytes) else { return };
    // Each record has exactly one form.
    let mut again = Vec::new();
    assert_eq!((up.write(&mut again), &again[..]), (*kind, bytes));
    let Up::Response { exchange: id, ticket, content } = up else { return };
    let file = (flags % 2 == 1).then(|| File::open(env!("CARGO_MANIFEST_PATH")).unwrap());
    let mut exchange = Exchange::new();
    exchange.begin(id, 1, 0);
    let arrived = if flags & 2 == 0 {
        ResponseContent::Borrowed(content)
    } else {
        ResponseContent::Owned(bytes.to_vec())
    };
    if read_response(arrived, &mut exchange, file, 1 << 20).is_err() {
        return;
    }
    let response = exchange.response();
    assert!((100..=999).contains(&response.status()));
    for (name, value) in exchange.response_headers() {
        assert!(!name.is_empty() && name.iter().all(u8::is_ascii_graphic));
        assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
    }
    let file_len = match response.body() {
        ResponseBody::File { len, .. } => Some(*len),
        _ => None,
    };
    let mut again = Vec::new();
    Up::write_response(&exchange, (id, ticket), file_len, &mut again);
    again.extend_from_slice(response_body(&exchange));
    // The flag of a window has no meaning without compression.
    if response.compression().is_some() || content[2] & 4 == 0 {
        assert_eq!(again, bytes);
    }
}
