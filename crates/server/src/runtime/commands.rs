//! Commands to the I/O thread, and the queue that carries them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use rookery_exchange::ListenerId;
use tokio::sync::Notify;

use super::listening::socket_group::SocketGroup;
use super::supervised::supervision::Supervision;

/// A command to the I/O thread. The thread sends the result to `done`, or drops `done` if
/// the thread ends before.
#[derive(Debug)]
pub(super) enum IoCommand {
    /// Start a listener.
    Listen {
        listener: ListenerId,
        /// The supervision of a worker whose socket is among `groups`, possibly with public
        /// listeners.
        inherited: Option<Arc<Supervision>>,
        /// All sockets of the listener.
        groups: Vec<SocketGroup>,
        done: mpsc::Sender<io::Result<()>>,
    },
    /// Start or stop accepting connections. While the listener does not accept, other processes
    /// that have the sockets may accept.
    SetAccepting { listener: ListenerId, is_on: bool, done: mpsc::Sender<()> },
    /// Return copies of a listener's sockets.
    CopySockets { listener: ListenerId, done: mpsc::Sender<io::Result<Vec<OwnedFd>>> },
    /// Receive messages of the supervisor, unless the thread already does.
    WatchSupervisor { supervision: Arc<Supervision>, done: mpsc::Sender<io::Result<()>> },
    /// Stop receiving messages of the supervisor.
    UnwatchSupervisor { done: mpsc::Sender<()> },
    /// Stop accepting and close each connection after its current response.
    Drain { listener: ListenerId, done: mpsc::Sender<()> },
    /// Return the number of a listener's connections.
    CountConnections { listener: ListenerId, done: mpsc::Sender<usize> },
    /// Stop a listener, and wait for its connections to end.
    Stop { listener: ListenerId, done: mpsc::Sender<()> },
    /// Close everything and end the thread.
    ShutDown { done: mpsc::Sender<()> },
    /// Panic, for tests.
    Panic { done: mpsc::Sender<()> },
}

/// The queue through which other threads send commands to the I/O thread.
#[derive(Debug, Default)]
pub(super) struct CommandQueue {
    state: Mutex<QueueState>,
    pub(super) pushed: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    pending: VecDeque<IoCommand>,
    /// True once the thread has decided to end and takes no more commands.
    is_closed: bool,
    /// The error that ended the thread, if it did not end by its own decision.
    failure: Option<io::Error>,
}

impl CommandQueue {
    /// Queues a command.
    ///
    /// # Errors
    /// Returns the command if the thread has ended.
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

    /// Closes the queue if no command is pending, and returns whether the queue is closed. The
    /// thread has to execute pending commands before it may end.
    #[must_use = "if this returns false, a command is still pending, and the thread must not end"]
    pub(super) fn close_if_empty(&self) -> bool {
        let mut state = self.state();
        state.is_closed = state.pending.is_empty();
        state.is_closed
    }

    /// Closes the queue and drops pending commands, so that each sender learns that its command is
    /// not executed.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        let dropped = std::mem::take(&mut state.pending);
        drop(state);
        drop(dropped);
    }

    /// Closes the queue, and keeps the error for [`take_failure`](Self::take_failure).
    pub(super) fn fail(&self, failure: io::Error) {
        self.state().failure = Some(failure);
        self.close();
    }

    /// Returns the error that ended the thread.
    pub(super) fn take_failure(&self) -> io::Error {
        self.state().failure.take().unwrap_or_else(|| io::Error::other("the I/O thread has ended"))
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes a [`CommandQueue`] when dropped. The thread holds such a guard, so that no command stays
/// pending however the thread ends.
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

    /// Queues a command, and returns the receiver of its result.
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
