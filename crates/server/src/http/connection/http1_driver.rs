//! Drives hyper over a connection, to its end or to a WebSocket.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use rookery_exchange::{Exchange, ListenerId};
use rookery_worker_protocol::MAX_WORKER_HEADER_SIZE;

use crate::connections::table::{Slot, TableEntry as _};
use crate::http::connection::activity::Phase;
use crate::http::connection::handshake::{agree, is_tls};
use crate::http::connection::http_connection::{End, HttpConnection};
use crate::http::connection::hyper_io::{HyperIo, without_blank_lines};
use crate::http::connection::lingering_close::{close, refuse, refuse_tls};
use crate::http::http_state::HttpState;
use crate::http::http2::driver::serve as serve_http2;
use crate::http::listener_config::ListenerConfig;
use crate::http::request::handler::answer;
use crate::http::response::stream::chunked;
use crate::net::addresses::ConnectionAddresses;
use crate::net::transport::Transport;
use crate::rejection::Rejection;
use crate::websocket::driver::{Upgraded, spawn as spawn_websocket};

/// Starts to serve a connection that has been accepted. It is counted before its task first runs: of those that wait to be
/// accepted, many are before that.
pub(crate) fn spawn(
    shared: &Rc<HttpState>,
    listener: ListenerId,
    config: &ListenerConfig,
    transport: Transport,
    ends: ConnectionAddresses,
) {
    let connection = HttpConnection::new(shared, listener, config, transport, ends);
    let slot = shared.connections.insert(Rc::clone(&connection) as _);
    connection.key.set(slot.key());
    connection.begin_handshake();
    tokio::task::spawn_local(serve(Driven(connection), slot));
}

/// A connection that is driven: settled when this is dropped, also when its task panics, or ends with the thread.
struct Driven(Rc<HttpConnection>);

impl Drop for Driven {
    fn drop(&mut self) {
        self.0.settle();
    }
}

/// The connection becomes a WebSocket.
fn upgrade(driven: Driven, slot: Slot, exchange: Box<Exchange>, read: Bytes) {
    let connection = Rc::clone(&driven.0);
    let shared = Rc::clone(&connection.shared);
    let (id, is_ending) = (exchange.id(), connection.is_ending());
    // Those of the task and the table: then there is only this one.
    drop(driven);
    slot.clear();
    let Some((transport, charge)) = connection.into_transport() else {
        debug_assert!(false, "hyper and the table have let go of it");
        shared.dispatch.abandon(exchange.slot());
        return shared.disown(exchange);
    };
    shared.dispatch.finish(exchange);
    spawn_websocket(&shared.websockets, id, Upgraded { transport, slot, charge, read, is_ending });
}

/// How driving hyper ended.
enum DriveEnd {
    Done,
    Ended(End),
    Failed(hyper::Error),
    /// Nothing has come for a while, and nothing is held.
    Parked,
    /// A reply in pieces goes on without hyper.
    Chunked,
    /// A WebSocket has been accepted.
    Upgrade(Box<Exchange>),
}

/// hyper's own table of headers lies on its stack; one of 2,000 lines would be allocated for each request. So a
/// connection starts with the small one, and the rare head that does not fit is read again with the large one.
const SMALL_TABLE: usize = 100;

/// What [`http::HeaderMap`] holds, which panics past that.
const LARGEST_TABLE: usize = 24_576;

/// What a supervisor may add to a head that its own limits have let through: what it says of the request, and a few lines for the application
/// such as `X-Forwarded-For`.
const ADDED_BYTES: usize = MAX_WORKER_HEADER_SIZE + 4096;
const ADDED_LINES: usize = 16;

/// Bytes and lines of a head.
fn head_limits(connection: &HttpConnection) -> (usize, usize) {
    let limits = &connection.shared.connections.limits;
    let (bytes, lines) =
        if connection.config.is_supervised() { (ADDED_BYTES, ADDED_LINES) } else { (0, 0) };
    (limits.head_bytes.saturating_add(bytes), limits.header_lines.saturating_add(lines))
}

/// hyper takes no smaller buffer.
const MIN_BUFFER: usize = 8192;

/// Serves a connection to its end.
async fn serve(driven: Driven, slot: Slot) {
    let connection = &driven.0;
    // Boxed: once, and a connection in the clear has none of it.
    if connection.config.greets() && !Box::pin(agree(connection)).await {
        connection.settle();
        return close(connection).await;
    }
    if connection.speaks_http2() {
        Box::pin(serve_http2(connection)).await;
        connection.settle();
        return close(connection).await;
    }
    let mut rewound = Bytes::new();
    let mut has_small_table = true;
    loop {
        // Boxed: with its buffers it is most of what a connection costs, and one that is idle has none of it.
        let (outcome, mut read) =
            Box::pin(drive(connection, std::mem::take(&mut rewound), has_small_table)).await;
        match outcome {
            DriveEnd::Parked => {
                read = without_blank_lines(&read);
                if read.is_empty() {
                    // Empty, it keeps its buffer all the same.
                    drop(read);
                    connection.shared.connections.trim.schedule();
                    wait_for_peer(connection).await;
                } else {
                    rewound = read;
                }
                connection.unpark();
                connection.on_head_left_over(rewound.len());
                continue;
            }
            DriveEnd::Chunked => {
                connection.goes_on_without_hyper(read.len());
                read = without_blank_lines(&read);
                rewound = read;
                if rewound.is_empty() {
                    // Empty, it keeps its buffer all the same.
                    rewound = Bytes::new();
                }
                if Box::pin(chunked::drive(connection)).await && !connection.end.get().is_now() {
                    connection.on_head_left_over(rewound.len());
                    continue;
                }
            }
            DriveEnd::Ended(End::HeadTimeout) => refuse(connection, Rejection::HeadTimeout),
            DriveEnd::Ended(End::Overload) => refuse(connection, Rejection::Overload),
            DriveEnd::Ended(End::BodyTimeout) => refuse(connection, Rejection::BodyTimeout),
            DriveEnd::Failed(error)
                if error.is_parse_too_large() && connection.is_refused.get() =>
            {
                let may_be_larger = head_limits(connection).1 > SMALL_TABLE;
                if std::mem::take(&mut has_small_table) && may_be_larger {
                    connection.is_refused.set(false);
                    rewound = read;
                    continue;
                }
                refuse(connection, Rejection::HeadTooLarge);
            }
            DriveEnd::Failed(error)
                if error.is_parse()
                    && !connection.has_tls()
                    && is_tls(&read)
                    && connection.activity.phase() == Phase::Head =>
            {
                refuse_tls(connection);
            }
            // The preface of HTTP/2 is refused without a word.
            DriveEnd::Failed(error)
                if connection.is_refused.get()
                    || (error.is_parse() && connection.activity.phase() == Phase::Head) =>
            {
                refuse(connection, Rejection::Unreadable);
            }
            DriveEnd::Done | DriveEnd::Ended(_) | DriveEnd::Failed(_) => {}
            DriveEnd::Upgrade(exchange) => return upgrade(driven, slot, exchange, read),
        }
        break;
    }
    // hyper is gone, and with it the request and the reply.
    connection.settle();
    // A WebSocket that was accepted in the very turn in which the connection ended.
    let accepted = connection.upgrade.borrow_mut().take();
    if let Some(exchange) = accepted {
        connection.shared.dispatch.abandon(exchange.slot());
        connection.shared.disown(exchange);
    }
    close(connection).await;
}

/// Drives hyper until it has ended, or is not wanted any more; with what it has read and not taken.
async fn drive(
    connection: &Rc<HttpConnection>,
    rewound: Bytes,
    has_small_table: bool,
) -> (DriveEnd, Bytes) {
    let (head_bytes, header_lines) = head_limits(connection);
    let mut builder = http1::Builder::new();
    builder.half_close(true).title_case_headers(true).max_buf_size(head_bytes.max(MIN_BUFFER));
    if !has_small_table || header_lines < SMALL_TABLE {
        builder.max_headers(header_lines.min(LARGEST_TABLE));
    }
    let io = HyperIo::new(connection, rewound);
    let mut hyper = builder.serve_connection(io, service_fn(|request| answer(connection, request)));
    let outcome = poll_fn(|cx| {
        connection.set_waker(cx);
        if connection.end.get().is_now() {
            return Poll::Ready(DriveEnd::Ended(connection.end.get()));
        }
        match Pin::new(&mut hyper).poll(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(DriveEnd::Done),
            Poll::Ready(Err(error)) => Poll::Ready(DriveEnd::Failed(error)),
            Poll::Pending => {
                if let Some(exchange) = connection.upgrade.borrow_mut().take() {
                    return Poll::Ready(DriveEnd::Upgrade(exchange));
                }
                match connection.end.get() {
                    // A reply was flushed after `stop`: hyper waits for the next request, which is not wanted.
                    end if end.is_now() => Poll::Ready(DriveEnd::Ended(end)),
                    _ if connection.may_park() => Poll::Ready(DriveEnd::Parked),
                    _ if connection.leaves_hyper() => Poll::Ready(DriveEnd::Chunked),
                    _ if connection.activity.phase() == Phase::Stream
                        && connection.is_stream_over(cx) =>
                    {
                        Poll::Ready(DriveEnd::Ended(End::Now))
                    }
                    _ => Poll::Pending,
                }
            }
        }
    })
    .await;
    let parts = hyper.into_parts();
    (outcome, parts.io.untaken(parts.read_buf))
}

/// Waits until the peer of an idle connection sends, or the connection is to end.
async fn wait_for_peer(connection: &HttpConnection) {
    poll_fn(|cx| {
        connection.set_waker(cx);
        if connection.end.get().is_now() {
            return Poll::Ready(());
        }
        // An error is for hyper to find.
        connection.transport.borrow().poll_read_ready(cx).map(drop)
    })
    .await;
}
