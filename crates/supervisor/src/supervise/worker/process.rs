//! The process of a worker, and how the supervisor's decisions about the worker are carried out.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rookery_server::static_files::read_announcement;
use rookery_status::{ExitReason, READY, Utilization, visible_text};
use rookery_system::blocking;
use rookery_trace::{Kind, Span};
use rookery_worker_protocol::{ControlChannel, Message, Received, now as scoreboard_time};
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;

use super::log_timer::LogTimer;
use super::warmup::{WarmupResult, warm_up};
use super::worker_name::WorkerName;
use super::{Handle, Worker, WorkerAction, WorkerPhase};
use crate::backend::{Availability, Backend};
use crate::backend_registry::BackendRegistry;
use crate::state::ProcessState;
use crate::supervise::clock;
use crate::supervise::health::{Observation, WorkerHealth};
use crate::supervise::recycle::{MemoryWatch, RecyclePolicy, WorkerUsage};
use crate::supervise::replace_reason::ReplaceReason;
use crate::supervise::{StartReport, Timeouts};

/// An event of a worker. The first value of each variant is the worker's epoch (the number of its
/// start).
#[derive(Debug)]
pub(crate) enum WorkerEvent {
    /// A worker has sent something over its control channel.
    Received(u64, Received),
    /// The warm-up requests to a worker have succeeded or failed.
    WarmedUp(u64, WarmupResult),
    /// A worker process has ended and has to be reaped.
    Exited(u64, libc::pid_t),
}

/// The maximum time for which the output of an ended worker is still read. Without this limit, the
/// reading would never end if a process that has left the worker's process group holds the output
/// open.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum number of bytes that are read of a file with the description of a failed start.
const MAX_START_REPORT: u64 = 4 << 20;

/// The maximum number of bytes that are read of a file with an error of a session.
const MAX_ERROR_PAGE: u64 = 256 << 10;

/// The maximum number of bytes of the kind of app, and of a list of packages. The system limits
/// environment variables to 128 KiB.
const MAX_TEXT: u64 = 64 << 10;

/// The process of a worker, with everything that the supervisor needs to control and watch it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: libc::pid_t,
    pub(crate) backend: Arc<Backend>,
    pub(crate) registry: Arc<BackendRegistry>,
    pub(crate) health: WorkerHealth,
    pub(crate) memory_watch: MemoryWatch,
    /// The memory of the worker in bytes when it became ready. Measured only where a control group
    /// limits memory.
    pub(crate) memory_at_start: Option<u64>,
    /// The number of errors of sessions that the worker has written and the supervisor has read.
    pub(super) error_pages: u32,
    /// The timer of log lines about what the worker's drain waits for.
    pub(crate) drain_log: LogTimer,
    /// The pipe that a preloaded worker reads before it reads the app.
    pub(super) gate: Option<File>,
    /// The task that sends the warm-up requests, which ends with this value.
    pub(super) warm_up: JoinSet<()>,
    pub(super) busy_ratio: Utilization,
    /// The wall-clock time at which the process was started, for status reports.
    pub(super) start_time: SystemTime,
    pub(super) control: Rc<ControlChannel>,
    /// The tasks that pass on the worker's output.
    pub(super) output: JoinSet<()>,
    /// The first argument of `kill()` for signals to the worker: the worker's process group, or
    /// only the worker's process if it shares the supervisor's group.
    pub(super) signal_target: libc::pid_t,
}

impl Handle for Process {
    fn send(&self, message: Message) {
        let _ = self.control.send(message);
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: the call passes no memory. The ids of the process and of its process group stay
        // reserved until the process is reaped, and the supervisor removes this object when it
        // reaps the process.
        unsafe { libc::kill(self.signal_target, signal) };
    }

    fn enter_service(&self) {
        self.registry.add(&self.backend);
    }

    fn leave_service(&self) {
        self.registry.drain(&self.backend);
    }

    fn is_available(&self) -> bool {
        self.backend.availability() == Availability::Ready
    }

    fn load(&self) -> (usize, usize) {
        self.backend.load()
    }

    fn responses(&self) -> u64 {
        self.backend.responses()
    }
}

impl Process {
    /// Applies the static paths that the worker has announced with this number and these bytes.
    /// Sends the worker a confirmation, for which its R process waits. If the announcement is
    /// malformed, none of the paths is served.
    pub(crate) fn apply_announcement(&self, number: u64, bytes: &[u8]) {
        let paths = read_announcement(bytes).unwrap_or_default();
        self.registry.set_static_paths(&self.backend, paths);
        self.send(Message::Applied(number));
    }

    /// Sends the warm-up requests for `paths` in the background. [`WorkerEvent::WarmedUp`] reports
    /// the result.
    pub(crate) fn warm_up(&mut self, paths: &[String], events: &Sender<WorkerEvent>) {
        // A worker may report more than once that it is ready.
        if !self.warm_up.is_empty() {
            return;
        }
        let (backend, events, paths) = (Arc::clone(&self.backend), events.clone(), paths.to_vec());
        self.warm_up.spawn_local(async move {
            let epoch = backend.epoch;
            let result = warm_up(backend, paths).await;
            // Sending fails only if the supervisor has ended.
            let _ = events.send(WorkerEvent::WarmedUp(epoch, result)).await;
        });
    }

    /// Reads the worker's description of its failed start. Returns `None` if it has written none.
    pub(crate) fn start_report(&self) -> Option<StartReport> {
        let read = |name| self.read_file(name, MAX_START_REPORT);
        let text = String::from_utf8_lossy(&read("rookery-start-error.txt")?).into_owned();
        Some(StartReport { text, page: read("rookery-start-error.html")? })
    }

    /// Reads the next error of a session that the worker has written, and removes its file. Returns
    /// `None` if there is none. Workers write these files only in development.
    pub(crate) fn take_error_page(&mut self) -> Option<Vec<u8>> {
        let name = format!("rookery-error-{}.html", self.error_pages + 1);
        let page = self.read_file(&name, MAX_ERROR_PAGE)?;
        self.error_pages += 1;
        // A file that cannot be removed now is removed with the worker's folder.
        let _ = std::fs::remove_file(self.backend.folder.join(name));
        Some(page)
    }

    /// Returns the kind of app, such as `Shiny app (app.R)`, as R has announced it.
    pub(crate) fn app(&self) -> Option<String> {
        let bytes = self.read_file("rookery-app", MAX_TEXT)?;
        Some(visible_text(&String::from_utf8_lossy(&bytes)))
    }

    /// Returns the names of the packages that the worker has loaded, as it has written them.
    pub(crate) fn packages(&self) -> String {
        let bytes = self.read_file("rookery-packages", MAX_TEXT).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }

    /// Reads at most `max` bytes of a file that the worker has written into its folder.
    fn read_file(&self, name: &str, max: u64) -> Option<Vec<u8>> {
        let file = File::open(self.backend.folder.join(name)).ok()?;
        let mut bytes = Vec::new();
        file.take(max).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Removes the temporary files of a reaped worker, and reads its last output for at most
    /// [`OUTPUT_TIMEOUT`].
    pub(crate) fn clean_up(&mut self) -> impl Future<Output = ()> + use<> {
        let temporary = self.backend.folder.clone();
        blocking::run_detached(move || {
            // Files that cannot be removed now are removed with the supervisor's folder.
            let _ = std::fs::remove_dir_all(temporary);
        });
        let mut output = std::mem::take(&mut self.output);
        async move {
            let all = async { while output.join_next().await.is_some() {} };
            let _ = tokio::time::timeout(OUTPUT_TIMEOUT, all).await;
        }
    }
}

impl Worker {
    /// Returns the name of the worker in log lines.
    pub(crate) fn name(&self) -> WorkerName {
        WorkerName { slot: self.start.slot, pid: self.process.pid }
    }

    /// Returns the time since the start of the worker, without the time for which it was frozen.
    pub(crate) fn age(&self) -> Duration {
        clock::now().saturating_duration_since(self.started_at)
    }

    /// Lets a preloaded worker read the app, as if it had been started now.
    pub(crate) fn open_gate(&mut self, times: Timeouts) {
        if let Some(mut gate) = self.process.gate.take() {
            // The pipe is empty, so the byte fits. A worker that has ended is reported as such.
            let _ = gate.write(b"1");
        }
        self.started_at = clock::now();
        self.was_preloaded = true;
        self.phase = WorkerPhase::Starting { until: self.started_at + times.start };
    }

    /// Returns the log line about a worker that is ready, with the duration of its start.
    pub(crate) fn ready_line(&self) -> String {
        let took = self.age().as_millis();
        let role = if self.is_serving { "" } else { ", a spare" };
        format!("{}{role} is ready, {took} ms after its start", self.name())
    }

    /// Makes a starting worker ready, and records the span of its start.
    pub(crate) fn become_ready(&mut self) {
        self.phase = WorkerPhase::Ready;
        self.was_ready = true;
        self.end_start_span(None);
    }

    /// Records the span of a failed start of a worker that has ended for this reason. Does nothing
    /// if the worker was ready before, or if its start was cancelled.
    pub(crate) fn on_start_end(&self, reason: ExitReason) {
        let is_cancelled =
            matches!(reason, ExitReason::ServerStop | ExitReason::ScaleDown | ExitReason::Reload);
        if !self.was_ready && !is_cancelled {
            self.end_start_span(Some(reason.name()));
        }
    }

    /// Records the span of the worker's start, which ends now, if there is a tracer.
    fn end_start_span(&self, failure: Option<&str>) {
        let Some(tracer) = self.process.registry.tracer() else { return };
        let context = tracer.begin(None);
        if !context.is_sampled() {
            return;
        }
        // The start of a preloaded worker, whose process is older, begins when it reads the app.
        let start = SystemTime::now() - self.age();
        let mut span = Span::begin("rookery.worker.start", Kind::Internal, context, None)
            .started_at(start, clock::to_system(self.started_at));
        span.set_number("rookery.worker.slot", self.start.slot.into());
        span.set_number("rookery.worker.epoch", self.start.epoch);
        span.set_number("rookery.generation", self.start.generation);
        span.set_number("process.pid", self.process.pid.unsigned_abs().into());
        if let Some(failure) = failure {
            span.set_error(failure);
        }
        tracer.end(span);
    }

    /// Returns the worker's state for a health check.
    pub(crate) fn observe(&self, now: Instant) -> Observation {
        let scoreboard = self.process.backend.read_scoreboard();
        let scoreboard_time = clock::scoreboard_time_after(scoreboard.since);
        Observation { worker: self.name(), scoreboard, now, scoreboard_time }
    }

    /// Returns the reason for which the `policy` requires that the worker is replaced, or `None`.
    /// `most` is the maximum number of workers that run at the same time.
    pub(crate) fn recycle_reason(
        &mut self,
        policy: &RecyclePolicy,
        most: u32,
        now: Instant,
    ) -> Option<ReplaceReason> {
        let usage = WorkerUsage {
            pid: self.process.pid,
            epoch: self.start.epoch,
            requests: self.process.responses(),
            age: now.duration_since(self.started_at),
        };
        policy.reason(usage, &mut self.process.memory_watch, most, now)
    }

    /// Returns the status report of the worker.
    pub(crate) fn report(&mut self) -> ProcessState {
        let time = scoreboard_time();
        let process = &mut self.process;
        let busy_time = process.backend.scoreboard.read().busy_time(time);
        let busy_ratio = process.busy_ratio.look(busy_time, time);
        let state = match self.phase {
            WorkerPhase::Starting { .. } if !process.warm_up.is_empty() => "warming",
            WorkerPhase::Gated | WorkerPhase::Starting { .. } => "starting",
            WorkerPhase::Ready if !self.is_serving => "spare",
            WorkerPhase::Ready if !process.is_available() => "suspended",
            WorkerPhase::Ready => READY,
            WorkerPhase::Draining { .. } => "draining",
            WorkerPhase::Stopping { .. } | WorkerPhase::Killed => "stopping",
        };
        ProcessState {
            pid: process.pid,
            generation: self.start.generation,
            state,
            started: process.start_time,
            busy_ratio,
            backend: Arc::clone(&process.backend),
        }
    }

    /// Carries out an action that a health check or a time limit requires.
    pub(crate) fn carry_out(&mut self, action: WorkerAction, times: Timeouts, log: fn(&str)) {
        let (now, process) = (clock::now(), &self.process);
        match action {
            WorkerAction::Send(message) => process.send(message),
            WorkerAction::Log(line) => log(&line),
            WorkerAction::Suspend => process.registry.suspend(&process.backend),
            WorkerAction::Resume => process.registry.resume(&process.backend),
            WorkerAction::TimeOutRequests => process.registry.time_out(&process.backend),
            WorkerAction::CloseSessions(time) => {
                process.registry.close_sessions(&process.backend, time);
            }
            WorkerAction::Finish(reason, time, interrupt) => {
                self.exit_reason = reason.or(self.exit_reason);
                self.end(Message::Drain, time.min(times.stop), interrupt, now);
            }
            WorkerAction::Stop(reason, time) => {
                self.exit_reason = reason.or(self.exit_reason);
                self.end(Message::Stop, time, None, now);
            }
            WorkerAction::Interrupt => self.interrupt(),
            WorkerAction::Kill(reason) => {
                self.exit_reason = reason.or(self.exit_reason);
                self.kill();
            }
        }
    }
}
