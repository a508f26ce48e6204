//! The end of a worker: what happens to its requests, streams and WebSockets.

use std::rc::Rc;

use rookery_exchange::{Command, StreamEnd};

use super::requests::{end, take_back};
use super::{MAX_RECORDS, receive};
use crate::pool::attempt::{MAX_RETURNS, may_retry_begun};
use crate::pool::balancing::worker_load::PoolBackend;
use crate::pool::connection::ring_connection::{RingConnection, SentRequest};
use crate::pool::context::PoolContext;
use crate::pool::error_reply::ErrorReply;
use crate::pool::tunnel::SERVICE_RESTART;

/// Updates the list of workers to which requests cross in shared memory, after the workers or their
/// states have changed.
pub(in crate::pool) fn follow_workers(pool: &Rc<PoolContext>) {
    let workers = pool.balancer.backends_with_rings();
    let before = pool.hops.workers.replace(workers);
    for backend in before {
        let workers = pool.hops.workers.borrow();
        let is_gone = !workers.iter().any(|other| Rc::ptr_eq(other, &backend));
        drop(workers);
        if let Some(hop) = &backend.rings {
            reject_timed_out(pool, &backend, hop);
            if is_gone {
                on_death(pool, &backend, hop);
            }
        }
    }
    super::sockets::close_ending(pool);
    pool.responder.announce();
}

/// Responds with 504 to the requests with which R was busy for longer than the worker timeout.
fn reject_timed_out(pool: &Rc<PoolContext>, backend: &Rc<PoolBackend>, hop: &RingConnection) {
    let is_over = |sent: &SentRequest| backend.entry.has_timed_out(sent.ticket());
    let timed_out = hop.requests.borrow_mut().take_all(is_over);
    for sent in timed_out {
        pool.responder.reject(end(sent, backend), ErrorReply::Timeout);
    }
}

/// Deals with what a worker leaves behind that has ended and can write nothing any more.
fn on_death(pool: &Rc<PoolContext>, backend: &Rc<PoolBackend>, hop: &RingConnection) {
    // Everything that was published completely counts. Another process that has the memory, such as
    // a child of the worker, may still write to it.
    let taken = || hop.receiver.borrow().taken();
    let last = taken() + MAX_RECORDS;
    while taken() < last && !hop.is_over.get() && hop.receiver.borrow().has_any() {
        receive(pool, backend, hop);
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

fn on_begun_lost(pool: &Rc<PoolContext>, backend: &Rc<PoolBackend>, sent: SentRequest) {
    let waited = sent.waited;
    let mut request = end(sent, backend);
    request.deaths += 1;
    if may_retry_begun(&pool.limits, &request) {
        pool.responder.counters().retries_begun.add(1);
        pool.balancer.requeue(request, waited);
    } else {
        pool.responder.reject(request, ErrorReply::WorkerDied);
    }
}

/// Sends a request that its worker will not begin to another worker, or rejects it if that has
/// happened too often.
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
