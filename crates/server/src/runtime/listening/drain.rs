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

/// The longest time between the closes of two WebSockets of a draining listener.
const MAX_CLOSE_INTERVAL: Duration = Duration::from_millis(500);

/// Begins to close the connections of a listener as [`begin`] does, but closes the WebSockets, and
/// the HTTP/2 connections that have only WebSockets, one after the other in the time `close_over`.
pub(in crate::runtime) fn begin_over(
    connections: &ConnectionTable,
    listener: ListenerId,
    close_over: Duration,
) {
    if close_over.is_zero() {
        return begin(connections, listener);
    }
    let entries = connections.of_listener(listener).into_iter();
    let (sockets, others): (Vec<_>, Vec<_>) = entries.partition(|entry| entry.is_websocket());
    let (carriers, others): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|entry| entry.has_only_websockets());
    for connection in others {
        connection.stop();
    }
    let count = u32::try_from(sockets.len()).unwrap_or(u32::MAX).max(1);
    let interval = (close_over / count).min(MAX_CLOSE_INTERVAL);
    tokio::task::spawn_local(async move {
        for socket in sockets {
            socket.stop();
            tokio::time::sleep(interval).await;
        }
        for connection in carriers {
            connection.stop();
        }
    });
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
        finish(&connections, listener, connections.limits().stop_timeout).await;
    });
}
