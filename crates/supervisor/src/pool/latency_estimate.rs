//! How long a worker's R takes for a request, and so how many it may be given ahead.
//!
//! What has to be known is when R gets to a request that is given to it now. That is the time that R was busy with requests by the
//! number of them, which its scoreboard says, and not how long replies take: on a machine that is short of processors most of
//! that is waiting for one, which a request does wherever it waits, and an R that is given one request at a time then waits anew for each.
//! It is busy also while a handler sleeps: nobody else is begun with meanwhile. A promise that is waited for is none of it.

use std::time::{Duration, Instant};

/// WorkDone that a worker may have ahead, beside what its R does: so that R need not wait for the next request to be handed over, which
/// takes some tens of microseconds, and no more of them wait behind a slow one than can be helped.
const AHEAD: Duration = Duration::from_millis(1);

/// For how long after its answer an R looks for what comes next, of the 200 us that it may (`Link::enable_long_busy_poll`): the rest is the way there.
const AWAKE: Duration = Duration::from_micros(150);

/// Up to which mean it has one ahead in any case: the time that a hand-over takes is a tenth of it or more, and an R that sleeps
/// after each request is put by the system where it last was, though another processor is idle. One that takes longer is given the
/// next when its reply has come: so that its end costs one request and never two.
const ONE_AHEAD: Duration = Duration::from_millis(2);

/// Timeouts its mean that R may be at its request, for the next to be put behind it: a slow one among quick ones holds nobody up who comes
/// later.
const SLOW: u32 = 4;

/// A worker that is not known to be slow.
const FIRST_GUESS: Duration = Duration::from_millis(5);

/// Of what is the mean, all requests before have these parts of eight.
const PARTS_BEFORE: u32 = 7;

/// Behind so many requests nothing is left of what was before them (one part in seventy).
const FORGETS: u64 = 32;

/// What R has done, as its scoreboard says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WorkDone {
    /// How long it was busy with requests.
    pub(super) answering: Duration,
    /// How many it has answered.
    pub(super) done: u64,
}

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(super) struct LatencyEstimate {
    mean: Duration,
    seen: WorkDone,
    answered: Option<Instant>,
}

impl LatencyEstimate {
    /// Of a worker that has done this before anything was given to it.
    pub(super) fn new(seen: WorkDone) -> LatencyEstimate {
        LatencyEstimate { mean: FIRST_GUESS, seen, answered: None }
    }

    /// A reply has come to a request that was given to it at `given`, and by now it has done all this `work`.
    pub(super) fn has_answered(&mut self, work: WorkDone, given: Instant, now: Instant) {
        // It worked no longer on this than since it was given it, nor before its last reply: what is on the scoreboard beyond that was
        // something else, and a worker's word.
        let from = self.answered.map_or(given, |answered| answered.max(given));
        self.answered = Some(now);
        let done = work.done.wrapping_sub(self.seen.done);
        // The reply before has brought the news of this one as well; or it is a worker that counts backwards.
        if done == 0 || done > u64::MAX / 2 {
            return;
        }
        let time = work
            .answering
            .saturating_sub(self.seen.answering)
            .min(now.saturating_duration_since(from));
        self.seen = work;
        let each = Duration::from_nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) / done);
        for _ in 0..done.min(FORGETS) {
            self.mean = (self.mean * PARTS_BEFORE + each) / (PARTS_BEFORE + 1);
        }
    }

    /// Whether it has answered a moment ago, so that it soon waits if there is nothing for it to do.
    pub(super) fn has_just_answered(&self, now: Instant) -> bool {
        self.answered.is_some_and(|at| now.saturating_duration_since(at) < AHEAD)
    }

    /// Whether its R still looks for the next, so that nobody has to wake it.
    pub(super) fn is_awake(&self, now: Instant) -> bool {
        self.answered.is_some_and(|at| now.saturating_duration_since(at) < AWAKE)
    }

    /// How many may wait for it beside the one it is at, which it has been at for so long.
    pub(super) fn ahead(&self, lasts: Duration) -> usize {
        if lasts > self.mean * SLOW {
            return 0;
        }
        let work = AHEAD.as_nanos() / self.mean.as_nanos().max(1);
        usize::try_from(work).unwrap_or(usize::MAX).max(usize::from(self.mean <= ONE_AHEAD))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// A worker, as the pool sees it: times are what is said here, and nobody waits.
    struct Seen {
        pace: LatencyEstimate,
        work: WorkDone,
        now: Instant,
    }

    impl Seen {
        fn new() -> Seen {
            let work = WorkDone { answering: us(400_000), done: 3 };
            Seen { pace: LatencyEstimate::new(work), work, now: Instant::now() }
        }

        /// Replies to `requests`, each of which R was `busy` with; and what was between is waiting of some kind.
        fn answer(&mut self, requests: usize, busy: Duration, waited: Duration) -> usize {
            for _ in 0..requests {
                self.work =
                    WorkDone { answering: self.work.answering + busy, done: self.work.done + 1 };
                let given = self.now;
                self.now += busy + waited;
                self.pace.has_answered(self.work, given, self.now);
            }
            self.ahead()
        }

        fn ahead(&self) -> usize {
            self.pace.ahead(Duration::ZERO)
        }
    }

    #[test]
    fn as_many_as_make_a_millisecond_and_one_up_to_two() {
        for (busy, ahead) in [
            (50, 20),
            (100, 10),
            (200, 5),
            (999, 1),
            (1_000, 1),
            (1_001, 1),
            (1_999, 1),
            (2_001, 0),
            (500_000, 0),
        ] {
            // Whether replies come at once or after ten milliseconds in which somebody else had the processor.
            for waited in [0, 100, 10_000] {
                assert_eq!(Seen::new().answer(200, us(busy), us(waited)), ahead, "{busy} {waited}");
            }
        }
    }

    #[test]
    fn nothing_is_known_of_a_new_one_and_what_it_did_before_does_not_count() {
        let mut seen = Seen::new();
        assert_eq!(seen.ahead(), 0);
        assert_eq!(seen.answer(1, us(20), us(0)), 0);
        assert!(seen.answer(20, us(20), us(0)) > 0);
    }

    #[test]
    fn one_that_becomes_slow_is_given_nothing_ahead_after_one_reply_and_one_that_becomes_quick_in_a_while()
     {
        let mut seen = Seen::new();
        assert_eq!(seen.answer(200, us(50), us(0)), 20);
        assert_eq!(seen.answer(1, us(50_000), us(0)), 0);
        let after = (1..100).find(|_| seen.answer(1, us(50), us(0)) > 0).unwrap();
        assert!(after > 5 && after < 40, "{after}");
        // Nor is one put behind a request that it is at for longer than it used to be.
        assert_eq!(seen.answer(100, us(50), us(0)), 20);
        assert_eq!((seen.pace.ahead(us(190)), seen.pace.ahead(us(210))), (20, 0));
    }

    #[test]
    fn replies_that_come_together_count_as_many() {
        let (mut together, mut alone) = (Seen::new(), Seen::new());
        for _ in 0..10 {
            alone.answer(8, us(60), us(0));
            let work = WorkDone {
                answering: together.work.answering + us(480),
                done: together.work.done + 8,
            };
            let given = together.now;
            together.now += us(500);
            for _ in 0..8 {
                together.pace.has_answered(work, given, together.now);
            }
            together.work = work;
        }
        assert_eq!((together.ahead(), alone.ahead()), (16, 16));
    }

    #[test]
    fn a_promise_that_is_waited_for_is_no_work() {
        // Each is begun for 30 us, and answered half a second later.
        assert_eq!(Seen::new().answer(100, us(30), us(500_000)), 33);
    }

    #[test]
    fn it_worked_no_longer_than_it_had_the_request() {
        let mut seen = Seen::new();
        seen.answer(100, us(50), us(0));
        // Something else, for a minute, and then a request.
        seen.work.answering += us(60_000_000);
        seen.now += us(60_000_000);
        assert!(seen.answer(1, us(50), us(40)) > 10);
    }

    #[test]
    fn whatever_a_worker_says_there_is_a_pace() {
        let mut state = 0x2545_F491_4F6C_DD1D_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let (mut pace, start) =
            (LatencyEstimate::new(WorkDone { answering: Duration::ZERO, done: 0 }), Instant::now());
        for _ in 0..100_000 {
            let mut number = || match random() % 4 {
                0 => u64::MAX,
                1 => random() % 3,
                _ => random(),
            };
            let work = WorkDone { answering: Duration::from_nanos(number()), done: number() };
            let (given, now) =
                (start + us(number() % 10_000_000), start + us(number() % 10_000_000));
            pace.has_answered(work, given, now);
            assert!(pace.mean <= us(10_000_000).max(FIRST_GUESS), "{pace:?}");
            let _ = (pace.ahead(us(number() % 1_000)), pace.has_just_answered(start));
        }
    }
}
