//! Starting a worker.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rookery_status::RunFolder;
use rookery_worker_protocol::{
    ControlChannel, PublicDescriptors, SharedScoreboard, WorkerEnvironment,
};
use tokio::net::unix::pipe;

use crate::worker_id::WorkerId;

/// How much sooner than the supervisor a worker is chosen when the machine has no memory left.
const SOONER: i32 = 500;

/// What numerical libraries read how many threads to start from: each worker would start one for each core.
const THREADS: [&str; 3] = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"];

/// Which start of which worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkerStart {
    pub(crate) slot: u32,
    /// Of how many, spares included.
    pub(crate) workers: u32,
    /// How many of them are to serve at a time.
    pub(crate) serving: u32,
    pub(crate) epoch: u64,
    pub(crate) generation: u64,
    /// Whether it is given the public listeners.
    pub(crate) is_public: bool,
}

/// A worker that was started.
#[derive(Debug)]
pub(crate) struct Spawned {
    pub(crate) child: Child,
    pub(crate) control: ControlChannel,
    pub(crate) scoreboard: SharedScoreboard,
    pub(crate) id: WorkerId,
    pub(crate) socket: PathBuf,
    pub(crate) temporary: PathBuf,
    /// Its stdout and stderr, unless it shares ours.
    pub(crate) streams: Option<[pipe::Receiver; 2]>,
}

/// Starts a worker. To be called on the process's first thread: the worker is told to end when the thread does that has started it.
/// `files` is how many descriptors it may have. One that `is_on_terminal` has our process group and
/// our standard streams.
pub(crate) fn spawn(
    mut command: Command,
    folder: &RunFolder,
    start: WorkerStart,
    files: Option<libc::rlimit>,
    public: PublicDescriptors<'_>,
    is_on_terminal: bool,
) -> io::Result<Spawned> {
    let socket = folder.socket(start.slot, start.epoch);
    let temporary = folder.temporary(start.slot, start.epoch)?;
    let listener = UnixListener::bind(&socket)?;
    let (control, their_control) = ControlChannel::pair()?;
    let (scoreboard, memory) = SharedScoreboard::create()?;
    let id = WorkerId::new()?;
    let called = id.to_string();
    for name in rookery_worker_protocol::NAMES {
        command.env_remove(name);
    }
    let threads = (std::thread::available_parallelism().map_or(1, usize::from)
        / start.serving as usize)
        .max(1);
    for name in THREADS {
        if std::env::var_os(name).is_none() {
            command.env(name, threads.to_string());
        }
    }
    let hand_over = WorkerEnvironment {
        listener: listener.as_fd(),
        control: their_control.as_fd(),
        scoreboard: memory.as_fd(),
        worker: start.slot,
        workers: start.workers,
        generation: start.generation,
        id: &called,
        public,
    };
    hand_over.apply(&mut command);
    command.env("TMPDIR", &temporary);
    if !is_on_terminal {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C at a terminal is the supervisor's to hear.
            .process_group(0);
    }
    // SAFETY: passes no memory.
    let parent = unsafe { libc::getpid() };
    // SAFETY: `settle` makes system calls alone, with memory of its own.
    unsafe { command.pre_exec(move || settle(parent, files)) };
    let mut child = command.spawn()?;
    let pipes = (child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from));
    let streams = match pipes {
        (Some(stdout), Some(stderr)) => pipe::Receiver::from_owned_fd(stdout)
            .and_then(|stdout| Ok(Some([stdout, pipe::Receiver::from_owned_fd(stderr)?]))),
        _ => Ok(None),
    };
    match streams {
        Ok(streams) => {
            be_chosen_sooner(child.id());
            // The listener is the worker's alone now: it ends with it, and whoever waits to be accepted hears of that.
            Ok(Spawned { child, control, scoreboard, id, socket, temporary, streams })
        }
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

/// In the new process, before it becomes what it is to be.
fn settle(parent: libc::pid_t, files: Option<libc::rlimit>) -> io::Result<()> {
    // SAFETY: system calls, with a set and a limit that lie here; `zeroed` is a valid set to make one of.
    unsafe {
        // The supervisor's threads wait for signals, and have them blocked.
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        if let Some(files) = files {
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const files);
        }
        // Inherited; what is good for a server's memory is not for R's.
        libc::prctl(libc::PR_SET_THP_DISABLE, 0, 0, 0, 0);
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) != 0 {
            return Err(io::Error::last_os_error());
        }
        // It may have gone before that.
        if libc::getppid() != parent {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
    }
    Ok(())
}

/// Has the system end a worker rather than its supervisor when memory runs out. Needs no right, and where it fails nothing is lost.
fn be_chosen_sooner(pid: u32) {
    let own = fs::read_to_string("/proc/self/oom_score_adj").ok();
    let own: i32 = own.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let _ = fs::write(format!("/proc/{pid}/oom_score_adj"), (own + SOONER).min(1000).to_string());
}
