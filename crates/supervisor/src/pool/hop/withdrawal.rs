//! The withdrawal of requests that a worker has not begun.

use std::rc::Rc;
use std::time::{Duration, Instant};

use rookery_worker_protocol::now;

use super::requests::take_back;
use crate::pool::context::PoolContext;
use crate::pool::ring_connection::SentRequest;

/// The time for which R must have been busy with one task before the requests behind that task are
/// moved to a free worker. A shorter task is likely to end before another worker could begin the
/// requests.
const MIN_TASK_TIME: Duration = Duration::from_millis(1);

/// The lowest rate, in bytes per second, at which a worker is assumed to take request bodies.
const MIN_BODY_RATE: u64 = 20 << 20;

/// Returns true if records wait at a worker, so that a request may have to be withdrawn, or the
/// worker may have to be woken again.
pub(super) fn has_waiting(pool: &PoolContext) -> bool {
    let workers = pool.hops.workers.borrow();
    workers.iter().any(|backend| backend.rings.has_unread())
}

/// Wakes workers that are awake according to their sleep words but take no records. R may wait in a
/// function that does not write the sleep word, for example in `later::run_now()`. Called
/// repeatedly, at intervals of a millisecond or more.
pub(in crate::pool) fn wake_stalled(pool: &PoolContext) {
    for backend in pool.hops.workers.borrow().iter() {
        let hop = &backend.rings;
        let (outbox, (last, stalled)) = (hop.outbox.borrow(), hop.stall.get());
        let sender = outbox.sender();
        if last == 0 || !sender.is_unread(last) {
            hop.stall.set((sender.sent(), 0));
            continue;
        }
        hop.stall.set((last, stalled + 1));
        // Waking a worker that computes has no use, so the intervals become longer and longer.
        if (stalled + 1).is_power_of_two() {
            hop.wakers.wake_worker();
        }
    }
}

/// Withdraws requests that wait at a worker behind a task that takes long, if other workers are
/// free, and queues them again.
pub(in crate::pool) fn withdraw_late(pool: &Rc<PoolContext>) {
    let workers = pool.hops.workers.borrow();
    if workers.len() < 2 {
        return;
    }
    let mut free = pool.balancer.free_workers();
    let time = now();
    for backend in workers.iter() {
        if free == 0 || !backend.has_ahead() {
            continue;
        }
        let requests = &backend.rings.requests;
        let scoreboard = &backend.entry.scoreboard;
        let seen = scoreboard.read();
        if seen.is_idle(time) || seen.elapsed(time) < MIN_TASK_TIME {
            continue;
        }
        let is_late = |sent: &SentRequest| {
            sent.request.may_go_anywhere() && !scoreboard.has_begun(sent.ticket())
        };
        let late: Vec<_> = {
            let requests = requests.borrow();
            let mut late: Vec<_> =
                requests.iter().filter(|sent| is_late(sent)).map(SentRequest::ticket).collect();
            late.sort_unstable_by_key(|ticket| ticket.sequence());
            late
        };
        for ticket in late {
            if free == 0 {
                break;
            }
            // From here on, R cannot begin the request.
            if !scoreboard.withdraw(ticket) {
                continue;
            }
            if let Some(sent) = requests.borrow_mut().take(ticket) {
                let queued_since = sent.request.queued_since;
                let request = take_back(sent, backend);
                pool.balancer.requeue(request, queued_since.elapsed());
                free -= 1;
            }
        }
    }
}

/// Withdraws the requests that R has not begun by their deadlines, and queues them again or rejects
/// them.
pub(in crate::pool) fn withdraw_overdue(pool: &Rc<PoolContext>) {
    let now = Instant::now();
    for backend in pool.hops.workers.borrow().iter() {
        let is_overdue = |sent: &SentRequest| {
            let request = &sent.request;
            let limit = pool.limits.queue_timeout;
            let millis = request.exchange.body().len().saturating_mul(1000) / MIN_BODY_RATE;
            let limit = limit.saturating_add(Duration::from_millis(millis));
            let scoreboard = &backend.entry.scoreboard;
            request.queued_since.checked_add(limit).is_some_and(|deadline| now >= deadline)
                && !scoreboard.has_begun(sent.ticket())
                && scoreboard.withdraw(sent.ticket())
        };
        let overdue = backend.rings.requests.borrow_mut().take_all(is_overdue);
        for sent in overdue {
            pool.balancer.requeue_unbegun(take_back(sent, backend), backend);
        }
    }
}
