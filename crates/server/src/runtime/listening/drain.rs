//! Ending the connections of a listener: in order, and those that are late.

use std::time::Duration;

use rookery_exchange::ListenerId;

use crate::connections::table::ConnectionTable;

/// Ends what is idle, and the rest when it is done.
pub(in crate::runtime) fn begin(connections: &ConnectionTable, listener: ListenerId) {
    for connection in connections.of_listener(listener) {
        connection.stop();
    }
}

/// Waits for the end of all but the connections that the application owes a reply, and ends those that are late.
pub(in crate::runtime) async fn finish(
    connections: &ConnectionTable,
    listener: ListenerId,
    timeout: Duration,
) {
    for connection in connections.of_listener(listener) {
        // The application is the one that waits for this: it makes no more of them meanwhile.
        if connection.is_cut_by_stop() {
            connection.abort();
        }
    }
    let is_done = || {
        connections.of_listener(listener).iter().all(|connection| connection.is_awaiting_response())
    };
    let all_done = async {
        loop {
            let removed = connections.removed.notified();
            if is_done() {
                return;
            }
            removed.await;
        }
    };
    if tokio::time::timeout(timeout, all_done).await.is_ok() {
        return;
    }
    for connection in connections.of_listener(listener) {
        if !connection.is_awaiting_response() {
            connection.abort();
        }
    }
    while !is_done() {
        // Each of them ends when it is polled next.
        tokio::task::yield_now().await;
    }
}
