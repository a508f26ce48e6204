//! The connection of a worker to its supervisor. It consists of:
//! - the control channel, a socket for messages such as pings
//! - the scoreboard, shared memory in which the worker publishes its counters
//! - the public listeners, the sockets to which clients connect
//!
//! The worker's I/O thread reads the control channel, so the worker responds to the supervisor even
//! while the application is busy.

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rookery_system::fork::CloseInChild;
use rookery_worker_protocol::rings::{RingEnd, RingWakers};
use rookery_worker_protocol::{
    ControlChannel, ErrorReport, Inherited, KEEP_WEBSOCKETS, MAX_ANNOUNCEMENT_SIZE, Message,
    Received, SharedScoreboard,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::announcements::{Announcements, Wait};
use super::public_listeners::PublicListeners;
use super::request::{Confirmation, SupervisorRequest};
use crate::connections::table::ConnectionTable;
use crate::http::listener_config::ListenerConfig;

use crate::net::descriptor::close_in_child;
use crate::runtime::io_context::IoContext;
use crate::runtime::listening::accept_switch::{AcceptMode, AcceptSwitch, AcceptWatch};
use crate::runtime::listening::drain;
use crate::runtime::listening::socket_group::SocketGroup;
use crate::static_files::StaticFiles;

/// The time for which a retiring worker keeps a connection without a request open, because the
/// client may be about to send one.
const UNUSED_GRACE: Duration = Duration::from_millis(250);

/// The pause that a retiring worker makes after closing a WebSocket, before it closes the next. It
/// is about the time that R needs to serve the page again when the client reconnects. Without the
/// pause, all clients would reconnect at once.
const RECONNECT_COST: Duration = Duration::from_millis(50);

/// The connection of a worker to its supervisor. It receives messages after
/// [`Server::watch_supervisor`](crate::Server::watch_supervisor) was called.
pub struct Supervision {
    // Dropped before the descriptors, because another thread may reuse the number of a closed
    // descriptor.
    _close_in_child: CloseInChild,
    public: Mutex<Option<PublicListeners>>,
    /// The switch by which this worker starts and stops accepting connections on the public
    /// listeners.
    accept_switch: AcceptSwitch,
    log: Option<OwnedFd>,
    cookie: Option<String>,
    control: ControlChannel,
    scoreboard: Arc<SharedScoreboard>,
    announcements: Mutex<Announcements>,
    /// Wakes the threads that wait for the supervisor's confirmation of an announcement of static
    /// paths.
    confirmed: Condvar,
    /// Notifies the I/O thread that an announcement or a message did not fit into the control
    /// channel, so that the thread sends it later.
    channel_full: Notify,
    /// What wakes the I/O thread when records arrive in the rings while the application waits
    /// elsewhere.
    wakers: RingWakers,
    on_request: Box<dyn Fn(SupervisorRequest) + Send + Sync>,
}

/// The maximum time to wait until the supervisor has applied an announcement of static paths. A
/// longer wait would be useless, because a supervisor that does not respond forwards no requests
/// either.
const APPLY_TIMEOUT: Duration = Duration::from_secs(2);

impl Supervision {
    /// Makes the connection to the supervisor from the descriptors that this process has inherited.
    /// `on_request` is called on the I/O thread for each request of the supervisor, and must not
    /// block. Also returns the rings, for [`WorkerRings`](crate::WorkerRings).
    pub fn new(
        inherited: Inherited,
        on_request: impl Fn(SupervisorRequest) + Send + Sync + 'static,
    ) -> (Supervision, (RingEnd, RingWakers)) {
        let Inherited { control, scoreboard, public, log, cookie, rings } = inherited;
        let public = (!public.is_empty()).then(|| PublicListeners::new(public));
        let close_in_child = close_in_child(&control);
        let scoreboard = Arc::new(scoreboard);
        let supervision = Supervision {
            _close_in_child: close_in_child,
            public: Mutex::new(public),
            accept_switch: AcceptSwitch::new(AcceptMode::Paused),
            log,
            cookie,
            control,
            scoreboard,
            announcements: Mutex::default(),
            confirmed: Condvar::new(),
            channel_full: Notify::new(),
            wakers: rings.1.clone(),
            on_request: Box::new(on_request),
        };
        (supervision, rings)
    }

    /// Returns true if the supervisor has passed public listeners to this process.
    pub fn has_public_listeners(&self) -> bool {
        self.public().is_some()
    }

    /// Returns copies of the public listeners, grouped by their configuration. Listeners that
    /// redirect to HTTPS have a configuration of their own. All others are served according to
    /// `config`.
    pub(in crate::runtime) fn public_groups(
        &self,
        config: &ListenerConfig,
    ) -> io::Result<Vec<SocketGroup>> {
        self.public().as_ref().map_or_else(|| Ok(Vec::new()), |public| public.groups(config))
    }

    pub(in crate::runtime) fn accept_watch(&self) -> AcceptWatch {
        self.accept_switch.watch()
    }

    /// Stops accepting connections on the public listeners until the supervisor asks this process
    /// to start again.
    pub(in crate::runtime) fn pause(&self) {
        self.accept_switch.set(AcceptMode::Paused);
    }

    /// Stops accepting connections on the public listeners forever. The sockets stay open until the
    /// process ends, so that no other server can bind the address while this process still serves
    /// requests.
    fn stop_accepting(&self) {
        self.accept_switch.set(AcceptMode::Stopped);
    }

    /// Closes this process's copies of the public listeners. The process can then never accept
    /// connections on them again.
    fn close_public(&self) {
        self.stop_accepting();
        let closed = self.public().take();
        drop(closed);
    }

    /// Returns a copy of the descriptor to which this process writes its access log instead of to
    /// standard output. Returns `None` if the supervisor has passed no descriptor for it.
    pub fn log(&self) -> Option<OwnedFd> {
        self.log.as_ref()?.try_clone().ok()
    }

    /// Returns the session-affinity cookie of this process in the form that
    /// [`COOKIE`](rookery_worker_protocol::COOKIE) describes, or `None` if the supervisor has
    /// passed none.
    pub fn cookie(&self) -> Option<&str> {
        self.cookie.as_deref()
    }

    fn public(&self) -> MutexGuard<'_, Option<PublicListeners>> {
        self.public.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the scoreboard: the shared memory in which the supervisor reads the state of this
    /// process.
    pub fn scoreboard(&self) -> &Arc<SharedScoreboard> {
        &self.scoreboard
    }

    /// Sends a message to the supervisor over the control channel. Can be called from any thread.
    ///
    /// # Errors
    /// Fails if the channel is full, or if the supervisor has disconnected.
    pub fn send(&self, message: Message) -> io::Result<()> {
        self.control.send(message)?;
        self.watch_unsent();
        Ok(())
    }

    /// Makes the I/O thread send what the socket of the control channel did not accept.
    fn watch_unsent(&self) {
        if self.control.has_unsent() {
            self.channel_full.notify_one();
        }
    }

    /// Sends the report of an error in R to the supervisor. Can be called from any thread. A report
    /// for which the control channel has no capacity is dropped.
    pub fn report_error(&self, report: &ErrorReport) {
        let _ = self.control.report_error(report);
        self.watch_unsent();
    }

    /// Announces to the supervisor which static paths this process has. The supervisor serves them
    /// until the next announcement. Paths that do not fit into one message are left out. Returns
    /// false if there are such paths. Can be called from any thread.
    pub fn announce(&self, files: &StaticFiles) -> bool {
        let (bytes, is_complete) = files.announcement(MAX_ANNOUNCEMENT_SIZE);
        let mut announcements = self.announcements();
        let has_paths = !bytes.is_empty();
        // The message is sent while the lock is held, so that concurrent changes are sent in order.
        if announcements.change(bytes)
            && (!self.send_unsent(&mut announcements) || self.control.has_unsent())
        {
            self.channel_full.notify_one();
        }
        is_complete && announcements.is_empty() != has_paths
    }

    /// Waits, for a limited time, until the supervisor has applied the last announcement of static
    /// paths. Must not be called on the I/O thread, because that thread receives the confirmation.
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

    /// Sends the last announcement of static paths to the supervisor if it has not been sent yet.
    /// Returns true if nothing is left to send.
    fn send_unsent(&self, announcements: &mut Announcements) -> bool {
        loop {
            let Some((number, bytes)) = announcements.unsent() else { return true };
            match self.control.announce(number, bytes) {
                Ok(()) => announcements.on_sent(),
                // The system accepts no message of this length, so the paths are not announced, and
                // nobody serves them.
                Err(error)
                    if error.kind() == io::ErrorKind::InvalidInput && announcements.empty() => {}
                // The channel is full, or the supervisor has disconnected, which the I/O thread
                // detects.
                Err(_) => return false,
            }
        }
    }

    fn announcements(&self) -> MutexGuard<'_, Announcements> {
        // A panic leaves the value consistent, because each change is complete.
        self.announcements.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Supervision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervision").field("control", &self.control).finish_non_exhaustive()
    }
}

/// The control channel to the supervisor, as a descriptor that the async runtime can watch.
struct WatchedChannel(Arc<Supervision>);

impl AsRawFd for WatchedChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.0.control.as_raw_fd()
    }
}

/// Starts accepting connections on the public listeners, if the supervisor has passed them to this
/// process and a listener of this process uses them. Reports the result to the supervisor. `number`
/// identifies the supervisor's command in this report.
fn start_accepting(connections: &ConnectionTable, supervision: &Supervision, number: u64) {
    let can_accept = supervision.has_public_listeners() && connections.public_listener().is_some();
    if can_accept {
        supervision.accept_switch.set(AcceptMode::On);
    }
    let response =
        if can_accept { Message::Accepting(number) } else { Message::NotAccepting(number) };
    // A supervisor that does not read gets no report and stops waiting at its own timeout.
    let _ = supervision.send(response);
}

/// Drains the connections of the public listeners, because this worker retires. `within` is the
/// time in ms in which the WebSockets are to be closed one after the other. If it is 0, WebSockets
/// and idle connections are closed at once. If it is [`KEEP_WEBSOCKETS`], WebSockets stay open.
fn retire(connections: &Rc<ConnectionTable>, supervision: &Supervision, within: u64) {
    supervision.close_public();
    let public = connections.public_clients();
    for connection in &public {
        if within == 0 { connection.stop() } else { connection.drain() }
    }
    if within == 0 {
        return;
    }
    let unused = Rc::clone(connections);
    tokio::task::spawn_local(async move {
        // A client that was about to send a request has sent it by now.
        tokio::time::sleep(UNUSED_GRACE).await;
        for connection in unused.public_clients() {
            connection.drain();
        }
    });
    if within == KEEP_WEBSOCKETS {
        return;
    }
    let sockets: Vec<_> =
        public.into_iter().filter(|connection| connection.is_websocket()).collect();
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

/// A guard that the I/O thread holds while it is able to receive the supervisor's confirmations of
/// announcements.
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

/// Receives the supervisor's messages until the supervisor disconnects. Must be called inside an
/// async runtime. If the runtime ends before the supervisor disconnects, this function must be
/// called again in the next runtime.
pub(in crate::runtime) fn receive_messages(
    context: Rc<IoContext>,
    supervision: Arc<Supervision>,
) -> impl Future<Output = ()> {
    // Created before the future is first polled, because from now on waiting for a confirmation
    // makes sense.
    let receiving = ReceivingGuard::begin(supervision);
    async move {
        let supervision = Arc::clone(&receiving.0);
        // Dropping the set aborts the task.
        let mut tasks = JoinSet::new();
        tasks.spawn_local(watch_rings(supervision, Rc::clone(&context.connections)));
        // Each call registers the descriptor for the events that are currently of interest.
        while receiving.0.receive_until_interest_changes(&context).await.is_continue() {}
    }
}

/// Tells the application that records have arrived in the rings while it waits elsewhere.
async fn watch_rings(supervision: Arc<Supervision>, connections: Rc<ConnectionTable>) {
    let wakers = &supervision.wakers;
    // SAFETY: the watched value owns the descriptor, which stays open and unchanged.
    let watched =
        unsafe { AsyncFd::register_with_interest(wakers.watched_by_worker(), Interest::READABLE) };
    let Ok(watched) = watched else {
        // Without the registration, requests would wait until R looks for them by itself.
        supervision.on_disconnected(&connections);
        return;
    };
    while let Ok(mut ready) = watched.readable().await {
        wakers.on_worker_woken();
        ready.clear_ready();
        (supervision.on_request)(SupervisorRequest::RecordsArrived);
    }
}

impl Supervision {
    /// Returns true if an announcement or a message waits for free space in the control channel.
    fn waits_for_room(&self) -> bool {
        self.control.has_unsent() || self.announcements().unsent().is_some()
    }

    /// Receives the supervisor's messages until the control channel ends. While an announcement or
    /// a message waits for free space in the channel, also waits until the channel is writable.
    /// Returns [`ControlFlow::Continue`] if the function must be called again because it must begin
    /// or cease to wait for the channel to be writable.
    async fn receive_until_interest_changes(
        self: &Arc<Supervision>,
        context: &IoContext,
    ) -> ControlFlow<()> {
        // If nothing waits, the I/O thread would wake for nothing whenever the
        // supervisor reads a message.
        let waits_for_room = self.waits_for_room();
        let interest = if waits_for_room {
            Interest::READABLE | Interest::WRITABLE
        } else {
            Interest::READABLE
        };
        // SAFETY: the watched value owns the descriptor, which stays open and unchanged as long as
        // that value exists.
        let watched =
            unsafe { AsyncFd::register_with_interest(WatchedChannel(Arc::clone(self)), interest) };
        let Ok(watched) = watched else {
            // Without the registration the end of the channel could not be detected.
            self.on_disconnected(&context.connections);
            return ControlFlow::Break(());
        };
        while self.waits_for_room() == waits_for_room {
            tokio::select! {
                biased;
                ready = watched.readable() => {
                    let Ok(mut ready) = ready else { return ControlFlow::Break(()) };
                    match self.control.receive() {
                        Received::Nothing => ready.clear_ready(),
                        Received::End => {
                            // Accepting stops first, because new connections are meant for the
                            // supervisor's successor.
                            self.stop_accepting();
                            // The acceptor tasks see the change of the switch now.
                            tokio::task::yield_now().await;
                            self.on_disconnected(&context.connections);
                            return ControlFlow::Break(());
                        }
                        received => self.on_received(context, &received),
                    }
                }
                ready = watched.writable(), if waits_for_room => {
                    let Ok(mut ready) = ready else { return ControlFlow::Break(()) };
                    self.control.flush();
                    let is_sent = self.send_unsent(&mut self.announcements());
                    if !is_sent || self.control.has_unsent() {
                        ready.clear_ready();
                    }
                }
                () = self.channel_full.notified() => {}
            }
        }
        ControlFlow::Continue(())
    }

    fn on_disconnected(&self, connections: &ConnectionTable) {
        let has_clients = !connections.is_empty();
        (self.on_request)(SupervisorRequest::Disconnected { has_clients });
    }

    fn on_received(&self, context: &IoContext, received: &Received) {
        let connections = &context.connections;
        match received {
            // A supervisor that does not read gets no response. If it has disconnected, the end of
            // the channel is received next.
            Received::Message(Message::Ping(number)) => {
                let _ = self.send(Message::Pong(*number));
            }
            Received::Message(Message::Applied(number)) => {
                self.announcements().on_applied(*number);
                self.confirmed.notify_all();
            }
            Received::Message(Message::Drain) => (self.on_request)(SupervisorRequest::Drain),
            Received::Message(Message::Stop) => {
                // The application would wait for a client that does not read its response.
                if let Some(listener) = connections.public_listener() {
                    drain::cut(context, listener);
                }
                (self.on_request)(SupervisorRequest::Stop);
            }
            Received::Message(Message::TimeOut) => {
                connections.public_clients().iter().for_each(|client| client.time_out_request());
            }
            Received::Message(Message::Interrupt) => {
                (self.on_request)(SupervisorRequest::Interrupt);
            }
            Received::Message(Message::Collect) => (self.on_request)(SupervisorRequest::Collect),
            Received::Message(Message::Accept(number)) => {
                start_accepting(connections, self, *number);
            }
            Received::Message(Message::StopAccepting(number)) => {
                self.pause();
                let _ = self.send(Message::NotAccepting(*number));
            }
            Received::Message(Message::Retire(within)) => retire(connections, self, *within),
            Received::Message(Message::ReopenLog) => {
                (self.on_request)(SupervisorRequest::ReopenLog);
            }
            // These messages are only sent by workers, or come from another version. They need no
            // response.
            Received::Message(
                Message::Pong(_)
                | Message::Ready { .. }
                | Message::Leaving
                | Message::Accepting(_)
                | Message::NotAccepting(_),
            )
            | Received::Announcement(..)
            | Received::Error(_)
            | Received::Malformed
            | Received::Nothing
            | Received::End => {}
        }
    }
}
