//! Functions that start worker processes.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rookery_status::RunFolder;
use rookery_worker_protocol::rings::RingEnd;
use rookery_worker_protocol::{ControlChannel, Gate, SharedScoreboard, WorkerEnvironment};
use tokio::net::unix::pipe;

use crate::backend::Backend;
use crate::worker_id::WorkerId;

/// The amount that is added to a worker's OOM score. When the machine has no memory left, the
/// system therefore kills workers before the supervisor.
const SOONER: i32 = 500;

/// The environment variables that limit the number of threads of numerical libraries. Without such
/// a limit, these libraries would start a thread for each core in every worker.
const THREADS: [&str; 3] = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"];

/// The environment variable with the attributes that spans, metrics and logs of a process have.
const RESOURCE: &str = "OTEL_RESOURCE_ATTRIBUTES";

/// Returns the attributes of a worker for `OTEL_RESOURCE_ATTRIBUTES`: those that the environment
/// has, and an identity of the worker process unless the environment has one.
fn resource_attributes(given: Option<String>) -> String {
    const IDENTITY: &str = "service.instance.id";
    let given = given.filter(|given| !given.trim().is_empty());
    let has_identity = given
        .as_deref()
        .is_some_and(|given| rookery_trace::pairs(given).iter().any(|(name, _)| name == IDENTITY));
    let own = (!has_identity).then(|| format!("{IDENTITY}={}", rookery_trace::instance_id()));
    [given, own].into_iter().flatten().collect::<Vec<_>>().join(",")
}

/// The description of a worker process that is to be started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkerStart {
    pub(crate) slot: u32,
    /// The total number of workers, including spares.
    pub(crate) workers: u32,
    /// The number of workers that serve requests at the same time, not including spares.
    pub(crate) serving: u32,
    pub(crate) epoch: u64,
    pub(crate) generation: u64,
}

/// A worker process that has been started, with the supervisor's ends of its pipes and sockets.
#[derive(Debug)]
pub(crate) struct Spawned {
    pub(crate) backend: Arc<Backend>,
    pub(crate) control: ControlChannel,
    /// The pipes from which the worker's stdout and stderr are read; `None` if the worker shares
    /// the streams of this process.
    pub(crate) streams: Option<[pipe::Receiver; 2]>,
}

/// Starts a worker process. Must be called on the main thread, because the system sends the worker
/// a signal when the thread that started it ends. `files` is the worker's limit of open
/// descriptors, and `gate` that of a preloaded worker. If `is_on_terminal` is true, the worker
/// shares the process group and the standard streams of this process.
pub(crate) fn spawn(
    mut command: Command,
    folder: &RunFolder,
    start: WorkerStart,
    files: Option<libc::rlimit>,
    gate: Option<Gate<'_>>,
    is_on_terminal: bool,
) -> io::Result<Spawned> {
    let temporary = folder.temporary(start.slot, start.epoch)?;
    let (control, their_control) = ControlChannel::pair()?;
    let (scoreboard, memory) = SharedScoreboard::create()?;
    let (end, wakers, handles) = RingEnd::create()?;
    let id = WorkerId::new()?;
    let called = id.to_string();
    let is_preloaded = gate.is_some();
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
    command.env(RESOURCE, resource_attributes(std::env::var(RESOURCE).ok()));
    let hand_over = WorkerEnvironment {
        control: their_control.as_fd(),
        scoreboard: memory.as_fd(),
        worker: start.slot,
        workers: start.workers,
        generation: start.generation,
        id: &called,
        gate,
        rings: &handles,
    };
    hand_over.apply(&mut command);
    command.env("TMPDIR", &temporary);
    if !is_on_terminal {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A process group of its own keeps Ctrl-C at a terminal from reaching the worker, so
            // that only the supervisor receives the signal.
            .process_group(0);
    }
    // SAFETY: the call passes no memory.
    let parent = unsafe { libc::getpid() };
    // SAFETY: `settle` only makes system calls, which are async-signal-safe, and uses no memory but
    // its own stack.
    unsafe { command.pre_exec(move || settle(parent, files, is_preloaded)) };
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
            let (numbers, rings) = ((start.slot, start.epoch), (end, wakers));
            let backend = Backend::new(numbers, child.id(), id, temporary, scoreboard, rings);
            Ok(Spawned { backend, control, streams })
        }
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

/// Sets up a new worker process between fork and exec.
fn settle(parent: libc::pid_t, files: Option<libc::rlimit>, is_preloaded: bool) -> io::Result<()> {
    // SAFETY: all pointers refer to local variables and to `files`, and a zeroed set is valid for
    // `sigemptyset`.
    unsafe {
        // The new process inherits the blocked signals of the supervisor's threads, which receive
        // signals by waiting for them.
        let mut blocked: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut blocked);
        if is_preloaded {
            // At a terminal, Ctrl-C is meant for the worker that serves. The preloaded worker
            // unblocks the signal when it may read the app (r/src/supervised_worker.c).
            libc::sigaddset(&raw mut blocked, libc::SIGINT);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const blocked, std::ptr::null_mut());
        if let Some(files) = files {
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const files);
        }
        request_death_signal()?;
        // The supervisor may have ended before the death signal was requested.
        if libc::getppid() != parent {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
    }
    Ok(())
}

/// Makes the system send SIGTERM to this new process when the supervisor ends, and enables
/// transparent huge pages again, which the supervisor has disabled for itself and which are useful
/// for R. Once the worker reads its control channel, it turns the signal off, and ends when the
/// channel does.
fn request_death_signal() -> io::Result<()> {
    // SAFETY: the calls take no pointers.
    unsafe {
        libc::prctl(libc::PR_SET_THP_DISABLE, 0, 0, 0, 0);
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Makes the system kill this worker rather than the supervisor when memory runs out. Errors are
/// ignored.
fn be_chosen_sooner(pid: u32) {
    let own = fs::read_to_string("/proc/self/oom_score_adj").ok();
    let own: i32 = own.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let _ = fs::write(format!("/proc/{pid}/oom_score_adj"), (own + SOONER).min(1000).to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_has_an_identity_unless_one_is_set() {
        let of = |given: Option<&str>| resource_attributes(given.map(str::to_owned));
        for (given, start) in [
            (None, "service.instance.id="),
            (Some(" "), "service.instance.id="),
            (Some("a=b"), "a=b,service.instance.id="),
        ] {
            let [one, other] = [of(given), of(given)];
            assert!(one.starts_with(start) && one.len() == start.len() + 36, "{one}");
            assert_ne!(one, other);
        }
        let given = "service.instance.id=mine,a=b";
        assert_eq!(of(Some(given)), given);
    }
}
