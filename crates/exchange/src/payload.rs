//! Bytes that cross between server and application: a pooled buffer, or memory the application lent.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// The bytes of a WebSocket message or of a close reason.
#[derive(Debug)]
pub enum Payload {
    /// A buffer that goes back to [`Link::recycle`](crate::Link::recycle).
    Pooled(Vec<u8>),
    /// Memory of the application.
    Lent(Lease),
}

impl Payload {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Payload::Pooled(bytes) => bytes,
            Payload::Lent(lease) => lease.as_bytes(),
        }
    }
}

/// Memory the application lends until the server has sent it. Dropping the lease, on whatever thread, hands its
/// token back through [`Releases`]; the memory is the application's to free then.
#[derive(Debug)]
pub struct Lease {
    start: NonNull<u8>,
    len: usize,
    token: u64,
    releases: Arc<Releases>,
}

// SAFETY: the lent bytes are only read, and the lender keeps them in place and unwritten until it has the token.
unsafe impl Send for Lease {}
// SAFETY: as above.
unsafe impl Sync for Lease {}

impl Lease {
    /// Lends `len` bytes at `start`.
    ///
    /// # Safety
    /// `start..start + len` stays readable and unwritten until `releases` has given `token` back.
    pub unsafe fn new(start: NonNull<u8>, len: usize, token: u64, releases: &Arc<Releases>) -> Lease {
        Lease { start, len, token, releases: Arc::clone(releases) }
    }

    /// The lent bytes.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: the lender of `new` vouches for the bytes until this lease is dropped.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.releases.tokens.lock().unwrap_or_else(PoisonError::into_inner).push(self.token);
    }
}

/// The tokens of leases that have ended, to be collected on the application's thread.
#[derive(Debug, Default)]
pub struct Releases {
    tokens: Mutex<Vec<u64>>,
}

impl Releases {
    /// Takes the ended tokens into `out`, which is cleared first.
    pub fn take(&self, out: &mut Vec<u64>) {
        out.clear();
        std::mem::swap(out, &mut self.tokens.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_gives_its_token_back_once_from_any_thread() {
        let releases = Arc::new(Releases::default());
        let bytes = [7u8; 3];
        // SAFETY: `bytes` outlives the thread below, which is joined.
        let lease = unsafe { Lease::new(NonNull::from(&bytes[..]).cast(), bytes.len(), 42, &releases) };
        let mut out = vec![1];
        releases.take(&mut out);
        assert!(out.is_empty());
        std::thread::spawn(move || assert_eq!(lease.as_bytes(), [7, 7, 7])).join().unwrap();
        releases.take(&mut out);
        assert_eq!(out, [42]);
        releases.take(&mut out);
        assert!(out.is_empty());
    }
}
