//! The limit on how many TLS handshakes use CPU time at once.
//!
//! Processing the first TLS message of a client takes the I/O thread 0.1 ms, or 0.5 ms with an RSA
//! key. If many clients connect at the same time, the limit lets the server serve open connections
//! in between. The other new clients wait in the system's accept queue.
//!
//! A handshake that waits for its client uses no CPU time and is not counted, because otherwise a
//! few silent clients could block all others. Such a handshake is limited by
//! [`tls_handshake_timeout`](crate::Limits::tls_handshake_timeout) and by the maximum number of
//! connections.

use std::cell::Cell;

use tokio::sync::Notify;

/// The counter that limits how many TLS handshakes use CPU time at once.
#[derive(Debug, Default)]
pub(crate) struct HandshakeLimit {
    count: Cell<usize>,
    /// Notifies waiting tasks whenever a TLS handshake completes or begins to wait for its client.
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

    /// Waits until fewer than `max` TLS handshakes use CPU time.
    pub(crate) async fn wait_for_capacity(&self, max: usize) {
        loop {
            // Subscribes before the check, so that a handshake that ends between the check and the
            // wait is noticed.
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
    fn waits_while_the_limit_is_reached() {
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
