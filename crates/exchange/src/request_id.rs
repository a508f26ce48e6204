//! The ids by which logs, error reports and clients refer to a request.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ids::ExchangeId;
use crate::trace_context::TraceContext;

/// The maximum length in bytes of a request id that a proxy provides.
const MOST: usize = 128;

/// The id of a request. If a trusted proxy has sent an `X-Request-Id` header, the id is the value
/// of that header. Otherwise it is the trace id in the `traceparent` header (W3C Trace Context,
/// 3.2.2). Without either header, the server generates 32 hexadecimal digits: 16 random ones for
/// the process, and 16 for the number of the request.
#[derive(Debug, Clone, Copy)]
pub struct RequestId {
    bytes: [u8; MOST],
    len: u8,
}

impl RequestId {
    /// Chooses the id of a request. `id` is the number of the request within this process, `given`
    /// is the value of a trusted `X-Request-Id` header, and `trace` returns the context of the
    /// request's trace.
    pub fn choose(
        id: ExchangeId,
        given: Option<&[u8]>,
        trace: impl FnOnce() -> Option<TraceContext>,
    ) -> RequestId {
        if let Some(given) = given.filter(|given| is_id(given)) {
            return RequestId::new(given);
        }
        match trace() {
            Some(context) => RequestId::new(&context.trace_id_text()),
            None => RequestId::generated(id, request_id_prefix()),
        }
    }

    fn new(text: &[u8]) -> RequestId {
        let mut bytes = [0; MOST];
        bytes[..text.len()].copy_from_slice(text);
        RequestId { bytes, len: text.len() as u8 }
    }

    /// Generates the id of a request as 32 hexadecimal digits. `process` is the
    /// [`request_id_prefix`] of the process, and `id` is the number of the request.
    pub fn generated(id: ExchangeId, process: u64) -> RequestId {
        let mut text = [0; 32];
        write_hex(process, &mut text[..16]);
        write_hex(id, &mut text[16..]);
        RequestId::new(&text)
    }

    /// Returns the request id as text, which consists of 1 to 128 characters of `[A-Za-z0-9._-]`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Changes the random prefix of the request ids that this process generates. A forked child process
/// must call this function, because otherwise it would generate the ids of its parent again.
pub fn renew_request_ids() {
    PROCESS.store(0, Ordering::Relaxed);
}

/// The random prefix of the request ids that this process generates; 0 until it is first needed.
static PROCESS: AtomicU64 = AtomicU64::new(0);

/// Returns the random first half of the request ids that this process generates. It stays the same
/// until [`renew_request_ids`] is called.
pub fn request_id_prefix() -> u64 {
    let known = PROCESS.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // The hash keys are random, but all children of one fork server share them; the process id
    // distinguishes the children.
    let made = RandomState::new().hash_one(std::process::id()) | 1;
    // Two threads may be here at the same time and must agree on one value.
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

/// Returns true if a text is a valid request id, so that it needs no escaping in logs, headers or
/// pages.
fn is_id(text: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    (1..=MOST).contains(&text.len()) && text.iter().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(id: &RequestId) -> &str {
        std::str::from_utf8(id.as_bytes()).unwrap()
    }

    #[test]
    fn generated_ids_differ_and_share_a_prefix() {
        let ids = [1, 2, u64::MAX].map(|id| RequestId::choose(id, None, || None));
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
    fn uses_ids_of_proxies_only_if_they_are_valid() {
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let of = |given: Option<&str>, trace: Option<&str>| {
            let trace = trace.and_then(|header| TraceContext::parse(header.as_bytes()));
            text(&RequestId::choose(7, given.map(str::as_bytes), || trace)).to_owned()
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
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(of(None, Some(bad)), own, "{bad:?}");
        }
    }
}
