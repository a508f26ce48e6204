//! The supervisor of the process: what it asks over the control channel is heard on the I/O thread, whatever the application does.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rookery_worker::{Control, Inherited, KEEP_WEBSOCKETS, MOST_ANNOUNCED, Message, Received, Scoreboard};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::gate::{Accepting, Gate, Gatekeeper};
use super::public::{Group, PublicListeners};
use crate::http::site::Site;
use crate::net::descriptor::CloseInChild;
use crate::peers::table::Peers;
use crate::static_files::StaticFiles;

/// What a page that comes back costs R, about: so far apart are the WebSockets closed whose pages do.
const EACH_COMES_BACK: Duration = Duration::from_millis(50);

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
    /// To reopen the file of the access log.
    ReopenLog,
    /// Nothing any more, for it has gone: to be over as after [`Stop`](Self::Stop).
    Gone,
}

/// What ties the servers of a process to its supervisor ([`Server::attend`](crate::Server::attend)).
pub struct Supervision {
    // Before the descriptors: one that was closed may be somebody else's by now.
    _close_in_child: [CloseInChild; 2],
    public: Mutex<Option<PublicListeners>>,
    /// Whether this process accepts on the public listeners.
    keeper: Gatekeeper,
    log: Option<OwnedFd>,
    cookie: Option<String>,
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
        let Inherited { listener, control, scoreboard, public, log, cookie } = inherited;
        let public = (!public.is_empty()).then(|| PublicListeners::new(public));
        let close_in_child = [CloseInChild::new(&control), CloseInChild::new(&listener)];
        let scoreboard = Arc::new(scoreboard);
        Supervision {
            _close_in_child: close_in_child,
            public: Mutex::new(public),
            keeper: Gatekeeper::new(Accepting::Paused),
            log,
            cookie,
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

    /// Returns true if this process may be told to accept on public listeners.
    pub fn has_public_listeners(&self) -> bool {
        self.public().is_some()
    }

    /// Returns copies of the public listeners, with what they serve where the application has `site`.
    pub(super) fn public_groups(&self, site: &Site) -> io::Result<Vec<Group>> {
        self.public().as_ref().map_or_else(|| Ok(Vec::new()), |public| public.groups(site))
    }

    pub(super) fn gate(&self) -> Gate {
        self.keeper.gate()
    }

    /// Accepts nothing more on the public listeners, until it is told to.
    pub(super) fn pause(&self) {
        self.keeper.set(Accepting::Paused);
    }

    /// Closes the public listeners. This process accepts on them never again.
    fn close_public(&self) {
        self.keeper.set(Accepting::Never);
        let closed = self.public().take();
        drop(closed);
    }

    /// Returns a copy of what the access log is written to in place of standard output.
    pub fn log(&self) -> Option<OwnedFd> {
        self.log.as_ref()?.try_clone().ok()
    }

    /// The cookie by which the supervisor's front end knows the clients of this process, as
    /// [`COOKIE`](rookery_worker::COOKIE) has it.
    pub fn cookie(&self) -> Option<&str> {
        self.cookie.as_deref()
    }

    fn public(&self) -> MutexGuard<'_, Option<PublicListeners>> {
        self.public.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Accepts on the public listeners, if there are any and a listener serves them.
fn accept(peers: &Peers, supervision: &Supervision, number: u64) {
    let can = supervision.has_public_listeners() && peers.public_listener().is_some();
    if can {
        supervision.keeper.set(Accepting::Yes);
    }
    let said = if can { Message::Accepting(number) } else { Message::NotAccepting(number) };
    // A supervisor that does not read waits for this no longer than it wants to.
    let _ = supervision.tell(said);
}

/// Ends the service of those who have connected on the public listeners.
fn retire(peers: &Rc<Peers>, supervision: &Supervision, within: u64) {
    supervision.close_public();
    let public = peers.public();
    for peer in &public {
        if within == 0 { peer.stop() } else { peer.retire() }
    }
    if within == 0 || within == KEEP_WEBSOCKETS {
        return;
    }
    let sockets: Vec<_> = public.into_iter().filter(|peer| peer.is_websocket()).collect();
    let within = Duration::from_millis(within);
    let all = EACH_COMES_BACK.saturating_mul(sockets.len().try_into().unwrap_or(u32::MAX));
    let pause = all.min(within * 4 / 5) / u32::try_from(sockets.len().max(1)).unwrap_or(u32::MAX);
    tokio::task::spawn_local(async move {
        for socket in sockets {
            socket.restart();
            tokio::time::sleep(pause).await;
        }
    });
}

/// Hears the supervisor until it has gone. Inside a runtime, which may end before: then it is heard by the next.
pub(super) async fn attend(peers: Rc<Peers>, supervision: Arc<Supervision>) {
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
            Received::Message(Message::Accept(number)) => accept(&peers, &supervision, number),
            Received::Message(Message::StopAccepting(number)) => {
                supervision.pause();
                let _ = supervision.tell(Message::NotAccepting(number));
            }
            Received::Message(Message::Retire(within)) => retire(&peers, &supervision, within),
            Received::Message(Message::ReopenLog) => hear(Request::ReopenLog),
            // What only a worker says, or one of another version: there is nothing that it could be told of it.
            Received::Message(
                Message::Pong(_)
                | Message::Ready { .. }
                | Message::Leaving
                | Message::Accepting(_)
                | Message::NotAccepting(_),
            )
            | Received::Announcement(_)
            | Received::Malformed => {}
            Received::Nothing => ready.clear_ready(),
            Received::End => {
                // First of all: whoever takes the supervisor's place is to have the address.
                supervision.close_public();
                // Those who accept on copies of them come to know of it.
                tokio::task::yield_now().await;
                return hear(Request::Gone);
            }
        }
    }
}
