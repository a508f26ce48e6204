//! WebSockets whose messages are sent to a worker. This process reads and writes the frames, and
//! the worker gets complete messages.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use rookery_exchange::wire::{Down, Up};
use rookery_exchange::{Command, Exchange, MessageKind, Payload, Peer, WebSocketId};
use rookery_worker_protocol::rings::Lane;

use super::closing::close_within;
use super::state::HopSocket;
use super::waiting_messages::{Content, WaitingEvent};
use crate::pool::balancing::worker_load::PoolBackend;
use crate::pool::context::PoolContext;

/// The number of written bytes after which this process reports them to the worker.
const REPORT_BYTES: u64 = 256 << 10;

/// Opens a WebSocket that a worker has accepted.
pub(super) fn open(pool: &Rc<PoolContext>, backend: &Rc<PoolBackend>, exchange: &Exchange) {
    pool.balancer.count_reconnect(exchange, backend);
    backend.begin_session(exchange.id(), exchange.peer());
    let socket = HopSocket {
        backend: Rc::clone(backend),
        peer: exchange.peer(),
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

/// Returns true if the worker of a WebSocket can be sent another message of this peer.
pub(in crate::pool) fn has_capacity(pool: &PoolContext, peer: Peer, socket: WebSocketId) -> bool {
    let sockets = pool.hops.sockets.0.borrow();
    let open = sockets.get(&socket);
    open.is_none_or(|open| open.backend.rings.messages.borrow().has_capacity(peer))
}

// ---- events of the server ----

/// Sends a message of a WebSocket to its worker, once its peer has its turn.
pub(in crate::pool) fn on_message(
    pool: &PoolContext,
    peer: Peer,
    socket: WebSocketId,
    (kind, payload): (MessageKind, Payload),
) {
    match pool.hops.sockets.0.borrow().get(&socket) {
        Some(open) => {
            let content = Content::Message(kind, payload);
            send_in_turn(pool, &open.backend, WaitingEvent { peer, id: socket, content });
        }
        None => recycle(pool, payload),
    }
}

fn recycle(pool: &PoolContext, payload: Payload) {
    if let Some(buffer) = payload.into_buffer() {
        pool.buffers.borrow_mut().give(buffer);
    }
}

/// Sends an event to a worker once its peer has its turn.
pub(super) fn send_in_turn(pool: &PoolContext, backend: &PoolBackend, event: WaitingEvent) {
    let hop = &backend.rings;
    hop.messages.borrow_mut().push(event, &mut hop.outbox.borrow_mut());
    send_waiting(pool, backend);
}

/// Sends the waiting events of WebSockets and streams to their worker that may be in its ring now.
/// Returns false if others still wait.
pub(super) fn send_waiting(pool: &PoolContext, backend: &PoolBackend) -> bool {
    let hop = &backend.rings;
    let mut messages = hop.messages.borrow_mut();
    if messages.is_empty() {
        return true;
    }
    while hop.has_capacity(Lane::Messages) {
        let next = messages.next(&mut hop.outbox.borrow_mut());
        let Some(WaitingEvent { peer, id, content }) = next else { break };
        pool.has_forwarded.set(true);
        match content {
            Content::Message(kind, payload) => {
                if let Some(buffer) = hop.send_message(id, kind, payload) {
                    pool.buffers.borrow_mut().give(buffer);
                }
            }
            Content::Closed { code, is_clean, reason } => {
                let reason = reason.as_bytes();
                hop.send_message_event(Down::Closed { socket: id, code, is_clean, reason });
            }
            Content::Pull { written } => {
                hop.send_message_event(Down::Pull { stream: id, written });
            }
            Content::Writable { written } => {
                hop.send_message_event(Down::Written { stream: id, written });
            }
            Content::StreamEnded(reason) => {
                hop.send_message_event(Down::StreamEnded { stream: id, reason });
            }
        }
        messages.on_sent(peer, hop.outbox.borrow().last(Lane::Messages));
    }
    messages.is_empty() || hop.is_over.get()
}

/// Tells a worker that all messages to a WebSocket have been written.
pub(in crate::pool) fn on_drained(pool: &PoolContext, socket: WebSocketId) {
    if let Some(open) = pool.hops.sockets.0.borrow().get(&socket) {
        let sent = open.backlog.written();
        open.reported.set(sent);
        open.backend.rings.send(Down::Drained { socket, sent });
    }
}

/// Tells a worker that a WebSocket has ended, after all its messages.
pub(in crate::pool) fn on_closed(
    pool: &PoolContext,
    peer: Peer,
    socket: WebSocketId,
    (code, is_clean, reason): (u16, bool, Box<str>),
) {
    let Some(ended) = pool.hops.sockets.0.borrow_mut().remove(&socket) else { return };
    ended.backend.end_session(ended.peer);
    let content = Content::Closed { code, is_clean, reason };
    send_in_turn(pool, &ended.backend, WaitingEvent { peer, id: socket, content });
}

// ---- records of the worker ----

/// Sends a worker's message to a client.
pub(super) fn send(
    pool: &PoolContext,
    backend: &Rc<PoolBackend>,
    socket: WebSocketId,
    (kind, is_waiting): (MessageKind, bool),
    payload: Payload,
) {
    let sockets = pool.hops.sockets.0.borrow();
    let own = sockets.get(&socket).filter(|open| Rc::ptr_eq(&open.backend, backend));
    let Some(HopSocket { backlog, reported, .. }) = own else {
        return pool.buffers.borrow_mut().give(payload.into_buffer().unwrap_or_default());
    };
    if is_waiting {
        backlog.await_drained();
    }
    let sent = backlog.written();
    // A worker that takes no records gets its report later, because reports would pile up.
    let hop = &backend.rings;
    if hop.has_capacity(Lane::Messages) && sent.saturating_sub(reported.get()) >= REPORT_BYTES {
        reported.set(sent);
        hop.send_quietly(Down::Sent { socket, sent });
    }
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
