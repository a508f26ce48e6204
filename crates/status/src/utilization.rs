//! The utilization of a worker, which is the fraction of the last seconds in which R was busy. A
//! high utilization shows that more workers are needed.

use std::time::Duration;

/// The minimum length of the interval for which a worker's utilization is reported. The actual
/// interval is at most about twice as long.
const SPAN: Duration = Duration::from_secs(5);

/// A sample of the total time for which R has been busy. `busy` is this time, and `at` is the time
/// of the sample, in nanoseconds of the clock that R's busy times refer to.
#[derive(Debug, Clone, Copy)]
struct Mark {
    at: u64,
    busy: Duration,
}

/// The utilization of one worker, computed from repeated samples of how long R has been busy.
#[derive(Debug, Default)]
pub struct Utilization {
    /// The last two samples. The reported interval begins at the earlier one.
    marks: Option<(Mark, Mark)>,
}

impl Utilization {
    /// Adds a sample and returns the worker's utilization from 0 to 1. `at` is the time of the
    /// sample in nanoseconds, and `busy` the total time for which R has been busy until then. Call
    /// this method at intervals of less than five seconds.
    pub fn look(&mut self, busy: Duration, at: u64) -> f64 {
        let now = Mark { at, busy };
        let (from, next) = self.marks.get_or_insert((now, now));
        if Duration::from_nanos(at.saturating_sub(next.at)) >= SPAN {
            (*from, *next) = (*next, now);
        }
        let lasted = Duration::from_nanos(at.saturating_sub(from.at)).as_secs_f64();
        let busy = busy.saturating_sub(from.busy).as_secs_f64();
        // The worker's values are not trusted, so the result is limited to 1.
        if lasted > 0.0 { (busy / lasted).min(1.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_of_the_last_five_to_ten_seconds() {
        let mut share = Utilization::default();
        let mut busy = Duration::ZERO;
        // R is busy for a quarter of each of the first twenty seconds, then always, then never.
        let told: Vec<f64> = (0..60)
            .map(|second: u64| {
                busy += Duration::from_millis(match second {
                    1..=19 => 250,
                    20..=39 => 1_000,
                    _ => 0,
                });
                share.look(busy, 7_000_000_000 + second * 1_000_000_000)
            })
            .collect();
        assert!(told[0] < 1e-9);
        assert!(told[1..20].iter().all(|share| (share - 0.25).abs() < 1e-9), "{told:?}");
        assert!(told[20..30].windows(2).all(|pair| pair[0] <= pair[1]), "{told:?}");
        assert!(
            told[24] > 0.5 && told[30..40].iter().all(|share| (share - 1.0).abs() < 1e-9),
            "{told:?}"
        );
        assert!(told[50..].iter().all(|share| *share < 1e-9), "{told:?}");
    }

    #[test]
    fn whatever_a_worker_says_it_is_a_share() {
        let mut share = Utilization::default();
        let times = [0, 1, u64::MAX, 5, 1 << 40, 1 << 41];
        for (busy, at) in times.into_iter().flat_map(|busy| times.map(|at| (busy, at))) {
            let told = share.look(Duration::from_nanos(busy), at);
            assert!((0.0..=1.0).contains(&told), "{busy} {at} {told}");
        }
    }
}
