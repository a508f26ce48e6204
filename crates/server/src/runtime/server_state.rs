//! The state that a server and its listeners share: the configuration, the link to the application,
//! and the handle of the I/O thread.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;

use rookery_exchange::{AppWaker, Budget, Link, ListenerId, Share};
use rookery_system::signals::with_signals_blocked;
use rookery_trace::Tracer;
use rookery_worker_protocol::SharedScoreboard;

use super::commands::{CommandQueue, IoCommand};
use super::counted_rejections::CountedRejections;
use super::io_thread::{IoThreadConfig, run};
use super::listen_error::ListenError;
use super::supervised::supervision::Supervision;
use crate::application::application::MakeApplication;
use crate::config::{Config, Limits};
use crate::connections::memory_budget;
use crate::http::listener_config::ListenerConfig;
use crate::logging::access_log::pending_record::CurrentLog;
use crate::net::descriptor;
use crate::net::listen::ListeningSocket;
use crate::rejection::RejectionReports;

/// The state that a server and its listeners share: the configuration, the link to the application,
/// and the handle of the I/O thread.
pub(super) struct ServerState {
    pub(super) link: Arc<Link>,
    application: Option<MakeApplication>,
    pub(super) config: Config,
    pub(super) log: Arc<CurrentLog>,
    pub(super) reports: Arc<RejectionReports>,
    counted: CountedRejections,
    pub(super) budget: Arc<Budget>,
    supervision: OnceLock<Arc<Supervision>>,
    own_scoreboard: Mutex<Option<Arc<SharedScoreboard>>>,
    pub(super) tracer: Mutex<Option<Arc<Tracer>>>,
    thread: Mutex<Option<Thread>>,
}

/// The id of the next listener. Ids of listeners are unique in the process.
static NEXT_LISTENER: AtomicU32 = AtomicU32::new(1);

struct Thread {
    commands: Arc<CommandQueue>,
    handle: JoinHandle<()>,
}

impl ServerState {
    pub(super) fn new(
        config: Config,
        app_waker: Box<dyn AppWaker>,
        application: Option<MakeApplication>,
    ) -> ServerState {
        let counted = CountedRejections::default();
        let waiting = memory_budget::message_queue_bytes(&config.limits)
            .min(config.queue.ws_max_receive_queue_size);
        let queue =
            rookery_exchange::QueueLimits { ws_max_receive_queue_size: waiting, ..config.queue };
        ServerState {
            link: Link::new(queue, app_waker),
            application,
            budget: memory_budget::budget(&config.limits),
            config,
            log: Arc::default(),
            reports: Arc::new(counted.reports()),
            counted,
            supervision: OnceLock::new(),
            own_scoreboard: Mutex::default(),
            tracer: Mutex::default(),
            thread: Mutex::new(None),
        }
    }

    /// Starts a listener on sockets with a common configuration. Starts the I/O thread if it is not
    /// running.
    pub(super) fn listen(
        &self,
        sockets: Vec<ListeningSocket>,
        config: ListenerConfig,
    ) -> Result<ListenerId, ListenError> {
        let listener = NEXT_LISTENER.fetch_add(1, Ordering::Relaxed);
        let config = Box::new(config);
        self.execute_starting_thread(|done| IoCommand::Listen { listener, sockets, config, done })?;
        Ok(listener)
    }

    /// Raises the process's limit on file descriptors to what `limits` need, and limits the files
    /// of clients to those for which the process then has descriptors.
    pub(super) fn raise_descriptor_limit(&self, limits: &Limits) {
        let files = descriptor::raise_limit(limits.max_connections);
        self.budget.set_limit(Share::Descriptors, files);
    }

    /// Makes the I/O thread receive the supervisor's messages. Starts the thread if it is not
    /// running. Must be called before any listener starts.
    pub(super) fn watch_supervisor(
        &self,
        supervision: Arc<Supervision>,
    ) -> Result<(), ListenError> {
        // A process has only one supervisor, so a second value stands for the same one.
        let supervision = Arc::clone(self.supervision.get_or_init(|| supervision));
        self.execute_starting_thread(|done| IoCommand::WatchSupervisor { supervision, done })
    }

    /// Sets the scoreboard (shared memory) in which the application's work is recorded. Takes
    /// effect when the I/O thread starts next.
    pub(super) fn set_scoreboard(&self, scoreboard: Option<Arc<SharedScoreboard>>) {
        *self.own_scoreboard.lock().unwrap_or_else(PoisonError::into_inner) = scoreboard;
    }

    /// Sends a command to the I/O thread and waits for the result. Starts the thread if it is not
    /// running.
    fn execute_starting_thread(
        &self,
        make: impl FnOnce(mpsc::Sender<io::Result<()>>) -> IoCommand,
    ) -> Result<(), ListenError> {
        let (done, done_receiver) = mpsc::channel();
        let mut command = make(done);
        let mut thread = self.thread();
        if let Some(running) = &*thread {
            let commands = Arc::clone(&running.commands);
            match commands.push(command) {
                Ok(()) => {
                    drop(thread);
                    return wait_until_done(&done_receiver, &commands);
                }
                Err(refused) => command = refused,
            }
        }
        if let Some(finished) = thread.take() {
            // The thread has already decided to end, and its result is empty.
            let _ = finished.handle.join();
        }
        let commands = Arc::new(CommandQueue::default());
        // The command is queued before the thread starts, because the thread ends when it finds
        // nothing to do.
        let _ = commands.push(command);
        let thread_config = IoThreadConfig {
            link: Arc::clone(&self.link),
            application: self.application.clone(),
            limits: self.config.limits,
            trim: self.config.trim,
            log: Arc::clone(&self.log),
            reports: Arc::clone(&self.reports),
            counted: self.counted.clone(),
            budget: Arc::clone(&self.budget),
            tracer: self.tracer.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            supervision: self.supervision.get().cloned(),
            own_scoreboard: self
                .own_scoreboard
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        };
        let thread_commands = Arc::clone(&commands);
        let handle = with_signals_blocked(|| {
            std::thread::Builder::new()
                .name("rookery-io".to_owned())
                .spawn(move || run(thread_config, &thread_commands))
        })
        .map_err(ListenError::Thread)?;
        *thread = Some(Thread { commands: Arc::clone(&commands), handle });
        drop(thread);
        wait_until_done(&done_receiver, &commands)
    }

    /// Sends a command to the I/O thread and waits for the result. Returns `None` if the thread is
    /// not running.
    pub(super) fn execute<T>(&self, make: impl FnOnce(mpsc::Sender<T>) -> IoCommand) -> Option<T> {
        let (done, done_receiver) = mpsc::channel();
        let commands = Arc::clone(&self.thread().as_ref()?.commands);
        commands.push(make(done)).ok()?;
        done_receiver.recv().ok()
    }

    /// Joins the I/O thread if it has decided to end. If `is_forced` is true, waits in any case
    /// until the thread has ended.
    pub(super) fn join_if_finished(&self, is_forced: bool) {
        let mut thread = self.thread();
        let is_finished =
            thread.as_ref().is_some_and(|running| is_forced || running.commands.is_closed());
        if is_finished {
            if let Some(finished) = thread.take() {
                let _ = finished.handle.join();
            }
        }
    }

    fn thread(&self) -> MutexGuard<'_, Option<Thread>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until the I/O thread has executed a command. Returns an error if the command has failed or
/// the thread has ended.
fn wait_until_done(
    done_receiver: &mpsc::Receiver<io::Result<()>>,
    commands: &CommandQueue,
) -> Result<(), ListenError> {
    match done_receiver.recv() {
        Ok(Ok(())) => Ok(()),
        Ok(Err(source)) => Err(ListenError::Thread(source)),
        // The thread has dropped the command, so it has ended.
        Err(mpsc::RecvError) => Err(ListenError::Thread(commands.take_failure())),
    }
}

impl fmt::Debug for ServerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerState").finish_non_exhaustive()
    }
}
