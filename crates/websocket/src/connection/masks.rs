//! Masking keys (RFC 6455, 5.3: from a strong source, fresh for each frame).

use std::cell::RefCell;

use crate::protocol::MaskKey;

/// Bytes asked of the system at once: one system call for 256 frames.
const BATCH: usize = 1024;

struct Source {
    bytes: [u8; BATCH],
    used: usize,
}

thread_local! {
    static SOURCE: RefCell<Source> = const { RefCell::new(Source { bytes: [0; BATCH], used: BATCH }) };
}

/// The next key.
///
/// # Panics
/// When the system has no randomness, which Linux, macOS and Windows promise not to happen once they have booted.
pub(crate) fn next_mask() -> MaskKey {
    MaskKey(random())
}

/// The nonce of a handshake.
pub(crate) fn next_nonce() -> [u8; 16] {
    random()
}

fn random<const N: usize>() -> [u8; N] {
    SOURCE.with_borrow_mut(|source| {
        if source.used + N > BATCH {
            getrandom::fill(&mut source.bytes).expect("the system has randomness");
            source.used = 0;
        }
        let mut key = [0; N];
        key.copy_from_slice(&source.bytes[source.used..source.used + N]);
        source.used += N;
        key
    })
}
