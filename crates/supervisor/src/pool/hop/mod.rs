//! The hop: requests, streams and WebSocket messages that cross to a worker in shared memory (the
//! rings of `rookery_worker_protocol`), while the client's connection stays in this process.
//!
//! ```text
//!   server --Event--> on_*, send --Down--> worker's R thread
//!   server <-Command- receive        <---Up--- worker's R thread
//! ```
//!
//! A worker may write anything to the memory. Each record of a worker is copied, and the copy is
//! checked by `wire::Up`. A record with an id or a ticket that the worker does not have is ignored,
//! because even a correct worker sends such a record if it does not know yet that the request,
//! stream or WebSocket has ended. The first invalid record ends the worker.

mod closing;
mod ending;
mod requests;
mod responses;
mod session_cookie;
mod sockets;
pub(super) mod state;
mod streams;
#[cfg(test)]
mod tests;
pub(super) mod waiting_messages;
mod withdrawal;

use std::fs::File;
use std::rc::Rc;
use std::time::Duration;

use rookery_exchange::Payload;
use rookery_exchange::wire::{ResponseContent, Up};
use rookery_worker_protocol::rings::{Lane, MAX_RECORD_LEN};

pub(super) use self::requests::send;
use super::balancing::worker_load::PoolBackend;
use super::context::{Dispatch, PoolContext};
use super::ring_connection::RingConnection;

pub(super) use self::ending::follow_workers;
pub(super) use self::sockets::{has_capacity, on_closed, on_drained, on_message};
pub(super) use self::streams::{on_pull, on_stream_ended, on_writable};
pub(super) use self::withdrawal::{wake_stalled, withdraw_late, withdraw_overdue};

/// The maximum number of records that are taken from one worker before other tasks of this thread
/// run. After a record in parts, the other tasks run at once.
const MAX_RECORDS: usize = 1024;

/// The number of times in a row that this thread may refuse to sleep because records have arrived.
/// After this number, the other tasks of this thread run first.
const MAX_REFUSALS: u32 = 16;

/// The interval at which this thread tries again to send or take records that wait, because the
/// worker has not returned blocks or this process cannot open descriptors.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// Announces to all workers that this thread is about to sleep. Returns false if records have
/// arrived.
pub(super) fn prepare_sleep(pool: &PoolContext) -> bool {
    let workers = pool.hops.workers.borrow();
    let mut rings = workers.iter().map(|backend| &backend.rings);
    let refusals = &pool.hops.refusals;
    if rings.all(RingConnection::prepare_sleep) {
        refusals.set(0);
        return true;
    }
    refusals.set(refusals.get() + 1);
    if refusals.get() < MAX_REFUSALS {
        return false;
    }
    // A worker that sends records without end must not keep this thread from its other tasks.
    refusals.set(0);
    pool.responder.wake();
    true
}

/// Announces to all workers that this thread is awake.
pub(super) fn on_wake(pool: &PoolContext) {
    let workers = pool.hops.workers.borrow();
    workers.iter().for_each(|backend| backend.rings.own_sleep.set_awake());
}

/// Takes the records that the workers have sent, assigns further requests, and wakes the workers to
/// which records have been sent. Called before this thread sleeps, when the server takes the
/// commands of the pool.
pub(super) fn run(pool: &Rc<PoolContext>, dispatch: Dispatch) {
    let mut has_responses = false;
    for backend in pool.hops.workers.borrow().iter() {
        has_responses |= receive(pool, backend);
    }
    streams::report_written(pool);
    if has_responses {
        dispatch(pool);
    }
    let mut is_sent = true;
    for backend in pool.hops.workers.borrow().iter() {
        let hop = &backend.rings;
        let has_parts = hop.has_unsent(Lane::Messages);
        is_sent &= hop.flush();
        if has_parts && !hop.has_unsent(Lane::Messages) {
            // A request has its turn before the next message in parts.
            dispatch(pool);
        }
        is_sent &= sockets::send_waiting(pool, backend);
        is_sent &= hop.flush() && !hop.receiver.borrow().lacks_descriptors();
        if hop.is_over.get() {
            // The worker gets no more requests, and the supervisor kills the worker.
            backend.entry.set_violating();
        }
    }
    if withdrawal::has_waiting(pool) {
        pool.retry.schedule();
    }
    if !is_sent && !pool.hops.is_retrying.replace(true) {
        let pool = Rc::clone(pool);
        tokio::task::spawn_local(async move {
            tokio::time::sleep(RETRY_INTERVAL).await;
            pool.hops.is_retrying.set(false);
            pool.responder.wake();
        });
    }
}

/// Takes the records that a worker has sent, and carries them out. Returns true if responses have
/// arrived.
fn receive(pool: &Rc<PoolContext>, backend: &Rc<PoolBackend>) -> bool {
    let hop = &backend.rings;
    if hop.is_over.get() {
        return false;
    }
    let mut record = hop.received.take();
    let mut has_responses = false;
    for _ in 0..MAX_RECORDS {
        let taken = hop.receiver.borrow_mut().take(&mut record);
        let Ok(taken) = taken else {
            hop.is_over.set(true);
            break;
        };
        let Some(arrived) = taken else { break };
        let file = arrived.descriptor.map(File::from);
        let Ok(up) = Up::read(arrived.kind, &record) else {
            hop.is_over.set(true);
            break;
        };
        let is_long = record.len() > MAX_RECORD_LEN;
        let is_valid = match up {
            Up::Response { ticket, exchange, .. } if arrived.is_descriptor_lost => {
                has_responses = true;
                responses::on_file_lost(pool, backend, (exchange, ticket));
                true
            }
            Up::Response { ticket, content, exchange } => {
                has_responses = true;
                let content = if is_long {
                    ResponseContent::Owned(std::mem::take(&mut record))
                } else {
                    ResponseContent::Borrowed(content)
                };
                responses::on_response(pool, backend, (exchange, ticket), content, file)
            }
            Up::Unsendable { ticket, .. } => {
                has_responses = true;
                responses::on_unsendable(pool, backend, ticket);
                true
            }
            Up::Declined { ticket, .. } => {
                has_responses = true;
                responses::on_declined(pool, backend, ticket);
                true
            }
            Up::ReadBody { ticket, is_head_seen, .. } => {
                has_responses = true;
                responses::on_read_body(pool, backend, ticket, is_head_seen)
            }
            Up::Message { socket, kind, is_waiting, content } => {
                let payload = if is_long {
                    let len = content.len();
                    long_payload(pool, std::mem::take(&mut record), len)
                } else {
                    let mut buffer = pool.buffers.borrow_mut().take();
                    buffer.extend_from_slice(content);
                    Payload::Pooled(buffer)
                };
                sockets::send(pool, backend, socket, (kind, is_waiting), payload);
                true
            }
            Up::Ping { socket } | Up::Close { socket, .. } | Up::Abort { socket } => {
                sockets::carry_out(pool, backend, socket, up);
                true
            }
            Up::Chunk { stream, .. }
            | Up::ResumePulls { stream }
            | Up::SendHead { stream }
            | Up::EndStream { stream }
            | Up::AbortStream { stream, .. } => {
                streams::carry_out(pool, backend, stream, up);
                true
            }
        };
        if !is_valid {
            hop.is_over.set(true);
            break;
        }
        if is_long {
            record = Vec::new();
            break;
        }
    }
    hop.received.replace(record);
    count_incomplete(pool, hop);
    has_responses
}

/// Makes the content of a message from the last `len` bytes of a long record, without copying them.
fn long_payload(pool: &PoolContext, mut record: Vec<u8>, len: usize) -> Payload {
    record.drain(..record.len() - len);
    match pool.charge(record.len()) {
        Some(charge) => Payload::Charged(record, charge),
        None => Payload::Pooled(record),
    }
}

/// Updates the charge to the memory budget for records of which only the first parts have arrived.
fn count_incomplete(pool: &PoolContext, hop: &RingConnection) {
    let bytes = hop.receiver.borrow().incomplete_bytes();
    let charge = hop.incomplete.take();
    if bytes > 0 {
        let charge = charge.or_else(|| pool.charge(0));
        if let Some(charge) = &charge {
            charge.set(bytes);
        }
        hop.incomplete.set(charge);
    }
}
