//! The supervisor, which starts, watches, replaces and stops workers. The supervisor runs on the
//! process's first thread and the pool on the server's thread. Both share the [`BackendRegistry`].

mod app;
mod clock;
mod health;
mod pool;
mod recycle;
mod replace_reason;
mod reporting;
mod scaling;
mod server;
mod slot;
mod worker;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rookery_system::blocking::BlockingPool;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::backend_registry::BackendRegistry;
use crate::process::Exit;
pub use recycle::{MemoryLimit, RecyclePolicy};
use server::Server;

/// The configuration of a supervisor.
#[allow(clippy::struct_excessive_bools, reason = "choices that have nothing to do with each other")]
pub struct SupervisorConfig {
    /// The number of workers that serve requests.
    pub workers: u32,
    /// The number of started workers held in reserve. A spare replaces a worker that ends.
    pub spares: u32,
    /// Whether a worker is replaced with overlap: the new worker is started while the old one still
    /// serves. If false, for example because there is not enough memory for an additional worker,
    /// the old worker ends first.
    pub surges: bool,
    /// The function that creates the command to start a worker, or returns an error message. The
    /// supervisor adds the worker's descriptors and its folder of temporary files to the command.
    pub command: Box<dyn Fn() -> Result<Command, String> + Send>,
    /// The folder in which the supervisor creates a folder for its admin socket and temporary
    /// files.
    pub folder: PathBuf,
    /// The limit of open file descriptors of a worker. It is the limit that this process had before
    /// the server raised its own.
    pub files: Option<libc::rlimit>,
    /// The time limits for starts, drains and stops of workers.
    pub times: Timeouts,
    /// The paths that are requested from a new worker before it gets requests of clients.
    pub warmup: Vec<String>,
    /// The number of times that each worker's start is repeated, after increasing pauses, while no
    /// worker has ever become ready. Retries help if a dependency of the app, such as a database,
    /// starts later than the server.
    pub start_retries: u32,
    /// Whether a worker that fails is started again. If false, the server exits with the worker's
    /// exit status, for orchestrators that restart a service themselves.
    pub restarts: bool,
    /// Whether the app is being developed. A worker that fails before it is ready is then started
    /// again only at the next reload, since the app has to be changed first. A reload also stops
    /// workers that are still starting, and if there is only one worker, a spare R process has
    /// already loaded the packages of the app.
    pub is_dev: bool,
    /// Whether workers share the terminal of this process: its process group and its standard
    /// streams, so that R can prompt. Their output is then not prefixed.
    pub is_on_terminal: bool,
    /// Whether the server ends when all workers end repeatedly without having answered a request.
    /// If false, the workers are restarted indefinitely.
    pub fails_fast: bool,
    /// The conditions under which a worker is replaced by a new one.
    pub recycle: RecyclePolicy,
    /// The function that logs a line for the operator.
    pub log: fn(&str),
    /// The function that logs a line about a failure.
    pub warn: fn(&str),
}

impl fmt::Debug for SupervisorConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SupervisorConfig")
            .field("workers", &self.workers)
            .field("times", &self.times)
            .finish_non_exhaustive()
    }
}

/// The time limits for starts, drains and stops of workers.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// The start timeout: the time within which a started worker must become ready. After it, the
    /// worker is stopped and started again. Default: 60 s.
    pub start: Duration,
    /// The drain timeout: the time that a draining worker has to finish its requests before it is
    /// stopped. Default: 60 s.
    pub drain: Duration,
    /// The maximum time for which the WebSockets of a draining worker stay open if its replacement
    /// already serves. Default: the value of [`drain`](Self::drain).
    pub sessions: Option<Duration>,
    /// The stop timeout: a worker is killed if it has not exited this long after the request to
    /// stop. Default: 15 s, because R may first finish its current task, for up to nine seconds,
    /// but no longer than the drain lasts.
    pub stop: Duration,
    /// The worker timeout: the time for which R may be busy with one task before the worker is
    /// stopped. Default: unlimited.
    pub busy: Option<Duration>,
    /// The time after which a task of R is reported in the program's messages. `None` to report
    /// none. Default: 10 s.
    pub slow: Option<Duration>,
    /// Whether R is interrupted after the time in [`busy`](Self::busy), so that the worker is
    /// stopped only if R stays busy. Default: false, since an interrupt can break a transaction.
    pub interrupts: bool,
    /// The time for which the server continues to serve after it has been requested to stop. During
    /// this time it reports itself as not ready, so that load balancers stop sending requests.
    /// Default: zero.
    pub delay: Duration,
}

impl Timeouts {
    /// Returns these time limits with a shorter limit for WebSockets: at most the drain timeout of
    /// requests. Used for a draining worker that must end soon, because its memory or its slot (its
    /// numbered place) is needed.
    fn without_sessions(self) -> Timeouts {
        Timeouts { sessions: self.sessions.map(|sessions| sessions.min(self.drain)), ..self }
    }
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            start: Duration::from_secs(60),
            drain: Duration::from_secs(60),
            sessions: None,
            stop: rookery_worker_protocol::EXIT_TIMEOUT,
            busy: None,
            slow: Some(Duration::from_secs(10)),
            interrupts: false,
            delay: Duration::ZERO,
        }
    }
}

/// Returns the limit of open file descriptors of this process. Call this before a server raises the
/// limit.
pub fn open_files() -> Option<libc::rlimit> {
    let mut files = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is valid for writing an `rlimit`.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut files) };
    (result == 0).then_some(files)
}

/// The maximum number of workers. Each worker is an R process with its own memory, so a larger
/// number is taken for a mistake.
pub const MOST_WORKERS: u32 = 1000;

/// A command that an operator or a service manager sends to the supervisor.
#[derive(Debug)]
pub enum SupervisorCommand {
    /// Replaces all workers, one after the other.
    Reload,
    /// Replaces all workers by workers with another configuration. [`SupervisorConfig::folder`],
    /// [`SupervisorConfig::files`], [`SupervisorConfig::log`] and
    /// [`SupervisorConfig::is_on_terminal`] keep their values.
    Change(Box<SupervisorConfig>),
    /// Refuses a reload for this reason, for example an invalid configuration. No worker is
    /// replaced.
    RefuseReload(String),
    /// Adds one worker, up to [`MOST_WORKERS`].
    AddWorker,
    /// Removes the worker with the fewest WebSockets, and among equals the youngest. The last
    /// worker cannot be removed.
    RemoveWorker,
    /// Stops the server after the requests in progress have been finished. A second `Stop` ends the
    /// server at once.
    Stop,
}

/// The front end: the server that accepts connections and passes requests to the workers.
pub trait Frontend {
    /// Called when the first worker is ready, so that the server can respond to requests. `app` is
    /// the kind of app, such as `Shiny app (app.R)`, if R has announced it.
    fn on_ready(&self, app: Option<&str>);

    /// Stops accepting connections and finishes the requests in progress. The WebSockets are closed
    /// one after the other in the time `close_over`.
    fn drain(&self, close_over: Duration);

    /// Cuts off the responses that are still being sent, because the time to drain is over.
    fn cut(&self);

    /// Returns the number of the front end's open connections. The supervisor calls this about once
    /// a second. It must return soon, because the supervisor's main loop and heartbeat wait for it.
    fn connections(&self) -> usize;

    /// Returns the number of lines that the front end's access log has lost.
    fn log_lines_lost(&self) -> u64 {
        0
    }

    /// Returns the maximum time between two [`SupervisorEvent::Heartbeat`] events. The supervisor
    /// limits it to one second. A service manager's watchdog may require a shorter time.
    fn heartbeat_interval(&self) -> Duration {
        Duration::MAX
    }

    /// Returns the reason why a thread has failed without which the server cannot serve or be
    /// controlled, or `None` if there is no such failure. The supervisor calls this in each
    /// iteration of its loop, and ends the server after a failure.
    fn take_thread_failure(&self) -> Option<String> {
        None
    }

    /// Handles an event of the supervisor.
    fn on_event(&self, _event: SupervisorEvent<'_>) {}
}

/// An event of the supervisor, which the front end reports to service managers and log readers.
#[derive(Debug, Clone, Copy)]
pub enum SupervisorEvent<'a> {
    /// The supervisor runs, and has created this folder for its private files.
    Started(&'a Path),
    /// The supervisor has completed an iteration of its loop, as it does at least every second
    /// until a thread fails ([`Frontend::take_thread_failure`]).
    Heartbeat {
        /// The number of workers that get requests.
        ready: usize,
        /// The number of workers that should get requests.
        workers: usize,
        /// The number of workers that failed within the last minute.
        failures: usize,
    },
    /// The server ends because no worker became ready.
    Failed {
        /// The last error message of the app.
        message: &'a str,
        /// The number of failed starts of a worker.
        starts: u32,
    },
    /// The server has been requested to stop, and still serves for [`Timeouts::delay`].
    Leaving,
    /// The app is ready for the first time, or again after a reload or a reported
    /// [`StartFailed`](Self::StartFailed).
    AppReady,
    /// The app cannot be started. Reported only in development, where the next reload tries again.
    StartFailed {
        /// The end of the worker process, as the predicate of a sentence.
        exit: &'a str,
        /// The worker process's own description of the failure, as text and as an HTML page.
        report: Option<&'a StartReport>,
    },
    /// R code has failed in a session. The worker has described the error: the first line is the
    /// beginning of the id of the session, and an HTML page follows. Reported only in development.
    SessionError(&'a [u8]),
    /// A reload has begun, which replaces all workers.
    Reloading,
    /// A reload has ended, successfully or not.
    Reloaded,
}

/// The description of a failed start that a worker has written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StartReport {
    /// The error of the app and the calls that have led to it, as lines of text.
    pub text: String,
    /// A page with the source lines of these calls, as HTML.
    pub page: Vec<u8>,
}

/// The reason why a supervisor ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The server was requested to stop.
    Stopped,
    /// No worker ever became ready, because each start and all its retries failed.
    NeverReady,
    /// All workers ended repeatedly without having answered a request.
    CrashLoop,
    /// A thread that the server depends on has failed ([`Frontend::take_thread_failure`]).
    ThreadFailed,
    /// A worker ended by itself and is not started again, because it has finished (status 0) or
    /// because [`SupervisorConfig::restarts`] is false.
    Ended(Exit),
}

/// Runs workers until the server ends, and returns the reason. Must be called on the process's
/// first thread, because each worker receives a signal to end when the thread that started it ends.
///
/// # Errors
/// Returns the system's error if the supervisor's folder or its async runtime cannot be created.
pub fn supervise(
    config: SupervisorConfig,
    registry: Arc<BackendRegistry>,
    commands: UnboundedReceiver<SupervisorCommand>,
    frontend: &dyn Frontend,
) -> io::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build_local(tokio::runtime::LocalOptions::default())?;
    // It removes the files of ended workers. Its threads are joined last.
    let pool = BlockingPool::on_demand("rookery-remove", 1);
    let entered = pool.enter();
    let outcome = runtime
        .block_on(async { Ok(Server::new(config, registry, frontend)?.run(commands).await) });
    drop((runtime, entered));
    pool.join();
    outcome
}
