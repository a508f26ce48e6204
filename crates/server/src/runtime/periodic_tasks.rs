//! The two clocks of the I/O thread: one ticks for as long as the thread lives, the other while the application is busy.

use std::rc::Rc;
use std::time::Duration;

use crate::application::dispatch::Dispatch;
use crate::connections::table::ConnectionTable;

/// How soon a busy application is looked at, and how seldom at the most: an application that has been away for long
/// is woken by the first look, and asked again only in case that was lost.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(64);

/// Looks, a millisecond after an event found the application busy, whether it has come for it, and wakes it if it
/// went elsewhere. Also learns whether the application is slow, see [`rookery_exchange::Link::prepare_sleep`].
pub(super) async fn watch_application(dispatch: Rc<Dispatch>) {
    loop {
        dispatch.watch_requested.notified().await;
        let mut pause = FIRST_PAUSE;
        let mut seen = dispatch.application.events_taken();
        loop {
            tokio::time::sleep(pause).await;
            let waits = dispatch.application.wake_if_stalled(seen);
            let taken = dispatch.application.events_taken();
            let is_stuck = taken == seen;
            dispatch.is_app_slow.set(is_stuck && dispatch.in_flight() > 0);
            if waits.is_none() && dispatch.in_flight() == 0 {
                break;
            }
            pause = if is_stuck { (pause * 2).min(MAX_PAUSE) } else { FIRST_PAUSE };
            seen = taken;
        }
        dispatch.end_watch();
    }
}

/// Looks at every deadline once a tick. It never rests, so that no count of peers can be wrong in such a way that deadlines
/// stop: a tick a second without anybody to look after costs nothing.
pub(super) async fn sweep(connections: Rc<ConnectionTable>) {
    loop {
        tokio::time::sleep(connections.clock.ticks.length).await;
        connections.sweep();
    }
}
