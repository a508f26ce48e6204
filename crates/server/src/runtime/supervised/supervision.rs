//! The supervisor of the process: what it asks over the control channel is heard on the I/O thread, whatever the application does.

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rookery_system::fork::CloseInChild;
use rookery_worker_protocol::{
    ControlChannel, Inherited, KEEP_WEBSOCKETS, MAX_ANNOUNCEMENT_SIZE, Message, Received,
    SharedScoreboard,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use super::announcements::{Announcements, Wait};
use super::public_listeners::PublicListeners;
use crate::connections::table::ConnectionTable;
use crate::http::listener_config::ListenerConfig;

use crate::net::descriptor::close_in_child;
use crate::runtime::listening::accept_switch::{AcceptMode, AcceptSwitch, AcceptWatch};
use crate::runtime::listening::socket_group::SocketGroup;
use crate::static_files::StaticFiles;

/// How long a connection of a retiring worker may have no request before it is closed.
const UNUSED_GRACE: Duration = Duration::from_millis(250);

/// What a page that comes back costs R, about: so far apart are the WebSockets closed whose pages do.
const RECONNECT_COST: Duration = Duration::from_millis(50);

/// What a supervisor asks of its worker. What is a question alone is answered here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SupervisorRequest {
    /// To end as a signal has it end.
    Drain,
    /// The same, and to be over within [`EXIT_TIMEOUT`](rookery_worker_protocol::EXIT_TIMEOUT).
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

/// What ties the servers of a process to its supervisor ([`Server::watch_supervisor`](crate::Server::watch_supervisor)).
pub struct Supervision {
    // Before the descriptors: one that was closed may be somebody else's by now.
    _close_in_child: [CloseInChild; 2],
    public: Mutex<Option<PublicListeners>>,
    /// Whether this process accepts on the public listeners.
    accept_switch: AcceptSwitch,
    log: Option<OwnedFd>,
    cookie: Option<String>,
    listener: UnixListener,
    control: ControlChannel,
    scoreboard: Arc<SharedScoreboard>,
    announcements: Mutex<Announcements>,
    /// Wakes those who wait for the supervisor's answer to an announcement.
    confirmed: Condvar,
    /// Wakes the I/O thread when the channel has no room for an announcement.
    channel_full: Notify,
    on_request: Box<dyn Fn(SupervisorRequest) + Send + Sync>,
}

/// The time that the supervisor has to apply an announcement. While it does not answer, no request
/// is passed on either, so that a longer wait would only keep R from its other work.
const APPLY_TIMEOUT: Duration = Duration::from_secs(2);

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
    pub fn new(
        inherited: Inherited,
        on_request: impl Fn(SupervisorRequest) + Send + Sync + 'static,
    ) -> Supervision {
        let Inherited { listener, control, scoreboard, public, log, cookie } = inherited;
        let public = (!public.is_empty()).then(|| PublicListeners::new(public));
        let close_in_child = [close_in_child(&control), close_in_child(&listener)];
        let scoreboard = Arc::new(scoreboard);
        Supervision {
            _close_in_child: close_in_child,
            public: Mutex::new(public),
            accept_switch: AcceptSwitch::new(AcceptMode::Paused),
            log,
            cookie,
            listener,
            control,
            scoreboard,
            announcements: Mutex::default(),
            confirmed: Condvar::new(),
            channel_full: Notify::new(),
            on_request: Box::new(on_request),
        }
    }

    /// The socket that the process was given, to be listened on.
    pub(in crate::runtime) fn socket(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }

    /// Returns true if this process may be told to accept on public listeners.
    pub fn has_public_listeners(&self) -> bool {
        self.public().is_some()
    }

    /// Returns copies of the public listeners, with what they serve where the application has `site`.
    pub(in crate::runtime) fn public_groups(
        &self,
        config: &ListenerConfig,
    ) -> io::Result<Vec<SocketGroup>> {
        self.public().as_ref().map_or_else(|| Ok(Vec::new()), |public| public.groups(config))
    }

    pub(in crate::runtime) fn accept_watch(&self) -> AcceptWatch {
        self.accept_switch.watch()
    }

    /// Accepts nothing more on the public listeners, until it is told to.
    pub(in crate::runtime) fn pause(&self) {
        self.accept_switch.set(AcceptMode::Paused);
    }

    /// Accepts nothing more on the public listeners, ever. Their sockets stay open until the process
    /// ends, so that no successor can bind the address while this process still serves.
    fn stop_accepting(&self) {
        self.accept_switch.set(AcceptMode::Stopped);
    }

    /// Closes the public listeners. This process accepts on them never again.
    fn close_public(&self) {
        self.stop_accepting();
        let closed = self.public().take();
        drop(closed);
    }

    /// Returns a copy of what the access log is written to in place of standard output.
    pub fn log(&self) -> Option<OwnedFd> {
        self.log.as_ref()?.try_clone().ok()
    }

    /// The cookie by which the supervisor's front end knows the clients of this process, as
    /// [`COOKIE`](rookery_worker_protocol::COOKIE) has it.
    pub fn cookie(&self) -> Option<&str> {
        self.cookie.as_deref()
    }

    fn public(&self) -> MutexGuard<'_, Option<PublicListeners>> {
        self.public.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the supervisor reads what the application does.
    pub fn scoreboard(&self) -> &Arc<SharedScoreboard> {
        &self.scoreboard
    }

    /// Tells the supervisor something, from any thread.
    ///
    /// # Errors
    /// When it reads nothing, or has gone; then the I/O thread hears of it as well.
    pub fn send(&self, message: Message) -> io::Result<()> {
        self.control.send(message)
    }

    /// Tells the supervisor which static paths the process serves, from any thread: those that fit into one
    /// message. It serves them by itself from then on, until it is told others.
    pub fn announce(&self, files: &StaticFiles) {
        let mut announcements = self.announcements();
        // Under the lock, so that of two changes the later is told last.
        if announcements.change(files.announcement(MAX_ANNOUNCEMENT_SIZE))
            && !self.send_unsent(&mut announcements)
        {
            self.channel_full.notify_one();
        }
    }

    /// Waits, for a limited time, until the supervisor has applied the last announcement. Not to be
    /// called on the I/O thread, which receives the supervisor's answer.
    pub fn wait_until_applied(&self) -> Confirmation {
        let is_pending = |announcements: &mut Announcements| announcements.wait() == Wait::Pending;
        let waited =
            self.confirmed.wait_timeout_while(self.announcements(), APPLY_TIMEOUT, is_pending);
        let (mut announcements, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match announcements.wait() {
            Wait::Applied => Confirmation::Applied,
            Wait::Useless => Confirmation::NotAwaited,
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
                Err(error)
                    if error.kind() == io::ErrorKind::InvalidInput && announcements.empty() => {}
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
struct WatchedChannel(Arc<Supervision>);

impl AsRawFd for WatchedChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.0.control.as_raw_fd()
    }
}

/// Accepts on the public listeners, if there are any and a listener serves them.
fn start_accepting(connections: &ConnectionTable, supervision: &Supervision, number: u64) {
    let can = supervision.has_public_listeners() && connections.public_listener().is_some();
    if can {
        supervision.accept_switch.set(AcceptMode::On);
    }
    let response = if can { Message::Accepting(number) } else { Message::NotAccepting(number) };
    // A supervisor that does not read waits for this no longer than it wants to.
    let _ = supervision.send(response);
}

/// Ends the service of those who have connected on the public listeners.
fn retire(connections: &Rc<ConnectionTable>, supervision: &Supervision, within: u64) {
    supervision.close_public();
    let public = connections.public_clients();
    for peer in &public {
        if within == 0 { peer.stop() } else { peer.drain() }
    }
    if within == 0 {
        return;
    }
    let unused = Rc::clone(connections);
    tokio::task::spawn_local(async move {
        // A client that is about to send a request has sent it by then.
        tokio::time::sleep(UNUSED_GRACE).await;
        for peer in unused.public_clients() {
            peer.drain();
        }
    });
    if within == KEEP_WEBSOCKETS {
        return;
    }
    let sockets: Vec<_> = public.into_iter().filter(|peer| peer.is_websocket()).collect();
    let within = Duration::from_millis(within);
    let all = RECONNECT_COST.saturating_mul(sockets.len().try_into().unwrap_or(u32::MAX));
    let pause = all.min(within * 4 / 5) / u32::try_from(sockets.len().max(1)).unwrap_or(u32::MAX);
    tokio::task::spawn_local(async move {
        for socket in sockets {
            socket.close_for_restart();
            tokio::time::sleep(pause).await;
        }
    });
}

/// Notes that the supervisor's answers are received, as long as this value lives.
struct ReceivingGuard(Arc<Supervision>);

impl ReceivingGuard {
    fn begin(supervision: Arc<Supervision>) -> ReceivingGuard {
        supervision.announcements().set_receiving(true);
        ReceivingGuard(supervision)
    }
}

impl Drop for ReceivingGuard {
    fn drop(&mut self) {
        self.0.announcements().set_receiving(false);
        self.0.confirmed.notify_all();
    }
}

/// Hears the supervisor until it has gone. Inside a runtime, which may end before: then it is heard by the next.
pub(in crate::runtime) fn receive_messages(
    connections: Rc<ConnectionTable>,
    supervision: Arc<Supervision>,
) -> impl Future<Output = ()> {
    // Before the future is polled: from now on it is worth while to wait for an answer.
    let receiving = ReceivingGuard::begin(supervision);
    async move {
        // Each time with the events that are of interest.
        while receiving.0.receive_until_interest_changes(&connections).await.is_continue() {}
    }
}

impl Supervision {
    /// Receives messages until the channel ends, or until an announcement starts or stops waiting
    /// for room in the channel. The channel is watched for room only while an announcement waits:
    /// otherwise each message that the supervisor reads would wake the I/O thread.
    async fn receive_until_interest_changes(
        self: &Arc<Supervision>,
        connections: &Rc<ConnectionTable>,
    ) -> ControlFlow<()> {
        let waits_for_room = self.announcements().unsent().is_some();
        let interest = if waits_for_room {
            Interest::READABLE | Interest::WRITABLE
        } else {
            Interest::READABLE
        };
        // SAFETY: the descriptor is open and the same for as long as the value that is watched lives.
        let watched =
            unsafe { AsyncFd::register_with_interest(WatchedChannel(Arc::clone(self)), interest) };
        let Ok(watched) = watched else {
            // The end of the channel could not be noticed.
            (self.on_request)(SupervisorRequest::Gone);
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
                            // First of all: what connects from now on is for the supervisor's successor.
                            self.stop_accepting();
                            // Those who accept on copies of them come to know of it.
                            tokio::task::yield_now().await;
                            (self.on_request)(SupervisorRequest::Gone);
                            return ControlFlow::Break(());
                        }
                        received => self.on_received(connections, &received),
                    }
                }
                ready = watched.writable(), if waits_for_room => {
                    let Ok(mut ready) = ready else { return ControlFlow::Break(()) };
                    if !self.send_unsent(&mut self.announcements()) {
                        ready.clear_ready();
                    }
                }
                () = self.channel_full.notified() => {}
            }
        }
        ControlFlow::Continue(())
    }

    fn on_received(&self, connections: &Rc<ConnectionTable>, received: &Received) {
        match received {
            // A supervisor that does not read gets no answer. If it has gone, the end is received next.
            Received::Message(Message::Ping(number)) => {
                let _ = self.send(Message::Pong(*number));
            }
            Received::Message(Message::Applied(number)) => {
                self.announcements().on_applied(*number);
                self.confirmed.notify_all();
            }
            Received::Message(Message::Drain) => (self.on_request)(SupervisorRequest::Drain),
            Received::Message(Message::Stop) => (self.on_request)(SupervisorRequest::Stop),
            Received::Message(Message::Interrupt) => {
                (self.on_request)(SupervisorRequest::Interrupt)
            }
            Received::Message(Message::Collect) => (self.on_request)(SupervisorRequest::Collect),
            Received::Message(Message::Accept(number)) => {
                start_accepting(connections, self, *number)
            }
            Received::Message(Message::StopAccepting(number)) => {
                self.pause();
                let _ = self.send(Message::NotAccepting(*number));
            }
            Received::Message(Message::Retire(within)) => retire(connections, self, *within),
            Received::Message(Message::ReopenLog) => {
                (self.on_request)(SupervisorRequest::ReopenLog)
            }
            // What only a worker says, or one of another version: there is nothing that it could be told of it.
            Received::Message(
                Message::Pong(_)
                | Message::Ready { .. }
                | Message::Leaving
                | Message::Accepting(_)
                | Message::NotAccepting(_),
            )
            | Received::Announcement(..)
            | Received::Malformed
            | Received::Nothing
            | Received::End => {}
        }
    }
}
