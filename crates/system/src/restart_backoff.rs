//! The restart back-off, which is the pause before a worker that has ended is started again. A
//! worker is a process that serves an app.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The lifetime after which the end of a worker does not count as a failure.
const LONG_LIFE: Duration = Duration::from_secs(60);

/// The pause before a worker is started again after its first failure. The pause is doubled with
/// each further failure, up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause before a worker is started again.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// The pause before a restart if the worker ended soon after its start, but had answered requests.
/// The pause is short because a single request may have caused the end, and other requests are
/// waiting.
const SHORT_PAUSE: Duration = Duration::from_millis(100);

/// The number of failures within [`LONG_LIFE`] at which the workers of a slot (a worker's numbered
/// place) count as being in a crash loop. A worker fails if it ends before it has answered any
/// request.
const LOOP_FAILURES: usize = 5;

/// The restart back-off of one slot (a worker's numbered place), which depends on the recent
/// failures of the slot's workers.
#[derive(Debug, Default)]
pub struct RestartBackoff {
    /// The number of consecutive failures of workers in the slot.
    failures: u32,
    /// The times of the failures of workers in the slot within the last minute.
    recent: VecDeque<Instant>,
    /// Whether a crash loop of the slot's workers has begun and has been logged.
    is_loop_reported: bool,
}

/// The pause between the end of a worker and the next start in its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// The duration of the pause before the next start.
    pub time: Duration,
    /// Whether a crash loop begins with this end of a worker, so that the caller has to log it.
    pub is_new_loop: bool,
}

impl RestartBackoff {
    /// Returns true if the workers of a slot (a worker's numbered place) are in a crash loop: they
    /// end repeatedly without having answered a request. `life` is the age of the current worker. A
    /// worker that lives longer than a minute ends the crash loop.
    pub fn is_loop(&self, life: Duration) -> bool {
        self.is_loop_reported && life <= LONG_LIFE
    }

    /// Records the end of a worker that lived for `life`, and returns the pause before the next
    /// start. `has_answered` is true if the worker has responded to a request. The pause varies
    /// with `epoch`, the number of the worker's start, so that workers that ended together do not
    /// start together.
    pub fn on_exit(
        &mut self,
        life: Duration,
        has_answered: bool,
        now: Instant,
        epoch: u64,
    ) -> Pause {
        self.pause_after(life, has_answered, now, epoch * 7919)
    }

    /// Records the failure of a worker that was not ready yet, and returns the pause before the
    /// next start. The time that the start took does not matter: starts that fail again and again
    /// are a crash loop, even if each of them has timed out.
    pub fn on_failed_start(&mut self, now: Instant, epoch: u64) -> Pause {
        let mut pause = self.on_exit(Duration::ZERO, false, now, epoch);
        if self.failures as usize >= LOOP_FAILURES {
            pause.is_new_loop |= !std::mem::replace(&mut self.is_loop_reported, true);
        }
        pause
    }

    /// Does the same as [`on_exit`](Self::on_exit), with an arbitrary number `chance` that varies
    /// the pause.
    fn pause_after(
        &mut self,
        life: Duration,
        has_answered: bool,
        now: Instant,
        chance: u64,
    ) -> Pause {
        if has_answered || life > LONG_LIFE {
            *self = RestartBackoff::default();
            let time = if life > LONG_LIFE { Duration::ZERO } else { SHORT_PAUSE };
            return Pause { time, is_new_loop: false };
        }
        self.recent.push_back(now);
        while self.recent.front().is_some_and(|end| now.duration_since(*end) > LONG_LIFE) {
            self.recent.pop_front();
        }
        let is_new_loop = self.recent.len() >= LOOP_FAILURES
            && !std::mem::replace(&mut self.is_loop_reported, self.recent.len() >= LOOP_FAILURES);
        let doubled = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(MAX_PAUSE);
        self.failures += 1;
        // The pause is up to a fifth shorter or longer.
        let time = doubled * (800 + (chance % 401) as u32) / 1000;
        Pause { time, is_new_loop }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_half_a_minute_and_a_loop_is_reported_once() {
        let mut backoff = RestartBackoff::default();
        let now = Instant::now();
        let mut reported = Vec::new();
        for (at, expected) in
            [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000].into_iter().enumerate()
        {
            let end = now + Duration::from_secs(at as u64);
            let pause = backoff.pause_after(Duration::from_secs(1), false, end, 200);
            assert_eq!(pause.time, Duration::from_millis(expected));
            reported.push(pause.is_new_loop);
            assert_eq!(backoff.is_loop(Duration::ZERO), at >= 4);
        }
        // Restarts every half minute are fewer than five failures in a minute, but the crash loop
        // persists.
        let late = now + LONG_LIFE * 4;
        assert!(!backoff.pause_after(Duration::from_secs(1), false, late, 200).is_new_loop);
        assert!(backoff.is_loop(Duration::ZERO) && backoff.is_loop(LONG_LIFE));
        // A worker that lives longer ends the crash loop.
        assert!(!backoff.is_loop(LONG_LIFE + Duration::from_secs(1)));
        assert_eq!(reported, [false, false, false, false, true, false, false, false]);
        let well = backoff.pause_after(Duration::from_secs(1), true, now, 0);
        assert_eq!(well, Pause { time: SHORT_PAUSE, is_new_loop: false });
        assert!(!backoff.is_loop(Duration::ZERO));
        let first = |backoff: &mut RestartBackoff, chance| {
            backoff.pause_after(Duration::ZERO, false, now, chance).time
        };
        assert_eq!(first(&mut backoff, 0), Duration::from_millis(400));
        backoff.pause_after(Duration::ZERO, true, now, 0);
        assert_eq!(first(&mut backoff, 400), Duration::from_millis(600));
    }

    #[test]
    fn a_worker_that_lived_long_restarts_at_once_and_rare_ends_are_no_loop() {
        let mut backoff = RestartBackoff::default();
        let now = Instant::now();
        for at in 0..20u64 {
            let end = now + Duration::from_secs(at * 20);
            assert!(!backoff.pause_after(Duration::from_secs(1), false, end, 0).is_new_loop);
        }
        assert_eq!(
            backoff.pause_after(Duration::from_secs(61), false, now, 0).time,
            Duration::ZERO
        );
    }
}
