//! Sockets by which a thread wakes a thread of another process that waits for a descriptor.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use rustix::net::{RecvFlags, SendFlags, recv, send};

/// The maximum number of packets that one call removes. Without a limit, a peer that sends packets
/// as fast as they are removed could keep the call from returning.
const MAX_CLEARED: usize = 64;

/// One end of a connected pair of sockets. A packet that is sent by one end wakes the thread that
/// waits for the other end. The sockets are datagram sockets: a stream socket would stay readable
/// after its peer has been closed, and would wake its thread again and again.
#[derive(Debug, Clone)]
pub struct WakeSocket(Arc<OwnedFd>);

impl WakeSocket {
    /// Creates a connected pair. Both ends are closed when the process executes another program.
    ///
    /// # Errors
    /// Returns the system's error if no more descriptors are available.
    pub fn pair() -> io::Result<[WakeSocket; 2]> {
        let (one, other) = UnixDatagram::pair()?;
        for end in [&one, &other] {
            end.set_nonblocking(true)?;
        }
        Ok([one, other].map(|end| WakeSocket::from_end(end.into())))
    }

    /// Wraps the descriptor of an end that this process has inherited.
    pub fn from_end(end: OwnedFd) -> WakeSocket {
        WakeSocket(Arc::new(end))
    }

    /// Returns the descriptor, which is readable once the peer has woken this end. A watcher of
    /// changes (`EPOLLET`) sees each wake-up as a change, provided that this end is
    /// [cleared](Self::clear) before its queue is full.
    pub fn descriptor(&self) -> &Arc<OwnedFd> {
        &self.0
    }

    /// Wakes the thread that waits for the other end. Never blocks, whatever the peer does with the
    /// other end.
    pub fn wake_peer(&self) {
        // If the queue of packets is full, the other end is readable already. Any other error means
        // that the peer has ended.
        let _ = send(&self.0, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Removes the wake-ups that have arrived at this end. Never blocks.
    pub fn clear(&self) {
        for _ in 0..MAX_CLEARED {
            if recv(&self.0, &mut [0_u8; 1], RecvFlags::DONTWAIT).is_err() {
                break;
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use std::time::{Duration, Instant};

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::fs::{OFlags, fcntl_setfl};

    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    /// Sleeps until the peer wakes this end, but at most for `timeout`, and removes the wake-ups.
    /// Returns the time that this took.
    fn time_of_wait(end: &WakeSocket, timeout: Duration) -> Duration {
        let began = Instant::now();
        let mut waits = [PollFd::new(&end.0, PollFlags::IN)];
        if poll(&mut waits, Some(&timeout.try_into().unwrap())).unwrap() > 0 {
            end.clear();
        }
        began.elapsed()
    }

    #[test]
    fn each_end_wakes_the_other_now_or_later() {
        let [one, other] = WakeSocket::pair().unwrap();
        for (waker, waiter) in [(&one, &other), (&other, &one)] {
            waker.wake_peer();
            waker.wake_peer();
            assert!(time_of_wait(waiter, LONG) < LONG / 2);
            // Both wake-ups are used up.
            let pause = Duration::from_millis(2);
            assert!(time_of_wait(waiter, pause) >= pause);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(50));
                    waker.wake_peer();
                });
                assert!(time_of_wait(waiter, LONG) < LONG / 2);
            });
        }
        drop(other);
        one.wake_peer();
        assert!(time_of_wait(&one, Duration::from_millis(1)) < LONG / 2);
    }

    #[test]
    fn a_hostile_peer_can_block_neither_waking_nor_clearing() {
        let [ours, theirs] = WakeSocket::pair().unwrap();
        // Neither its queue nor its flags make this end wait.
        for end in [&ours, &theirs] {
            fcntl_setfl(&end.0, OFlags::empty()).unwrap();
        }
        for _ in 0..100_000 {
            ours.wake_peer();
        }
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    theirs.wake_peer();
                }
            });
            for _ in 0..1000 {
                ours.clear();
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        // The packets that fill the queue are wake-ups.
        assert!(time_of_wait(&theirs, LONG) < LONG / 2);
    }
}
