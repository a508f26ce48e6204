//! Whether a listener accepts. Its socket stays open meanwhile, so that nobody is refused: who
//! connects waits in the queue of the socket, which another process may accept from.

use std::future::pending;

use tokio::sync::watch;

/// Whether connections are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accepting {
    Yes,
    /// Not for now; the socket stays open.
    Paused,
    /// Never again; the listener's copy of the socket is closed.
    Never,
}

/// What decides whether a listener accepts.
#[derive(Debug)]
pub(super) struct Gatekeeper(watch::Sender<Accepting>);

impl Gatekeeper {
    pub(super) fn new(accepting: Accepting) -> Gatekeeper {
        Gatekeeper(watch::channel(accepting).0)
    }

    /// Sets whether connections are accepted; [`Never`](Accepting::Never) is final. On the I/O
    /// thread, nothing more is accepted once this has returned for anything but
    /// [`Yes`](Accepting::Yes).
    pub(super) fn set(&self, accepting: Accepting) {
        self.0.send_if_modified(|now| {
            let changes = *now != accepting && *now != Accepting::Never;
            if changes {
                *now = accepting;
            }
            changes
        });
    }

    /// Returns what a listener looks at.
    pub(super) fn gate(&self) -> Gate {
        Gate(self.0.subscribe())
    }
}

/// What a listener looks at before it accepts.
#[derive(Debug)]
pub(super) struct Gate(watch::Receiver<Accepting>);

impl Gate {
    /// Returns whether connections are accepted now.
    pub(super) fn now(&mut self) -> Accepting {
        *self.0.borrow_and_update()
    }

    /// Waits until that has changed since it was last asked.
    pub(super) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // Nobody is left to change it.
            pending::<()>().await;
        }
    }
}
