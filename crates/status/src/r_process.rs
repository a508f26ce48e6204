//! The description of an R process in status reports and metrics. The R process is either a worker
//! of a supervisor or serves without a supervisor.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rookery_worker_protocol::{Histogram, RState, Scoreboard, Snapshot, now};

use crate::format::format_duration;
use crate::pool_counters::QueueReading;
use crate::process_usage::Pid;

/// The name of the state of an R process that is ready for requests, as reports show it.
pub const READY: &str = "ready";

/// The description of an R process that serves the app.
#[derive(Debug, Clone)]
pub struct RProcess {
    /// The number of the R process's slot (its numbered place among the workers), from 0.
    pub slot: u32,
    /// The process id of the R process.
    pub pid: Pid,
    /// The serial number of the start of the R process; 0 without a supervisor.
    pub epoch: u64,
    /// The number of reloads before the R process was started.
    pub generation: u64,
    /// The stage that the R process has reached in its life, for example `ready`.
    pub state: &'static str,
    /// The time at which the R process was started.
    pub started: SystemTime,
    /// The number of requests that the R process has answered.
    pub requests: u64,
    /// The times that the R process was busy with messages and other events of WebSockets, with
    /// what Shiny computed after them.
    pub messages: Arc<Histogram>,
    /// The number of open WebSockets of the R process.
    pub sessions: u64,
    /// The number of pages whose WebSocket the R process still expects.
    pub pending_sessions: u64,
    /// The number of open streams of the R process: responses and request bodies.
    pub streams: u64,
    /// The number of requests that R has begun and not yet answered.
    pub in_flight: u64,
    /// The fraction of the last 5 to 10 seconds in which R was busy, from 0 to 1.
    pub busy_ratio: f64,
    /// The requests that wait in the supervisor for this R process.
    pub queue: QueueReading,
    /// The number of requests that wait for R within the R process.
    pub queued: u64,
    /// The id of the thread that runs R; 0 if it is not known yet.
    pub r_thread: u32,
    /// The current activity of R: `starting`, `idle` or `busy`.
    pub does: &'static str,
    /// The time for which R has been in the state that `does` names.
    pub lasts: Duration,
    /// The current task of R, such as the method and path of a request. `None` if R is not busy, or
    /// if the task is unknown.
    pub task: Option<String>,
    /// The functions on R's stack, if R is busy and its stack has been sampled.
    pub stack: Option<RStack>,
}

/// Returns what R is doing (`starting`, `idle` or `busy`) and for how long. `read` is a snapshot of
/// the scoreboard, the memory in which an R process records what it does. `started` is the time at
/// which the R process was started.
fn r_activity(read: &Snapshot, started: SystemTime) -> (&'static str, Duration) {
    let now = now();
    let state = match read.r_state {
        RState::Starting => "starting",
        RState::Idle if read.is_idle(now) => "idle",
        // R renews the idle state at every `IDLE_RENEWAL_INTERVAL`. If it has not, it is busy.
        RState::Idle | RState::Busy | RState::Messages => "busy",
    };
    // While R starts, the scoreboard has no start time of the activity.
    let lasts =
        if read.since == 0 { started.elapsed().unwrap_or_default() } else { read.elapsed(now) };
    (state, lasts)
}

/// Returns what R is busy with: the method and path of a request, a message of a WebSocket, or a
/// callback. Returns `None` if R is idle or starts, or if it is unknown what R does. R counts as
/// idle while requests wait for promises.
pub fn r_task(scoreboard: &Scoreboard) -> Option<String> {
    let read = scoreboard.read();
    match read.r_state {
        RState::Idle if !read.is_idle(now()) => Some("a callback of package later".to_owned()),
        _ => last_r_task(scoreboard),
    }
}

/// Returns what R was busy with when its process ended: the method and path of a request, or a
/// message of a WebSocket. Returns `None` if R was idle or starting, or if it is unknown.
pub fn last_r_task(scoreboard: &Scoreboard) -> Option<String> {
    match scoreboard.read().r_state {
        RState::Starting | RState::Idle => None,
        RState::Messages => Some("an event of a WebSocket".to_owned()),
        RState::Busy => scoreboard.task(),
    }
}

/// Returns the functions that R's thread has last found on its stack during its current activity,
/// and how long ago. Returns `None` if R is not busy, or if its stack has not been sampled.
pub fn r_stack(scoreboard: &Scoreboard) -> Option<RStack> {
    let (read, time) = (scoreboard.read(), now());
    let sample = scoreboard.stack().filter(|_| !read.is_idle(time))?;
    Some(RStack { text: sample.text, ago: Duration::from_nanos(time.saturating_sub(sample.at)) })
}

/// The functions on R's stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RStack {
    /// The names of the functions, the innermost first, and a place in the source code.
    pub text: String,
    /// The time since R's thread read the stack.
    pub ago: Duration,
}

/// The age from which on a stack is no longer shown as the current one.
const CURRENT_FOR: Duration = Duration::from_secs(2);

/// The separator between the functions of a stack and the beginning of the token of the session for
/// which R computes.
const SESSION: &str = ", session ";

impl RStack {
    /// Returns the functions and the beginning of the token of the session of Shiny for which R
    /// computes, or `None` if R computes for no session or the session is not known.
    pub(crate) fn of_session(&self) -> Option<(&str, &str)> {
        self.text.rsplit_once(SESSION)
    }

    /// Returns the stack as text for people, with its age unless the stack is recent.
    pub fn phrase(&self) -> String {
        if self.ago <= CURRENT_FOR {
            return format!("in {}", self.text);
        }
        format!("in {} ({} ago)", self.text, format_duration(self.ago))
    }
}

impl RProcess {
    /// Returns the description of an R process that was started at the time `started`, as far as
    /// its scoreboard shows it. `read` has the numbers of the scoreboard. The R process is in slot
    /// 0 and ready.
    pub fn of_scoreboard(
        scoreboard: &Scoreboard,
        read: &Snapshot,
        pid: Pid,
        started: SystemTime,
    ) -> RProcess {
        let (does, lasts) = r_activity(read, started);
        let messages = Histogram::new();
        messages.add_all(scoreboard.messages());
        RProcess {
            slot: 0,
            pid,
            epoch: 0,
            generation: 0,
            state: READY,
            started,
            requests: 0,
            messages: Arc::new(messages),
            sessions: read.sessions,
            pending_sessions: 0,
            streams: read.streams,
            in_flight: read.pending(),
            busy_ratio: 0.0,
            queue: QueueReading::default(),
            queued: read.queued(),
            r_thread: read.r_thread,
            does,
            lasts,
            task: r_task(scoreboard).filter(|_| does == "busy"),
            stack: r_stack(scoreboard),
        }
    }

    /// Returns how long R has been busy with its current task, or `None` if R is not busy.
    pub fn busy(&self) -> Option<Duration> {
        (self.does == "busy").then_some(self.lasts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_stack_has_its_age() {
        let phrase = |ms| {
            RStack { text: "fit < handler".to_owned(), ago: Duration::from_millis(ms) }.phrase()
        };
        assert_eq!(phrase(2000), "in fit < handler");
        assert_eq!(phrase(90_000), "in fit < handler (1 min 30 s ago)");
    }
}
