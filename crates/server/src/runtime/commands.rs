//! The commands that other threads send to the I/O thread, and the queue that carries them.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use rookery_exchange::ListenerId;
use tokio::sync::Notify;

use super::supervised::supervision::Supervision;
use crate::config::Limits;
use crate::http::listener_config::ListenerConfig;
use crate::net::listen::ListeningSocket;

/// A command that another thread sends to the I/O thread. The I/O thread sends the result of the
/// command through the channel `done`, or drops the channel if the thread ends before it has
/// executed the command.
#[derive(Debug)]
pub(super) enum IoCommand {
    /// Starts a listener on sockets that are already bound.
    Listen {
        listener: ListenerId,
        sockets: Vec<ListeningSocket>,
        config: Box<ListenerConfig>,
        done: mpsc::Sender<io::Result<()>>,
    },
    /// Sets the limits on clients.
    SetLimits { limits: Box<Limits>, done: mpsc::Sender<()> },
    /// Makes the I/O thread start to receive the supervisor's messages, if it does not receive them
    /// yet.
    WatchSupervisor { supervision: Arc<Supervision>, done: mpsc::Sender<io::Result<()>> },
    /// Makes the I/O thread stop receiving the supervisor's messages.
    UnwatchSupervisor { done: mpsc::Sender<()> },
    /// Makes a listener stop accepting, and close each of its connections after the current
    /// response. Its WebSockets are closed one after the other in the time `close_over`.
    Drain { listener: ListenerId, close_over: Duration, done: mpsc::Sender<()> },
    /// Cuts off the responses that a drained listener still sends.
    Cut { listener: ListenerId, done: mpsc::Sender<()> },
    /// Requests the number of open connections of a listener.
    CountConnections { listener: ListenerId, done: mpsc::Sender<usize> },
    /// Stops a listener, and waits for its connections to end.
    Stop { listener: ListenerId, done: mpsc::Sender<()> },
    /// Closes all listeners and connections, and ends the I/O thread.
    ShutDown { done: mpsc::Sender<()> },
    /// Advances the clock by `time` and enforces the deadlines, for tests.
    AdvanceClock { time: Duration, done: mpsc::Sender<()> },
    /// Makes the I/O thread panic, for tests.
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
    /// True once the I/O thread has decided to end and takes no more commands.
    is_closed: bool,
    /// The error that ended the I/O thread, if the thread did not end by its own decision.
    failure: Option<io::Error>,
}

impl CommandQueue {
    /// Queues a command for the I/O thread.
    ///
    /// # Errors
    /// Returns the command if the I/O thread has ended.
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

    /// Closes the command queue if it is empty. Returns true if the queue is now closed, so that
    /// the I/O thread may end. If false, the thread must first execute the pending commands.
    #[must_use = "if this returns false, a command is still pending, and the thread must not end"]
    pub(super) fn close_if_empty(&self) -> bool {
        let mut state = self.state();
        state.is_closed = state.pending.is_empty();
        state.is_closed
    }

    /// Closes the command queue and drops the pending commands. Dropping a command notifies its
    /// sender that the command is not executed.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        let dropped = std::mem::take(&mut state.pending);
        drop(state);
        drop(dropped);
    }

    /// Closes the command queue, and keeps the error that ended the I/O thread for
    /// [`take_failure`](Self::take_failure).
    pub(super) fn fail(&self, failure: io::Error) {
        self.state().failure = Some(failure);
        self.close();
    }

    /// Returns the error that ended the I/O thread.
    pub(super) fn take_failure(&self) -> io::Error {
        self.state().failure.take().unwrap_or_else(|| io::Error::other("the I/O thread has ended"))
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A guard that closes a [`CommandQueue`] when it is dropped. The I/O thread holds it, so that the
/// queue is closed however the thread ends.
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

    /// Queues a command that counts connections, and returns the receiver of its result.
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
