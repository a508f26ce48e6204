//! The functions that close the connections of a listener, gracefully at first and forcibly after a
//! timeout.

use std::rc::Rc;
use std::time::Duration;

use rookery_exchange::ListenerId;

use crate::connections::table::ConnectionTable;
use crate::runtime::io_context::IoContext;

/// Begins to close the connections of a listener: idle connections at once, and each other
/// connection after its current response.
pub(in crate::runtime) fn begin(connections: &ConnectionTable, listener: ListenerId) {
    for connection in connections.of_listener(listener) {
        connection.stop();
    }
}

/// Waits until all connections of a listener are closed, except those that wait for the
/// application's response. After `timeout`, aborts the connections that are still open.
pub(in crate::runtime) async fn finish(
    connections: &ConnectionTable,
    listener: ListenerId,
    timeout: Duration,
) {
    for connection in connections.of_listener(listener) {
        // The application waits for this function, and sends no more chunks meanwhile.
        connection.cut_for_stop();
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
        // An aborted connection ends when its task is polled next.
        tokio::task::yield_now().await;
    }
}

/// Cuts off what the connections of a listener still send, except the responses that the
/// application has not begun, because the time to drain is over. A client that does not read gets
/// [`stop_timeout`](crate::Limits::stop_timeout) more. This function does not wait.
pub(in crate::runtime) fn cut(context: &IoContext, listener: ListenerId) {
    // Otherwise a response that the application has just ended would be cut off.
    context.run_app_commands();
    let connections = Rc::clone(&context.connections);
    tokio::task::spawn_local(async move {
        begin(&connections, listener);
        finish(&connections, listener, connections.limits.stop_timeout).await;
    });
}
