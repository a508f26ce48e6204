//! The switch by which a listener starts and stops accepting connections.
//!
//! While the listener is paused, its socket stays open, so that no client is refused. New
//! connections wait in the queue of the socket, and another process may accept them.

use std::future::pending;

use tokio::sync::watch;

/// The mode of a listener: accepting connections, paused, or stopped forever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runtime) enum AcceptMode {
    On,
    /// The listener does not accept connections for now, but its socket stays open.
    Paused,
    /// The listener never accepts connections again, and its copy of the socket is closed.
    Stopped,
}

/// The switch by which a listener starts and stops accepting connections.
#[derive(Debug)]
pub(in crate::runtime) struct AcceptSwitch(watch::Sender<AcceptMode>);

impl AcceptSwitch {
    pub(in crate::runtime) fn new(mode: AcceptMode) -> AcceptSwitch {
        AcceptSwitch(watch::channel(mode).0)
    }

    /// Sets whether the listener accepts connections. After [`Stopped`](AcceptMode::Stopped),
    /// further calls have no effect. If this function is called on the I/O thread to pause or stop
    /// the listener, no connection is accepted after it returns.
    pub(in crate::runtime) fn set(&self, mode: AcceptMode) {
        self.0.send_if_modified(|now| {
            let changes = *now != mode && *now != AcceptMode::Stopped;
            if changes {
                *now = mode;
            }
            changes
        });
    }

    /// Returns a receiver for the changes of the switch.
    pub(in crate::runtime) fn watch(&self) -> AcceptWatch {
        AcceptWatch(self.0.subscribe())
    }
}

/// A receiver for the changes of an [`AcceptSwitch`]. An acceptor checks it before it accepts a
/// connection.
#[derive(Debug)]
pub(in crate::runtime) struct AcceptWatch(watch::Receiver<AcceptMode>);

impl AcceptWatch {
    /// Returns the current mode of the switch, and marks it as seen for [`changed`](Self::changed).
    pub(in crate::runtime) fn mode(&mut self) -> AcceptMode {
        *self.0.borrow_and_update()
    }

    /// Waits until the switch has a mode that was not yet seen by [`mode`](Self::mode).
    pub(in crate::runtime) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // The switch was dropped, so the mode can never change again.
            pending::<()>().await;
        }
    }
}
