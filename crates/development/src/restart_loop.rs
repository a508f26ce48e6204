//! Detects files that the app itself changes whenever it has been started, which would start the
//! app again and again.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The maximum time after a start of the app at which a change counts as one of the app.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// The number of consecutive starts that were followed by a change of the same file after about the
/// same time, from which on the app is considered to be the cause. People do not save a file so
/// regularly.
const REPEATS: u32 = 3;

/// The smallest difference between two delays that counts as a difference.
const MIN_DIFFERENCE: Duration = Duration::from_millis(400);

/// The time after which a change of a file that the app is known to write counts as one of a
/// developer, in addition to three times the delay of the app. An R process that has loaded the
/// packages in advance is faster than another one.
const KNOWN_MARGIN: Duration = Duration::from_secs(2);

/// The changes that have followed the last starts of an app.
#[derive(Debug, Default)]
pub(crate) struct RestartLoop {
    started: Option<Instant>,
    files: HashMap<PathBuf, Delay>,
}

/// The time from a start of the app to a change of a file.
#[derive(Debug)]
struct Delay {
    time: Duration,
    /// The start before the last change, of which further changes do not count.
    after: Option<Instant>,
    /// The number of starts in succession that were followed by a change after this time.
    repeats: u32,
    /// The time of the last change that was removed. A task of the app may change the file
    /// regularly.
    removed: Option<Instant>,
}

impl RestartLoop {
    /// Records that the app is being started.
    pub(crate) fn on_start(&mut self, now: Instant) {
        self.started = Some(now);
    }

    /// Removes the files from `changed` that the app changes whenever it has been started. Returns
    /// those that are removed for the first time.
    pub(crate) fn remove_own_changes(
        &mut self,
        changed: &mut Vec<PathBuf>,
        now: Instant,
    ) -> Vec<PathBuf> {
        let Some(started) = self.started else { return Vec::new() };
        // A file that has not changed after this start is not changed by each start.
        self.files.retain(|path, delay| delay.repeats >= REPEATS || changed.contains(path));
        let mut found = Vec::new();
        changed.retain(|path| {
            let last = self.files.get(path).and_then(|delay| delay.removed);
            let time = now.duration_since(last.map_or(started, |last| last.max(started)));
            if time > MAX_DELAY {
                return true;
            }
            let first = Delay { time, after: None, repeats: 0, removed: None };
            let delay = self.files.entry(path.clone()).or_insert(first);
            let is_known = delay.repeats >= REPEATS;
            if !is_known && delay.after == Some(started) {
                return true;
            }
            delay.after = Some(started);
            let is_other_time = if is_known {
                time > delay.time * 3 + KNOWN_MARGIN
            } else {
                time.abs_diff(delay.time) > MIN_DIFFERENCE.max(delay.time / 4)
            };
            if is_other_time {
                if !is_known {
                    *delay = Delay { time, after: Some(started), repeats: 1, removed: None };
                }
                return true;
            }
            if !is_known {
                (delay.time, delay.repeats) = (time, delay.repeats + 1);
                if delay.repeats < REPEATS {
                    return true;
                }
                found.push(path.clone());
            }
            delay.removed = Some(now);
            false
        });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts the app and changes a file after each of these milliseconds. Returns whether the file
    /// would have started the app again, and how often it was reported.
    fn after(delays: &[u64]) -> (Vec<bool>, usize) {
        let (mut restarts, mut now) = (RestartLoop::default(), Instant::now());
        let mut reports = 0;
        let causes = delays.iter().map(|delay| {
            restarts.on_start(now);
            now += Duration::from_millis(*delay);
            let mut changed = vec![PathBuf::from("R/made.R")];
            reports += restarts.remove_own_changes(&mut changed, now).len();
            !changed.is_empty()
        });
        let causes = causes.collect();
        (causes, reports)
    }

    #[test]
    fn a_file_that_changes_at_every_start_is_reported_once_and_then_ignored() {
        assert_eq!(after(&[500, 600, 450, 500]), (vec![true, true, false, false], 1));
        assert_eq!(after(&[8000, 9000, 7500, 8000]), (vec![true, true, false, false], 1));
        // A start with preloaded packages is faster, and one without them is slower.
        assert_eq!(after(&[800, 900, 800, 100, 2500]).0, [true, true, false, false, false]);
        // The developer changes the file at another time.
        assert_eq!(after(&[500, 600, 450, 6000, 500]).0, [true, true, false, true, false]);
    }

    #[test]
    fn a_file_that_the_app_changes_regularly_is_ignored_without_further_starts() {
        let (mut restarts, mut now) = (RestartLoop::default(), Instant::now());
        let path = PathBuf::from("R/made.R");
        let mut starts = 0;
        restarts.on_start(now);
        for _ in 0..20 {
            now += Duration::from_secs(5);
            let mut changed = vec![path.clone()];
            restarts.remove_own_changes(&mut changed, now);
            if !changed.is_empty() {
                starts += 1;
                restarts.on_start(now);
            }
        }
        assert_eq!(starts, 2);
    }

    #[test]
    fn a_file_that_the_developer_saves_again_and_again_is_not_ignored() {
        for delays in [&[2000, 4000, 9000, 3000, 5000][..], &[40_000; 5], &[1000, 1100, 5000, 1000]]
        {
            let (causes, reports) = after(delays);
            assert!(causes.iter().all(|is_cause| *is_cause) && reports == 0, "{delays:?}");
        }
    }

    #[test]
    fn changes_after_the_same_start_count_once() {
        let (mut restarts, now) = (RestartLoop::default(), Instant::now());
        restarts.on_start(now);
        for at in 1..10 {
            let mut changed = vec![PathBuf::from("app.R")];
            restarts.remove_own_changes(&mut changed, now + Duration::from_millis(100 + at));
            assert_eq!(changed.len(), 1, "{at}");
        }
    }

    #[test]
    fn a_change_of_another_file_ends_the_row() {
        let (mut restarts, now) = (RestartLoop::default(), Instant::now());
        for name in ["a.R", "a.R", "b.R", "a.R", "a.R"] {
            restarts.on_start(now);
            let mut changed = vec![PathBuf::from(name)];
            restarts.remove_own_changes(&mut changed, now + Duration::from_secs(1));
            assert_eq!(changed.len(), 1, "{name}");
        }
    }
}
