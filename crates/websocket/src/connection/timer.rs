//! One timer for a connection, armed late.
//!
//! A deadline is a stored instant. The timer of the runtime is made when a read first has to wait with one, and touched
//! again only to arm it earlier, to arm it anew once it has fired, or when another task waits: a deadline that moves later,
//! as that of each next read does, costs a comparison.

use std::fmt;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep};

/// A longer time counts as this one: an instant has an end, at which sums panic, the runtime's own as well.
pub(crate) const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// `duration` after `start`, or a lifetime after it.
pub(crate) fn after(start: Instant, duration: Duration) -> Instant {
    start + duration.min(FAR)
}

/// `deadline`, or an instant before it that the runtime can count to.
fn near(deadline: Instant) -> Instant {
    deadline.min(after(Instant::now(), FAR))
}

#[derive(Default)]
pub(crate) struct Timer {
    armed: Option<Armed>,
}

struct Armed {
    sleep: Pin<Box<Sleep>>,
    /// Who is woken.
    waker: Waker,
}

impl Timer {
    /// Whether `deadline` has passed; else `cx` is woken when it has.
    ///
    /// # Allocation
    /// At the first call for a connection.
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
            // Out of budget a timer is pending without being registered, and would not be asked again.
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
