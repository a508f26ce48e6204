//! The supervisor: as many workers as there are to be, started, watched, replaced and ended. It runs on the process's first thread,
//! and the pool on the server's; what passes between them is the [`BackendRegistry`].

mod acceptor;
mod health;
mod lost_wakeup;
mod recycle;
mod replacement_queue;
mod restart_backoff;
mod slow_log;
mod state;
mod warmup;
mod worker_process;
mod worker_timeout;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use crate::backend_registry::BackendRegistry;
use crate::process::Exit;
pub use recycle::{MemoryLimit, RecyclePolicy};
use state::Supervisor;

/// What is to be run.
#[allow(clippy::struct_excessive_bools, reason = "choices that have nothing to do with each other")]
pub struct SupervisorConfig {
    /// How many workers.
    pub workers: u32,
    /// How many more that wait, ready, to take the place of one that ends.
    pub spares: u32,
    /// Whether the one that takes another's place is started beside it. Else, where memory is for so many and no more, the old one ends first.
    pub surges: bool,
    /// Makes the command of a worker, to which its descriptors and its folder of temporary files are added; or says why it cannot.
    /// It is told whether the worker is given the [public listeners](Self::public).
    pub command: Box<dyn Fn(bool) -> Result<Command, String> + Send>,
    /// The public listeners, which the front end has as well: while one worker is wanted and is the only one there is, it accepts on
    /// them in place of the front end. None: the front end always does.
    pub public: Option<PublicListeners>,
    /// Where the folder of sockets and temporary files is made.
    pub folder: PathBuf,
    /// How many descriptors a worker may have open: what this process might, before it raised that for itself.
    pub files: Option<libc::rlimit>,
    /// How long what takes time may take.
    pub times: Timeouts,
    /// What a new worker is asked for before it is given requests: paths.
    pub warmup: Vec<String>,
    /// How often each worker's start is tried again, after ever longer pauses, while none has ever
    /// been ready: what an app needs, such as a database, may come up later than it.
    pub start_retries: u32,
    /// Whether a worker that fails is started again. Otherwise its exit status becomes that of the
    /// server, as orchestrators ask that restart a service themselves.
    pub restarts: bool,
    /// Whether workers share the terminal of this process: its process group and its standard
    /// streams, so that R can prompt. Their output is then not prefixed.
    pub is_on_terminal: bool,
    /// Whether it is over when all workers end again and again without having answered anything. Else they are tried on.
    pub fails_fast: bool,
    /// When a worker is replaced by a new one.
    pub recycle: RecyclePolicy,
    /// Called with a line for the person who runs it.
    pub tell: fn(&str),
}

/// The public listeners, as they are handed to workers.
#[derive(Debug, Default)]
pub struct PublicListeners {
    /// The sockets of the address.
    pub sockets: Vec<OwnedFd>,
    /// The sockets from which requests in the clear are redirected to HTTPS.
    pub redirects: Vec<OwnedFd>,
    /// What the access log of a worker is written to that would otherwise go to its standard output.
    pub log: Option<OwnedFd>,
}

impl fmt::Debug for SupervisorConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SupervisorConfig")
            .field("workers", &self.workers)
            .field("times", &self.times)
            .finish_non_exhaustive()
    }
}

/// How long what takes time may take.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// From a worker's start until it is ready: it is ended then, and started again. Default 60 s.
    pub start: Duration,
    /// How long what a worker has in hand is waited for, before it is asked to end. Default 60 s.
    pub drain: Duration,
    /// How long its WebSockets are, where it has any and another is in its place already. Default: as long as the rest.
    pub sessions: Option<Duration>,
    /// How long it has to end once it has been asked, before it is killed. Default 15 s, of which its own drain takes ten.
    pub stop: Duration,
    /// How long R may be busy with one task before the worker is ended. Default: for ever.
    pub busy: Option<Duration>,
    /// Whether R is interrupted first then, and the worker is ended only if R stays busy. Default: not,
    /// since an interrupt can break a transaction.
    pub interrupts: bool,
    /// How long it goes on as before when it is to end, and only says that it will: until whoever sends requests has heard. Default: not at all.
    pub delay: Duration,
}

impl Timeouts {
    /// The same where WebSockets are not waited for any longer than requests: for a worker whose place or memory is wanted.
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
            interrupts: false,
            delay: Duration::ZERO,
        }
    }
}

/// How many descriptors this process may have open: to be asked before a server raises it.
pub fn open_files() -> Option<libc::rlimit> {
    let mut files = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a limit to write to.
    let told = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut files) };
    (told == 0).then_some(files)
}

/// Workers past that are a mistake: each is an R, with its memory.
pub const MOST_WORKERS: u32 = 1000;

/// What a person or a system asks for.
#[derive(Debug)]
pub enum SupervisorCommand {
    /// To replace all workers, one after the other.
    Reload,
    /// To replace all workers by those of another plan. [`SupervisorConfig::public`], [`SupervisorConfig::folder`],
    /// [`SupervisorConfig::files`] and [`SupervisorConfig::is_on_terminal`] stay as they are.
    Change(Box<SupervisorConfig>),
    /// To report that a reload was asked for and refused, with the reason.
    RefuseReload(String),
    /// To have workers reopen the file of the access log.
    ReopenLog,
    /// One worker more, up to [`MOST_WORKERS`].
    More,
    /// One less: the one with the fewest WebSockets, and of those the youngest. The last stays.
    Fewer,
    /// To finish what is in hand, and end; a second one, to end at once.
    Stop,
}

/// The server in front of the workers.
pub trait Frontend {
    /// Workers answer from now on.
    fn ready(&self);

    /// It is to accept nothing new, and to finish what it has.
    fn drain(&self);

    /// Accepts connections, or leaves that to a worker that has its listeners as well. Nothing more is accepted once this has
    /// returned for `false`.
    fn set_accepting(&self, _is_on: bool) {}

    /// Returns true while it cannot be left to a worker to accept.
    fn must_accept(&self) -> bool {
        false
    }

    /// How many connections it has. Asked at least every second: one that does not answer has the supervisor wait, and so whoever
    /// watches that.
    fn connections(&self) -> usize;

    /// Lines that its access log has lost.
    fn log_lines_lost(&self) -> u64 {
        0
    }

    /// How often it is to [turn](SupervisorEvent::Turned) at least, a second at most: whoever watches it may wait for less.
    fn turns_every(&self) -> Duration {
        Duration::MAX
    }

    /// What others may want to know.
    fn hear(&self, _news: SupervisorEvent<'_>) {}
}

/// What happens to a supervisor, for whoever watches it.
#[derive(Debug, Clone, Copy)]
pub enum SupervisorEvent<'a> {
    /// It runs; what is its alone lies in this folder.
    Started(&'a Path),
    /// It has turned once more, as it does at least every second.
    Turned {
        /// How many workers are given requests.
        ready: usize,
        /// Of how many.
        workers: usize,
        /// How many workers have ended within the last minute without having been asked to.
        failures: usize,
    },
    /// It ends because workers fail, with the last message of the app if it had one.
    Failed(&'a str),
    /// It will end, and serves on for a while.
    Leaving,
    /// It replaces its workers.
    Reloading,
    /// It does not any more: they have been replaced, or could not be.
    Reloaded,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// As asked.
    Stopped,
    /// No worker ever became ready: each ended before, and so did all its retries.
    NeverReady,
    /// All workers ended again and again without having answered anything.
    CrashLoop,
    /// A worker ended by itself, and is not to be started again: it has finished (status 0), or
    /// [`SupervisorConfig::restarts`] is false.
    Ended(Exit),
}

/// Runs workers until it is asked to stop. Called on the process's first thread: workers end when the thread does that has started
/// them.
///
/// # Errors
/// The system's: no folder, no runtime.
pub fn supervise(
    plan: SupervisorConfig,
    registry: Arc<BackendRegistry>,
    requests: UnboundedReceiver<SupervisorCommand>,
    front: &dyn Frontend,
) -> io::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(1)
        .build_local(tokio::runtime::LocalOptions::default())?;
    runtime.block_on(async { Supervisor::new(plan, registry, front)?.run(requests).await })
}
