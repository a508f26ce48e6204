//! The health of a worker process. Health checks find workers that do not respond, workers that are
//! busy with one task for too long, and workers that sleep although requests are queued for them.

mod lost_wakeup;
mod pings;
mod slow_log;
mod worker_timeout;

use std::time::{Duration, Instant};

use rookery_status::{ExitReason, RStack};
use rookery_worker_protocol::{Message, Snapshot};

use super::worker::{WorkerAction, WorkerName, counted};
use lost_wakeup::LostWakeup;
use pings::{PingVerdict, Pings};
use slow_log::{SlowLog, SlowLogEntry};
use worker_timeout::{TimeoutStep, WorkerTimeout};

/// The time after which a worker that was stopped because of the worker timeout is killed. R's task
/// has already exceeded its limit, so the worker needs this time only to write 504 to the clients
/// whose connections it has accepted.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// The state of a worker at the time of a health check.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Observation {
    pub(crate) worker: WorkerName,
    /// The contents of the scoreboard, the shared memory in which the worker publishes its state.
    pub(crate) scoreboard: Snapshot,
    /// The time of the health check.
    pub(crate) now: Instant,
    /// The time of the health check in nanoseconds, on the clock of the scoreboard (the shared
    /// memory in which the worker publishes its state), without the time for which the server was
    /// frozen since R entered its state.
    pub(crate) scoreboard_time: u64,
}

/// The worker timeout, which limits the time for which a worker's R process may be busy with one
/// task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaskLimit {
    /// The maximum duration of one task of a worker's R process.
    pub(crate) time: Duration,
    /// Whether R is interrupted when a task has reached the limit, so that the worker is stopped
    /// only if R stays busy.
    pub(crate) interrupts: bool,
}

/// The age up to which a sample of R's stack shows where R is. R samples its stack twice a second.
const RECENT_SAMPLE: Duration = Duration::from_secs(2);

/// The health of one worker, with the state of its health checks.
#[derive(Debug, Default)]
pub(crate) struct WorkerHealth {
    pings: Pings,
    timeout: WorkerTimeout,
    slow_log: SlowLog,
    lost_wakeup: LostWakeup,
    /// Whether the worker gets no requests because it does not respond to pings.
    is_suspended: bool,
    /// Whether the worker is killed because it has violated the protocol.
    is_violating: bool,
}

impl WorkerHealth {
    /// Returns the actions that end a worker which has written something into the memory that it
    /// shares with the front end that the protocol does not allow.
    pub(crate) fn check_violation(&mut self, worker: WorkerName) -> Vec<WorkerAction> {
        if std::mem::replace(&mut self.is_violating, true) {
            return Vec::new();
        }
        vec![
            WorkerAction::Log(format!(
                "{worker} has written invalid data into the memory that it shares with this \
                 process: it is killed. Native code of a package may have overwritten the memory"
            )),
            WorkerAction::Kill(Some(ExitReason::Violation)),
        ]
    }

    /// Checks whether the worker responds to pings, and returns the actions that are due.
    /// `is_stopped` queries whether the process is stopped by a signal or a debugger.
    pub(crate) fn check_pings(
        &mut self,
        worker: WorkerName,
        now: Instant,
        is_stopped: impl FnOnce() -> bool,
    ) -> Vec<WorkerAction> {
        match self.pings.check(now, is_stopped) {
            PingVerdict::Ping(number) => vec![WorkerAction::Send(Message::Ping(number))],
            PingVerdict::Wait => Vec::new(),
            PingVerdict::Stopped => self.suspend(format!(
                "{worker} has been stopped by a signal or a debugger: it gets no requests until it \
                 continues"
            )),
            PingVerdict::Silent => self.suspend(format!(
                "{worker} does not respond to health checks: it gets no requests until it does"
            )),
            PingVerdict::Unresponsive => vec![
                WorkerAction::Log(format!(
                    "{worker} has not responded to health checks for a minute: it is killed"
                )),
                WorkerAction::Kill(Some(ExitReason::Unresponsive)),
            ],
        }
    }

    /// Returns the actions that suspend the worker and log `line`, or none if it is suspended
    /// already.
    fn suspend(&mut self, line: String) -> Vec<WorkerAction> {
        if std::mem::replace(&mut self.is_suspended, true) {
            return Vec::new();
        }
        vec![WorkerAction::Suspend, WorkerAction::Log(line)]
    }

    /// Handles a worker's response to a ping. Returns the actions that are due if the worker was
    /// suspended, and otherwise none.
    pub(crate) fn on_pong(&mut self, worker: WorkerName, ping: u64) -> Vec<WorkerAction> {
        if !self.pings.on_pong(ping) || !std::mem::take(&mut self.is_suspended) {
            return Vec::new();
        }
        let mut actions = Vec::new();
        if !self.timeout.is_interrupted() {
            actions.push(WorkerAction::Resume);
        }
        actions.push(WorkerAction::Log(format!("{worker} responds to health checks again")));
        actions
    }

    /// Checks whether the worker's R process is busy with one task for longer than `limit`, and
    /// returns the actions that are due. `is_stopped` queries whether the process is stopped by a
    /// signal or a debugger, and `stack` returns the functions on R's stack.
    pub(crate) fn check_task_limit(
        &mut self,
        limit: TaskLimit,
        seen: &Observation,
        is_stopped: impl FnOnce() -> bool,
        stack: impl FnOnce() -> Option<RStack>,
    ) -> Vec<WorkerAction> {
        let worker = seen.worker;
        let stop = WorkerAction::Finish(Some(ExitReason::Unresponsive), EXIT_TIMEOUT, None);
        match self.timeout.check(limit, seen, is_stopped) {
            TimeoutStep::Nothing => Vec::new(),
            TimeoutStep::Interrupt(busy) => vec![
                // Requests that wait for a response get 504 now, whether R reacts to the interrupt
                // or not.
                WorkerAction::TimeOutRequests,
                WorkerAction::Send(Message::Interrupt),
                WorkerAction::Log(format!(
                    "the R process of {worker} has been busy with one task for {} s: interrupting \
                     it{}",
                    busy.as_secs(),
                    place(stack().as_ref())
                )),
            ],
            TimeoutStep::Resume => {
                let mut actions = Vec::new();
                if !self.is_suspended {
                    actions.push(WorkerAction::Resume);
                }
                actions.push(WorkerAction::Log(format!(
                    "the R process of {worker} has finished the task that took too long"
                )));
                actions
            }
            TimeoutStep::Stop(busy) => vec![
                WorkerAction::TimeOutRequests,
                WorkerAction::Log(format!(
                    "the R process of {worker} has been busy with one task for {} s: ending it{}",
                    busy.as_secs(),
                    place(stack().as_ref())
                )),
                stop,
            ],
            TimeoutStep::StopInterrupted => vec![
                WorkerAction::Log(format!(
                    "the R process of {worker} is still busy with the same task: ending it"
                )),
                stop,
            ],
        }
    }

    /// Returns the action that logs a task of the worker's R process that takes longer than
    /// `limit`, or the end of such a task, or `None` if there is nothing to log. `r_time` reads the
    /// processor time of R's thread, `route` returns the method and path of the request that R
    /// processes, and `stack` the functions on R's stack.
    pub(crate) fn check_slow_log(
        &mut self,
        limit: Duration,
        seen: &Observation,
        r_time: impl FnOnce() -> Option<Duration>,
        route: impl FnOnce() -> Option<String>,
        stack: impl FnOnce() -> Option<RStack>,
    ) -> Option<WorkerAction> {
        let worker = seen.worker;
        let line = match self.slow_log.check(limit, &seen.scoreboard, seen.scoreboard_time, r_time)
        {
            SlowLogEntry::Nothing => return None,
            SlowLogEntry::Busy(busy, computes) => {
                let route = route().map_or(String::new(), |route| format!(" with {route}"));
                let activity = match computes {
                    Some(true) => ": it computes",
                    Some(false) => ": it waits, for a file, a database or a lock",
                    None => "",
                };
                let place = place(stack().as_ref());
                let busy = seconds(busy);
                format!(
                    "the R process of {worker} has been busy for {busy} s{route}{activity}{place}"
                )
            }
            SlowLogEntry::Finished(busy) => format!(
                "the R process of {worker} is no longer busy with the task that took {} s",
                seconds(busy)
            ),
        };
        Some(WorkerAction::Log(line))
    }

    /// Checks whether the worker's R process has missed a wake-up, so that it does not take its
    /// requests, and returns the actions that are due.
    pub(crate) fn check_lost_wakeup(&mut self, seen: &Observation) -> Vec<WorkerAction> {
        if !self.lost_wakeup.check(&seen.scoreboard, seen.now, seen.scoreboard_time) {
            return Vec::new();
        }
        let (worker, scoreboard) = (seen.worker, &seen.scoreboard);
        vec![
            WorkerAction::Log(format!(
                "the R process of {worker} is idle with {} waiting for it (passed to it: {}, \
                 taken: {}). This is a bug in Rookery, please report it. The worker is killed, and \
                 its waiting requests go to another worker",
                counted(scoreboard.queued(), "request"),
                scoreboard.handed,
                scoreboard.taken
            )),
            WorkerAction::Kill(Some(ExitReason::LostWakeup)),
        ]
    }
}

/// Returns the end of a line of the slow log: the functions on R's stack, or that they are unknown
/// because R has not checked for interrupts.
fn place(stack: Option<&RStack>) -> String {
    match stack {
        None => "; where is unknown, because R has not checked for interrupts".to_owned(),
        Some(RStack { text, ago }) if *ago < RECENT_SAMPLE => format!("; r=\"{text}\""),
        Some(RStack { text, ago }) => format!(
            "; r=\"{text}\" {} s ago, and R has not checked for interrupts since",
            seconds(*ago)
        ),
    }
}

/// Returns a time in seconds, with one decimal if it is short.
fn seconds(time: Duration) -> String {
    let decimals = usize::from(time < Duration::from_secs(10));
    format!("{:.decimals$}", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use rookery_worker_protocol::{RState, SharedScoreboard};

    use super::*;

    const NAME: WorkerName = WorkerName { slot: 1, pid: 123 };
    const LIMIT: TaskLimit = TaskLimit { time: Duration::from_secs(60), interrupts: true };

    /// Returns the observation of a worker whose R process has been busy since time 0. The
    /// observation is made `second` seconds after `start`.
    fn busy(start: Instant, second: u64) -> Observation {
        let scoreboard = SharedScoreboard::private();
        Observation {
            worker: NAME,
            scoreboard: Snapshot { r_state: RState::Busy, since: 0, ..scoreboard.read() },
            now: start + Duration::from_secs(second),
            scoreboard_time: second * 1_000_000_000,
        }
    }

    fn log(line: &str) -> WorkerAction {
        WorkerAction::Log(line.to_owned())
    }

    #[test]
    fn the_slow_log_says_where_r_is_or_that_it_is_unknown() {
        let start = Instant::now();
        let stack = |ms| {
            let ago = Duration::from_millis(ms);
            Some(RStack { text: "fit < handler, model.R#12".to_owned(), ago })
        };
        for (stack, end) in [
            (stack(100), "; r=\"fit < handler, model.R#12\""),
            (
                stack(5000),
                "; r=\"fit < handler, model.R#12\" 5.0 s ago, and R has not checked for interrupts \
                 since",
            ),
            (None, "; where is unknown, because R has not checked for interrupts"),
        ] {
            let line = WorkerHealth::default().check_slow_log(
                Duration::from_secs(10),
                &busy(start, 10),
                || None,
                || Some("GET /a".to_owned()),
                || stack,
            );
            let begin = "the R process of worker 1 (123) has been busy for 10 s with GET /a";
            assert_eq!(line, Some(log(&format!("{begin}{end}"))));
        }
    }

    #[test]
    fn a_silent_worker_is_suspended_once_and_resumed_by_its_pong() {
        let (mut health, start) = (WorkerHealth::default(), Instant::now());
        let check = |health: &mut WorkerHealth, second| {
            health.check_pings(NAME, start + Duration::from_secs(second), || false)
        };
        assert_eq!(check(&mut health, 0), [WorkerAction::Send(Message::Ping(1))]);
        assert_eq!(
            check(&mut health, 5),
            [
                WorkerAction::Suspend,
                log("worker 1 (123) does not respond to health checks: it gets no requests until \
                     it does")
            ]
        );
        assert_eq!(check(&mut health, 6), []);
        assert!(health.is_suspended);
        assert_eq!(
            health.on_pong(NAME, 1),
            [WorkerAction::Resume, log("worker 1 (123) responds to health checks again")]
        );
        assert!(!health.is_suspended);
        assert_eq!(check(&mut health, 7), [WorkerAction::Send(Message::Ping(2))]);
        // The response of a worker that was not suspended requires no action.
        assert_eq!(health.on_pong(NAME, 2), []);
    }

    #[test]
    fn a_worker_that_is_silent_for_a_minute_is_killed() {
        let (mut health, start) = (WorkerHealth::default(), Instant::now());
        health.check_pings(NAME, start, || false);
        let actions = health.check_pings(NAME, start + Duration::from_secs(60), || false);
        assert_eq!(actions.last(), Some(&WorkerAction::Kill(Some(ExitReason::Unresponsive))));
    }

    #[test]
    fn a_suspended_worker_is_not_resumed_while_its_interrupted_task_goes_on() {
        let (mut health, start) = (WorkerHealth::default(), Instant::now());
        health.check_pings(NAME, start, || false);
        health.check_pings(NAME, start + Duration::from_secs(5), || false);
        let actions = health.check_task_limit(LIMIT, &busy(start, 60), || false, || None);
        assert_eq!(
            actions[..2],
            [WorkerAction::TimeOutRequests, WorkerAction::Send(Message::Interrupt)]
        );
        assert_eq!(
            health.on_pong(NAME, 1),
            [log("worker 1 (123) responds to health checks again")]
        );
        let stop = WorkerAction::Finish(Some(ExitReason::Unresponsive), EXIT_TIMEOUT, None);
        let actions = health.check_task_limit(LIMIT, &busy(start, 65), || false, || None);
        assert_eq!(actions.last(), Some(&stop));
    }
}
