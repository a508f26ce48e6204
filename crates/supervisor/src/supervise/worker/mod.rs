//! A worker as the supervisor sees it: one start of an R process, with its lifecycle.

mod action;
mod exited_worker;
mod log_timer;
mod process;
mod start;
mod warmup;
mod worker_name;

use std::time::{Duration, Instant};

use rookery_status::ExitReason;
use rookery_worker_protocol::Message;

use super::Timeouts;
use crate::process::WorkerStart;
pub(crate) use action::WorkerAction;
pub(crate) use exited_worker::ExitedWorker;
pub(crate) use log_timer::LogTimer;
pub(crate) use process::{Process, WorkerEvent};
pub(crate) use start::ProcessOrigin;
pub(crate) use warmup::WarmupResult;
pub(crate) use worker_name::{WorkerName, counted};

/// The period at the end of a drain in which WebSockets are closed one after the other, so that
/// their pages do not all reconnect at once.
const SESSION_CLOSE_TIME: Duration = Duration::from_secs(5);

/// The time after which a starting worker that has been requested to exit is killed.
const START_EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The phase of a worker's lifecycle.
///
/// ```text
///  Gated --reload--> Starting --ready, warmed up--> Ready --drain, server stopped--> Draining
///                       |                            ^                                |
///                       | start timeout,             +-----another server started-----+
///                       | failed warm-up, drain      |                                |
///                       |                            | worker timeout,                | no work
///                       v                            v end of the server              v left
///                    Stopping <----------------------+--------------------------------+
///                       |
///                       +--stop timeout--> Killed
/// ```
///
/// `kill()` leads from every phase but `Gated` to `Killed`. A process can end by itself in every
/// phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerPhase {
    /// The worker is preloaded: R has loaded packages, and waits at its gate until it may read the
    /// app. A worker that is killed in this phase stays in it, since it never was part of the pool.
    Gated,
    /// The worker's R process starts and loads the app. It must be ready before `until`.
    Starting { until: Instant },
    /// The worker can respond to requests. It is in service or in reserve.
    Ready,
    /// The worker finishes its work and gets no new work. Its requests have time until `until`, and
    /// its WebSockets until `sessions`.
    Draining { until: Instant, sessions: Instant },
    /// The worker has been requested to exit, and is killed at `until`. If there is a time
    /// `interrupt`, R may finish its current task until then.
    Stopping { until: Instant, interrupt: Option<Instant> },
    /// The worker has been killed and not been reaped yet.
    Killed,
}

/// The process of a worker, through which decisions about the worker are carried out.
pub(crate) trait Handle {
    /// Sends a message to the worker. Errors are ignored, because health checks detect a worker
    /// that does not read its messages.
    fn send(&self, message: Message);

    /// Sends a signal to the worker.
    fn signal(&self, signal: libc::c_int);

    /// Makes the worker get requests.
    fn enter_service(&self);

    /// Makes the worker get no new requests and finish those that it has.
    fn leave_service(&self);

    /// Returns true if the worker responds, so that it can get requests.
    fn is_available(&self) -> bool;

    /// Returns the worker's number of unfinished requests and its number of open WebSockets.
    fn load(&self) -> (usize, usize);

    /// Returns the number of requests that the worker has responded to.
    fn responses(&self) -> u64;
}

/// A worker: one start of an R process, until the process has ended.
#[derive(Debug)]
pub(crate) struct Worker<P = Process> {
    /// The numbers with which the worker was started.
    pub(crate) start: WorkerStart,
    pub(crate) phase: WorkerPhase,
    /// Whether the worker has become ready, in whatever phase it is now.
    pub(crate) was_ready: bool,
    /// Whether the worker has been put into service. Until then it is a reserve worker.
    pub(crate) is_serving: bool,
    /// Whether the worker was preloaded, and has been allowed to read the app.
    pub(crate) was_preloaded: bool,
    /// The time of the supervisor's clock at which the worker was started, or a preloaded one has
    /// read the app.
    pub(crate) started_at: Instant,
    /// The reason for which the worker should end, if the supervisor has decided that or the worker
    /// has announced it.
    pub(crate) exit_reason: Option<ExitReason>,
    pub(crate) process: P,
}

impl<P: Handle> Worker<P> {
    /// Creates the record of a worker that has been started at the time `now`, and must be ready
    /// within the `time`.
    pub(crate) fn new(start: WorkerStart, process: P, now: Instant, time: Duration) -> Worker<P> {
        Worker {
            start,
            phase: WorkerPhase::Starting { until: now + time },
            was_ready: false,
            is_serving: false,
            was_preloaded: false,
            started_at: now,
            exit_reason: None,
            process,
        }
    }

    /// Returns true if the worker loads the app.
    pub(crate) fn is_starting(&self) -> bool {
        matches!(self.phase, WorkerPhase::Starting { .. })
    }

    /// Returns true if the worker is preloaded and waits at its gate.
    pub(crate) fn is_gated(&self) -> bool {
        self.phase == WorkerPhase::Gated
    }

    /// Returns true if the worker is in service and ready.
    pub(crate) fn serves(&self) -> bool {
        self.is_serving && self.phase == WorkerPhase::Ready
    }

    /// Returns true if the worker is ready and in reserve, and could serve at once.
    pub(crate) fn is_spare(&self) -> bool {
        self.phase == WorkerPhase::Ready && !self.is_serving
    }

    /// Returns true if the worker's app has stopped its server and may start another one before the
    /// worker exits.
    pub(crate) fn is_between_servers(&self) -> bool {
        matches!(self.phase, WorkerPhase::Draining { .. })
            && self.exit_reason == Some(ExitReason::AppStop)
    }

    /// Returns true if the worker has ended, or is being stopped, because it did not become ready.
    pub(crate) fn has_failed_to_start(&self) -> bool {
        self.is_starting()
            || matches!(self.exit_reason, Some(ExitReason::StartTimeout | ExitReason::Warmup))
    }

    /// Returns true if the phase of the worker is not about to change. The supervisor may then
    /// check the worker less often.
    pub(crate) fn is_settled(&self, now: Instant) -> bool {
        match self.phase {
            WorkerPhase::Gated | WorkerPhase::Ready => true,
            WorkerPhase::Draining { until, .. } => now >= until && self.process.load().1 > 0,
            WorkerPhase::Starting { .. } | WorkerPhase::Stopping { .. } | WorkerPhase::Killed => {
                false
            }
        }
    }

    /// Puts the worker into service, so that it gets requests.
    pub(crate) fn enter_service(&mut self) {
        self.is_serving = true;
        self.process.enter_service();
    }

    /// Drains a ready worker, which gets no new requests and stops when it has finished. A starting
    /// worker has no requests, so it is stopped at once.
    pub(crate) fn drain(&mut self, times: Timeouts, now: Instant) {
        self.process.leave_service();
        match self.phase {
            WorkerPhase::Gated => self.kill(),
            WorkerPhase::Ready => {
                let sessions = now + times.sessions.unwrap_or(times.drain);
                self.phase = WorkerPhase::Draining { until: now + times.drain, sessions };
            }
            WorkerPhase::Starting { .. } => self.end(Message::Stop, times.stop, None, now),
            WorkerPhase::Draining { .. } | WorkerPhase::Stopping { .. } | WorkerPhase::Killed => {}
        }
    }

    /// Shortens the remaining time of a draining worker's WebSockets to at most the drain timeout
    /// of requests.
    pub(crate) fn shorten_drain(&mut self, times: Timeouts, now: Instant) {
        if let WorkerPhase::Draining { sessions, .. } = &mut self.phase {
            *sessions = (*sessions).min(now + times.drain);
        }
    }

    /// Requests the worker to exit. R is interrupted at the time `interrupt`, if any, and the
    /// worker is killed if it has not exited within `time`.
    pub(crate) fn end(
        &mut self,
        request: Message,
        mut time: Duration,
        interrupt: Option<Instant>,
        now: Instant,
    ) {
        match self.phase {
            WorkerPhase::Gated => return self.kill(),
            WorkerPhase::Stopping { .. } | WorkerPhase::Killed => return,
            // A starting worker may not read its control channel yet, so a signal is sent as well.
            // Once the worker reads the channel, it ignores the signal.
            WorkerPhase::Starting { .. } => {
                self.process.signal(libc::SIGTERM);
                // A starting worker has no requests, and exits by itself a second after the
                // interrupt.
                time = time.min(START_EXIT_TIMEOUT);
            }
            WorkerPhase::Ready | WorkerPhase::Draining { .. } => {}
        }
        self.process.send(request);
        self.phase = WorkerPhase::Stopping { until: now + time, interrupt };
    }

    /// Interrupts R in a stopping worker, because its time is over.
    pub(crate) fn interrupt(&mut self) {
        if let WorkerPhase::Stopping { interrupt, .. } = &mut self.phase {
            *interrupt = None;
            self.process.send(Message::Stop);
        }
    }

    /// Kills the worker and the other processes in its process group.
    pub(crate) fn kill(&mut self) {
        self.process.signal(libc::SIGKILL);
        if !self.is_gated() {
            self.phase = WorkerPhase::Killed;
        }
    }

    /// Returns what is due because the time of the worker's phase is over, or because the worker
    /// has finished its work.
    pub(crate) fn time_out(&self, now: Instant, times: Timeouts) -> Option<WorkerAction> {
        match self.phase {
            WorkerPhase::Gated | WorkerPhase::Ready | WorkerPhase::Killed => None,
            WorkerPhase::Starting { until } => (now >= until)
                .then_some(WorkerAction::Stop(Some(ExitReason::StartTimeout), times.stop)),
            WorkerPhase::Draining { until, .. } if self.is_between_servers() => (now >= until)
                .then_some(WorkerAction::Stop(Some(ExitReason::StartTimeout), times.stop)),
            WorkerPhase::Draining { until, sessions } => {
                let load = self.process.load();
                let within = SESSION_CLOSE_TIME.min(times.sessions.unwrap_or(times.drain) / 2);
                let left = sessions.saturating_duration_since(now);
                if now >= until && (left.is_zero() || load.1 == 0) {
                    Some(WorkerAction::Stop(None, times.stop))
                } else if load == (0, 0) {
                    // R may still handle the end of a WebSocket.
                    Some(WorkerAction::Finish(None, times.stop, Some(until)))
                } else {
                    (left <= within).then_some(WorkerAction::CloseSessions(left))
                }
            }
            WorkerPhase::Stopping { until, interrupt } => {
                if now >= until {
                    Some(WorkerAction::Kill(None))
                } else {
                    interrupt.filter(|at| now >= *at).map(|_| WorkerAction::Interrupt)
                }
            }
        }
    }
}
