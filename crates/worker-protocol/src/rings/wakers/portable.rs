//! What wakes the two processes, on systems without futexes and timers with descriptors: sockets.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rookery_system::wake_socket::WakeSocket;

use super::Sleep;
use super::sync::AtomicU32;

/// The sockets by which the front end and a worker wake each other.
#[derive(Debug, Clone)]
pub struct RingWakers {
    /// This process's end of the sockets by which each process wakes the other one's I/O thread.
    polled: WakeSocket,
    /// This process's end of the sockets by which the front end wakes a thread of the worker in
    /// [`Waiter::wait`].
    waited: WakeSocket,
    /// A second descriptor of the front end's end of the sockets `waited`, by which other threads
    /// of the worker wake the thread that waits. The front end has `None`, because none of its
    /// threads waits in this way.
    own_waking: Option<WakeSocket>,
}

impl RingWakers {
    /// Creates the descriptors. Returns those of the front end and those of the worker.
    ///
    /// # Errors
    /// Returns the system's error if descriptors have run out.
    pub(super) fn create() -> io::Result<[RingWakers; 2]> {
        let ([polled, their_polled], [waited, their_waited]) =
            (WakeSocket::pair()?, WakeSocket::pair()?);
        let own_waking = Some(waited.clone());
        Ok([
            RingWakers { polled, waited, own_waking: None },
            RingWakers { polled: their_polled, waited: their_waited, own_waking },
        ])
    }

    /// Returns the descriptors that a worker inherits.
    pub(super) fn all(&self) -> [BorrowedFd<'_>; 3] {
        let own_waking = self.own_waking.as_ref().expect("these are the worker's");
        [&self.polled, &self.waited, own_waking].map(|end| end.descriptor().as_fd())
    }

    /// Takes ownership of the descriptors of a worker.
    pub(super) fn own(descriptors: [OwnedFd; 3]) -> RingWakers {
        let [polled, waited, own_waking] = descriptors.map(WakeSocket::from_end);
        RingWakers { polled, waited, own_waking: Some(own_waking) }
    }

    /// Returns the waiter of this process, and that of the other process.
    pub(super) fn waiters(&self) -> [Waiter; 2] {
        let own = Waiter {
            waited: Some(self.waited.clone()),
            waking: self.own_waking.clone(),
            polled: self.own_waking.is_none().then(|| self.polled.clone()),
        };
        [own, Waiter { waking: Some(self.waited.clone()), ..Waiter::default() }]
    }

    /// Returns the descriptors that the front end watches for being readable, and for changes only
    /// (`EPOLLET`, `EV_CLEAR`).
    pub fn watched_by_front_end(&self) -> [Arc<OwnedFd>; 1] {
        [Arc::clone(self.polled.descriptor())]
    }

    /// Returns the descriptor that the worker's I/O thread watches for being readable. The thread
    /// calls [`on_worker_woken`](Self::on_worker_woken) whenever it is.
    pub fn watched_by_worker(&self) -> Arc<OwnedFd> {
        Arc::clone(self.polled.descriptor())
    }

    /// Removes the wake-ups of the worker's I/O thread.
    pub fn on_worker_woken(&self) {
        self.polled.clear();
    }

    /// Wakes the worker's I/O thread.
    pub fn wake_worker(&self) {
        self.polled.wake_peer();
    }

    /// Wakes the front end.
    pub fn wake_front_end(&self) {
        self.polled.wake_peer();
    }

    /// Returns false, because there is no timer.
    pub fn wake_front_end_within(&self, _: Duration) -> bool {
        false
    }
}

/// The object on which a thread sleeps in `Sleep::Waiting`: here, a socket.
#[derive(Debug, Clone, Default)]
pub(super) struct Waiter {
    /// The end at which the thread waits.
    waited: Option<WakeSocket>,
    /// The end by which the thread is woken.
    waking: Option<WakeSocket>,
    /// The end that the front end watches and that must be cleared from time to time.
    polled: Option<WakeSocket>,
}

impl Waiter {
    /// Sleeps until this waiter is woken, but at most for `timeout`. May return early.
    pub(super) fn wait(&self, _: &AtomicU32, timeout: Duration) {
        if let Some(waited) = &self.waited {
            waited.wait(timeout);
        }
    }

    /// Wakes the thread that waits.
    pub(super) fn wake(&self, _: &AtomicU32) {
        if let Some(waking) = &self.waking {
            waking.wake_peer();
        }
    }

    /// Marks this side as awake in its sleep word. If the other process has already done so, that
    /// process has sent a wake-up or is about to send one, so the wake-ups that have arrived are
    /// removed.
    pub(super) fn set_awake(&self, word: &AtomicU32) {
        if word.swap(Sleep::Awake as u32, Relaxed) == Sleep::Awake as u32 {
            if let Some(polled) = &self.polled {
                polled.clear();
            }
        }
    }
}
