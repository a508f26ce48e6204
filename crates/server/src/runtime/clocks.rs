//! The two clocks of the I/O thread. Neither runs when there is nothing to look after.

use std::rc::Rc;
use std::time::Duration;

use crate::application::dispatch::Dispatch;
use crate::peers::table::Peers;

/// How soon a busy application is looked at, and how seldom at the most: an application that has been away for long
/// is woken by the first look, and asked again only in case that was lost.
const FIRST: Duration = Duration::from_millis(1);
const LAST: Duration = Duration::from_millis(64);

/// Looks, a millisecond after an event found the application busy, whether it has come for it, and wakes it if it
/// went elsewhere. Also learns whether the application is slow, see [`rookery_exchange::Link::may_sleep`].
pub(super) async fn look_after_application(dispatch: Rc<Dispatch>) {
    loop {
        dispatch.look.notified().await;
        let mut pause = FIRST;
        let mut seen = dispatch.application.taken();
        loop {
            tokio::time::sleep(pause).await;
            let waits = dispatch.application.nudge(seen);
            let taken = dispatch.application.taken();
            let is_stuck = taken == seen;
            dispatch.is_slow.set(is_stuck && dispatch.in_flight() > 0);
            if waits.is_none() && dispatch.in_flight() == 0 {
                break;
            }
            pause = if is_stuck { (pause * 2).min(LAST) } else { FIRST };
            seen = taken;
        }
        dispatch.is_well();
    }
}

/// Looks at every deadline once a tick while there are peers.
pub(super) async fn sweep(peers: Rc<Peers>) {
    loop {
        peers.came.notified().await;
        loop {
            tokio::time::sleep(peers.clock.ticks.length).await;
            if !peers.sweep() {
                break;
            }
        }
    }
}
