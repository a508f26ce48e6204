//! The descriptors by which the two processes wake each other where a descriptor is watched.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// The descriptors by which the front end and a worker wake each other.
#[derive(Debug, Clone)]
pub struct RingWakers {
    /// A timer that wakes the worker's I/O thread at once. The front end sets it. An event counter
    /// would let a worker block the front end: the two share the flag `O_NONBLOCK`, and a write to
    /// a full counter without it waits.
    worker: Arc<OwnedFd>,
    /// An event counter that wakes the front end.
    front_end: Arc<OwnedFd>,
    /// A timer that wakes the front end.
    timer: Arc<OwnedFd>,
}

impl RingWakers {
    /// Creates the descriptors.
    ///
    /// # Errors
    /// Returns the system's error if descriptors have run out.
    pub fn create() -> io::Result<RingWakers> {
        // SAFETY: the calls create descriptors and access no memory.
        let [worker, front_end, timer] = unsafe {
            [
                libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC),
                libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC),
                libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC),
            ]
        };
        let own = |fd: RawFd| {
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the descriptor was just created and has no other owner.
            Ok(Arc::new(unsafe { OwnedFd::from_raw_fd(fd) }))
        };
        Ok(RingWakers { worker: own(worker)?, front_end: own(front_end)?, timer: own(timer)? })
    }

    /// Returns the descriptors that a worker inherits.
    pub(crate) fn all(&self) -> [BorrowedFd<'_>; 3] {
        [self.worker.as_fd(), self.front_end.as_fd(), self.timer.as_fd()]
    }

    /// Takes ownership of the descriptors of a worker.
    pub(crate) fn own(descriptors: [OwnedFd; 3]) -> RingWakers {
        let [worker, front_end, timer] = descriptors.map(Arc::new);
        RingWakers { worker, front_end, timer }
    }

    /// Returns the descriptors that the front end watches for being readable. They need not be
    /// read if changes are watched (`EPOLLET`).
    pub fn watched_by_front_end(&self) -> [Arc<OwnedFd>; 2] {
        [Arc::clone(&self.front_end), Arc::clone(&self.timer)]
    }

    /// Returns the descriptor that the worker's I/O thread watches for being readable. It need not
    /// be read if changes are watched (`EPOLLET`).
    pub fn watched_by_worker(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.worker)
    }

    /// Wakes the worker's I/O thread.
    pub fn wake_worker(&self) {
        // Fails only if the descriptor is closed, which it is not.
        let _ = set_timer(&self.worker, Duration::from_nanos(1));
    }

    /// Wakes the front end.
    pub fn wake_front_end(&self) {
        add_one(&self.front_end);
    }

    /// Wakes the front end after a delay. Each call replaces the delay of the previous one.
    pub fn wake_front_end_within(&self, delay: Duration) {
        if set_timer(&self.timer, delay) != 0 {
            self.wake_front_end();
        }
    }
}

/// Makes a timer expire after a delay of less than a second. Never waits.
fn set_timer(timer: &OwnedFd, delay: Duration) -> libc::c_int {
    let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let once = libc::timespec { tv_sec: 0, tv_nsec: delay.subsec_nanos().into() };
    let setting = libc::itimerspec { it_interval: never, it_value: once };
    let before = std::ptr::null_mut();
    // SAFETY: the timer is open, `setting` is valid, and the null pointer means that the previous
    // setting is not returned.
    unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const setting, before) }
}

fn add_one(counter: &OwnedFd) {
    let one = 1_u64;
    // A full counter is readable already, so the result does not matter.
    // SAFETY: the descriptor is open, and the buffer has eight bytes.
    unsafe { libc::write(counter.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
}
