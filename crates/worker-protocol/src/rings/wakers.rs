//! The descriptors that wake the two processes: an event counter, a timer and sockets.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rookery_system::linux::timer;
use rookery_system::linux::wake_socket::WakeSocket;
use rustix::event::{EventfdFlags, eventfd};

/// The descriptors by which the front end and a worker wake each other.
#[derive(Debug, Clone)]
pub struct RingWakers {
    /// This process's end of the sockets by which the front end wakes the worker's I/O thread. An
    /// event counter (eventfd) would not do: a worker could make the counter blocking and full, so
    /// that the front end would wait when it writes.
    worker: WakeSocket,
    /// An event counter that wakes the front end, which never writes to it.
    front_end: Arc<OwnedFd>,
    /// A timer that wakes the front end.
    timer: Arc<OwnedFd>,
}

impl RingWakers {
    /// Creates the descriptors. Returns those of the front end and those of the worker.
    ///
    /// # Errors
    /// Returns the system's error if descriptors have run out.
    pub(super) fn create() -> io::Result<[RingWakers; 2]> {
        let front_end = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let (front_end, timer) = (Arc::new(front_end), Arc::new(timer::create()?));
        Ok(WakeSocket::pair()?.map(|worker| RingWakers {
            worker,
            front_end: Arc::clone(&front_end),
            timer: Arc::clone(&timer),
        }))
    }

    /// Returns the descriptors that a worker inherits.
    pub(super) fn all(&self) -> [BorrowedFd<'_>; 3] {
        [self.worker.descriptor().as_fd(), self.front_end.as_fd(), self.timer.as_fd()]
    }

    /// Takes ownership of the descriptors of a worker.
    pub(super) fn own([worker, front_end, timer]: [OwnedFd; 3]) -> RingWakers {
        RingWakers {
            worker: WakeSocket::from_end(worker),
            front_end: Arc::new(front_end),
            timer: Arc::new(timer),
        }
    }

    /// Returns the descriptors that the front end watches for being readable, and for changes only
    /// (`EPOLLET`).
    pub fn watched_by_front_end(&self) -> [Arc<OwnedFd>; 2] {
        [Arc::clone(&self.front_end), Arc::clone(&self.timer)]
    }

    /// Returns the descriptor that the worker's I/O thread watches for being readable. The thread
    /// calls [`on_worker_woken`](Self::on_worker_woken) whenever it is.
    pub fn watched_by_worker(&self) -> Arc<OwnedFd> {
        Arc::clone(self.worker.descriptor())
    }

    /// Removes the wake-ups of the worker's I/O thread.
    pub fn on_worker_woken(&self) {
        self.worker.clear();
    }

    /// Wakes the worker's I/O thread.
    pub fn wake_worker(&self) {
        self.worker.wake_peer();
    }

    /// Wakes the front end.
    pub fn wake_front_end(&self) {
        // A full counter is readable already, so the result does not matter.
        let _ = rustix::io::write(&self.front_end, &1_u64.to_ne_bytes());
    }

    /// Sets the timer that wakes the front end after a delay of less than a second. Each call
    /// replaces the delay of the previous call. Returns false if the timer could not be set.
    pub fn wake_front_end_within(&self, delay: Duration) -> bool {
        timer::start(&self.timer, delay)
    }
}
