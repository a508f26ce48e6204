//! The set of descriptors that a forked child process must close, such as listening sockets and
//! connections. Otherwise the child would keep a port or a connection open after the parent has
//! closed it. Child processes are forked by R's `parallel::mclapply()`, for example.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of descriptors that a [`ForkRegistry`] can hold. Linux assigns no higher descriptor
/// numbers unless `fs.nr_open` was raised.
const MAX_DESCRIPTORS: usize = 1 << 20;

/// The set of descriptors that a forked child process closes. The set is an array of bits, because
/// a forked child must not take a lock or allocate memory.
#[derive(Debug)]
pub struct ForkRegistry([AtomicU64; MAX_DESCRIPTORS / 64]);

impl ForkRegistry {
    /// Creates an empty set of descriptors, for a static variable.
    #[expect(clippy::new_without_default, reason = "Default::default() cannot be const")]
    #[expect(clippy::large_stack_arrays, reason = "only static variables are initialized with it")]
    pub const fn new() -> ForkRegistry {
        ForkRegistry([const { AtomicU64::new(0) }; MAX_DESCRIPTORS / 64])
    }

    /// Adds a descriptor to the set until the returned guard is dropped. Drop the guard before
    /// closing the descriptor.
    pub fn mark(&'static self, fd: &impl AsFd) -> CloseInChild {
        let fd = fd.as_fd().as_raw_fd();
        if let Some((word, bit)) = position(fd) {
            self.0[word].fetch_or(bit, Ordering::Relaxed);
        }
        CloseInChild { registry: self, fd }
    }

    /// Closes all descriptors of the set. Called in a forked child process, so it takes no lock and
    /// allocates nothing.
    pub fn close_all(&self) {
        for (word, bits) in self.0.iter().enumerate() {
            // Only words with bits are written, because writing would allocate their pages.
            if bits.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = bits.swap(0, Ordering::Relaxed);
            while bits != 0 {
                let fd = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let Ok(fd) = RawFd::try_from(fd) else { continue };
                // SAFETY: only a thread of the parent used this descriptor, and that thread does
                // not exist in the child.
                unsafe { libc::close(fd) };
            }
        }
    }
}

/// A guard that keeps a descriptor in a [`ForkRegistry`] until the guard is dropped.
#[derive(Debug)]
pub struct CloseInChild {
    registry: &'static ForkRegistry,
    fd: RawFd,
}

impl Drop for CloseInChild {
    fn drop(&mut self) {
        if let Some((word, bit)) = position(self.fd) {
            self.registry.0[word].fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

/// Returns the place of a descriptor in a [`ForkRegistry`]: the index of a word and the bit in that
/// word. Returns `None` if the descriptor's number is too large.
fn position(fd: RawFd) -> Option<(usize, u64)> {
    let fd = usize::try_from(fd).ok().filter(|fd| *fd < MAX_DESCRIPTORS)?;
    Some((fd / 64, 1 << (fd % 64)))
}

#[cfg(test)]
mod tests {
    use std::os::fd::{FromRawFd as _, IntoRawFd as _};

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "opens a file")]
    fn closes_descriptors_whose_guard_lives() {
        static REGISTRY: ForkRegistry = ForkRegistry::new();
        // Numbers that no parallel test gets for a file which it opens after `close_all`.
        let [kept, closed] = [900, 901].map(|least| {
            let file = std::fs::File::open("/dev/null").unwrap();
            // SAFETY: F_DUPFD_CLOEXEC passes no memory.
            let number = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) };
            assert!(number >= least);
            // SAFETY: fcntl has opened the descriptor, which has no other owner.
            unsafe { std::os::fd::OwnedFd::from_raw_fd(number) }
        });
        drop(REGISTRY.mark(&kept));
        let guard = REGISTRY.mark(&closed);
        let closed = closed.into_raw_fd();
        REGISTRY.close_all();
        drop(guard);
        // SAFETY: F_GETFD passes no memory, and an error for a closed descriptor is what is tested.
        let flags = |fd: RawFd| unsafe { libc::fcntl(fd, libc::F_GETFD) };
        assert_eq!(flags(closed), -1);
        assert!(flags(kept.as_raw_fd()) >= 0);
    }
}
