//! The two clocks of the I/O thread. Neither runs when there is nothing to look after.

use std::rc::Rc;
use std::time::Duration;

use crate::hub::Hub;

/// How soon a busy application is looked at, and how seldom at the most: an application that has been away for long
/// is woken by the first look, and asked again only in case that was lost.
const FIRST: Duration = Duration::from_millis(1);
const LAST: Duration = Duration::from_millis(64);

/// Looks, a millisecond after an event found the application busy, whether it has come for it, and wakes it if it
/// went elsewhere. Also learns whether the application is slow, see [`rookery_exchange::Link::may_sleep`].
pub(crate) async fn pulse(hub: Rc<Hub>) {
    loop {
        hub.pulse.notified().await;
        let mut pause = FIRST;
        let mut seen = hub.link.taken();
        loop {
            tokio::time::sleep(pause).await;
            let waits = hub.link.nudge(seen);
            let taken = hub.link.taken();
            let is_stuck = taken == seen;
            hub.is_app_slow.set(is_stuck && hub.pending.len() > 0);
            if waits.is_none() && hub.pending.len() == 0 {
                break;
            }
            pause = if is_stuck { (pause * 2).min(LAST) } else { FIRST };
            seen = taken;
        }
        hub.is_pulsing.set(false);
    }
}

/// Looks at every deadline once a tick while there are connections.
pub(crate) async fn sweep(hub: Rc<Hub>) {
    loop {
        hub.sweep.notified().await;
        loop {
            tokio::time::sleep(hub.ticks.length).await;
            if !hub.sweep() {
                break;
            }
        }
    }
}
