//! QueueState to the I/O thread, and how they reach it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use rookery_exchange::ListenerId;
use tokio::sync::Notify;

use super::listening::socket_group::SocketGroup;
use super::supervised::supervision::Supervision;

/// What the I/O thread is told to do.
#[derive(Debug)]
pub(super) enum IoCommand {
    Listen {
        listener: ListenerId,
        /// The socket of a worker among them, with public listeners beside it.
        inherited: Option<Arc<Supervision>>,
        /// All sockets that are the listener's.
        groups: Vec<SocketGroup>,
        done: mpsc::Sender<io::Result<()>>,
    },
    /// Accept connections, or leave them to others who have the sockets as well.
    SetAccepting {
        listener: ListenerId,
        is_on: bool,
        done: mpsc::Sender<()>,
    },
    /// Give the sockets of a listener once more.
    CopySockets {
        listener: ListenerId,
        done: mpsc::Sender<io::Result<Vec<OwnedFd>>>,
    },
    /// Hear the supervisor of the process, if it is not heard.
    WatchSupervisor {
        supervision: Arc<Supervision>,
        done: mpsc::Sender<io::Result<()>>,
    },
    /// Do not any more.
    UnwatchSupervisor {
        done: mpsc::Sender<()>,
    },
    Drain {
        listener: ListenerId,
        done: mpsc::Sender<()>,
    },
    CountConnections {
        listener: ListenerId,
        done: mpsc::Sender<usize>,
    },
    Stop {
        listener: ListenerId,
        done: mpsc::Sender<()>,
    },
    ShutDown {
        done: mpsc::Sender<()>,
    },
    Panic {
        done: mpsc::Sender<()>,
    },
}

/// How orders reach the I/O thread.
#[derive(Debug, Default)]
pub(super) struct CommandQueue {
    state: Mutex<QueueState>,
    pub(super) pushed: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    pending: VecDeque<IoCommand>,
    /// The thread has decided to end and takes no more.
    is_closed: bool,
    /// Why it ended, when that was not its decision.
    failure: Option<io::Error>,
}

impl CommandQueue {
    /// Gives an command; it comes back when the thread has ended.
    pub(super) fn push(&self, command: IoCommand) -> Result<(), IoCommand> {
        let mut state = self.state();
        if state.is_closed {
            return Err(command);
        }
        state.pending.push_back(command);
        drop(state);
        self.pushed.notify_one();
        Ok(())
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    pub(super) fn pop(&self) -> Option<IoCommand> {
        self.state().pending.pop_front()
    }

    /// Ends the taking of orders unless one waits, which the thread has to carry out first. Returns whether it has ended.
    #[must_use = "if this returns false, a command is still pending, and the thread must not end"]
    pub(super) fn close_if_empty(&self) -> bool {
        let mut state = self.state();
        state.is_closed = state.pending.is_empty();
        state.is_closed
    }

    /// Closes the queue of orders and drops those that wait, so that each sender learns that its
    /// order is not carried out.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        let dropped = std::mem::take(&mut state.pending);
        drop(state);
        drop(dropped);
    }

    /// Closes, and keeps the reason for [`failure`](Self::failure).
    pub(super) fn fail(&self, failure: io::Error) {
        self.state().failure = Some(failure);
        self.close();
    }

    /// Why the thread ended.
    pub(super) fn take_failure(&self) -> io::Error {
        self.state().failure.take().unwrap_or_else(|| io::Error::other("the I/O thread has ended"))
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes a [`CommandQueue`] when it is dropped: the thread holds one, so that no order is left behind however the thread ends.
#[derive(Debug)]
pub(super) struct CloseOnDrop<'a>(pub(super) &'a CommandQueue);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives an order, and returns what its sender waits for.
    fn push(commands: &CommandQueue) -> mpsc::Receiver<usize> {
        let (done, wait) = mpsc::channel();
        commands.push(IoCommand::CountConnections { listener: 1, done }).unwrap();
        wait
    }

    #[test]
    fn every_way_of_closing_drops_pending_commands_and_refuses_new_ones() {
        let endings: [fn(&CommandQueue); 3] = [
            CommandQueue::close,
            |commands| commands.fail(io::Error::other("broken")),
            |commands| drop(CloseOnDrop(commands)),
        ];
        for ending in endings {
            let commands = CommandQueue::default();
            let (first, second) = (push(&commands), push(&commands));
            assert!(!commands.close_if_empty(), "a pending command keeps the thread running");
            ending(&commands);
            assert_eq!((first.recv(), second.recv()), (Err(mpsc::RecvError), Err(mpsc::RecvError)));
            assert!(commands.is_closed());
            let (done, _wait) = mpsc::channel();
            assert!(commands.push(IoCommand::CountConnections { listener: 1, done }).is_err());
        }
    }

    #[test]
    fn a_panic_of_the_thread_drops_pending_commands() {
        let commands = Arc::new(CommandQueue::default());
        let wait = push(&commands);
        let thread_commands = Arc::clone(&commands);
        let thread = std::thread::spawn(move || {
            let _closes = CloseOnDrop(&thread_commands);
            panic!("for the test");
        });
        assert!(thread.join().is_err());
        assert_eq!(wait.recv(), Err(mpsc::RecvError));
    }
}
