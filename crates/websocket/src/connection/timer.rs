//! The timer of a connection, which is armed only while a read waits.
//!
//! A deadline is a stored instant. The runtime's timer is created when a read first has to wait
//! with a deadline. After that it is touched only to arm it earlier, to arm it again once it has
//! fired, or when another task waits. A deadline that moves to a later time, as with each new read,
//! costs one comparison.

use std::fmt;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep};

/// The longest duration. Longer ones are cut to it, because the sum of an instant and a duration
/// panics on overflow, also in the runtime.
pub(crate) const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// Returns `duration` after `start`, or 30 years after it if that is earlier.
pub(crate) fn after(start: Instant, duration: Duration) -> Instant {
    start + duration.min(FAR)
}

/// Returns `deadline`, or an earlier instant that the runtime can represent.
fn near(deadline: Instant) -> Instant {
    deadline.min(after(Instant::now(), FAR))
}

#[derive(Default)]
pub(crate) struct Timer {
    armed: Option<Armed>,
}

struct Armed {
    sleep: Pin<Box<Sleep>>,
    /// The waker of the task that waits.
    waker: Waker,
}

impl Timer {
    /// Returns `Ready` once `deadline` has passed, and otherwise registers `cx` to be woken then.
    ///
    /// # Allocation
    /// Allocates at the first call for a connection.
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
