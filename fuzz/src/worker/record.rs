//! The fuzz target of the records that a worker sends up the rings.

use std::fs::File;

use rookery_exchange::wire::{Up, read_response};
use rookery_exchange::{Exchange, ResponseBody};

/// Reads a record. The first byte is its kind, and the second is odd if a file was sent beside it.
pub fn record(data: &[u8]) {
    let [kind, has_file, bytes @ ..] = data else { return };
    let Ok(up) = Up::read(*kind, bytes) else { return };
    // Each record has exactly one form.
    let mut again = Vec::new();
    assert_eq!((up.write(&mut again), &again[..]), (*kind, bytes));
    let Up::Response { exchange: id, ticket, content } = up else { return };
    let file = (has_file % 2 == 1).then(|| File::open(env!("CARGO_MANIFEST_PATH")).unwrap());
    let mut exchange = Exchange::new();
    exchange.begin(id, 1, 0);
    if read_response(content, &mut exchange, file, 1 << 20).is_err() {
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
    // The flag of a window has no meaning without compression.
    if response.compression().is_some() || content[2] & 4 == 0 {
        assert_eq!(again, bytes);
    }
}
