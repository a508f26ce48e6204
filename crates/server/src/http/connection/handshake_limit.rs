//! How many handshakes of TLS are under way at a time.
//!
//! What a client says first takes the I/O thread for a tenth of a millisecond, or half of one with RSA. A crowd that comes at once is
//! therefore taken in by and by: what is open already is answered in between, and the rest waits in the system's queue.
//!
//! A client that is waited for takes none of that time, and is not counted: otherwise a few that say nothing would keep all others
//! out. It has a seat like any other, and [`handshake_time`](crate::Limits::handshake_time).

use std::cell::Cell;

use tokio::sync::Notify;

/// The handshakes that are under way.
#[derive(Debug, Default)]
pub(crate) struct HandshakeLimit {
    count: Cell<usize>,
    /// Told whenever one has ended, or waits for its client.
    ended: Notify,
}

impl HandshakeLimit {
    pub(crate) fn begin(&self) {
        self.count.set(self.count.get() + 1);
    }

    pub(crate) fn end(&self) {
        self.count.set(self.count.get() - 1);
        self.ended.notify_waiters();
    }

    /// Waits until fewer than `max` are under way, which is soon: each of them is ready to run.
    pub(crate) async fn wait_for_capacity(&self, max: usize) {
        loop {
            // Before the look, so that an end between the look and the wait is not missed.
            let ended = self.ended.notified();
            if self.count.get() < max.max(1) {
                return;
            }
            ended.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn one_past_the_limit_waits_for_an_end() {
        let handshakes = HandshakeLimit::default();
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..2 {
            assert!(pin!(handshakes.wait_for_capacity(2)).poll(&mut cx).is_ready());
            handshakes.begin();
        }
        let mut third = pin!(handshakes.wait_for_capacity(2));
        assert!(third.as_mut().poll(&mut cx).is_pending());
        handshakes.end();
        assert!(third.poll(&mut cx).is_ready());
    }
}
