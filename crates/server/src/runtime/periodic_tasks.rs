//! The two periodic tasks of the I/O thread. One enforces deadlines as long as the thread runs; the
//! other watches a busy application.

use std::rc::Rc;
use std::time::Duration;

use crate::application::dispatch::Dispatch;
use crate::connections::table::ConnectionTable;

/// The first and the longest pause between two checks of a busy application. The first check wakes
/// an application that waits elsewhere; later checks only repair a lost wake-up.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(64);

/// Checks, a millisecond after the application was found busy, whether it has taken its events, and
/// wakes it if not. Also measures whether the application is slow, which
/// [`Link::prepare_sleep`](rookery_exchange::Link::prepare_sleep) uses.
pub(super) async fn watch_application(dispatch: Rc<Dispatch>) {
    loop {
        dispatch.watch_requested.notified().await;
        let mut pause = FIRST_PAUSE;
        let mut seen = dispatch.application.events_taken();
        loop {
            tokio::time::sleep(pause).await;
            let pending = dispatch.application.wake_if_stalled(seen);
            let taken = dispatch.application.events_taken();
            let is_stuck = taken == seen;
            dispatch.is_app_slow.set(is_stuck && dispatch.in_flight() > 0);
            if pending.is_none() && dispatch.in_flight() == 0 {
                break;
            }
            pause = if is_stuck { (pause * 2).min(MAX_PAUSE) } else { FIRST_PAUSE };
            seen = taken;
        }
        dispatch.end_watch();
    }
}

/// Enforces all deadlines once per tick. The task never stops, so that no miscounted connection can
/// disable deadlines. A tick per second on an idle server costs nothing measurable.
pub(super) async fn sweep(connections: Rc<ConnectionTable>) {
    loop {
        tokio::time::sleep(connections.clock.ticks.length).await;
        connections.sweep();
    }
}
