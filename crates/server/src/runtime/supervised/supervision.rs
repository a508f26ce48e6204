//! The connection of a worker to its supervisor. It consists of:
//! - the control channel, a socket for messages such as pings
//! - the scoreboard, shared memory in which the worker publishes its counters
//! - the rings, shared memory in which requests and responses cross
//!
//! The worker's I/O thread reads the control channel, so the worker responds to the supervisor even
//! while the application is busy.

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rookery_system::fork::CloseInChild;
use rookery_worker_protocol::rings::{RingEnd, RingWakers};
use rookery_worker_protocol::{
    ControlChannel, ErrorReport, Inherited, MAX_ANNOUNCEMENT_SIZE, Message, Received,
    SharedScoreboard,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::announcements::{Announcements, Wait};
use super::request::{Confirmation, SupervisorRequest};
use crate::net::descriptor::close_in_child;
use crate::static_files::StaticFiles;

/// The connection of a worker to its supervisor. It receives messages after
/// [`Server::watch_supervisor`](crate::Server::watch_supervisor) was called.
pub struct Supervision {
    // Dropped before the descriptors, because another thread may reuse the number of a closed
    // descriptor.
    _close_in_child: CloseInChild,
    control: ControlChannel,
    scoreboard: Arc<SharedScoreboard>,
    announcements: Mutex<Announcements>,
    /// Wakes the threads that wait for the supervisor's confirmation of an announcement of static
    /// paths.
    confirmed: Condvar,
    /// Notifies the I/O thread that an announcement did not fit into the control channel, so that
    /// the thread sends the announcement later.
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
        let Inherited { control, scoreboard, rings } = inherited;
        let close_in_child = close_in_child(&control);
        let scoreboard = Arc::new(scoreboard);
        let supervision = Supervision {
            _close_in_child: close_in_child,
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
        self.control.send(message)
    }

    /// Sends the report of an error in R to the supervisor. Can be called from any thread. A report
    /// for which the control channel has no capacity is dropped.
    pub fn report_error(&self, report: &ErrorReport) {
        let _ = self.control.report_error(report);
    }

    /// Announces to the supervisor which static paths this process has. The supervisor serves them
    /// until the next announcement. Paths that do not fit into one message are left out. Returns
    /// false if there are such paths. Can be called from any thread.
    pub fn announce(&self, files: &StaticFiles) -> bool {
        let (bytes, is_complete) = files.announcement(MAX_ANNOUNCEMENT_SIZE);
        let mut announcements = self.announcements();
        let has_paths = !bytes.is_empty();
        // The message is sent while the lock is held, so that concurrent changes are sent in order.
        if announcements.change(bytes) && !self.send_unsent(&mut announcements) {
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
    supervision: Arc<Supervision>,
) -> impl Future<Output = ()> {
    // Created before the future is first polled, because from now on waiting for a confirmation
    // makes sense.
    let receiving = ReceivingGuard::begin(supervision);
    async move {
        let supervision = Arc::clone(&receiving.0);
        // Dropping the set aborts the task.
        let mut tasks = JoinSet::new();
        tasks.spawn_local(watch_rings(supervision));
        // Each call registers the descriptor for the events that are currently of interest.
        while receiving.0.receive_until_interest_changes().await.is_continue() {}
    }
}

/// Tells the application that records have arrived in the rings while it waits elsewhere.
async fn watch_rings(supervision: Arc<Supervision>) {
    let wakers = &supervision.wakers;
    // SAFETY: the watched value owns the descriptor, which stays open and unchanged.
    let watched =
        unsafe { AsyncFd::register_with_interest(wakers.watched_by_worker(), Interest::READABLE) };
    let Ok(watched) = watched else {
        // Without the registration, requests would wait until R looks for them by itself.
        supervision.on_disconnected();
        return;
    };
    while let Ok(mut ready) = watched.readable().await {
        wakers.on_worker_woken();
        ready.clear_ready();
        (supervision.on_request)(SupervisorRequest::RecordsArrived);
    }
}

impl Supervision {
    /// Returns true if an announcement waits for free space in the control channel.
    fn waits_for_room(&self) -> bool {
        self.announcements().unsent().is_some()
    }

    /// Receives the supervisor's messages until the control channel ends. While an announcement
    /// waits for free space in the channel, also waits until the channel is writable.
    /// Returns [`ControlFlow::Continue`] if the function must be called again because it must begin
    /// or cease to wait for the channel to be writable.
    async fn receive_until_interest_changes(self: &Arc<Supervision>) -> ControlFlow<()> {
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
            self.on_disconnected();
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
                            self.on_disconnected();
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
                () = self.channel_full.notified() => {}
            }
        }
        ControlFlow::Continue(())
    }

    fn on_disconnected(&self) {
        (self.on_request)(SupervisorRequest::Disconnected);
    }

    fn on_received(&self, received: &Received) {
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
            Received::Message(Message::Stop) => (self.on_request)(SupervisorRequest::Stop),
            Received::Message(Message::Interrupt) => {
                (self.on_request)(SupervisorRequest::Interrupt);
            }
            Received::Message(Message::Collect) => (self.on_request)(SupervisorRequest::Collect),
            // These messages are only sent by workers, or come from another version. They need no
            // response.
            Received::Message(Message::Pong(_) | Message::Ready { .. } | Message::Leaving)
            | Received::Announcement(..)
            | Received::Error(_)
            | Received::Malformed
            | Received::Nothing
            | Received::End => {}
        }
    }
}
