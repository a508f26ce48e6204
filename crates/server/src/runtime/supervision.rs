//! The supervisor of the process: what it asks over the control channel is heard on the I/O thread, whatever the application does.

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rookery_worker::{Control, Inherited, MOST_ANNOUNCED, Message, Received, Scoreboard};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use super::announcements::{Announcements, Wait};
use crate::net::descriptor::CloseInChild;
use crate::static_files::StaticFiles;

/// What a supervisor asks of its worker. What is a question alone is answered here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// To end as a signal has it end.
    Drain,
    /// The same, and to be over within [`END_WITHIN`](rookery_worker::END_WITHIN).
    Stop,
    /// To interrupt what the application runs.
    Interrupt,
    /// To give back memory that nothing refers to any more, when there is nothing else to do.
    Collect,
    /// Nothing any more, for it has gone: to be over as after [`Stop`](Self::Stop).
    Gone,
}

/// What ties the servers of a process to its supervisor ([`Server::attend`](crate::Server::attend)).
pub struct Supervision {
    // Before the descriptors: one that was closed may be somebody else's by now.
    _close_in_child: [CloseInChild; 2],
    listener: UnixListener,
    control: Control,
    scoreboard: Arc<Scoreboard>,
    announcements: Mutex<Announcements>,
    /// Wakes those who wait for the supervisor's answer to an announcement.
    answered: Condvar,
    /// Wakes the I/O thread when the channel has no room for an announcement.
    is_full: Notify,
    hear: Box<dyn Fn(Request) + Send + Sync>,
}

/// The time that the supervisor has to apply an announcement. While it does not answer, no request
/// is passed on either, so that a longer wait would only keep R from its other work.
const APPLIES_WITHIN: Duration = Duration::from_secs(2);

/// How a wait for the supervisor has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Confirmation {
    /// The supervisor serves what was announced last.
    Applied,
    /// The supervisor has not answered in time. Until it does, no announcement is waited for.
    TimedOut,
    /// There was no wait, because an earlier one has timed out or the supervisor has gone.
    NotAwaited,
}

impl Supervision {
    /// Of what the process was given. `hear` is told what the supervisor asks, on the I/O thread, and must not block.
    pub fn new(inherited: Inherited, hear: impl Fn(Request) + Send + Sync + 'static) -> Supervision {
        let Inherited { listener, control, scoreboard } = inherited;
        let close_in_child = [CloseInChild::new(&control), CloseInChild::new(&listener)];
        let scoreboard = Arc::new(scoreboard);
        Supervision {
            _close_in_child: close_in_child,
            listener,
            control,
            scoreboard,
            announcements: Mutex::default(),
            answered: Condvar::new(),
            is_full: Notify::new(),
            hear: Box::new(hear),
        }
    }

    /// The socket that the process was given, to be listened on.
    pub(super) fn socket(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }

    /// Where the supervisor reads what the application does.
    pub fn scoreboard(&self) -> &Arc<Scoreboard> {
        &self.scoreboard
    }

    /// Tells the supervisor something, from any thread.
    ///
    /// # Errors
    /// When it reads nothing, or has gone; then the I/O thread hears of it as well.
    pub fn tell(&self, message: Message) -> io::Result<()> {
        self.control.send(message)
    }

    /// Tells the supervisor which static paths the process serves, from any thread: those that fit into one
    /// message. It serves them by itself from then on, until it is told others.
    pub fn announce(&self, files: &StaticFiles) {
        let mut announcements = self.announcements();
        // Under the lock, so that of two changes the later is told last.
        if announcements.change(files.announcement(MOST_ANNOUNCED)) && !self.send_unsent(&mut announcements) {
            self.is_full.notify_one();
        }
    }

    /// Waits, for a limited time, until the supervisor has applied the last announcement. Not to be
    /// called on the I/O thread, which receives the supervisor's answer.
    pub fn wait_until_applied(&self) -> Confirmation {
        let is_pending = |announcements: &mut Announcements| announcements.wait() == Wait::Pending;
        let waited = self.answered.wait_timeout_while(self.announcements(), APPLIES_WITHIN, is_pending);
        let (mut announcements, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match announcements.wait() {
            Wait::Applied => Confirmation::Applied,
            Wait::Hopeless => Confirmation::NotAwaited,
            Wait::Pending => {
                announcements.on_timeout();
                Confirmation::TimedOut
            }
        }
    }

    /// Sends the last announcement if it is still to be sent. Returns whether nothing is left.
    fn send_unsent(&self, announcements: &mut Announcements) -> bool {
        loop {
            let Some((number, bytes)) = announcements.unsent() else { return true };
            match self.control.announce(number, bytes) {
                Ok(()) => announcements.on_sent(),
                // A system that takes no such message: the files stay with this process.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput && announcements.empty() => {}
                // The channel is full; or the supervisor has gone, and the I/O thread receives the end.
                Err(_) => return false,
            }
        }
    }

    fn announcements(&self) -> MutexGuard<'_, Announcements> {
        // Each change leaves it whole.
        self.announcements.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Supervision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervision").field("control", &self.control).finish_non_exhaustive()
    }
}

/// What the runtime watches.
struct Watched(Arc<Supervision>);

impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> RawFd {
        self.0.control.as_raw_fd()
    }
}

/// Notes that the supervisor's answers are received, as long as this value lives.
struct Attended(Arc<Supervision>);

impl Attended {
    fn begin(supervision: Arc<Supervision>) -> Attended {
        supervision.announcements().set_attended(true);
        Attended(supervision)
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        self.0.announcements().set_attended(false);
        self.0.answered.notify_all();
    }
}

/// Hears the supervisor until it has gone. Inside a runtime, which may end before: then it is heard by the next.
pub(super) fn attend(supervision: Arc<Supervision>) -> impl Future<Output = ()> {
    // Before the future is polled: from now on it is worth while to wait for an answer.
    let attended = Attended::begin(supervision);
    async move {
        // Each time with the events that are of interest.
        while attended.0.attend().await.is_continue() {}
    }
}

impl Supervision {
    /// Receives messages until the channel ends, or until an announcement starts or stops waiting
    /// for room in the channel. The channel is watched for room only while an announcement waits:
    /// otherwise each message that the supervisor reads would wake the I/O thread.
    async fn attend(self: &Arc<Supervision>) -> ControlFlow<()> {
        let waits_for_room = self.announcements().unsent().is_some();
        let interest =
            if waits_for_room { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        // SAFETY: the descriptor is open and the same for as long as the value that is watched lives.
        let watched = unsafe { AsyncFd::register_with_interest(Watched(Arc::clone(self)), interest) };
        let Ok(watched) = watched else {
            // The end of the channel could not be noticed.
            (self.hear)(Request::Gone);
            return ControlFlow::Break(());
        };
        while self.announcements().unsent().is_some() == waits_for_room {
            tokio::select! {
                biased;
                ready = watched.readable() => {
                    let Ok(mut ready) = ready else { return ControlFlow::Break(()) };
                    match self.control.receive() {
                        Received::Nothing => ready.clear_ready(),
                        Received::End => {
                            (self.hear)(Request::Gone);
                            return ControlFlow::Break(());
                        }
                        received => self.on_received(&received),
                    }
                }
                ready = watched.writable(), if waits_for_room => {
                    let Ok(mut ready) = ready else { return ControlFlow::Break(()) };
                    if !self.send_unsent(&mut self.announcements()) {
                        ready.clear_ready();
                    }
                }
                () = self.is_full.notified() => {}
            }
        }
        ControlFlow::Continue(())
    }

    fn on_received(&self, received: &Received) {
        match received {
            // A supervisor that does not read gets no answer. If it has gone, the end is received next.
            Received::Message(Message::Ping(number)) => {
                let _ = self.tell(Message::Pong(*number));
            }
            Received::Message(Message::Applied(number)) => {
                self.announcements().on_applied(*number);
                self.answered.notify_all();
            }
            Received::Message(Message::Drain) => (self.hear)(Request::Drain),
            Received::Message(Message::Stop) => (self.hear)(Request::Stop),
            Received::Message(Message::Interrupt) => (self.hear)(Request::Interrupt),
            Received::Message(Message::Collect) => (self.hear)(Request::Collect),
            // What only a worker says, or one of another version: there is nothing that it could be told of it.
            Received::Message(Message::Pong(_) | Message::Ready { .. } | Message::Leaving)
            | Received::Announcement(..)
            | Received::Malformed
            | Received::Nothing
            | Received::End => {}
        }
    }
}
