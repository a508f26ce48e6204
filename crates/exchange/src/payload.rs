//! The content of the messages and chunks that the server and the application send to each other.
//! It is stored in a pooled buffer or in memory that the application has lent.

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use crate::budget::Charge;
use crate::wakers::AppWaker;

/// The content of a WebSocket message, a chunk of a streamed body, or the reason for closing a
/// WebSocket.
#[derive(Debug)]
pub enum Payload {
    /// Content in a buffer from the pool of message buffers. The receiver returns the buffer with
    /// [`Link::recycle`](crate::Link::recycle).
    Pooled(Vec<u8>),
    /// Content like [`Pooled`](Self::Pooled) that counts against the memory budget as long as the
    /// charge exists.
    Charged(Vec<u8>, Charge),
    /// Content in memory that the application has lent to the server.
    Lent(Lease),
}

impl Payload {
    /// Returns the bytes of the message or chunk.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Payload::Pooled(bytes) | Payload::Charged(bytes, _) => bytes,
            Payload::Lent(lease) => lease.as_bytes(),
        }
    }

    /// Returns the number of bytes of memory that the message or chunk occupies. For a pooled
    /// buffer, this is the capacity of the buffer.
    pub fn held(&self) -> usize {
        match self {
            Payload::Pooled(bytes) | Payload::Charged(bytes, _) => bytes.capacity(),
            Payload::Lent(lease) => lease.as_bytes().len(),
        }
    }

    /// Releases the charge to the memory budget, because the caller counts the bytes from now on.
    #[must_use]
    pub fn without_charge(self) -> Payload {
        match self {
            Payload::Charged(bytes, _) => Payload::Pooled(bytes),
            other => other,
        }
    }

    /// Returns the buffer for reuse, or `None` if the memory belongs to the application.
    pub fn into_buffer(self) -> Option<Vec<u8>> {
        match self {
            Payload::Pooled(buffer) | Payload::Charged(buffer, _) => Some(buffer),
            Payload::Lent(_) => None,
        }
    }
}

/// Memory that the application lends to the server until the server has sent it. Dropping the
/// lease, on any thread, returns its token through the [`ReleaseQueue`]. The application may then
/// free the memory.
#[derive(Debug)]
pub struct Lease {
    start: NonNull<u8>,
    len: usize,
    token: u64,
    releases: Arc<ReleaseQueue>,
}

// SAFETY: the lent bytes are only read, and the lender neither moves nor changes them until the
// token has been returned.
unsafe impl Send for Lease {}
// SAFETY: the reason is the same as for `Send`.
unsafe impl Sync for Lease {}

impl Lease {
    /// Lends `len` bytes of the application's memory, beginning at `start`, to the server.
    ///
    /// # Safety
    /// - `start..start + len` stays readable and unchanged until `releases` has returned `token`.
    pub unsafe fn new(
        start: NonNull<u8>,
        len: usize,
        token: u64,
        releases: &Arc<ReleaseQueue>,
    ) -> Lease {
        Lease { start, len, token, releases: Arc::clone(releases) }
    }

    /// Returns the bytes that the application has lent.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: the caller of `new` guarantees that the bytes stay valid until this lease is
        // dropped.
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

/// A token by which the application finds its own data about a request. If the token is dropped
/// before the application has [taken](AppToken::take) it, it is returned through the
/// [`ReleaseQueue`].
#[derive(Debug)]
pub struct AppToken {
    token: u64,
    releases: Arc<ReleaseQueue>,
}

impl AppToken {
    /// Wraps a token of the application, so that it is returned through `releases` when it is
    /// dropped.
    pub fn new(token: u64, releases: &Arc<ReleaseQueue>) -> AppToken {
        AppToken { token, releases: Arc::clone(releases) }
    }

    /// Unwraps the token and returns it to the application, without returning it through the
    /// [`ReleaseQueue`].
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

/// The tokens of memory leases and [`AppToken`]s that have been dropped. The application collects
/// them on its own thread and then frees the memory or data that each token identifies.
#[derive(Default)]
pub struct ReleaseQueue {
    tokens: Mutex<Vec<u64>>,
    /// The waker that tells the application that there are tokens to collect.
    waker: Option<Arc<dyn AppWaker>>,
}

impl ReleaseQueue {
    /// Creates a queue of dropped tokens. It calls `waker` when a token is added to the empty
    /// queue.
    pub(crate) fn with_waker(waker: Arc<dyn AppWaker>) -> ReleaseQueue {
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

    /// Moves the tokens of dropped leases and [`AppToken`]s to `out`, which is cleared first.
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
    fn notifies_of_the_first_token_after_each_collection() {
        let count = Arc::new(Count::default());
        let releases = Arc::new(ReleaseQueue::with_waker(Arc::clone(&count) as Arc<dyn AppWaker>));
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
    fn a_token_is_returned_unless_it_was_taken() {
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
    fn a_lease_returns_its_token_once_from_any_thread() {
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
