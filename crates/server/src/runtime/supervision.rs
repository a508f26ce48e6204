//! The supervisor of the process: what it asks over the control channel is heard on the I/O thread, whatever the application does.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rookery_worker::{Control, Inherited, MOST_ANNOUNCED, Message, Received, Scoreboard};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

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
    announced: Mutex<Announced>,
    hear: Box<dyn Fn(Request) + Send + Sync>,
}

/// The static paths that the supervisor has been told.
#[derive(Debug, Default)]
struct Announced {
    last: Vec<u8>,
    /// Whether `last` is still to be sent, because the supervisor had not read what was sent before.
    is_pending: bool,
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
            announced: Mutex::default(),
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
        let mut announced = self.announced();
        // Under the lock, so that of two changes the later is told last.
        let bytes = files.announcement(MOST_ANNOUNCED);
        if announced.last == bytes {
            return;
        }
        *announced = Announced { last: bytes, is_pending: true };
        self.send_announcement(&mut announced);
    }

    /// Sends what could not be sent before.
    fn catch_up(&self) {
        let mut announced = self.announced();
        if announced.is_pending {
            self.send_announcement(&mut announced);
        }
    }

    fn send_announcement(&self, announced: &mut Announced) {
        match self.control.announce(&announced.last) {
            // It is sent with the next answer to a ping: whoever pings reads.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidInput && !announced.last.is_empty() => {
                // A system that takes no such message: the files stay with this process.
                announced.last.clear();
                self.send_announcement(announced);
            }
            // Sent; or the supervisor has gone, which is heard elsewhere.
            _ => announced.is_pending = false,
        }
    }

    fn announced(&self) -> MutexGuard<'_, Announced> {
        // Each change leaves it whole.
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Hears the supervisor until it has gone. Inside a runtime, which may end before: then it is heard by the next.
pub(super) async fn attend(supervision: Arc<Supervision>) {
    let hear = |request| (supervision.hear)(request);
    // SAFETY: the descriptor is open and the same for as long as the value that is watched lives.
    let watched =
        unsafe { AsyncFd::register_with_interest(Watched(Arc::clone(&supervision)), Interest::READABLE) };
    let Ok(watched) = watched else {
        // Nobody would hear of its end.
        return hear(Request::Gone);
    };
    loop {
        let Ok(mut ready) = watched.readable().await else { return };
        match supervision.control.receive() {
            // One that does not read is not answered; when it has gone, that is the next thing to be received.
            Received::Message(Message::Ping(number)) => {
                let _ = supervision.tell(Message::Pong(number));
                supervision.catch_up();
            }
            Received::Message(Message::Drain) => hear(Request::Drain),
            Received::Message(Message::Stop) => hear(Request::Stop),
            Received::Message(Message::Interrupt) => hear(Request::Interrupt),
            Received::Message(Message::Collect) => hear(Request::Collect),
            // What only a worker says, or one of another version: there is nothing that it could be told of it.
            Received::Message(Message::Pong(_) | Message::Ready { .. } | Message::Leaving)
            | Received::Announcement(_)
            | Received::Malformed => {}
            Received::Nothing => ready.clear_ready(),
            Received::End => return hear(Request::Gone),
        }
    }
}
