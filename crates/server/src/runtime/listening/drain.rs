//! Ending the connections of a listener: in order, and those that are late.

use std::time::Duration;

use rookery_exchange::ListenerId;

use crate::peers::table::Peers;

/// Ends what is idle, and the rest when it is done.
pub(in crate::runtime) fn begin(peers: &Peers, listener: ListenerId) {
    for peer in peers.of(listener) {
        peer.stop();
    }
}

/// Waits for the end of all but the connections that the application owes a reply, and ends those that are late.
pub(in crate::runtime) async fn finish(peers: &Peers, listener: ListenerId, timeout: Duration) {
    for peer in peers.of(listener) {
        // The application is the one that waits for this: it makes no more of them meanwhile.
        if peer.is_unfinished() {
            peer.abort();
        }
    }
    let is_done = || peers.of(listener).iter().all(|peer| peer.is_owed());
    let all_done = async {
        loop {
            let gone = peers.gone.notified();
            if is_done() {
                return;
            }
            gone.await;
        }
    };
    if tokio::time::timeout(timeout, all_done).await.is_ok() {
        return;
    }
    for peer in peers.of(listener) {
        if !peer.is_owed() {
            peer.abort();
        }
    }
    while !is_done() {
        // Each of them ends when it is polled next.
        tokio::task::yield_now().await;
    }
}
