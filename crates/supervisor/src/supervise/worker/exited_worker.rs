//! A worker process that has ended: the log lines about its end, and whether the server ends
//! because of it.

use std::time::Duration;

use rookery_status::{ExitReason, format_count};

use super::worker_name::{WorkerName, counted};
use super::{Handle as _, Worker, WorkerPhase};
use crate::process::{Exit, ProcessEnd};
use crate::supervise::Outcome;

/// A worker process that has ended and has been reaped.
#[derive(Debug)]
pub(crate) struct ExitedWorker {
    pub(crate) worker: Worker,
    pub(crate) end: ProcessEnd,
    /// The reason for the end of the worker process, as metrics report it.
    pub(crate) reason: ExitReason,
    /// The method and path of the request that R had begun last and not finished.
    pub(crate) route: Option<String>,
}

impl ExitedWorker {
    /// Returns the name of the ended worker process in log lines.
    pub(crate) fn name(&self) -> WorkerName {
        self.worker.name()
    }

    /// Returns the outcome with which the server ends because this worker process has ended, or
    /// `None` if the server continues. `restarts` is
    /// [`SupervisorConfig::restarts`](crate::SupervisorConfig::restarts), and `was_ready` is true
    /// if any worker has been ready.
    pub(crate) fn outcome(&self, restarts: bool, was_ready: bool) -> Option<Outcome> {
        outcome(self.worker.exit_reason, self.end.exit, restarts, was_ready)
    }

    /// Returns a description of the failure of a new worker that has ended before it was ready.
    pub(crate) fn failed_start(&self) -> String {
        format!("the new {} {} before it was ready", self.name(), self.end.exit)
    }

    /// Returns the log line about the end of a worker process that was requested to end.
    pub(crate) fn requested_exit_line(&self) -> String {
        format!("{} {} as requested; it {}", self.name(), self.end.exit, self.usage())
    }

    /// Returns the log line about the end of a worker process whose replacement has already been
    /// started.
    pub(crate) fn replaced_line(&self) -> String {
        let (name, exit, usage) = (self.name(), self.end.exit, self.usage());
        format!("{name} {exit}; its replacement is already starting. It {usage}")
    }

    /// Returns the log line about a worker process whose end also ends the server.
    pub(crate) fn last_line(&self) -> String {
        let exit = self.end.exit;
        let result = if exit == Exit::Status(0) { "has finished" } else { "has failed" };
        format!("{} {result}: it {exit}. It {}", self.name(), self.usage())
    }

    /// Returns the log line about a failed worker process that is started again after `pause`.
    pub(crate) fn restart_line(&self, pause: Duration) -> String {
        let (name, exit, usage) = (self.name(), self.end.exit, self.usage());
        let cause = match exit {
            _ if self.reason == ExitReason::OutOfMemory => {
                " because the control group had no memory left"
            }
            Exit::Signal(libc::SIGKILL) if self.worker.phase != WorkerPhase::Killed => {
                ", which the supervisor did not send: perhaps out of memory"
            }
            _ if self.worker.is_starting() => " before it was ready",
            _ => "",
        };
        let request = self.route.as_ref();
        let request = request
            .map_or(String::new(), |route| format!("; its R process had begun with {route}"));
        let when = match pause {
            Duration::ZERO => "at once".to_owned(),
            pause => format!("in {:.1} s", pause.as_secs_f64()),
        };
        format!("{name} {exit}{cause}{request}; it is started again {when}. It {usage}")
    }

    /// Returns the log line with which the server gives up after the end of this worker process,
    /// because no worker has ever been ready. `starts` is the number of failed starts in the
    /// worker's slot (its numbered place).
    pub(crate) fn never_ready_line(&self, starts: u32) -> String {
        let starts = format_count(starts as usize, "start");
        format!("no worker became ready after {starts}: {} {}", self.name(), self.end.exit)
    }

    /// Returns the log line about the crash loop that has begun with the end of this worker
    /// process.
    pub(crate) fn crash_loop_line(&self) -> String {
        format!(
            "worker {} ends repeatedly without having answered a request: see its output above. It \
             is restarted after growing pauses; requests that no other worker takes get 503",
            self.name().slot
        )
    }

    /// Returns the lifetime and the resource usage of the ended worker process, as the predicate of
    /// a sentence.
    fn usage(&self) -> String {
        format!(
            "ran for {} s, answered {} and used at most {} MB of memory and {:.1} s of processor \
             time",
            self.worker.age().as_secs(),
            counted(self.worker.process.responses(), "request"),
            self.end.memory / 1_000_000,
            self.end.time.as_secs_f64()
        )
    }
}

/// Returns the outcome with which the server ends because a worker process has ended, or `None` if
/// the server continues. Status 0 ends the server if the worker was not requested to end, because
/// the app has then finished its work.
///
/// `reason` is the exit reason that was known before the end, `restarts` is true if failed workers
/// are restarted, and `was_ready` is true if any worker has been ready.
fn outcome(
    reason: Option<ExitReason>,
    exit: Exit,
    restarts: bool,
    was_ready: bool,
) -> Option<Outcome> {
    match reason {
        None | Some(ExitReason::AppStop) if exit == Exit::Status(0) => Some(Outcome::Ended(exit)),
        _ if restarts => None,
        None | Some(ExitReason::AppStop) => Some(Outcome::Ended(exit)),
        // The supervisor has stopped the worker, so the exit status gives no information about the
        // app.
        Some(_) if !was_ready => Some(Outcome::NeverReady),
        Some(_) => Some(Outcome::Ended(Exit::Status(1))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_0_ends_the_server_only_if_the_exit_was_not_requested() {
        let finished = Some(Outcome::Ended(Exit::Status(0)));
        for reason in [None, Some(ExitReason::AppStop)] {
            assert_eq!(outcome(reason, Exit::Status(0), true, true), finished);
        }
        assert_eq!(outcome(Some(ExitReason::Reload), Exit::Status(0), true, true), None);
    }

    #[test]
    fn without_restarts_a_failure_ends_the_server() {
        let killed = Exit::Signal(libc::SIGKILL);
        assert_eq!(outcome(None, killed, true, true), None);
        assert_eq!(outcome(None, killed, false, true), Some(Outcome::Ended(killed)));
        let timeout = Some(ExitReason::StartTimeout);
        assert_eq!(outcome(timeout, killed, false, false), Some(Outcome::NeverReady));
        assert_eq!(outcome(timeout, killed, false, true), Some(Outcome::Ended(Exit::Status(1))));
    }
}
