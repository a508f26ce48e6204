//! What a request is called in logs, in errors, and by whoever asks about it.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ids::ExchangeId;

/// The most bytes of an id that is taken from somebody else.
const MOST: usize = 128;

/// The id of a request: what a trusted proxy calls it (`X-Request-Id`), else the trace that it belongs to (`traceparent`, W3C Trace
/// Context, 3.2.2), else 16 bytes of the server's own in hexadecimal: eight at random for the process, and the exchange's id.
///
/// Making one allocates nothing and makes no system call, but for the process's first.
#[derive(Debug, Clone, Copy)]
pub struct RequestId {
    bytes: [u8; MOST],
    len: u8,
}

impl RequestId {
    /// That of the exchange `id`. `given` is the value of an `X-Request-Id` that is believed, `traceparent` of that header.
    pub fn choose(id: ExchangeId, given: Option<&[u8]>, traceparent: Option<&[u8]>) -> RequestId {
        let given = given.filter(|given| is_id(given)).or_else(|| trace_id(traceparent?));
        given.map_or_else(|| RequestId::generated(id, request_id_prefix()), RequestId::new)
    }

    fn new(text: &[u8]) -> RequestId {
        let mut bytes = [0; MOST];
        bytes[..text.len()].copy_from_slice(text);
        RequestId { bytes, len: text.len() as u8 }
    }

    /// That of the exchange `id` of a process with this [`request_id_prefix`] when nobody else has named it: 32 hexadecimal digits.
    pub fn generated(id: ExchangeId, process: u64) -> RequestId {
        let mut text = [0; 32];
        write_hex(process, &mut text[..16]);
        write_hex(id, &mut text[16..]);
        RequestId::new(&text)
    }

    /// Its text: 1 to 128 of `[A-Za-z0-9._-]`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// In a forked child, whose ids would be its parent's. Takes no lock and allocates nothing.
pub fn renew_request_ids() {
    PROCESS.store(0, Ordering::Relaxed);
}

/// Eight bytes at random, made when they are first needed; 0: not yet.
static PROCESS: AtomicU64 = AtomicU64::new(0);

/// The half of own ids that is the process's; another one after [`renew_request_ids`].
pub fn request_id_prefix() -> u64 {
    let known = PROCESS.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // The keys are the system's randomness; children of one fork server have them in common, and not their number.
    let made = RandomState::new().hash_one(std::process::id()) | 1;
    // Both threads may be here at once, and must agree.
    match PROCESS.compare_exchange(0, made, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => made,
        Err(theirs) => theirs,
    }
}

fn write_hex(mut number: u64, out: &mut [u8]) {
    for digit in out.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 15) as usize];
        number >>= 4;
    }
}

/// Whether a text may be an id: nothing that a log, a header or a page would have to escape.
fn is_id(text: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    (1..=MOST).contains(&text.len()) && text.iter().all(is_plain)
}

/// The trace of a `traceparent` of version 00.
fn trace_id(value: &[u8]) -> Option<&[u8]> {
    let is_hex = |part: &[u8]| part.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_zero = |part: &[u8]| part.iter().all(|byte| *byte == b'0');
    let value: &[u8; 55] = value.try_into().ok()?;
    let (trace, parent, flags) = (&value[3..35], &value[36..52], &value[53..]);
    let has_form = value.starts_with(b"00-") && value[35] == b'-' && value[52] == b'-';
    let is_valid =
        is_hex(trace) && is_hex(parent) && is_hex(flags) && !is_zero(trace) && !is_zero(parent);
    (has_form && is_valid).then_some(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(id: &RequestId) -> &str {
        std::str::from_utf8(id.as_bytes()).unwrap()
    }

    #[test]
    fn its_own_differ_and_have_one_form() {
        let ids = [1, 2, u64::MAX].map(|id| RequestId::choose(id, None, None));
        for id in &ids {
            assert!(text(id).len() == 32 && text(id).bytes().all(|byte| byte.is_ascii_hexdigit()));
            assert_eq!(text(id)[..16], text(&ids[0])[..16]);
        }
        assert!(
            text(&ids[0]).ends_with("0000000000000001")
                && text(&ids[2]).ends_with("ffffffffffffffff")
        );
    }

    #[test]
    fn what_is_given_is_taken_if_it_is_plain() {
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let of = |given: Option<&str>, trace: Option<&str>| {
            text(&RequestId::choose(7, given.map(str::as_bytes), trace.map(str::as_bytes)))
                .to_owned()
        };
        let own = of(None, None);
        assert_eq!(of(Some("a.B_c-9"), Some(trace)), "a.B_c-9");
        assert_eq!(of(None, Some(trace)), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(of(Some(&"x".repeat(128)), None), "x".repeat(128));
        for bad in ["", "a b", "a\n", "a\u{e9}", "<b>", &"x".repeat(129)] {
            assert_eq!(of(Some(bad), None), own, "{bad:?}");
        }
        for bad in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(of(None, Some(bad)), own, "{bad:?}");
        }
    }
}
