//! How long a worker that has ended is waited with before it is started again.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A life that was no failure.
const LONG: Duration = Duration::from_secs(60);

/// The pause after a failure, doubled with each that follows.
const FIRST: Duration = Duration::from_millis(500);
const LAST: Duration = Duration::from_secs(30);

/// The pause after a short life in which requests were answered: what ended it may have been one request, and others wait.
const SHORT: Duration = Duration::from_millis(100);

/// So many ends within [`LONG`], each without an answer before it, are a loop.
const LOOP: usize = 5;

/// One worker's ends.
#[derive(Debug, Default)]
pub(crate) struct RestartBackoff {
    failures: u32,
    ends: VecDeque<Instant>,
    is_told: bool,
}

/// What is to be done about an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pause {
    pub(crate) time: Duration,
    /// It ends again and again, and that has not been told.
    pub(crate) is_news_of_loop: bool,
}

impl RestartBackoff {
    /// Whether it ends again and again, where the one that is there has lived for `life` and answered nothing. One that is tried ever more
    /// seldom has fewer ends in a minute, and is in a loop still.
    pub(crate) fn is_loop(&self, life: Duration) -> bool {
        self.is_told && life <= LONG
    }

    /// After a life of so long. `chance` is any number, so that workers that ended together do not start together.
    pub(crate) fn ended(
        &mut self,
        life: Duration,
        has_answered: bool,
        now: Instant,
        chance: u64,
    ) -> Pause {
        if has_answered || life > LONG {
            *self = RestartBackoff::default();
            let time = if life > LONG { Duration::ZERO } else { SHORT };
            return Pause { time, is_news_of_loop: false };
        }
        self.ends.push_back(now);
        while self.ends.front().is_some_and(|end| now.duration_since(*end) > LONG) {
            self.ends.pop_front();
        }
        let is_news_of_loop = self.ends.len() >= LOOP
            && !std::mem::replace(&mut self.is_told, self.ends.len() >= LOOP);
        let doubled = FIRST.saturating_mul(1 << self.failures.min(16)).min(LAST);
        self.failures += 1;
        // Up to a fifth less, or more.
        let time = doubled * (800 + (chance % 401) as u32) / 1000;
        Pause { time, is_news_of_loop }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_half_a_minute_and_a_loop_is_told_once() {
        let mut backoff = RestartBackoff::default();
        let now = Instant::now();
        let mut told = Vec::new();
        for (at, expected) in
            [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000].into_iter().enumerate()
        {
            let end = now + Duration::from_secs(at as u64);
            let pause = backoff.ended(Duration::from_secs(1), false, end, 200);
            assert_eq!(pause.time, Duration::from_millis(expected));
            told.push(pause.is_news_of_loop);
            assert_eq!(backoff.is_loop(Duration::ZERO), at >= 4);
        }
        // Tried every half minute it has no five ends in a minute, and nothing better to show.
        let late = now + LONG * 4;
        assert!(!backoff.ended(Duration::from_secs(1), false, late, 200).is_news_of_loop);
        assert!(backoff.is_loop(Duration::ZERO) && backoff.is_loop(LONG));
        // One that lives has.
        assert!(!backoff.is_loop(LONG + Duration::from_secs(1)));
        assert_eq!(told, [false, false, false, false, true, false, false, false]);
        let well = backoff.ended(Duration::from_secs(1), true, now, 0);
        assert_eq!(well, Pause { time: SHORT, is_news_of_loop: false });
        assert!(!backoff.is_loop(Duration::ZERO));
        let first = |backoff: &mut RestartBackoff, chance| {
            backoff.ended(Duration::ZERO, false, now, chance).time
        };
        assert_eq!(first(&mut backoff, 0), Duration::from_millis(400));
        backoff.ended(Duration::ZERO, true, now, 0);
        assert_eq!(first(&mut backoff, 400), Duration::from_millis(600));
    }

    #[test]
    fn who_lived_long_starts_at_once_and_ends_far_apart_are_no_loop() {
        let mut backoff = RestartBackoff::default();
        let now = Instant::now();
        for at in 0..20u64 {
            let end = now + Duration::from_secs(at * 20);
            assert!(!backoff.ended(Duration::from_secs(1), false, end, 0).is_news_of_loop);
        }
        assert_eq!(backoff.ended(Duration::from_secs(61), false, now, 0).time, Duration::ZERO);
    }
}
