//! An estimate of how long a request occupies a worker's R process. The balancer uses it to decide
//! how many requests may wait at the worker while R is busy.
//!
//! The estimate is a moving average. It is computed from two numbers on the worker's scoreboard
//! (shared memory): the time that R was busy, and the number of responses. The time that a handler
//! sleeps counts, because R cannot begin another request meanwhile. The time that a request waits
//! for a promise does not count.

use std::time::{Duration, Instant};

/// The maximum total time that R may need for the requests that wait at a worker behind the current
/// one. These requests keep R busy until the supervisor has sent another one, which takes tens of
/// microseconds.
const WORK_AHEAD: Duration = Duration::from_millis(1);

/// The time after a worker's response during which R still polls for the next request instead of
/// sleeping. R polls for 200 us (`Link::enable_long_busy_poll`), but the next request needs up to
/// 50 us to arrive.
const POLL_TIME: Duration = Duration::from_micros(150);

/// The maximum mean time per request at which a worker counts as fast. At a fast worker, one
/// request may wait behind the current one, because R would otherwise be idle for a tenth of its
/// time or more. At a slower worker no request waits, so that only one request fails if the worker
/// ends.
const MAX_MEAN_FOR_ONE_AHEAD: Duration = Duration::from_millis(2);

/// The multiple of the mean time per request after which R's current request counts as slow. No
/// further requests are sent to wait behind a slow request.
const SLOW_FACTOR: u64 = 4;

/// The estimated time per request for a worker that has not responded to any request yet.
const INITIAL_MEAN: Duration = Duration::from_millis(5);

/// The weight of the previous mean in the moving average of the times per request, in eighths.
const PREVIOUS_WEIGHT: u64 = 7;

/// The maximum number of times that the moving average is updated for several responses at once.
/// More updates would change little, because after 32 updates the previous mean has a weight of
/// less than 0.02, namely (7/8)^32.
const MAX_STEPS: u64 = 32;

/// The work that a worker's R process has done since its start, according to the worker's
/// scoreboard (shared memory).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WorkDone {
    /// The total time that R was busy with requests.
    pub(super) busy: Duration,
    /// The total number of requests that R has responded to.
    pub(super) responses: u64,
}

/// The estimated time that one worker needs for a request: an exponential moving average.
#[derive(Debug, Clone, Copy)]
pub(super) struct LatencyEstimate {
    /// The mean time per request, in nanoseconds.
    mean: u64,
    work_done: WorkDone,
    last_response: Option<Instant>,
}

impl LatencyEstimate {
    /// Creates the estimate of a worker's time per request. `work_done` is the work that the worker
    /// had done before it got a request from this pool.
    pub(super) fn new(work_done: WorkDone) -> LatencyEstimate {
        LatencyEstimate { mean: nanoseconds(INITIAL_MEAN), work_done, last_response: None }
    }

    /// Updates the estimate of a worker's time per request when a response has arrived at `now`.
    /// The request was sent at `sent_at`, and `work_done` is all work that the worker has done so
    /// far.
    pub(super) fn on_response(&mut self, work_done: WorkDone, sent_at: Instant, now: Instant) {
        // R cannot have worked on the request before the request was sent or before the previous
        // response. Any further busy time on the scoreboard was spent on something else, or the
        // scoreboard is wrong.
        let since = self.last_response.map_or(sent_at, |last| last.max(sent_at));
        self.last_response = Some(now);
        let responses = work_done.responses.wrapping_sub(self.work_done.responses);
        // Either this response was already on the scoreboard at the previous response, or the count
        // on the scoreboard has decreased.
        if responses == 0 || responses > u64::MAX / 2 {
            return;
        }
        let time = work_done
            .busy
            .saturating_sub(self.work_done.busy)
            .min(now.saturating_duration_since(since));
        self.work_done = work_done;
        let each = nanoseconds(time) / responses;
        for _ in 0..responses.min(MAX_STEPS) {
            self.mean = (self.mean * PREVIOUS_WEIGHT + each) / (PREVIOUS_WEIGHT + 1);
        }
    }

    /// Returns true if the worker responded less than a millisecond ago. R is then free or will be
    /// soon, even if the scoreboard (shared memory) still shows R as busy.
    pub(super) fn has_just_responded(&self, now: Instant) -> bool {
        self.last_response.is_some_and(|at| now.saturating_duration_since(at) < WORK_AHEAD)
    }

    /// Returns true while R still polls for the next request, and false once R sleeps and must be
    /// woken.
    pub(super) fn is_polling(&self, now: Instant) -> bool {
        self.last_response.is_some_and(|at| now.saturating_duration_since(at) < POLL_TIME)
    }

    /// Returns how many requests may wait at the worker behind R's current request. `elapsed` is
    /// the time since R began the current request.
    pub(super) fn requests_ahead(&self, elapsed: Duration) -> usize {
        if nanoseconds(elapsed) > self.mean * SLOW_FACTOR {
            return 0;
        }
        let ahead = nanoseconds(WORK_AHEAD) / self.mean.max(1);
        let min = usize::from(self.mean <= nanoseconds(MAX_MEAN_FOR_ONE_AHEAD));
        usize::try_from(ahead).unwrap_or(usize::MAX).max(min)
    }
}

/// Converts a time to nanoseconds. Times of more than ten years count as ten years, so that small
/// multiples do not overflow.
fn nanoseconds(time: Duration) -> u64 {
    const MAX_SECONDS: u64 = 10 * 365 * 86_400;
    time.as_secs().min(MAX_SECONDS) * 1_000_000_000 + u64::from(time.subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// A simulated worker with a simulated clock, for tests of the latency estimate.
    struct SimulatedWorker {
        estimate: LatencyEstimate,
        work: WorkDone,
        now: Instant,
    }

    impl SimulatedWorker {
        fn new() -> SimulatedWorker {
            let work = WorkDone { busy: us(400_000), responses: 3 };
            SimulatedWorker { estimate: LatencyEstimate::new(work), work, now: Instant::now() }
        }

        /// Simulates the responses to a number of requests. Each request first waits for `waited`
        /// and then keeps R busy for `busy`. Returns the number of requests that may wait at the
        /// worker afterwards.
        fn answer(&mut self, requests: usize, busy: Duration, waited: Duration) -> usize {
            for _ in 0..requests {
                self.work =
                    WorkDone { busy: self.work.busy + busy, responses: self.work.responses + 1 };
                let sent_at = self.now;
                self.now += busy + waited;
                self.estimate.on_response(self.work, sent_at, self.now);
            }
            self.ahead()
        }

        fn ahead(&self) -> usize {
            self.estimate.requests_ahead(Duration::ZERO)
        }
    }

    #[test]
    fn allows_a_millisecond_of_work_and_one_request_up_to_two() {
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
            // The time that a request waits for a processor, here up to ten milliseconds, does not
            // count.
            for waited in [0, 100, 10_000] {
                assert_eq!(
                    SimulatedWorker::new().answer(200, us(busy), us(waited)),
                    ahead,
                    "{busy} {waited}"
                );
            }
        }
    }

    #[test]
    fn ignores_what_a_new_worker_did_before() {
        let mut worker = SimulatedWorker::new();
        assert_eq!(worker.ahead(), 0);
        assert_eq!(worker.answer(1, us(20), us(0)), 0);
        assert!(worker.answer(20, us(20), us(0)) > 0);
    }

    #[test]
    fn reacts_to_slow_requests_at_once_and_to_fast_ones_slowly() {
        let mut worker = SimulatedWorker::new();
        assert_eq!(worker.answer(200, us(50), us(0)), 20);
        assert_eq!(worker.answer(1, us(50_000), us(0)), 0);
        let after = (1..100).find(|_| worker.answer(1, us(50), us(0)) > 0).unwrap();
        assert!(after > 5 && after < 40, "{after}");
        // No request is sent to wait behind a request that takes longer than usual.
        assert_eq!(worker.answer(100, us(50), us(0)), 20);
        assert_eq!(
            (worker.estimate.requests_ahead(us(190)), worker.estimate.requests_ahead(us(210))),
            (20, 0)
        );
    }

    #[test]
    fn counts_responses_that_arrive_together() {
        let (mut together, mut alone) = (SimulatedWorker::new(), SimulatedWorker::new());
        for _ in 0..10 {
            alone.answer(8, us(60), us(0));
            let work = WorkDone {
                busy: together.work.busy + us(480),
                responses: together.work.responses + 8,
            };
            let sent_at = together.now;
            together.now += us(500);
            for _ in 0..8 {
                together.estimate.on_response(work, sent_at, together.now);
            }
            together.work = work;
        }
        assert_eq!((together.ahead(), alone.ahead()), (16, 16));
    }

    #[test]
    fn waiting_for_a_promise_is_no_work() {
        // Each request keeps R busy for 30 us; its response follows half a second later.
        assert_eq!(SimulatedWorker::new().answer(100, us(30), us(500_000)), 33);
    }

    #[test]
    fn limits_the_time_to_that_since_the_request_was_sent() {
        let mut worker = SimulatedWorker::new();
        worker.answer(100, us(50), us(0));
        // R does something else for a minute and handles a request after that.
        worker.work.busy += us(60_000_000);
        worker.now += us(60_000_000);
        assert!(worker.answer(1, us(50), us(40)) > 10);
    }

    #[test]
    fn any_numbers_from_a_worker_give_an_estimate() {
        let mut state = 0x2545_F491_4F6C_DD1D_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let (mut estimate, start) =
            (LatencyEstimate::new(WorkDone { busy: Duration::ZERO, responses: 0 }), Instant::now());
        for _ in 0..100_000 {
            let mut number = || match random() % 4 {
                0 => u64::MAX,
                1 => random() % 3,
                _ => random(),
            };
            let work = WorkDone { busy: Duration::from_nanos(number()), responses: number() };
            let (sent_at, now) =
                (start + us(number() % 10_000_000), start + us(number() % 10_000_000));
            estimate.on_response(work, sent_at, now);
            assert!(estimate.mean <= nanoseconds(us(10_000_000).max(INITIAL_MEAN)), "{estimate:?}");
            let _ =
                (estimate.requests_ahead(us(number() % 1_000)), estimate.has_just_responded(start));
        }
    }
}
