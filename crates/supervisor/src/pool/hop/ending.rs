//! The end of a worker: what happens to its requests, streams and WebSockets.

use std::rc::Rc;

use rookery_exchange::{Command, StreamEnd};

use super::closing::SERVICE_RESTART;
use super::requests::take_back;
use super::{MAX_RECORDS, receive};
use crate::pool::balancing::worker_load::PoolBackend;
use crate::pool::context::PoolContext;
use crate::pool::error_reply::ErrorReply;
use crate::pool::ring_connection::SentRequest;

/// The maximum number of times that a request is queued again because a worker ended before its R
/// process had begun the request. After that the client gets 503.
const MAX_RETURNS: u32 = 2;

/// Updates the list of workers after the workers or their states have changed. Rejects requests
/// that have timed out, ends everything that belongs to workers that have ended, and schedules the
/// closing of the WebSockets of workers that are about to end.
pub(in crate::pool) fn follow_workers(pool: &Rc<PoolContext>) {
    let workers = pool.balancer.backends();
    let before = pool.hops.workers.replace(workers);
    for backend in before {
        let workers = pool.hops.workers.borrow();
        let is_gone = !workers.iter().any(|other| Rc::ptr_eq(other, &backend));
        drop(workers);
        reject_timed_out(pool, &backend);
        if is_gone {
            on_death(pool, &backend);
        }
    }
    super::sockets::close_ending(pool);
    pool.responder.announce();
}

/// Responds with 504 to the requests with which R was busy for longer than the worker timeout.
fn reject_timed_out(pool: &Rc<PoolContext>, backend: &Rc<PoolBackend>) {
    let is_over = |sent: &SentRequest| backend.entry.has_timed_out(sent.ticket());
    let timed_out = backend.rings.requests.borrow_mut().take_all(is_over);
    for sent in timed_out {
        pool.responder.reject(take_back(sent, backend), ErrorReply::Timeout);
    }
}

/// Takes the last records of a worker whose process has ended, and then ends or moves all of its
/// requests, streams and WebSockets.
fn on_death(pool: &Rc<PoolContext>, backend: &Rc<PoolBackend>) {
    let hop = &backend.rings;
    // The number of records is limited, because another process that has the memory, such as a
    // child of the worker, may still write to the memory.
    let taken = || hop.receiver.borrow().taken();
    let last = taken() + MAX_RECORDS;
    while taken() < last && !hop.is_over.get() && hop.receiver.borrow().has_any() {
        receive(pool, backend);
    }
    hop.end();
    let sent = hop.requests.borrow_mut().take_all(|_| true);
    for sent in sent {
        if backend.entry.scoreboard.has_begun(sent.ticket()) {
            on_begun_lost(pool, backend, sent);
        } else {
            requeue_unbegun(pool, backend, sent);
        }
    }
    for (stream, flow) in pool.hops.streams.of(backend) {
        flow.set_failed_status(502);
        let page = ErrorReply::WorkerDied.text().as_bytes().to_vec();
        let reason = StreamEnd::Error;
        pool.responder.send_unannounced(Command::AbortStream { stream, reason, page });
    }
    for socket in pool.hops.sockets.of(backend) {
        let reason = b"the worker has ended".to_vec();
        let code = SERVICE_RESTART;
        pool.responder.send_unannounced(Command::Close { socket, code, reason });
    }
}

/// Rejects a request that R had begun when its worker ended. The request is not retried, because it
/// may have had effects, and may have caused the end.
fn on_begun_lost(pool: &Rc<PoolContext>, backend: &Rc<PoolBackend>, sent: SentRequest) {
    pool.responder.reject(take_back(sent, backend), ErrorReply::WorkerDied);
}

/// Queues a request for another worker, because its worker will not begin the request. Rejects a
/// request that has been queued again too often.
pub(super) fn requeue_unbegun(
    pool: &Rc<PoolContext>,
    backend: &Rc<PoolBackend>,
    sent: SentRequest,
) {
    let waited = sent.waited;
    let mut request = take_back(sent, backend);
    if request.returns >= MAX_RETURNS {
        return pool.responder.reject(request, ErrorReply::WorkersEnded);
    }
    request.returns += 1;
    pool.responder.counters().retries_unbegun.add(1);
    pool.balancer.requeue(request, waited);
}
