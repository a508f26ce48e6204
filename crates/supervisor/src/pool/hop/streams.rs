//! Streamed responses whose chunks come from a worker. This process reports to the worker how many
//! bytes have been written to the client. From these reports, the worker knows how many bytes still
//! wait for the client, and when the application must pause.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use rookery_exchange::wire::{Down, Up};
use rookery_exchange::{
    ChunkAdmission, Command, Exchange, Payload, ResponseBody, StreamEnd, StreamId,
};

use super::sockets::send_in_turn;
use super::state::{HopStream, Observer};
use super::waiting_messages::{Content, WaitingEvent};
use rookery_worker_protocol::rings::Lane;

use crate::pool::balancing::worker_load::PoolBackend;
use crate::pool::context::PoolContext;

/// The number of written bytes after which this process reports them to the worker, even if more
/// bytes still wait for the client.
const REPORT_BYTES: u64 = 16 << 10;

/// Opens the streamed response of an exchange.
pub(super) fn open(pool: &PoolContext, backend: &Rc<PoolBackend>, exchange: &mut Exchange) {
    let ResponseBody::Stream(mut body) = exchange.response_mut().take_body() else { return };
    // A server that stops waits for the end of pulled streams but ends pushed ones. A pushed stream
    // of a worker is therefore marked as pulled, so that the worker ends the stream and not the
    // server. Streams of events are not marked.
    let is_pulled = body.rules.is_pulled;
    body.rules.is_pulled |= !body.rules.is_events;
    let streams = &pool.hops.streams;
    let is_noted = Arc::<AtomicBool>::default();
    body.flow.set_observer(Box::new(Observer {
        stream: exchange.id(),
        is_noted: Arc::clone(&is_noted),
        written: Arc::clone(&streams.written),
    }));
    let stream = HopStream {
        backend: Rc::clone(backend),
        peer: exchange.peer(),
        flow: Arc::clone(&body.flow),
        is_noted,
        is_pulled,
        reported: Cell::new(0),
        is_waiting: Cell::new(false),
    };
    exchange.response_mut().set_body(ResponseBody::Stream(body));
    backend.entry.load.streams.fetch_add(1, Ordering::Relaxed);
    streams.open.borrow_mut().insert(exchange.id(), stream);
}

/// Tells the workers how many bytes of their streams have been written.
pub(super) fn report_written(pool: &PoolContext) {
    let streams = &pool.hops.streams;
    let mut lock = streams.written.0.lock().unwrap_or_else(PoisonError::into_inner);
    if lock.is_empty() {
        return;
    }
    let written = std::mem::take(&mut *lock);
    drop(lock);
    let open = streams.open.borrow();
    for (id, stream) in written.iter().filter_map(|id| Some((*id, open.get(id)?))) {
        if stream.backend.rings.has_unsent(Lane::Requests) {
            // A worker that takes no records gets its report later, because reports would pile
            // up.
            streams.written.0.lock().unwrap_or_else(PoisonError::into_inner).push(id);
            continue;
        }
        stream.is_noted.store(false, Ordering::Relaxed);
        let written = stream.written();
        let more = written - stream.reported.get().min(written);
        let is_all = stream.flow.waiting() == 0;
        let hop = &stream.backend.rings;
        if more == 0 || (more < REPORT_BYTES && !is_all) {
            continue;
        }
        stream.reported.set(written);
        let down = Down::Written { stream: id, written };
        if stream.is_waiting.take() {
            send(pool, stream, id, Content::Writable { written });
        } else if more >= REPORT_BYTES {
            hop.send(down);
        } else {
            hop.send_quietly(down);
        }
    }
}

// ---- events of the server ----

/// Asks a worker for the next chunk of a stream, once the stream has its turn.
pub(in crate::pool) fn on_pull(pool: &PoolContext, id: StreamId) {
    let open = pool.hops.streams.open.borrow();
    if let Some(stream) = open.get(&id).filter(|stream| stream.is_pulled) {
        let written = stream.written();
        stream.reported.set(written);
        send(pool, stream, id, Content::Pull { written });
    }
}

fn send(pool: &PoolContext, stream: &HopStream, id: StreamId, content: Content) {
    send_in_turn(pool, &stream.backend, WaitingEvent { peer: stream.peer, id, content });
}

/// Tells a worker that the client has caught up.
pub(in crate::pool) fn on_writable(pool: &PoolContext, id: StreamId) {
    let open = pool.hops.streams.open.borrow();
    let Some(stream) = open.get(&id) else { return };
    let written = stream.written();
    stream.reported.set(written);
    send(pool, stream, id, Content::Writable { written });
}

/// Tells a worker that a stream has ended, so that the worker may be sent another request.
pub(in crate::pool) fn on_stream_ended(pool: &PoolContext, id: StreamId, reason: StreamEnd) {
    let Some(ended) = pool.hops.streams.open.borrow_mut().remove(&id) else { return };
    send(pool, &ended, id, Content::StreamEnded(reason));
    ended.backend.entry.load.streams.fetch_sub(1, Ordering::Relaxed);
    ended.backend.finish_request();
}

// ---- records of the worker ----

/// Carries out a worker's command for one of its streams.
pub(super) fn carry_out(pool: &PoolContext, backend: &Rc<PoolBackend>, id: StreamId, up: Up<'_>) {
    let open = pool.hops.streams.open.borrow();
    let own = open.get(&id).filter(|stream| Rc::ptr_eq(&stream.backend, backend));
    let Some(stream) = own else { return };
    let abort = |reason| Command::AbortStream { stream: id, reason, page: Vec::new() };
    pool.responder.send_unannounced(match up {
        Up::Chunk { is_pushing, is_waiting, content, .. } => match stream.flow.admit(content.len())
        {
            ChunkAdmission::Continue | ChunkAdmission::Pause => {
                stream.is_waiting.set(is_waiting);
                let mut buffer = pool.buffers.borrow_mut().take();
                buffer.extend_from_slice(content);
                let payload = Payload::Pooled(buffer);
                Command::Chunk { stream: id, payload, is_pushing }
            }
            ChunkAdmission::ClientTooSlow => abort(StreamEnd::Slow),
            ChunkAdmission::ExceedsLength => abort(StreamEnd::Error),
            ChunkAdmission::Ended => return,
        },
        Up::ResumePulls { .. } => Command::ResumePulls { stream: id },
        Up::SendHead { .. } => Command::SendHead { stream: id },
        Up::EndStream { .. } => Command::EndStream { stream: id },
        Up::AbortStream { reason, page, .. } => {
            Command::AbortStream { stream: id, reason, page: page.to_vec() }
        }
        _ => return,
    });
}
