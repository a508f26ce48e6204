//! The start of a worker: its process, and the tasks that read its output and its control channel.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use rookery_server::output::{self, LineStyle, Origin};
use rookery_status::{RunFolder, Utilization};
use rookery_worker_protocol::{ControlChannel, Gate, Received};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;

use super::log_timer::LogTimer;
use super::process::{Process, WorkerEvent};
use super::{Worker, WorkerPhase};
use crate::backend_registry::BackendRegistry;
use crate::process::{Spawned, StartOutput, WorkerStart, pass_on, spawn, wait};
use crate::supervise::SupervisorConfig;
use crate::supervise::clock;
use crate::supervise::health::WorkerHealth;
use crate::supervise::recycle::MemoryWatch;

/// Where the processes of workers come from: what all starts of workers of a server share.
#[derive(Debug)]
pub(crate) struct ProcessOrigin {
    /// The folder of the temporary files of workers.
    pub(crate) folder: RunFolder,
    /// The number of starts so far, which is also the epoch of the worker that was started last.
    pub(crate) starts: u64,
    /// The filter for the output of workers that are started before any worker has been ready.
    pub(crate) output: StartOutput,
    /// The channel to which the events of workers are sent.
    pub(crate) events: Sender<WorkerEvent>,
}

impl ProcessOrigin {
    /// Starts a worker, whose epoch is the next number. If the worker is to be preloaded,
    /// `packages` are the names of the packages that it loads before it waits at its gate.
    pub(crate) fn start(
        &mut self,
        start: WorkerStart,
        packages: Option<&str>,
        config: &SupervisorConfig,
        registry: &Arc<BackendRegistry>,
    ) -> io::Result<Worker> {
        self.starts += 1;
        let start = WorkerStart { epoch: self.starts, ..start };
        let command = (config.command)().map_err(io::Error::other)?;
        let pipe = packages.map(|_| gate()).transpose()?;
        let gate = pipe
            .as_ref()
            .zip(packages)
            .map(|((_, receiver), packages)| Gate { descriptor: receiver.as_fd(), packages });
        let is_on_terminal = config.is_on_terminal;
        let Spawned { backend, control, streams } =
            spawn(command, &self.folder, start, config.files, gate, is_on_terminal)?;
        let pid = libc::pid_t::try_from(backend.pid).expect("the system has it in this type");
        let epoch = start.epoch;
        // The output lines of a single worker get no prefix.
        let prefix =
            if start.workers > 1 { format!("[{} {pid}] ", start.slot) } else { String::new() };
        let style = |stream| {
            if output::is_json() {
                LineStyle::Json(Origin { worker: Some(start.slot), pid: backend.pid, stream })
            } else {
                LineStyle::Prefixed(prefix.clone().into_bytes())
            }
        };
        let outputs = [(output::stdout(), "stdout"), (output::stderr(), "stderr")];
        let streams = streams.into_iter().flatten().zip(outputs);
        let mut output = JoinSet::new();
        for ((pipe, (to, stream)), kept) in streams.zip(self.output.begin()) {
            output.spawn_local(pass_on(to.clone(), pipe, style(stream), kept));
        }
        let control = Rc::new(control);
        let listening = listen(Rc::clone(&control), epoch, self.events.clone());
        let listening = tokio::task::spawn_local(listening);
        let events = self.events.clone();
        tokio::task::spawn_local(async move {
            wait(pid).await;
            // Messages that were sent before the end have been read or no longer matter.
            listening.abort();
            // Sending fails only if the supervisor has ended, and then nobody needs the event.
            let _ = events.send(WorkerEvent::Exited(epoch, pid)).await;
        });
        let process = Process {
            pid,
            backend,
            registry: Arc::clone(registry),
            health: WorkerHealth::default(),
            memory_watch: MemoryWatch::default(),
            memory_at_start: None,
            error_pages: 0,
            drain_log: LogTimer::default(),
            gate: pipe.map(|(sender, _)| sender),
            warm_up: JoinSet::new(),
            busy_ratio: Utilization::default(),
            start_time: SystemTime::now(),
            control,
            output,
            signal_target: if is_on_terminal { pid } else { -pid },
        };
        let mut worker = Worker::new(start, process, clock::now(), config.times.start);
        if worker.process.gate.is_some() {
            worker.phase = WorkerPhase::Gated;
        }
        Ok(worker)
    }
}

/// Returns the two ends of the pipe that is a worker's gate: the supervisor's and the worker's.
fn gate() -> io::Result<(File, OwnedFd)> {
    let (sender, receiver) = pipe::pipe()?;
    Ok((sender.into_blocking_fd()?.into(), receiver.into_blocking_fd()?))
}

/// Receives what a worker sends over its control channel and forwards it as events, until the
/// channel is closed. A worker that sends more than the supervisor handles has to wait.
async fn listen(control: Rc<ControlChannel>, epoch: u64, events: Sender<WorkerEvent>) {
    // SAFETY: the `ControlChannel` owns its descriptor, which stays open and unchanged until the
    // last `Rc` of it is dropped.
    let readable =
        unsafe { AsyncFd::register_with_interest(Rc::clone(&control), Interest::READABLE) };
    let Ok(readable) = readable else { return };
    loop {
        let Ok(mut guard) = readable.readable().await else { return };
        loop {
            match control.receive() {
                Received::Malformed => {}
                Received::Nothing => break,
                Received::End => return,
                received => {
                    if events.send(WorkerEvent::Received(epoch, received)).await.is_err() {
                        return;
                    }
                }
            }
        }
        guard.clear_ready();
    }
}
