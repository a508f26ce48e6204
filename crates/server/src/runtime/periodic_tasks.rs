//! The two periodic tasks of the I/O thread. One enforces the deadlines of connections. The other
//! wakes a busy application if it takes no events although some are waiting.

use std::rc::Rc;
use std::time::Duration;

use crate::application::dispatch::Dispatch;
use crate::connections::table::ConnectionTable;

/// The pause before the first check whether a busy application takes its events. While it takes
/// none, the pause doubles after each check, up to [`MAX_PAUSE`].
// The first check wakes an application that waits for something else. Later checks only repair a
// lost wake-up.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(64);

/// Wakes the application if it leaves events in its queue for too long. This task checks the queue
/// periodically, from a call of [`Dispatch::watch_progress`] until no event is queued and no
/// request is in flight. It also records in [`Dispatch::is_app_slow`] whether the application takes
/// no events although requests are in flight.
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

/// Enforces the deadlines of all connections once per clock tick. The task also runs while there
/// are no connections.
pub(super) async fn sweep(connections: Rc<ConnectionTable>) {
    // If it stopped without connections, a wrong count of them could disable all deadlines.
    loop {
        tokio::time::sleep(connections.clock.ticks().length).await;
        connections.sweep();
    }
}

/// Advances the clock by at least `time`, tick by tick, for tests. All tasks that are ready run
/// between two ticks, and sockets are polled, so that clients which are not late stay connected.
pub(super) async fn advance_clock(connections: &ConnectionTable, time: Duration) {
    for _ in 0..time.as_nanos().div_ceil(connections.clock.ticks().length.as_nanos()) {
        connections.sweep();
        tokio::task::yield_now().await;
    }
}
