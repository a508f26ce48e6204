//! The timer of a WebSocket connection, which limits how long a read waits. It is created when a
//! read first has to wait.
//!
//! A new read usually has a later deadline. The runtime's timer is then left as it is, and is set
//! again when it fires too early. A new deadline therefore usually costs only one comparison.

use std::fmt;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep};

/// The longest duration of a timer, 30 years. Longer durations are shortened to it, because adding
/// a very long duration to an `Instant` panics.
pub(crate) const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// Returns the instant `duration` after `start`. A duration of more than 30 years counts as 30
/// years.
pub(crate) fn after(start: Instant, duration: Duration) -> Instant {
    start + duration.min(FAR)
}

/// Returns `deadline`, but at most the instant 30 years from now, because the runtime cannot
/// represent every later instant.
fn near(deadline: Instant) -> Instant {
    deadline.min(after(Instant::now(), FAR))
}

#[derive(Default)]
pub(crate) struct Timer {
    armed: Option<Armed>,
}

struct Armed {
    sleep: Pin<Box<Sleep>>,
    /// The waker of the task that waits for the timer.
    waker: Waker,
}

impl Timer {
    /// Returns `Ready` once `deadline` has passed. Otherwise registers the task of `cx` to be woken
    /// at that time.
    ///
    /// # Allocation
    /// One allocation at the first call for a connection, then none.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let armed = self.armed.get_or_insert_with(|| Armed {
            sleep: Box::pin(tokio::time::sleep_until(near(deadline))),
            waker: Waker::noop().clone(),
        });
        loop {
            if armed.sleep.deadline() > deadline {
                armed.sleep.as_mut().reset(near(deadline));
            } else if armed.sleep.is_elapsed() {
                if Instant::now() >= deadline {
                    return Poll::Ready(());
                }
                armed.sleep.as_mut().reset(near(deadline));
            } else if armed.waker.will_wake(cx.waker()) {
                return Poll::Pending;
            }
            armed.waker.clone_from(cx.waker());
            // A task without tokio's cooperative budget would get `Pending` without being
            // registered, and would not be polled again.
            if pin!(unconstrained(armed.sleep.as_mut())).poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let armed = self.armed.as_ref().map(|armed| armed.sleep.deadline());
        f.debug_struct("Timer").field("armed", &armed).finish()
    }
}
