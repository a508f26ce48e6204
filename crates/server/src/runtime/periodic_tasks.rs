//! The two periodic tasks of the I/O thread. One enforces the deadlines of connections as long as
//! the thread runs. The other checks that a busy application takes its events.

use std::rc::Rc;
use std::time::Duration;

use crate::application::dispatch::Dispatch;
use crate::connections::table::ConnectionTable;

/// The pause before the first check that a busy application takes its events. The first check wakes
/// an application that waits for something else; later checks only repair a lost wake-up. While the
/// application takes no events, the pause doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(64);

/// Checks, a millisecond after the application was found busy, whether the application has taken
/// its events, and wakes it if not. Also measures whether the application is slow to take events,
/// which [`Link::prepare_sleep`](rookery_exchange::Link::prepare_sleep) needs to know.
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

/// Enforces the deadlines of all connections once per clock tick. The task never stops, even
/// without connections, so that no error in counting connections can disable deadlines. A tick per
/// second on an idle server costs nothing measurable.
pub(super) async fn sweep(connections: Rc<ConnectionTable>) {
    loop {
        tokio::time::sleep(connections.clock.ticks.length).await;
        connections.sweep();
    }
}
