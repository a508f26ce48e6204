//! The dispatch of requests: it assigns queued requests to workers and sends each request to its
//! worker. Background tasks repeat the dispatch at intervals and when the workers change.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::balancing::balancer::Assignment;
use super::context::PoolContext;
#[cfg(doc)]
use super::context::RetryTimer;
use super::hop;
use crate::backend_registry::BackendRegistry;

/// The shortest interval after which the pool tries again to assign waiting requests, because a
/// worker may become free without sending a response. The interval grows up to
/// [`MAX_RETRY_INTERVAL`] while no worker becomes free.
const MIN_RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// The longest interval after which the pool tries again to assign waiting requests.
const MAX_RETRY_INTERVAL: Duration = Duration::from_millis(16);

/// The minimum number of checks for overdue requests during one queue timeout. A further check
/// follows when a request at a worker becomes overdue.
const CHECKS_PER_TIMEOUT: u32 = 8;

/// The shortest interval between two checks for requests that have waited too long. It applies if
/// the queue timeout is very short.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The longest interval between two checks for requests that have waited too long.
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Starts the background tasks of the pool, which assigns requests to workers.
pub(super) fn start_tasks(pool: &Rc<PoolContext>, registry: &Arc<BackendRegistry>) {
    tokio::task::spawn_local(follow_registry(Rc::clone(pool), Arc::clone(registry)));
    tokio::task::spawn_local(check_overdue(Rc::clone(pool)));
    tokio::task::spawn_local(retry_when_scheduled(Rc::clone(pool)));
}

/// Assigns queued requests to workers and sends each request to its worker.
pub(super) fn dispatch(pool: &Rc<PoolContext>) {
    let mut assignments = pool.assignments.take();
    pool.balancer.assign(&mut assignments);
    for assignment in assignments.drain(..) {
        start(pool, assignment);
    }
    pool.assignments.replace(assignments);
    if pool.balancer.take_needs_retry() {
        pool.retry.schedule();
    }
}

fn start(pool: &Rc<PoolContext>, assignment: Assignment) {
    if pool.overdue_check.is_asleep.get() {
        pool.overdue_check.wake_up.notify_one();
    }
    pool.has_forwarded.set(true);
    assignment.request.exchange.set_waiting(false);
    hop::send(pool, assignment);
}

/// Tries again to assign requests to workers after each [`RetryTimer::schedule`]: those that are
/// queued, and those that wait at a worker behind a task that takes long.
async fn retry_when_scheduled(pool: Rc<PoolContext>) {
    let mut pause = MIN_RETRY_INTERVAL;
    loop {
        pool.retry.wake_up.notified().await;
        tokio::time::sleep(pause).await;
        pool.retry.is_scheduled.set(false);
        let assigned = pool.balancer.assigned();
        hop::wake_stalled(&pool);
        hop::withdraw_late(&pool);
        dispatch(&pool);
        let has_found = pool.balancer.assigned() != assigned;
        // The first attempt after a while without waiting requests follows soon.
        let is_new = has_found || !pool.retry.is_scheduled.get();
        pause = if is_new { MIN_RETRY_INTERVAL } else { MAX_RETRY_INTERVAL.min(pause * 2) };
    }
}

/// Waits for changes in the registry of workers. After each change, updates the pool's list of
/// workers and assigns queued requests.
async fn follow_registry(pool: Rc<PoolContext>, registry: Arc<BackendRegistry>) {
    loop {
        pool.balancer.update_backends();
        hop::follow_workers(&pool);
        dispatch(&pool);
        registry.changed.notified().await;
    }
}

/// Periodically withdraws the requests that have waited too long at their workers. Sleeps while no
/// worker has a request.
async fn check_overdue(pool: Rc<PoolContext>) {
    let pause = (pool.limits.queue_timeout / CHECKS_PER_TIMEOUT)
        .clamp(MIN_CHECK_INTERVAL, MAX_CHECK_INTERVAL);
    loop {
        if !pool.balancer.has_in_flight() {
            pool.overdue_check.is_asleep.set(true);
            pool.overdue_check.wake_up.notified().await;
            pool.overdue_check.is_asleep.set(false);
            continue;
        }
        let next = pool.balancer.time_until_overdue().unwrap_or(pause);
        tokio::time::sleep(next.clamp(MIN_CHECK_INTERVAL, pause)).await;
        if pool.balancer.has_overdue() {
            hop::withdraw_overdue(&pool);
            dispatch(&pool);
        }
    }
}
