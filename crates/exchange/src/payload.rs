//! Bytes that cross between server and application: a pooled buffer, or memory the application lent.

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use crate::wakers::AppWaker;

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

    /// Returns the bytes of memory that it holds: those of its buffer, which may be larger than the message.
    pub fn held(&self) -> usize {
        match self {
            Payload::Pooled(bytes) => bytes.capacity(),
            Payload::Lent(lease) => lease.as_bytes().len(),
        }
    }
}

/// Memory the application lends until the server has sent it. Dropping the lease, on whatever thread, hands its
/// token back through [`ReleaseQueue`]; the memory is the application's to free then.
#[derive(Debug)]
pub struct Lease {
    start: NonNull<u8>,
    len: usize,
    token: u64,
    releases: Arc<ReleaseQueue>,
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
    pub unsafe fn new(
        start: NonNull<u8>,
        len: usize,
        token: u64,
        releases: &Arc<ReleaseQueue>,
    ) -> Lease {
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
/// [taken](AppToken::take) it back, on whatever thread, it goes back through [`ReleaseQueue`].
#[derive(Debug)]
pub struct AppToken {
    token: u64,
    releases: Arc<ReleaseQueue>,
}

impl AppToken {
    /// Hands a token out.
    pub fn new(token: u64, releases: &Arc<ReleaseQueue>) -> AppToken {
        AppToken { token, releases: Arc::clone(releases) }
    }

    /// Takes the token back: it is the application's again.
    pub fn take(mut self) -> u64 {
        std::mem::take(&mut self.token)
    }
}

impl Drop for AppToken {
    fn drop(&mut self) {
        if self.token != 0 {
            self.releases.push(self.token);
        }
    }
}

/// The tokens of leases that have ended and of tags that were dropped, to be collected on the application's thread.
#[derive(Default)]
pub struct ReleaseQueue {
    tokens: Mutex<Vec<u64>>,
    /// Whom to tell that there are tokens.
    waker: Option<Arc<dyn AppWaker>>,
}

impl ReleaseQueue {
    /// Makes one that tells `waker` each time that a first token can be collected.
    pub(crate) fn telling(waker: Arc<dyn AppWaker>) -> ReleaseQueue {
        ReleaseQueue { tokens: Mutex::default(), waker: Some(waker) }
    }

    fn push(&self, token: u64) {
        let is_first = {
            let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
            tokens.push(token);
            tokens.len() == 1
        };
        if let Some(waker) = self.waker.as_ref().filter(|_| is_first) {
            waker.released();
        }
    }

    /// Takes the ended tokens into `out`, which is cleared first.
    pub fn take(&self, out: &mut Vec<u64>) {
        out.clear();
        std::mem::swap(out, &mut self.tokens.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl fmt::Debug for ReleaseQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReleaseQueue").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl AppWaker for Count {
        fn wake(&self) {}

        fn released(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn the_application_is_told_of_the_first_token_after_each_collection() {
        let count = Arc::new(Count::default());
        let releases = Arc::new(ReleaseQueue::telling(Arc::clone(&count) as Arc<dyn AppWaker>));
        let told = || count.0.load(Ordering::SeqCst);
        drop(AppToken::new(1, &releases));
        drop(AppToken::new(2, &releases));
        assert_eq!(told(), 1);
        let mut out = Vec::new();
        releases.take(&mut out);
        assert_eq!((out.as_slice(), told()), ([1, 2].as_slice(), 1));
        drop(AppToken::new(3, &releases));
        assert_eq!(told(), 2);
    }

    #[test]
    fn a_tag_goes_back_unless_it_was_taken() {
        let releases = Arc::new(ReleaseQueue::default());
        let mut out = Vec::new();
        assert_eq!(AppToken::new(7, &releases).take(), 7);
        releases.take(&mut out);
        assert!(out.is_empty());
        drop(AppToken::new(8, &releases));
        releases.take(&mut out);
        assert_eq!(out, [8]);
    }

    #[test]
    fn a_lease_gives_its_token_back_once_from_any_thread() {
        let releases = Arc::new(ReleaseQueue::default());
        let bytes = [7u8; 3];
        // SAFETY: `bytes` outlives the thread below, which is joined.
        let lease =
            unsafe { Lease::new(NonNull::from(&bytes[..]).cast(), bytes.len(), 42, &releases) };
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
