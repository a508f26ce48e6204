//! The driver of an HTTP/2 connection: runs h2 until the connection closes.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use h2::Reason;
use h2::server::Builder;

use super::connection_state::{Http2State, STREAM_WINDOW, connection_window, max_requests};
use super::frames::FRAME;
use super::h2_io::H2Io;
use super::stream_task;
use crate::connections::admission::UNCHARGED_BYTES;
use crate::connections::table::{ConnectionTable, TableEntry as _};
use crate::http::connection::activity::Phase;
use crate::http::connection::http_connection::{CloseState, HttpConnection};
use crate::rejection::Rejection;

/// The maximum number of response bytes that h2 buffers for each HTTP/2 stream.
const SEND_BUFFER: usize = 64 << 10;

/// The maximum number of HTTP/2 streams that the client may reset before the server has begun to
/// serve them. h2 closes the connection of a client that resets more.
const MAX_EARLY_RESETS: usize = 20;

/// The maximum number of HTTP/2 streams of a connection that h2 may reset or refuse because the
/// client violated the protocol or opened too many streams.
const MAX_LOCAL_RESETS: usize = 128;

/// The size in bytes of the HPACK dynamic table that a client may use for its requests (RFC 7541,
/// 4.2). There is none, because [h2's table may hold much more memory](super::header_table).
const HEADER_TABLE_BYTES: u32 = 0;

/// The number by which the limit on the size of a request head is multiplied for h2. When h2 has
/// read more than its limit, it may close the connection without a response. Requests with heads
/// between the two limits get status 431.
const HEAD_LIMIT_FACTOR: usize = 2;

/// The number of streams that a trusted proxy may reset before the server has begun to serve them.
/// It is more than one read can contain ([`Http2State::has_read_enough`]), because the streams may
/// be those of one client.
const MAX_EARLY_RESETS_OF_PROXY: usize = 1024;

fn builder(connections: &ConnectionTable, is_proxy: bool, has_websockets: bool) -> Builder {
    let mut builder = Builder::new();
    // One client of a proxy may have caused all resets. `WastedByClient` counts them instead.
    let (early_resets, local_resets) = if is_proxy {
        (MAX_EARLY_RESETS_OF_PROXY, None)
    } else {
        (MAX_EARLY_RESETS, Some(MAX_LOCAL_RESETS))
    };
    let to_u32 = |limit: usize| u32::try_from(limit).unwrap_or(u32::MAX);
    builder
        .max_concurrent_streams(to_u32(max_requests(connections, is_proxy)))
        .max_header_list_size(to_u32(
            connections.limits().http2_max_header_list_size.saturating_mul(HEAD_LIMIT_FACTOR),
        ))
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(connection_window(connections, is_proxy))
        .max_frame_size(FRAME)
        .max_send_buffer_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(early_resets)
        .max_local_error_reset_streams(local_resets)
        .header_table_size(HEADER_TABLE_BYTES);
    if has_websockets {
        builder.enable_connect_protocol();
    }
    builder
}

/// Returns the server name from the client's TLS handshake if all requests on the connection must
/// be for that name.
fn bound_name(connection: &HttpConnection) -> Option<Rc<str>> {
    connection.config.tls.as_ref().filter(|tls| tls.binds_names())?;
    connection.transport.borrow_mut().tls()?.server_name().map(Rc::from)
}

/// A guard that closes the HTTP/2 state when dropped, even if the task panics or the I/O thread
/// ends.
struct StateGuard(Rc<Http2State>);

impl Drop for StateGuard {
    fn drop(&mut self) {
        self.0.notify_flushed();
        self.0.on_closed();
    }
}

/// Serves an HTTP/2 connection until it closes. Its memory and time are limited as for an HTTP/1.1
/// connection.
pub(crate) async fn serve(connection: &Rc<HttpConnection>) {
    let connections = &connection.shared.connections;
    let is_proxy = connection.is_shared_by_clients();
    let state = Http2State::new(connections, connection.peer(), bound_name(connection), is_proxy);
    let state = connection.set_http2_state(state);
    let _guard = StateGuard(Rc::clone(&state));
    connection.transport.borrow().set_for_streaming(connections.limits().idle_timeout);
    let io = H2Io::new(Rc::clone(connection), Rc::clone(&state));
    let has_websockets = connection.config.tls.is_some();
    let mut handshake = builder(connections, is_proxy, has_websockets).handshake::<_, Bytes>(io);
    let handshake_result = poll_fn(|cx| {
        connection.set_waker(cx);
        if connection.close_state.get().is_immediate() {
            return Poll::Ready(None);
        }
        std::pin::Pin::new(&mut handshake).poll(cx).map(Some)
    });
    let mut h2 = match handshake_result.await {
        Some(Ok(h2)) => h2,
        Some(Err(error)) => {
            if !error.is_io() {
                connection.shared.report(Rejection::Http2);
                connection.has_unread_input.set(true);
            }
            return;
        }
        None => return,
    };
    connection.enter(Phase::Idle);
    let (mut is_shutting_down, mut is_aborted) = (false, false);
    let outcome = poll_fn(|cx| {
        connection.set_waker(cx);
        match connection.close_state.get() {
            CloseState::Open => {}
            CloseState::AfterResponse if is_shutting_down => {}
            CloseState::AfterResponse => {
                is_shutting_down = true;
                h2.graceful_shutdown();
            }
            _ => return Poll::Ready(None),
        }
        if !is_aborted && state.is_abusive() {
            is_aborted = true;
            h2.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        }
        state.begin_poll();
        loop {
            match h2.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    stream_task::spawn(connection, &state, request, respond);
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => return Poll::Ready(Some(Ok(()))),
                Poll::Pending => break,
            }
        }
        state.notify_flushed();
        state.end_poll();
        connection.charge_http2_buffers(UNCHARGED_BYTES + state.buffer_bytes());
        if !is_aborted && state.is_abusive() {
            // The connection must be polled again, because the next poll closes it.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await;
    match outcome {
        Some(Ok(())) if !is_aborted => {}
        Some(Err(error)) if error.is_go_away() && error.is_remote() => {}
        Some(Err(error)) if error.is_io() => {}
        // The close lingers, so that the client can read the reason in the GOAWAY frame.
        Some(_) => {
            connection.shared.report(Rejection::Http2);
            connection.has_unread_input.set(true);
        }
        // The connection is idle or was evicted. The client is notified if the socket accepts the
        // frame immediately.
        None => {
            poll_fn(|cx| {
                // Writes the last responses of the streams. Bytes that the socket does not accept
                // now are lost.
                if h2.poll_closed(cx).is_pending() {
                    h2.abrupt_shutdown(Reason::NO_ERROR);
                    let _ = h2.poll_closed(cx);
                }
                Poll::Ready(())
            })
            .await;
        }
    }
}
