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
        self.releases.push(self.token);
    }
}

/// What the application keeps for an exchange, as a token of its own. Dropped before the application has
/// [taken](Tag::take) it back, on whatever thread, it goes back through [`Releases`].
#[derive(Debug)]
pub struct Tag {
    token: u64,
    releases: Arc<Releases>,
}

impl Tag {
    /// Hands a token out.
    pub fn new(token: u64, releases: &Arc<Releases>) -> Tag {
        Tag { token, releases: Arc::clone(releases) }
    }

    /// Takes the token back: it is the application's again.
    pub fn take(mut self) -> u64 {
        std::mem::take(&mut self.token)
    }
}

impl Drop for Tag {
    fn drop(&mut self) {
        if self.token != 0 {
            self.releases.push(self.token);
        }
    }
}

/// The tokens of leases that have ended and of tags that were dropped, to be collected on the application's thread.
#[derive(Debug, Default)]
pub struct Releases {
    tokens: Mutex<Vec<u64>>,
}

impl Releases {
    fn push(&self, token: u64) {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).push(token);
    }

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
    fn a_tag_goes_back_unless_it_was_taken() {
        let releases = Arc::new(Releases::default());
        let mut out = Vec::new();
        assert_eq!(Tag::new(7, &releases).take(), 7);
        releases.take(&mut out);
        assert!(out.is_empty());
        drop(Tag::new(8, &releases));
        releases.take(&mut out);
        assert_eq!(out, [8]);
    }

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
