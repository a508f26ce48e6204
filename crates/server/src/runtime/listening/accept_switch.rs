//! The switch that turns accepting on and off for a listener.
//!
//! A paused socket stays open, so that no client is refused. New connections wait in the queue of
//! the socket, from which another process may accept.

use std::future::pending;

use tokio::sync::watch;

/// The position of an [`AcceptSwitch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runtime) enum AcceptMode {
    On,
    /// Connections are not accepted for now, and the socket stays open.
    Paused,
    /// Connections are never accepted again, and the listener's copy of the socket is closed.
    Stopped,
}

/// The switch that turns accepting on and off for a listener.
#[derive(Debug)]
pub(in crate::runtime) struct AcceptSwitch(watch::Sender<AcceptMode>);

impl AcceptSwitch {
    pub(in crate::runtime) fn new(mode: AcceptMode) -> AcceptSwitch {
        AcceptSwitch(watch::channel(mode).0)
    }

    /// Sets whether connections are accepted. [`Stopped`](AcceptMode::Stopped) is final. If this
    /// function is called on the I/O thread with any mode but [`On`](AcceptMode::On), no connection
    /// is accepted after it has returned.
    pub(in crate::runtime) fn set(&self, mode: AcceptMode) {
        self.0.send_if_modified(|now| {
            let changes = *now != mode && *now != AcceptMode::Stopped;
            if changes {
                *now = mode;
            }
            changes
        });
    }

    /// Returns a receiver for changes of the switch.
    pub(in crate::runtime) fn watch(&self) -> AcceptWatch {
        AcceptWatch(self.0.subscribe())
    }
}

/// A receiver for changes of an [`AcceptSwitch`], which the acceptor checks before it accepts.
#[derive(Debug)]
pub(in crate::runtime) struct AcceptWatch(watch::Receiver<AcceptMode>);

impl AcceptWatch {
    /// Returns the current mode, and marks it as seen for [`changed`](Self::changed).
    pub(in crate::runtime) fn mode(&mut self) -> AcceptMode {
        *self.0.borrow_and_update()
    }

    /// Waits until the mode has changed since it was last seen.
    pub(in crate::runtime) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // The switch was dropped, so the mode can never change again.
            pending::<()>().await;
        }
    }
}
