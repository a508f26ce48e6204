//! A timeout for tests, and a function that waits until a condition holds.

use std::time::{Duration, Instant};

/// The time after which a test fails because an expected event has not happened. The timeout is
/// long because the machine may be busy. A test that passes never waits this long.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until a condition holds. Checks the condition every 2 ms.
///
/// # Panics
/// Panics with the description `what` if the condition does not hold after [`TEST_TIMEOUT`].
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "timed out waiting for: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
