//! Computes when certificates are renewed, and how long to wait after failed attempts. The current
//! time is an argument of each function, so no function reads a clock.

use std::time::{Duration, Instant, SystemTime};

use rookery_server::tls::IssuedCertificate;

/// The wait after each failed attempt to get a certificate. The first value applies after one
/// failure, the second after two failures in a row, and the last after all further failures. The
/// first waits are short, so that a brief problem delays the certificate only by minutes. The later
/// waits are long, because certificate authorities limit the number of failures, for example to 5
/// per hour and host.
const RETRY_WAITS: [Duration; 10] = [
    Duration::from_secs(60),
    Duration::from_secs(2 * 60),
    Duration::from_secs(5 * 60),
    Duration::from_secs(10 * 60),
    Duration::from_secs(20 * 60),
    Duration::from_secs(30 * 60),
    Duration::from_secs(60 * 60),
    Duration::from_secs(2 * 60 * 60),
    Duration::from_secs(3 * 60 * 60),
    Duration::from_secs(6 * 60 * 60),
];

/// The longest `Retry-After` of an authority that the renewer respects. It is a week, because the
/// rate limits of Let's Encrypt are reset after a week.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(7 * 86_400);

/// The maximum wait between two attempts to get a certificate.
pub(crate) const MAX_WAIT: Duration = MAX_RETRY_AFTER;

/// The time for which a renewal window is valid if the authority sent no `Retry-After` with it (RFC
/// 9773, 4.3).
const DEFAULT_WINDOW_LIFETIME: Duration = Duration::from_secs(6 * 3600);
/// The shortest time for which a renewal window is valid, whatever `Retry-After` the authority sent
/// with it.
const MIN_WINDOW_LIFETIME: Duration = Duration::from_secs(60);
/// The longest time for which a renewal window is valid, whatever `Retry-After` the authority sent
/// with it.
const MAX_WINDOW_LIFETIME: Duration = Duration::from_secs(86_400);

/// The times at which failed attempts to get a certificate are repeated. Only tests need values
/// other than the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetrySchedule {
    /// The number by which all waits after failed attempts are divided, to shorten tests.
    pub divisor: u32,
    /// The interval at which the renewer checks whether the next attempt is due, and whether
    /// another process still holds the lock on the storage folder.
    pub check_interval: Duration,
}

impl Default for RetrySchedule {
    fn default() -> RetrySchedule {
        RetrySchedule { divisor: 1, check_interval: Duration::from_secs(60) }
    }
}

impl RetrySchedule {
    /// Returns the interval at which a server reads the responses that another server with the same
    /// folder has stored.
    pub(crate) fn sharing_interval(&self) -> Duration {
        Duration::from_secs(1) / self.divisor.max(1)
    }

    /// Returns how long a server waits after it has stored responses, until all servers that share
    /// the folder have read them.
    pub(crate) fn sharing_time(&self) -> Duration {
        3 * self.sharing_interval()
    }

    /// Returns how long to wait after `failures` failed attempts in a row to get a certificate.
    /// `chance`, a random number from 0 to 1, lengthens the wait by up to a quarter, so
    /// that servers that failed together do not retry together. If the certificate authority asked
    /// for a longer wait (`retry_after`), the result is that wait, but at most a week.
    pub(crate) fn wait_after(
        &self,
        failures: u32,
        retry_after: Option<Duration>,
        chance: f64,
    ) -> Duration {
        let at = (failures.max(1) as usize - 1).min(RETRY_WAITS.len() - 1);
        let own = RETRY_WAITS[at].mul_f64(1.0 + chance / 4.0) / self.divisor.max(1);
        own.max(retry_after.unwrap_or_default().min(MAX_RETRY_AFTER))
    }
}

/// The time window in which the authority wants a certificate to be renewed (RFC 9773).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) start: SystemTime,
    pub(crate) end: SystemTime,
}

/// Returns the time at which a certificate should be renewed. A hash of the certificate selects a
/// time in `window`, the time window in which the certificate authority wants the renewal. The time
/// is therefore the same after a restart of the server, but differs between certificates.
pub(crate) fn renewal_time(issued: &IssuedCertificate, window: Option<Window>) -> SystemTime {
    let lifetime = issued.ends.duration_since(issued.begins).unwrap_or_default();
    let chance = fraction(&issued.sha256);
    // At least an eighth of the certificate's lifetime is left for problems, whatever the
    // authority's window.
    let last = issued.ends - lifetime / 8;
    match window {
        Some(Window { start, end }) => {
            let length = end.duration_since(start).unwrap_or_default();
            (start + length.mul_f64(chance)).min(last)
        }
        // Without a window, the certificate is renewed when slightly more than a third of its
        // lifetime is left.
        None => issued.begins + lifetime.mul_f64(2.0 / 3.0 - chance / 30.0),
    }
}

/// A timer that expires when the certificate is due for renewal: when the system clock reaches the
/// time of the renewal, or when the computed wait has passed on a monotonic clock. Setting the
/// system clock back therefore does not delay the renewal.
#[derive(Debug, Default)]
pub(crate) struct RenewalTimer(Option<(SystemTime, Instant)>);

impl RenewalTimer {
    /// Returns how long to wait until `due`, the time of the renewal. `now` is the time of the
    /// system clock, and `monotonic_now` the time of a clock that is never set back.
    pub(crate) fn wait(
        &mut self,
        due: SystemTime,
        now: SystemTime,
        monotonic_now: Instant,
    ) -> Duration {
        let left = due.duration_since(now).unwrap_or_default();
        let known = self.0.filter(|(known, _)| *known == due);
        // No timer starts if the time has already passed, because the system clock may be ahead.
        self.0 = known.or_else(|| (!left.is_zero()).then(|| (due, monotonic_now + left)));
        self.0.map_or(left, |(_, timer)| left.min(timer.saturating_duration_since(monotonic_now)))
    }
}

/// Returns the minimum time between two orders for a certificate. This minimum prevents an endless
/// series of orders if the clock is wrong, or if the certificate authority wants each certificate
/// to be renewed at once.
pub(crate) fn min_interval(issued: &IssuedCertificate) -> Duration {
    // Computed from the whole lifetime and not from the time that is left, which is zero if the
    // clock is ahead.
    let lifetime = issued.ends.duration_since(issued.begins).unwrap_or_default();
    (lifetime / 4).min(RETRY_WAITS[RETRY_WAITS.len() - 1])
}

/// Returns true if a renewal window that expires at `until` is still valid at the time `now`. Also
/// returns false if `until` is too far in the future for any window, which happens when the system
/// clock has been set back.
pub(crate) fn is_current(until: SystemTime, now: SystemTime) -> bool {
    now < until && until <= now + MAX_WINDOW_LIFETIME
}

/// Returns how long a renewal window is valid. `retry_after` is the `Retry-After` that the
/// authority sent with the window.
pub(crate) fn window_lifetime(retry_after: Option<Duration>) -> Duration {
    retry_after.unwrap_or(DEFAULT_WINDOW_LIFETIME).clamp(MIN_WINDOW_LIFETIME, MAX_WINDOW_LIFETIME)
}

/// Converts random bytes to a number from 0 to 1.
pub(crate) fn fraction(bytes: &[u8]) -> f64 {
    let four = bytes.iter().take(4).fold(0u32, |sum, byte| sum << 8 | u32::from(*byte));
    f64::from(four) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn issued(days: u32, chance: u8) -> IssuedCertificate {
        IssuedCertificate {
            begins: at(1_000_000_000),
            ends: at(1_000_000_000) + DAY * days,
            hosts: Vec::new(),
            serial: Vec::new(),
            authority_key: None,
            sha256: [chance; 32],
        }
    }

    #[test]
    fn without_a_window_a_third_of_the_lifetime_is_left() {
        for (days, chance) in [(90, 0), (90, 255), (45, 128), (6, 77)] {
            let it = issued(days, chance);
            let left = it.ends.duration_since(renewal_time(&it, None)).unwrap();
            // The time left is rounded, and up to a thirtieth longer.
            let range =
                (DAY * days / 3).as_secs() - 1..=(DAY * days / 3 + DAY * days / 30).as_secs() + 1;
            assert!(range.contains(&left.as_secs()), "{days} {chance}: {left:?}");
        }
        assert_ne!(renewal_time(&issued(90, 1), None), renewal_time(&issued(90, 2), None));
    }

    #[test]
    fn renews_within_the_window_but_never_too_late() {
        let it = issued(90, 128);
        let window = Window { start: it.begins + DAY * 50, end: it.begins + DAY * 52 };
        let renewed = renewal_time(&it, Some(window));
        assert!(renewed > window.start + DAY / 2 && renewed < window.end, "in its middle");
        // The authority wants the certificate replaced at once.
        let past = Window { start: it.begins - DAY, end: it.begins };
        assert!(renewal_time(&it, Some(past)) <= it.begins);
        let backwards = Window { start: it.begins, end: it.begins - DAY };
        assert_eq!(renewal_time(&it, Some(backwards)), it.begins);
        let late = Window { start: it.ends, end: it.ends + DAY * 9 };
        assert_eq!(renewal_time(&it, Some(late)), it.ends - DAY * 90 / 8);
    }

    #[test]
    fn waits_grow_to_six_hours_and_retry_after_takes_precedence() {
        let retry = RetrySchedule::default();
        let waits: Vec<u64> =
            (0..13).map(|failures| retry.wait_after(failures, None, 0.0).as_secs() / 60).collect();
        assert_eq!(waits, [1, 1, 2, 5, 10, 20, 30, 60, 120, 180, 360, 360, 360]);
        assert_eq!(retry.wait_after(1, None, 1.0), Duration::from_secs(75));
        assert_eq!(retry.wait_after(1, Some(DAY), 0.5), DAY);
        assert_eq!(
            retry.wait_after(9, Some(Duration::from_secs(1)), 0.0),
            Duration::from_secs(3 * 3600)
        );
        assert_eq!(retry.wait_after(1, Some(DAY * 400), 0.0), MAX_RETRY_AFTER);
        assert_eq!(retry.wait_after(u32::MAX, None, 0.0), Duration::from_secs(6 * 3600));
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_delay_a_renewal() {
        let (start, monotonic_now) = (SystemTime::UNIX_EPOCH, Instant::now());
        let at = |days: u32| start + DAY * days;
        let mut timer = RenewalTimer::default();
        assert_eq!(timer.wait(at(400), at(370), monotonic_now), DAY * 30);
        assert_eq!(timer.wait(at(400), at(380), monotonic_now + DAY * 10), DAY * 20);
        // The clock is set back by a year, and then forward.
        assert_eq!(timer.wait(at(400), at(25), monotonic_now + DAY * 20), DAY * 10);
        assert_eq!(timer.wait(at(400), at(35), monotonic_now + DAY * 30), Duration::ZERO);
        assert_eq!(timer.wait(at(400), at(420), monotonic_now + DAY * 21), Duration::ZERO);
        // A different due time, of another certificate or from a new window, starts the timer
        // again.
        assert_eq!(timer.wait(at(450), at(430), monotonic_now + DAY * 31), DAY * 20);
    }

    #[test]
    fn correcting_a_clock_that_was_ahead_makes_no_renewal_due() {
        let (start, monotonic_now) = (SystemTime::UNIX_EPOCH, Instant::now());
        let at = |days: u32| start + DAY * days;
        let mut timer = RenewalTimer::default();
        // The clock is a year ahead at first.
        assert_eq!(timer.wait(at(400), at(735), monotonic_now), Duration::ZERO);
        assert_eq!(timer.wait(at(400), at(370), monotonic_now + DAY), DAY * 30);
        // The timer has started now, so setting the clock back again does not delay the renewal.
        assert_eq!(timer.wait(at(400), at(5), monotonic_now + DAY * 11), DAY * 20);
        assert_eq!(timer.wait(at(400), at(25), monotonic_now + DAY * 31), Duration::ZERO);
        // The same applies to the next certificate.
        assert_eq!(timer.wait(at(450), at(800), monotonic_now + DAY * 32), Duration::ZERO);
        assert_eq!(timer.wait(at(450), at(440), monotonic_now + DAY * 33), DAY * 10);
    }

    #[test]
    fn orders_have_a_minimum_interval() {
        // The result does not depend on the clock: the certificates in these tests expired long
        // ago.
        assert_eq!(min_interval(&issued(90, 0)), Duration::from_secs(6 * 3600));
        let brief = issued(0, 0);
        assert_eq!(
            min_interval(&IssuedCertificate {
                ends: brief.begins + Duration::from_secs(60),
                ..brief
            }),
            Duration::from_secs(15)
        );
        assert_eq!(min_interval(&issued(0, 0)), Duration::ZERO);
    }

    #[test]
    fn the_lifetime_of_a_window_is_limited() {
        for (said, time) in [
            (None, DEFAULT_WINDOW_LIFETIME),
            (Some(0), MIN_WINDOW_LIFETIME),
            (Some(7200), Duration::from_secs(7200)),
            (Some(1 << 40), MAX_WINDOW_LIFETIME),
        ] {
            assert_eq!(window_lifetime(said.map(Duration::from_secs)), time);
        }
        let now = at(1_000_000_000);
        assert!(is_current(now + DAY, now) && is_current(now + Duration::from_secs(1), now));
        assert!(!is_current(now, now) && !is_current(now + DAY * 2, now), "the clock was set back");
    }
}
