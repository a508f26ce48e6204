//! A worker process as the supervisor sees it, with its control channel and its lifecycle.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rookery_server::output::{self, LineStyle, Origin};
use rookery_status::{ExitReason, READY, RunFolder, Utilization, visible_text};
use rookery_system::blocking;
use rookery_trace::{Kind, Span, Tracer};
use rookery_worker_protocol::{
    ControlChannel, ErrorReport, Gate, Message, Received, now as scoreboard_time,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::{JoinHandle, JoinSet};

use super::log_timer::LogTimer;
use super::warmup::{WarmupResult, warm_up};
use super::worker_name::WorkerName;
use crate::backend::{Availability, Backend};
use crate::process::{HeldOutput, WorkerStart, pass_on, spawn, wait};
use crate::report::Process;
use crate::supervise::clock;
use crate::supervise::health::{Observation, WorkerHealth};
use crate::supervise::replacing::{MemoryWatch, WorkerUsage};
use crate::supervise::{StartReport, SupervisorConfig, Timeouts};

/// An event of a worker. The first value of each variant is the worker's epoch (the number of its
/// start).
#[derive(Debug)]
pub(crate) enum WorkerEvent {
    /// A worker has sent a message.
    Message(u64, Message),
    /// A worker has announced its static paths, which [`WorkerProcess::take_announcement`] returns.
    Announced(u64),
    /// A worker has reported errors in R, which [`WorkerProcess::take_errors`] returns.
    Failed(u64),
    /// The warm-up requests to a worker have succeeded or failed.
    WarmedUp(u64, WarmupResult),
    /// A worker process has ended and has to be reaped.
    Exited(u64, libc::pid_t),
}

/// The phase of a worker's lifecycle.
///
/// ```text
///                               the app starts another server
///                               +---------------------------------+
///                               v                                 |
///    Starting --ready---------> Ready --drain, or the app -------> Draining
///       |    and warmed up      |       stops its server          |
///       |                       |                                 |
///       | start timeout,        | worker timeout,                 | no work left,
///       | failed warm-up,       | end of the server               | drain timeout,
///       | drain                 |                                 | end of the server
///       v                       |                                 |
///    Stopping <-----------------+---------------------------------+
///       |
///       | stop timeout
///       v
///    Killed
/// ```
///
/// `kill()` leads from every phase to `Killed`. It is called on a second request to stop the server
/// and for a worker that is unresponsive or has missed a wake-up. A worker process can end by
/// itself in every phase. The supervisor then removes its `WorkerProcess` and, where the slot needs
/// a worker, starts another process, which begins in `Starting`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerPhase {
    /// The worker's R process starts and loads the app. It must be ready before `until`.
    Starting { until: Instant },
    /// The worker can respond to requests. It serves, or is a spare held in reserve.
    Ready,
    /// The worker finishes its work and gets no new work. Its requests have time until `until`, and
    /// its WebSockets until `sessions`.
    Draining { until: Instant, sessions: Instant },
    /// The worker process has been requested to exit, and is killed at `until`. If there is a time
    /// `interrupt`, R may finish its current task until then.
    Stopping { until: Instant, interrupt: Option<Instant> },
    /// The worker process has been killed and not been reaped yet.
    Killed,
}

/// A worker process with everything that the supervisor knows about it.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "states that have nothing to do with each other")]
pub(crate) struct WorkerProcess {
    /// The numbers and options with which the worker process was started.
    pub(crate) start: WorkerStart,
    pub(crate) pid: libc::pid_t,
    pub(crate) backend: Arc<Backend>,
    pub(crate) phase: WorkerPhase,
    /// Whether the worker has become ready, in whatever phase it is now.
    was_ready: bool,
    /// The time of the supervisor's clock at which the worker process was started, or a preloaded
    /// one has read the app.
    pub(crate) started_at: Instant,
    pub(crate) health: WorkerHealth,
    pub(crate) memory_watch: MemoryWatch,
    /// Whether the worker has been put into service. If false, the worker is starting or a spare.
    pub(crate) is_serving: bool,
    /// Whether the worker was preloaded, and has been allowed to read the app.
    pub(crate) was_preloaded: bool,
    /// The memory of the worker in bytes when it became ready. Measured only where a control group
    /// limits memory.
    pub(crate) memory_at_start: Option<u64>,
    /// The reason for which the worker should end, if the supervisor has decided that or the worker
    /// has announced it.
    pub(crate) exit_reason: Option<ExitReason>,
    /// The timer of log lines about what the worker's drain waits for.
    pub(crate) drain_log: LogTimer,
    /// The task that sends the warm-up requests, which ends with this value.
    warm_up: JoinSet<()>,
    busy_ratio: Utilization,
    /// The wall-clock time at which the worker process was started, for status reports.
    start_time: SystemTime,
    control: Rc<ControlChannel>,
    /// The last announcement of the worker's static paths, until the supervisor has read it.
    announcement: Announcement,
    errors: UnreadErrors,
    /// The tasks that pass on the worker's output.
    output_tasks: Vec<JoinHandle<()>>,
    /// The first argument of `kill()` for signals to the worker: the worker's process group, or
    /// only the worker's process if it shares the supervisor's group.
    signal_target: libc::pid_t,
}

/// The last unread announcement of a worker's static paths, with its number. A newer announcement
/// replaces it, so a worker that sends many announcements does not fill the memory.
type Announcement = Rc<RefCell<Option<(u64, Vec<u8>)>>>;

/// The unread reports of errors in a worker's R code, at most [`MAX_UNREAD_ERRORS`].
type UnreadErrors = Rc<RefCell<Vec<ErrorReport>>>;

/// The maximum number of unread error reports of a worker. Further reports are dropped, so a worker
/// that sends many does not fill the memory.
const MAX_UNREAD_ERRORS: usize = 50;

/// The time after the request to stop at which a starting worker is killed if it has not exited.
const START_EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum number of bytes that are read of a file with the description of a failed start.
const MAX_START_REPORT: u64 = 4 << 20;

/// The maximum number of bytes of the kind of app, and of a list of packages. The system limits
/// environment variables to 128 KiB.
const MAX_TEXT: u64 = 64 << 10;

impl WorkerProcess {
    /// Starts a worker process. Its temporary files are created in `folder`, `kept`
    /// stores the output that it writes while it starts, and its events are sent to `events`.
    pub(crate) fn start(
        command: std::process::Command,
        folder: &RunFolder,
        start: WorkerStart,
        config: &SupervisorConfig,
        gate: Option<Gate<'_>>,
        kept: [HeldOutput; 2],
        events: &UnboundedSender<WorkerEvent>,
    ) -> io::Result<WorkerProcess> {
        let (files, is_on_terminal) = (config.files, config.is_on_terminal);
        let spawned = spawn(command, folder, start, files, gate, is_on_terminal)?;
        let time = config.times.start;
        let child_id = spawned.child.id();
        let pid = libc::pid_t::try_from(child_id).expect("the system has it in this type");
        let epoch = start.epoch;
        // The output lines of a single worker get no prefix.
        let prefix =
            if start.workers > 1 { format!("[{} {pid}] ", start.slot) } else { String::new() };
        let style = |stream| {
            if output::is_json() {
                LineStyle::Json(Origin { worker: Some(start.slot), pid: child_id, stream })
            } else {
                LineStyle::Prefixed(prefix.clone().into_bytes())
            }
        };
        let outputs = [(output::stdout(), "stdout"), (output::stderr(), "stderr")];
        let streams = spawned.streams.into_iter().flatten().zip(outputs);
        let output_tasks = streams.zip(kept).map(|((pipe, (to, stream)), kept)| {
            tokio::task::spawn_local(pass_on(to.clone(), pipe, style(stream), kept))
        });
        let output_tasks = output_tasks.collect();
        let control = Rc::new(spawned.control);
        let announcement = Announcement::default();
        let errors = UnreadErrors::default();
        let listening = listen(
            Rc::clone(&control),
            epoch,
            Rc::clone(&announcement),
            Rc::clone(&errors),
            events.clone(),
        );
        let listening = tokio::task::spawn_local(listening);
        let events = events.clone();
        tokio::task::spawn_local(async move {
            wait(pid).await;
            // Messages that were sent before the end have been read or no longer matter.
            listening.abort();
            // Sending fails only if the supervisor has ended, and then nobody needs the event.
            let _ = events.send(WorkerEvent::Exited(epoch, pid));
        });
        let now = clock::now();
        let backend = Backend::new(
            (start.slot, epoch),
            child_id,
            spawned.id,
            spawned.temporary,
            spawned.scoreboard,
            spawned.rings,
        );
        Ok(WorkerProcess {
            start,
            pid,
            backend,
            phase: WorkerPhase::Starting { until: now + time },
            was_ready: false,
            started_at: now,
            health: WorkerHealth::default(),
            memory_watch: MemoryWatch::default(),
            is_serving: false,
            memory_at_start: None,
            exit_reason: None,
            was_preloaded: false,
            drain_log: LogTimer::default(),
            warm_up: JoinSet::new(),
            busy_ratio: Utilization::default(),
            start_time: SystemTime::now(),
            control,
            announcement,
            errors,
            output_tasks,
            signal_target: if config.is_on_terminal { pid } else { -pid },
        })
    }

    /// Returns the name of the worker in log lines.
    pub(crate) fn name(&self) -> WorkerName {
        WorkerName { slot: self.start.slot, pid: self.pid }
    }

    /// Returns the time since the start of the worker process, without the time for which it was
    /// frozen.
    pub(crate) fn age(&self) -> Duration {
        clock::now().saturating_duration_since(self.started_at)
    }

    /// Returns the log line about a worker that is ready, with the duration of its start.
    pub(crate) fn ready_line(&self) -> String {
        let took = self.age().as_millis();
        let role = if self.is_serving { "" } else { ", a spare" };
        format!("{}{role} is ready, {took} ms after its start", self.name())
    }

    /// Makes a starting worker ready, and records the span of its start.
    pub(crate) fn become_ready(&mut self, tracer: Option<&Tracer>) {
        self.phase = WorkerPhase::Ready;
        self.was_ready = true;
        self.end_start_span(tracer, None);
    }

    /// Records the span of a failed start of a worker that has ended for this reason. Does nothing
    /// if the worker was ready before, or if its start was cancelled.
    pub(crate) fn on_start_end(&self, tracer: Option<&Tracer>, reason: ExitReason) {
        let is_cancelled =
            matches!(reason, ExitReason::ServerStop | ExitReason::ScaleDown | ExitReason::Reload);
        if !self.was_ready && !is_cancelled {
            self.end_start_span(tracer, Some(reason.name()));
        }
    }

    /// Records the span of the worker's start, which ends now, if there is a tracer.
    fn end_start_span(&self, tracer: Option<&Tracer>, failure: Option<&str>) {
        let Some(tracer) = tracer else { return };
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
        span.set_number("process.pid", self.pid.unsigned_abs().into());
        if let Some(failure) = failure {
            span.set_error(failure);
        }
        tracer.end(span);
    }

    /// Returns true if the worker is in service and ready.
    pub(crate) fn serves(&self) -> bool {
        self.is_serving && self.phase == WorkerPhase::Ready
    }

    /// Returns the worker's state for a health check.
    pub(crate) fn observe(&self, now: Instant) -> Observation {
        let scoreboard = self.backend.read_scoreboard();
        let scoreboard_time = clock::scoreboard_time_after(scoreboard.since);
        Observation { worker: self.name(), scoreboard, now, scoreboard_time }
    }

    /// Returns the worker's age and number of answered requests, which the recycle policy limits.
    pub(crate) fn usage(&self, now: Instant) -> WorkerUsage {
        WorkerUsage {
            pid: self.pid,
            epoch: self.start.epoch,
            requests: self.backend.responses(),
            age: now.duration_since(self.started_at),
        }
    }

    /// Returns the status report of the worker.
    pub(crate) fn report(&mut self) -> Process {
        let time = scoreboard_time();
        let busy_time = self.backend.scoreboard.read().busy_time(time);
        let busy_ratio = self.busy_ratio.look(busy_time, time);
        let state = match self.phase {
            WorkerPhase::Starting { .. } if !self.warm_up.is_empty() => "warming",
            WorkerPhase::Starting { .. } => "starting",
            WorkerPhase::Ready if !self.is_serving => "spare",
            WorkerPhase::Ready if self.backend.availability() == Availability::Suspended => {
                "suspended"
            }
            WorkerPhase::Ready => READY,
            WorkerPhase::Draining { .. } => "draining",
            WorkerPhase::Stopping { .. } | WorkerPhase::Killed => "stopping",
        };
        Process {
            pid: self.pid,
            generation: self.start.generation,
            state,
            started: self.start_time,
            busy_ratio,
            backend: self.backend.clone(),
        }
    }

    /// Sends a message to the worker. Errors are ignored, because health checks detect a worker
    /// that does not read its messages.
    pub(crate) fn send(&self, message: Message) {
        let _ = self.control.send(message);
    }

    /// Takes the number and the text of the worker's last announcement of static paths. Returns
    /// `None` if there is no announcement that has not been taken yet.
    pub(crate) fn take_announcement(&self) -> Option<(u64, Vec<u8>)> {
        self.announcement.take()
    }

    /// Takes the reports of errors in the worker's R code that have not been taken yet.
    pub(crate) fn take_errors(&self) -> Vec<ErrorReport> {
        self.errors.take()
    }

    /// Sends the warm-up requests for `paths` in the background. [`WorkerEvent::WarmedUp`] reports
    /// the result.
    pub(crate) fn warm_up(&mut self, paths: &[String], events: &UnboundedSender<WorkerEvent>) {
        // A worker may report more than once that it is ready.
        if !self.warm_up.is_empty() {
            return;
        }
        let (backend, epoch, events) =
            (Arc::clone(&self.backend), self.start.epoch, events.clone());
        let paths = paths.to_vec();
        self.warm_up.spawn_local(async move {
            // Sending fails only if the supervisor has ended.
            let _ = events.send(WorkerEvent::WarmedUp(epoch, warm_up(backend, paths).await));
        });
    }

    /// Drains a ready worker, which gets no new requests and stops when it has finished. A starting
    /// worker has no requests, so it is stopped at once.
    pub(crate) fn drain(&mut self, times: Timeouts) {
        match self.phase {
            WorkerPhase::Ready => {
                let now = clock::now();
                let sessions = now + times.sessions.unwrap_or(times.drain);
                self.phase = WorkerPhase::Draining { until: now + times.drain, sessions };
            }
            WorkerPhase::Starting { .. } => self.stop(times.stop),
            WorkerPhase::Draining { .. } | WorkerPhase::Stopping { .. } | WorkerPhase::Killed => {}
        }
    }

    /// Shortens the remaining time of a draining worker's WebSockets to at most the drain timeout
    /// of requests.
    pub(crate) fn shorten_drain(&mut self, times: Timeouts) {
        if let WorkerPhase::Draining { sessions, .. } = &mut self.phase {
            *sessions = (*sessions).min(clock::now() + times.drain);
        }
    }

    /// Requests the worker process to exit, because the time for its requests is over. It is killed
    /// if it has not exited within `time`.
    pub(crate) fn stop(&mut self, time: Duration) {
        self.end(Message::Stop, time, None);
    }

    /// Requests the worker process to exit when R has finished its current task. R is interrupted
    /// at the time `interrupt`, if any, and the process is killed if it has not exited within
    /// `time`.
    pub(crate) fn finish(&mut self, time: Duration, interrupt: Option<Instant>) {
        self.end(Message::Drain, time, interrupt);
    }

    /// Interrupts R in a stopping worker process, because its time is over.
    pub(crate) fn interrupt(&mut self) {
        if let WorkerPhase::Stopping { interrupt, .. } = &mut self.phase {
            *interrupt = None;
            self.send(Message::Stop);
        }
    }

    /// Sends a request to exit to the worker process, which is killed if it has not exited within
    /// `time`.
    fn end(&mut self, request: Message, time: Duration, interrupt: Option<Instant>) {
        let mut time = time;
        match self.phase {
            WorkerPhase::Stopping { .. } | WorkerPhase::Killed => return,
            // A starting worker may not read its control channel yet, so a signal is sent as well.
            // Once the worker reads the channel, it ignores the signal.
            WorkerPhase::Starting { .. } => {
                self.signal(libc::SIGTERM);
                self.send(request);
                // A starting worker has no requests, and exits by itself a second after the
                // interrupt.
                time = time.min(START_EXIT_TIMEOUT);
            }
            WorkerPhase::Ready | WorkerPhase::Draining { .. } => self.send(request),
        }
        self.phase = WorkerPhase::Stopping { until: clock::now() + time, interrupt };
    }

    /// Kills the worker process and the other processes in its process group.
    pub(crate) fn kill(&mut self) {
        self.signal(libc::SIGKILL);
        self.phase = WorkerPhase::Killed;
    }

    /// Sends a signal to the worker's process group, or only to its process if it shares the group
    /// of the supervisor.
    fn signal(&self, signal: libc::c_int) {
        // SAFETY: the call passes no memory. The ids of the process and of its process group stay
        // reserved until the process is reaped, and the supervisor removes this object when it
        // reaps the process.
        unsafe { libc::kill(self.signal_target, signal) };
    }

    /// Returns true if the worker has ended, or is being stopped, because it did not become ready.
    pub(crate) fn has_failed_to_start(&self) -> bool {
        matches!(self.phase, WorkerPhase::Starting { .. })
            || matches!(self.exit_reason, Some(ExitReason::StartTimeout | ExitReason::Warmup))
    }

    /// Reads the worker's description of its failed start. Returns `None` if it has written none.
    pub(crate) fn start_report(&self) -> Option<StartReport> {
        let read = |name| self.read_file(name, MAX_START_REPORT);
        let text = String::from_utf8_lossy(&read("rookery-start-error.txt")?).into_owned();
        Some(StartReport { text, page: read("rookery-start-error.html")? })
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

    /// Lets a preloaded worker read the app, as if it had been started now. `gate` is the pipe that
    /// the worker reads.
    pub(crate) fn begin(&mut self, mut gate: &File, times: Timeouts) {
        // The pipe is empty, so the byte fits. A worker that has ended is reported as such.
        let _ = gate.write(b"1");
        let now = clock::now();
        self.started_at = now;
        self.was_preloaded = true;
        self.phase = WorkerPhase::Starting { until: now + times.start };
    }

    /// Removes the temporary files of a reaped worker. Returns the tasks that pass
    /// on the worker's last output. These tasks end by themselves, unless a process that the worker
    /// started has left the process group and holds the output open.
    pub(crate) fn clean_up(&mut self) -> Vec<JoinHandle<()>> {
        let temporary = self.backend.folder.clone();
        blocking::run_detached(move || {
            // Files that cannot be removed now are removed with the supervisor's folder.
            let _ = std::fs::remove_dir_all(temporary);
        });
        std::mem::take(&mut self.output_tasks)
    }

    /// Returns true if the phase of the worker is not about to change. The supervisor may then
    /// check the worker less often.
    pub(crate) fn is_settled(&self) -> bool {
        match self.phase {
            WorkerPhase::Ready => true,
            WorkerPhase::Draining { until, .. } => {
                clock::now() >= until && self.backend.load().1 > 0
            }
            WorkerPhase::Starting { .. } | WorkerPhase::Stopping { .. } | WorkerPhase::Killed => {
                false
            }
        }
    }

    /// Returns true if the worker's app has stopped its server and may start another one before the
    /// worker exits.
    pub(crate) fn is_between_servers(&self) -> bool {
        matches!(self.phase, WorkerPhase::Draining { .. })
            && self.exit_reason == Some(ExitReason::AppStop)
    }

    /// Returns true if the worker has no requests and no WebSockets.
    pub(crate) fn is_idle(&self) -> bool {
        self.backend.load() == (0, 0)
    }
}

/// Receives the messages of a worker from its control channel and forwards them as events, until
/// the channel is closed.
async fn listen(
    control: Rc<ControlChannel>,
    epoch: u64,
    announcement: Announcement,
    errors: UnreadErrors,
    events: UnboundedSender<WorkerEvent>,
) {
    // SAFETY: the `ControlChannel` owns its descriptor, which stays open and unchanged until the
    // last `Rc` of it is dropped.
    let readable =
        unsafe { AsyncFd::register_with_interest(Rc::clone(&control), Interest::READABLE) };
    let Ok(readable) = readable else { return };
    loop {
        let Ok(mut guard) = readable.readable().await else { return };
        loop {
            match control.receive() {
                Received::Message(message) => {
                    if events.send(WorkerEvent::Message(epoch, message)).is_err() {
                        return;
                    }
                }
                Received::Announcement(number, bytes) => {
                    let is_pending = announcement.replace(Some((number, bytes))).is_some();
                    if !is_pending && events.send(WorkerEvent::Announced(epoch)).is_err() {
                        return;
                    }
                }
                Received::Error(report) => {
                    let mut errors = errors.borrow_mut();
                    if errors.is_empty() && events.send(WorkerEvent::Failed(epoch)).is_err() {
                        return;
                    }
                    if errors.len() < MAX_UNREAD_ERRORS {
                        errors.push(report);
                    }
                }
                Received::Malformed => {}
                Received::Nothing => break,
                Received::End => return,
            }
        }
        guard.clear_ready();
    }
}
