//! WebSockets whose messages are sent to a worker. This process reads and writes the frames, and
//! the worker gets complete messages.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rookery_exchange::wire::{Down, Up};
use rookery_exchange::{Command, Exchange, MessageKind, Payload, WebSocketId};

use super::MAX_UNSENT;
use super::closing::close_within;
use super::state::HopSocket;
use crate::pool::balancing::worker_load::PoolBackend;
use crate::pool::context::PoolContext;

/// The number of written bytes after which this process reports them to the worker.
const REPORT_BYTES: u64 = 256 << 10;

/// Opens a WebSocket that a worker has accepted.
pub(super) fn open(pool: &Rc<PoolContext>, backend: &Rc<PoolBackend>, exchange: &Exchange) {
    pool.balancer.count_reconnect(exchange, backend);
    backend.entry.load.sessions.fetch_add(1, Ordering::Relaxed);
    let socket = HopSocket {
        backend: Rc::clone(backend),
        backlog: exchange.backlog().map(Arc::clone).unwrap_or_default(),
        reported: Cell::new(0),
        is_closing: Cell::new(false),
    };
    // The supervisor may have begun to stop the worker meanwhile.
    close_if_ending(pool, exchange.id(), &socket);
    pool.hops.sockets.0.borrow_mut().insert(exchange.id(), socket);
}

/// Schedules the closing of the WebSockets of workers that are about to end.
pub(super) fn close_ending(pool: &Rc<PoolContext>) {
    for (id, socket) in pool.hops.sockets.0.borrow().iter() {
        close_if_ending(pool, *id, socket);
    }
}

fn close_if_ending(pool: &Rc<PoolContext>, id: WebSocketId, socket: &HopSocket) {
    let backend = &socket.backend.entry;
    if let Some(within) = backend.session_close_time() {
        if !socket.is_closing.replace(true) {
            close_within(&pool.responder, id, backend, within);
        }
    }
}

/// Returns true if the worker of a WebSocket can be sent more messages.
pub(in crate::pool) fn has_capacity(pool: &PoolContext, socket: WebSocketId) -> bool {
    let sockets = pool.hops.sockets.0.borrow();
    let open = sockets.get(&socket);
    open.is_none_or(|open| open.backend.rings.outbox.borrow().waiting_bytes() <= MAX_UNSENT)
}

// ---- events of the server ----

/// Sends a message of a WebSocket to its worker.
pub(in crate::pool) fn on_message(
    pool: &PoolContext,
    socket: WebSocketId,
    kind: MessageKind,
    payload: Payload,
) {
    if let Some(open) = pool.hops.sockets.0.borrow().get(&socket) {
        open.backend.rings.send(Down::Message { socket, kind, content: payload.as_bytes() });
        pool.has_forwarded.set(true);
    }
    if let Payload::Pooled(buffer) = payload {
        pool.buffers.borrow_mut().give(buffer);
    }
}

/// Tells a worker that all messages to a WebSocket have been written.
pub(in crate::pool) fn on_drained(pool: &PoolContext, socket: WebSocketId) {
    if let Some(open) = pool.hops.sockets.0.borrow().get(&socket) {
        let sent = open.backlog.written();
        open.reported.set(sent);
        open.backend.rings.send(Down::Drained { socket, sent });
    }
}

/// Tells a worker that a WebSocket has ended.
pub(in crate::pool) fn on_closed(
    pool: &PoolContext,
    socket: WebSocketId,
    (code, is_clean): (u16, bool),
    reason: &str,
) {
    let Some(ended) = pool.hops.sockets.0.borrow_mut().remove(&socket) else { return };
    ended.backend.entry.load.sessions.fetch_sub(1, Ordering::Relaxed);
    ended.backend.rings.send(Down::Closed { socket, code, is_clean, reason: reason.as_bytes() });
}

// ---- records of the worker ----

/// Sends a worker's message to a client.
pub(super) fn send(
    pool: &PoolContext,
    backend: &Rc<PoolBackend>,
    socket: WebSocketId,
    (kind, is_waiting): (MessageKind, bool),
    content: &[u8],
) {
    let sockets = pool.hops.sockets.0.borrow();
    let own = sockets.get(&socket).filter(|open| Rc::ptr_eq(&open.backend, backend));
    let Some(HopSocket { backlog, reported, .. }) = own else { return };
    if is_waiting {
        backlog.await_drained();
    }
    let sent = backlog.written();
    // A worker that takes no records gets its report later, because reports would pile up.
    let hop = &backend.rings;
    if hop.has_capacity() && sent.saturating_sub(reported.get()) >= REPORT_BYTES {
        reported.set(sent);
        hop.send_quietly(Down::Sent { socket, sent });
    }
    let mut buffer = pool.buffers.borrow_mut().take();
    buffer.extend_from_slice(content);
    let payload = Payload::Pooled(buffer);
    pool.responder.send_unannounced(Command::Send { socket, kind, payload });
}

/// Carries out a worker's command for one of its WebSockets.
pub(super) fn carry_out(
    pool: &PoolContext,
    backend: &Rc<PoolBackend>,
    socket: WebSocketId,
    up: Up<'_>,
) {
    let sockets = pool.hops.sockets.0.borrow();
    if !sockets.get(&socket).is_some_and(|open| Rc::ptr_eq(&open.backend, backend)) {
        return;
    }
    pool.responder.send_unannounced(match up {
        Up::Ping { .. } => Command::Ping { socket },
        Up::Close { code, reason, .. } => Command::Close { socket, code, reason: reason.to_vec() },
        _ => Command::Abort { socket },
    });
}
