//! Ending the connections of a listener: in order, and those that are late.

use std::time::Duration;

use rookery_exchange::ListenerId;

use crate::connections::table::ConnectionTable;

/// Ends what is idle, and the rest when it is done.
pub(in crate::runtime) fn begin(connections: &ConnectionTable, listener: ListenerId) {
    for peer in connections.of_listener(listener) {
        peer.stop();
    }
}

/// Waits for the end of all but the connections that the application owes a reply, and ends those that are late.
pub(in crate::runtime) async fn finish(
    connections: &ConnectionTable,
    listener: ListenerId,
    timeout: Duration,
) {
    for peer in connections.of_listener(listener) {
        // The application is the one that waits for this: it makes no more of them meanwhile.
        if peer.is_cut_by_stop() {
            peer.abort();
        }
    }
    let is_done =
        || connections.of_listener(listener).iter().all(|peer| peer.is_awaiting_response());
    let all_done = async {
        loop {
            let gone = connections.removed.notified();
            if is_done() {
                return;
            }
            gone.await;
        }
    };
    if tokio::time::timeout(timeout, all_done).await.is_ok() {
        return;
    }
    for peer in connections.of_listener(listener) {
        if !peer.is_awaiting_response() {
            peer.abort();
        }
    }
    while !is_done() {
        // Each of them ends when it is polled next.
        tokio::task::yield_now().await;
    }
}
