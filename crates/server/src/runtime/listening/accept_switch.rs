//! Whether a listener accepts. Its socket stays open meanwhile, so that nobody is refused: who
//! connects waits in the queue of the socket, which another process may accept from.

use std::future::pending;

use tokio::sync::watch;

/// Whether connections are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runtime) enum AcceptMode {
    On,
    /// Not for now; the socket stays open.
    Paused,
    /// Never again; the listener's copy of the socket is closed.
    Stopped,
}

/// What decides whether a listener accepts.
#[derive(Debug)]
pub(in crate::runtime) struct AcceptSwitch(watch::Sender<AcceptMode>);

impl AcceptSwitch {
    pub(in crate::runtime) fn new(mode: AcceptMode) -> AcceptSwitch {
        AcceptSwitch(watch::channel(mode).0)
    }

    /// Sets whether connections are accepted; [`Never`](AcceptMode::Stopped) is final. On the I/O
    /// thread, nothing more is accepted once this has returned for anything but
    /// [`Yes`](AcceptMode::On).
    pub(in crate::runtime) fn set(&self, mode: AcceptMode) {
        self.0.send_if_modified(|now| {
            let changes = *now != mode && *now != AcceptMode::Stopped;
            if changes {
                *now = mode;
            }
            changes
        });
    }

    /// Returns what a listener looks at.
    pub(in crate::runtime) fn watch(&self) -> AcceptWatch {
        AcceptWatch(self.0.subscribe())
    }
}

/// What a listener looks at before it accepts.
#[derive(Debug)]
pub(in crate::runtime) struct AcceptWatch(watch::Receiver<AcceptMode>);

impl AcceptWatch {
    /// Returns whether connections are accepted now.
    pub(in crate::runtime) fn mode(&mut self) -> AcceptMode {
        *self.0.borrow_and_update()
    }

    /// Waits until that has changed since it was last asked.
    pub(in crate::runtime) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // Nobody is left to change it.
            pending::<()>().await;
        }
    }
}
