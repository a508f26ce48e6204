//! The state that is shared by the tasks of the pool, which assigns requests to workers. All of
//! these tasks run on the server's I/O thread.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use rookery_exchange::{Budget, BufferPool, Charge, IoWaker, Share};
use tokio::sync::Notify;

use super::balancing::balancer::{Assignment, Balancer};
use super::balancing::session_affinity::Keys;
use super::hop::state::Hops;
use super::limits::PoolLimits;
use super::responder::Responder;
use crate::backend_registry::BackendRegistry;

/// A function that assigns queued requests to workers. It is called when a worker may be able to
/// begin another request.
pub(super) type Dispatch = fn(&Rc<PoolContext>);

/// The shared state of the pool, which assigns requests to workers.
pub(super) struct PoolContext {
    pub(super) limits: Rc<PoolLimits>,
    pub(super) balancer: Balancer,
    pub(super) responder: Rc<Responder>,
    /// The hop to the workers, to which requests cross in shared memory.
    pub(super) hops: Hops,
    pub(super) buffers: RefCell<BufferPool>,
    /// The memory budget of the server, once the server has provided it.
    pub(super) budget: OnceCell<Arc<Budget>>,
    /// An empty vector that is kept so that each dispatch can reuse its memory for the assignments
    /// of requests to workers.
    pub(super) assignments: RefCell<Vec<Assignment>>,
    pub(super) retry: RetryTimer,
    pub(super) overdue_check: OverdueCheck,
    /// The number of events, such as requests, that the server has passed to the pool.
    pub(super) events: Cell<u64>,
    /// Whether a request has been sent to a worker since the I/O thread last slept.
    pub(super) has_forwarded: Cell<bool>,
}

/// The state of the timer after which the pool tries again to assign waiting requests to workers.
#[derive(Debug, Default)]
pub(super) struct RetryTimer {
    pub(super) is_scheduled: Cell<bool>,
    pub(super) wake_up: Notify,
}

/// The state of the background task that looks for requests that have waited too long at their
/// workers.
#[derive(Debug, Default)]
pub(super) struct OverdueCheck {
    /// Whether the background task sleeps until the next request is sent to a worker.
    pub(super) is_asleep: Cell<bool>,
    pub(super) wake_up: Notify,
}

impl RetryTimer {
    /// Schedules another attempt, unless one is already scheduled.
    pub(super) fn schedule(&self) {
        if !self.is_scheduled.replace(true) {
            self.wake_up.notify_one();
        }
    }
}

impl PoolContext {
    pub(super) fn new(
        registry: Arc<BackendRegistry>,
        limits: PoolLimits,
        keys: Arc<Keys>,
        waker: Arc<dyn IoWaker>,
    ) -> Rc<PoolContext> {
        let limits = Rc::new(limits);
        let responder = Rc::new(Responder::new(Arc::clone(&registry), waker));
        let balancer = Balancer::new(Rc::clone(&limits), registry, Rc::clone(&responder), keys);
        Rc::new(PoolContext {
            limits,
            balancer,
            responder,
            hops: Hops::default(),
            buffers: RefCell::default(),
            budget: OnceCell::new(),
            assignments: RefCell::default(),
            retry: RetryTimer::default(),
            overdue_check: OverdueCheck::default(),
            events: Cell::new(0),
            has_forwarded: Cell::new(false),
        })
    }

    /// Counts `bytes` for a client against the memory budget until the returned value is dropped.
    /// Returns `None` if there is no budget, as in some tests.
    pub(super) fn charge(&self, bytes: usize) -> Option<Charge> {
        let charge = Charge::new(self.budget.get()?, Share::Outgoing);
        charge.set(bytes);
        Some(charge)
    }
}
