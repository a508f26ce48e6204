//! The task of a client's connection. It performs the handshake, drives hyper (HTTP/1.1) until the
//! connection closes or becomes a WebSocket, and passes HTTP/2 connections to the HTTP/2 driver.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use rookery_exchange::{Exchange, ListenerId};

use crate::connections::client_task;
use crate::connections::table::{Slot, TableEntry as _};
use crate::http::connection::activity::Phase;
use crate::http::connection::handshake::{looks_like_tls, perform_handshake};
use crate::http::connection::head_start::rejected_head;
use crate::http::connection::http_connection::{CloseState, HttpConnection};
use crate::http::connection::hyper_io::{HyperIo, without_blank_lines};
use crate::http::connection::lingering_close::{
    close, close_tls_client, log_rejection, reject, reject_begun,
};
use crate::http::http_state::HttpState;
use crate::http::http2::driver::serve as serve_http2;
use crate::http::listener_config::ListenerConfig;
use crate::http::request::handler::handle;
use crate::http::response::stream::chunked;
use crate::net::addresses::ConnectionAddresses;
use crate::net::transport::Transport;
use crate::rejection::Rejection;
use crate::websocket::driver::{Upgraded, spawn as spawn_websocket};

/// Starts the task that serves an accepted connection. `client` contains the addresses of the
/// connection and the number of the client's network.
pub(crate) fn spawn(
    shared: &Rc<HttpState>,
    listener: ListenerId,
    config: &Rc<ListenerConfig>,
    transport: Transport,
    client: (ConnectionAddresses, u64),
) {
    let connection = HttpConnection::new(shared, listener, config, transport, client);
    let slot = shared.connections.insert(Rc::clone(&connection) as _);
    connection.key.set(slot.key());
    // Until its PROXY header has arrived, the connection takes turns by itself.
    let network = match config.proxy_protocol {
        Some(_) => connection.serial(),
        None => connection.turns_of(connection.peer()),
    };
    client_task::spawn(Some(network), serve(ConnectionGuard(connection), slot));
}

/// A guard for a connection's task. When dropped, it releases the connection's request and memory,
/// even if the task panics or the I/O thread ends.
struct ConnectionGuard(Rc<HttpConnection>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.release_request();
    }
}

/// Turns the HTTP/1.1 connection into the WebSocket that the application has accepted.
fn become_websocket(guard: ConnectionGuard, slot: Slot, exchange: Box<Exchange>, read: Bytes) {
    let connection = Rc::clone(&guard.0);
    let shared = Rc::clone(&connection.shared);
    let (id, is_ending) = (exchange.id(), connection.is_ending());
    // Drops the references of the task and the table, so that `connection` is the only one.
    drop(guard);
    slot.clear();
    let Some((transport, charge)) = connection.into_transport() else {
        debug_assert!(false, "hyper and the table have dropped their references");
        shared.dispatch.abandon(exchange.slot());
        return shared.discard_exchange(exchange);
    };
    shared.dispatch.finish(exchange);
    // The WebSocket is charged by itself.
    drop(charge);
    spawn_websocket(&shared.websockets, id, Upgraded { transport, slot, read, is_ending });
}

/// The reason why the server stopped polling hyper for a connection.
enum HyperOutcome {
    Done,
    Closing(CloseState),
    Failed(hyper::Error),
    /// The connection has been idle for some time, so the server drops hyper to free its buffers.
    Parked,
    /// The server itself writes the rest of a streamed response, so hyper is no longer needed.
    Detached,
    /// The application has accepted a WebSocket, so the connection no longer speaks HTTP.
    Upgrade(Box<Exchange>),
}

/// The number of request headers that hyper can parse without allocating memory. Every connection
/// begins with this limit. A head with more headers is rare, and is parsed again with the
/// configured limit.
const SMALL_HEADER_TABLE: usize = 100;

/// The maximum number of headers in an [`http::HeaderMap`], which panics beyond it.
const MAX_HEADER_TABLE: usize = 24_576;

/// Returns the maximum size of a request head in bytes, and the maximum number of headers in it.
fn head_limits(connection: &HttpConnection) -> (usize, usize) {
    let limits = connection.shared.connections.limits();
    (limits.max_header_size, limits.max_headers)
}

/// The smallest read buffer that hyper accepts, in bytes.
const MIN_HYPER_BUFFER: usize = 8192;

/// Serves an HTTP connection until it is closed.
async fn serve(guard: ConnectionGuard, slot: Slot) {
    let connection = &guard.0;
    // Boxed because the future is needed only once, and never for plaintext connections.
    if connection.config.has_handshake() && !Box::pin(perform_handshake(connection)).await {
        connection.release_request();
        return close(connection).await;
    }
    if connection.speaks_http2() {
        if connection.charge_use() {
            Box::pin(serve_http2(connection)).await;
        }
        connection.release_request();
        return close(connection).await;
    }
    let mut replay = Bytes::new();
    let mut has_small_table = true;
    loop {
        if replay.is_empty() {
            wait_for_client(connection).await;
        }
        connection.unpark();
        // If there is no memory, `drive_hyper` ends at once.
        connection.charge_use();
        // Boxed because this future with its buffers is most of a connection's memory, and an idle
        // connection does not need it.
        let (outcome, mut read) =
            Box::pin(drive_hyper(connection, std::mem::take(&mut replay), has_small_table)).await;
        match outcome {
            HyperOutcome::Parked => {
                read = without_blank_lines(&read);
                if read.is_empty() {
                    // An empty `Bytes` still holds its buffer.
                    drop(read);
                    connection.release_use();
                    connection.shared.connections.trim.schedule();
                } else {
                    connection.release_buffer();
                    connection.on_head_left_over(read.len());
                    replay = read;
                }
                continue;
            }
            HyperOutcome::Detached => {
                connection.detach_from_hyper(read.len());
                read = without_blank_lines(&read);
                replay = read;
                if replay.is_empty() {
                    // An empty `Bytes` still holds its buffer.
                    replay = Bytes::new();
                }
                if Box::pin(chunked::write_stream(connection)).await
                    && !connection.close_state.get().is_immediate()
                {
                    connection.on_head_left_over(replay.len());
                    continue;
                }
            }
            HyperOutcome::Closing(CloseState::HeadTimeout) => {
                reject(connection, Rejection::HeadTimeout, &read);
            }
            HyperOutcome::Closing(CloseState::Overload)
                if connection.activity.phase() == Phase::Head =>
            {
                reject(connection, Rejection::Overload, &read);
            }
            HyperOutcome::Closing(CloseState::Overload) => {
                reject_begun(connection, Rejection::Overload);
            }
            HyperOutcome::Closing(CloseState::BodyTimeout) => {
                reject_begun(connection, Rejection::BodyTimeout);
            }
            HyperOutcome::Closing(CloseState::Evicted) => {
                reject_begun(connection, Rejection::TooManyConnections);
            }
            HyperOutcome::Failed(error)
                if error.is_parse_too_large() && connection.is_head_refused.get() =>
            {
                let may_be_larger = head_limits(connection).1 > SMALL_HEADER_TABLE;
                if std::mem::take(&mut has_small_table) && may_be_larger {
                    connection.is_head_refused.set(false);
                    replay = read;
                    continue;
                }
                reject(connection, Rejection::HeadTooLarge, &read);
            }
            HyperOutcome::Failed(error)
                if error.is_parse()
                    && !connection.has_tls()
                    && looks_like_tls(&read)
                    && connection.activity.phase() == Phase::Head =>
            {
                close_tls_client(connection);
            }
            // A client that sends an HTTP/2 preface gets no response.
            HyperOutcome::Failed(error) if connection.is_head_refused.get() || error.is_parse() => {
                connection.shared.head_start.with(connection.key.get(), |kept| {
                    let head = rejected_head(&error.to_string(), &read, kept);
                    if connection.is_head_refused.get()
                        || connection.activity.phase() == Phase::Head
                    {
                        reject(connection, Rejection::Unreadable, head);
                    } else {
                        // The client had not read the whole previous response, so hyper has sent
                        // its own error response after it.
                        log_rejection(connection, Rejection::Unreadable, 0, head);
                    }
                });
            }
            HyperOutcome::Done | HyperOutcome::Closing(_) | HyperOutcome::Failed(_) => {}
            HyperOutcome::Upgrade(exchange) => {
                return become_websocket(guard, slot, exchange, read);
            }
        }
        break;
    }
    // hyper was dropped, and with it the request and the response.
    connection.release_request();
    // The application may accept a WebSocket in the same iteration in which the connection closes.
    let accepted = connection.accepted_websocket.borrow_mut().take();
    if let Some(exchange) = accepted {
        connection.shared.dispatch.abandon(exchange.slot());
        connection.shared.discard_exchange(exchange);
    }
    close(connection).await;
}

/// Runs hyper on a connection until hyper ends or is no longer needed. Returns why it stopped, and
/// the bytes that hyper has read but not parsed.
async fn drive_hyper(
    connection: &Rc<HttpConnection>,
    replay: Bytes,
    has_small_table: bool,
) -> (HyperOutcome, Bytes) {
    let (head_bytes, header_lines) = head_limits(connection);
    let mut builder = http1::Builder::new();
    builder
        .half_close(true)
        .title_case_headers(true)
        .max_buf_size(head_bytes.max(MIN_HYPER_BUFFER));
    if !has_small_table || header_lines < SMALL_HEADER_TABLE {
        builder.max_headers(header_lines.min(MAX_HEADER_TABLE));
    }
    let io = HyperIo::new(connection, replay);
    let mut hyper = builder.serve_connection(io, service_fn(|request| handle(connection, request)));
    let outcome = poll_fn(|cx| {
        connection.set_waker(cx);
        if connection.close_state.get().is_immediate() {
            return Poll::Ready(HyperOutcome::Closing(connection.close_state.get()));
        }
        match Pin::new(&mut hyper).poll(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(HyperOutcome::Done),
            Poll::Ready(Err(error)) => Poll::Ready(HyperOutcome::Failed(error)),
            Poll::Pending => {
                connection.leave_client();
                if let Some(exchange) = connection.accepted_websocket.borrow_mut().take() {
                    return Poll::Ready(HyperOutcome::Upgrade(exchange));
                }
                match connection.close_state.get() {
                    // A response was flushed after `stop`, so hyper need not wait for another
                    // request.
                    end if end.is_immediate() => Poll::Ready(HyperOutcome::Closing(end)),
                    _ if connection.can_park() => Poll::Ready(HyperOutcome::Parked),
                    _ if connection.can_detach_from_hyper() => Poll::Ready(HyperOutcome::Detached),
                    _ if connection.activity.phase() == Phase::Stream
                        && connection.detect_stream_end(cx) =>
                    {
                        Poll::Ready(HyperOutcome::Closing(CloseState::Now))
                    }
                    _ => Poll::Pending,
                }
            }
        }
    })
    .await;
    let parts = hyper.into_parts();
    (outcome, parts.io.unparsed(parts.read_buf))
}

/// Waits until the client of an idle connection sends bytes or the connection must be closed. An
/// idle connection has no instance of hyper, whose buffers are the largest part of a connection.
async fn wait_for_client(connection: &HttpConnection) {
    poll_fn(|cx| {
        connection.set_waker(cx);
        if connection.close_state.get().is_immediate() {
            return Poll::Ready(());
        }
        // If there is an error, hyper's next read returns it.
        connection.transport.borrow().poll_read_ready(cx).map(drop)
    })
    .await;
}
