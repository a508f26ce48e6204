//! The course of one profile: which R processes take samples, from when and until when.

use std::time::Duration;

use rookery_worker_protocol::ProfileProgress;

/// The time for which the end of a profile waits for R processes that are busy with code that does
/// not check for interrupts.
pub(super) const GRACE: Duration = Duration::from_secs(3);

/// The maximum number of R processes of a profile, including those that replace others.
const MAX_TARGETS: usize = 256;

/// The observed state of an R process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    /// The serial number of the process.
    pub(super) key: u64,
    pub(super) slot: u32,
    pub(super) pid: u32,
    pub(super) progress: ProfileProgress,
    /// Whether the file of the process has reached its maximum size.
    pub(super) is_full: bool,
}

/// The state of an R process in a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetState {
    /// The profile was requested, and R has not begun.
    Requested,
    /// R takes samples.
    Running,
    /// R should end the profile, and has not done so. The second value tells whether it was ended
    /// because its file was full.
    Ending(bool),
    Ended(Outcome),
}

/// How the profile of an R process has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Complete,
    /// The file has reached its maximum size.
    Full,
    /// The process has ended.
    ProcessEnded,
    /// R has not checked for interrupts, so it has not begun.
    NotBegun,
    /// R has not checked for interrupts at the end, so its last samples are missing.
    NotEnded,
    /// R itself reports this progress.
    Problem(ProfileProgress),
}

impl Outcome {
    /// Returns the reason why the profile of the process is missing or incomplete, as a sentence
    /// without its subject. Returns `None` if it is complete.
    pub(super) fn problem(self) -> Option<&'static str> {
        Some(match self {
            Outcome::Complete => return None,
            Outcome::Full => "was stopped early, because its file had reached the maximum size",
            Outcome::ProcessEnded => "ended during the profile, so its last samples are missing",
            Outcome::NotBegun => {
                "was not profiled: all the time, R ran code that does not check for interrupts, or \
                 waited outside of R"
            }
            Outcome::NotEnded => {
                "still runs code that does not check for interrupts, so its last samples are missing"
            }
            Outcome::Problem(ProfileProgress::Unsupported) => {
                "was not profiled: its R was built without the profiler (configure R with \
                 `--enable-R-profiling`)"
            }
            Outcome::Problem(ProfileProgress::OtherProfiler) => {
                "was not profiled: the app profiles itself (stop its Rprof() first)"
            }
            Outcome::Problem(ProfileProgress::Replaced) => {
                "was profiled until the app called Rprof() itself"
            }
            Outcome::Problem(_) => "was not profiled: the file of its profile cannot be written",
        })
    }
}

/// An R process in a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) key: u64,
    pub(super) slot: u32,
    pub(super) pid: u32,
    pub(super) state: TargetState,
}

/// Something that must be done for an R process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Request a profile.
    Request,
    /// Open the file of the profile, which R has created.
    Open,
    /// End the profile.
    Withdraw,
}

/// The course of one profile.
#[derive(Debug, Clone)]
pub(super) struct Session {
    /// The time from the beginning to the end.
    seconds: Duration,
    /// The only slot whose processes are profiled, if one was chosen.
    only: Option<u32>,
    /// The time at which the end was requested.
    ended_at: Option<Duration>,
    pub(super) targets: Vec<Target>,
}

impl Session {
    pub(super) fn new(seconds: Duration, only: Option<u32>) -> Session {
        Session { seconds, only, ended_at: None, targets: Vec::new() }
    }

    /// Ends the profile early, at the next call of [`turn`](Self::turn).
    pub(super) fn stop(&mut self) {
        self.seconds = Duration::ZERO;
    }

    /// Returns true if nothing is left to be done.
    pub(super) fn is_over(&self) -> bool {
        let is_ended = |target: &Target| matches!(target.state, TargetState::Ended(_));
        self.ended_at.is_some() && self.targets.iter().all(is_ended)
    }

    /// Records the observed state of the running R processes at the time `now` since the beginning.
    /// Returns the steps that must be done now, each with the key of its process.
    pub(super) fn turn(&mut self, now: Duration, processes: &[Seen]) -> Vec<(u64, Step)> {
        let mut steps = Vec::new();
        let is_new_end = self.ended_at.is_none() && now >= self.seconds;
        if is_new_end {
            self.ended_at = Some(now);
        }
        let has_waited = self.ended_at.is_some_and(|at| now >= at + GRACE);
        for target in &mut self.targets {
            let seen = processes.iter().find(|seen| seen.key == target.key);
            target.advance(seen, self.ended_at.is_some(), has_waited, &mut steps);
        }
        if self.ended_at.is_none() {
            for seen in processes {
                let is_wanted = self.only.is_none_or(|only| only == seen.slot);
                let is_known = self.targets.iter().any(|target| target.key == seen.key);
                if is_wanted && !is_known && self.targets.len() < MAX_TARGETS {
                    let Seen { key, slot, pid, .. } = *seen;
                    self.targets.push(Target { key, slot, pid, state: TargetState::Requested });
                    steps.push((key, Step::Request));
                }
            }
        }
        steps
    }
}

impl Target {
    fn advance(
        &mut self,
        seen: Option<&Seen>,
        is_ending: bool,
        has_waited: bool,
        steps: &mut Vec<(u64, Step)>,
    ) {
        if matches!(self.state, TargetState::Ended(_)) {
            return;
        }
        let Some(seen) = seen else {
            self.state = TargetState::Ended(Outcome::ProcessEnded);
            return;
        };
        if self.state == TargetState::Requested && seen.progress != ProfileProgress::Waiting {
            self.state = TargetState::Running;
            steps.push((self.key, Step::Open));
        }
        match (self.state, seen.progress) {
            // R has ended the profile by itself, or could not begin.
            (TargetState::Running, progress) if progress != ProfileProgress::Running => {
                let outcome = match progress {
                    ProfileProgress::Complete => Outcome::Complete,
                    progress => Outcome::Problem(progress),
                };
                self.state = TargetState::Ended(outcome);
                steps.push((self.key, Step::Withdraw));
            }
            (TargetState::Running, _) if is_ending || seen.is_full => {
                self.state = TargetState::Ending(!is_ending);
                steps.push((self.key, Step::Withdraw));
            }
            (TargetState::Requested, _) if is_ending => {
                self.state = TargetState::Ended(Outcome::NotBegun);
                steps.push((self.key, Step::Withdraw));
            }
            (TargetState::Ending(is_full), progress) if progress != ProfileProgress::Running => {
                self.state = TargetState::Ended(match progress {
                    ProfileProgress::Complete if is_full => Outcome::Full,
                    ProfileProgress::Complete => Outcome::Complete,
                    progress => Outcome::Problem(progress),
                });
            }
            (TargetState::Ending(_), _) if has_waited => {
                self.state = TargetState::Ended(Outcome::NotEnded);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
