//! The hook of a server: it knows which request is being served.
//!
//! One [`Reports`] belongs to the server, one [`RequestHook`] to each connection. The connection's task runs under
//! the hook (one [`ErrorHookFuture`](crate::ErrorHookFuture) for its whole life) and tells it the id of each request as
//! that begins: a store, no allocation and no reference count. What is thrown is counted by kind, shown to an
//! observer (a log), and queued for the application if that listens.

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Error, ErrorHook, ErrorId};

/// Reports that wait for the application, unless [`Reports::with_limit`] says otherwise: 256 of 24 bytes are 6 KiB. When
/// the application falls behind, the first errors of a burst say why; the rest is the same again, and is only
/// counted ([`Reports::lost`]).
pub const QUEUED_REPORTS: usize = 256;

/// What errors are counted as.
pub trait Kind: Copy + 'static {
    /// How many kinds there are.
    const COUNT: usize;

    /// The kind of an error.
    fn of(error: &Error) -> Self;

    /// Its number, below [`COUNT`](Kind::COUNT).
    fn index(self) -> usize;
}

/// Whether the application hears of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delivery {
    /// They are counted and observed only. This is how it begins.
    Count,
    /// They are queued as well.
    Queue,
}

/// An error, and the request it belongs to.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report {
    /// The request, as given to [`RequestHook::begin`].
    pub request: u64,
    /// What the one who threw the error knows it by.
    pub id: ErrorId,
    /// The error.
    pub error: Error,
}

/// All that was thrown in one server: counters, and a bounded queue to the application.
///
/// ```
/// use std::sync::Arc;
/// use rookery_error::{Delivery, Error, ErrorHook, Kind, Reports, StaticError};
///
/// #[derive(Debug, Clone, Copy)]
/// enum Status {
///     NotFound,
///     Other,
/// }
/// # impl std::fmt::Display for Status {
/// #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
/// #         f.write_str("not found")
/// #     }
/// # }
/// # impl std::error::Error for Status {}
/// impl Kind for Status {
///     const COUNT: usize = 2;
///     fn of(error: &Error) -> Status {
///         error.downcast_ref().copied().unwrap_or(Status::Other)
///     }
///     fn index(self) -> usize {
///         self as usize
///     }
/// }
/// static NOT_FOUND: StaticError<Status> = StaticError::new(Status::NotFound);
///
/// let reports = Arc::new(Reports::<Status>::new());
/// reports.set_delivery(Delivery::Queue);
///
/// let hook = reports.hook(); // once per connection
/// hook.begin(7); // once per request
/// hook.throw(Error::from_static_error(&NOT_FOUND));
///
/// assert_eq!(reports.count(Status::NotFound), 1);
/// assert_eq!(reports.take().map(|report| report.request), Some(7));
/// ```
pub struct Reports<K> {
    counts: Box<[AtomicU64]>,
    last_id: AtomicUsize,
    lost: AtomicU64,
    limit: usize,
    queueing: AtomicBool,
    /// As long as `queue`, to be read without its lock.
    waiting: AtomicUsize,
    queue: Mutex<VecDeque<Report>>,
    observer: Option<Observer>,
    waker: Option<Waker>,
    kinds: PhantomData<fn() -> K>,
}

impl<K: Kind> Reports<K> {
    /// With a queue of [`QUEUED_REPORTS`].
    pub fn new() -> Reports<K> {
        Reports {
            counts: (0..K::COUNT).map(|_| AtomicU64::new(0)).collect(),
            last_id: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            limit: QUEUED_REPORTS,
            queueing: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            queue: Mutex::default(),
            observer: None,
            waker: None,
            kinds: PhantomData,
        }
    }

    /// Bounds the queue, in reports.
    #[must_use]
    pub fn with_limit(self, limit: usize) -> Reports<K> {
        Reports { limit, ..self }
    }

    /// Shows every error to `observer`, with its request's id, on the thread that throws it. For logs.
    #[must_use]
    pub fn with_observer(
        self,
        observer: impl Fn(u64, &Error) + Send + Sync + 'static,
    ) -> Reports<K> {
        Reports { observer: Some(Box::new(observer)), ..self }
    }

    /// Calls `waker` when the queue stops being empty, on the thread that throws. It must not block.
    #[must_use]
    pub fn with_waker(self, waker: impl Fn() + Send + Sync + 'static) -> Reports<K> {
        Reports { waker: Some(Box::new(waker)), ..self }
    }

    /// A hook for one connection, whose requests are served one after another.
    ///
    /// # Allocation
    /// One.
    pub fn hook(self: &Arc<Self>) -> Arc<RequestHook<K>> {
        Arc::new(RequestHook { request: AtomicU64::new(0), reports: Arc::clone(self) })
    }

    /// Starts or ends queueing. What is queued stays.
    ///
    /// # Allocation
    /// The queue, whole, so that a throw need not.
    pub fn set_delivery(&self, delivery: Delivery) {
        if delivery == Delivery::Queue {
            let mut queue = self.queue();
            let missing = self.limit.saturating_sub(queue.len());
            queue.reserve_exact(missing);
        }
        // After the room is there. The lock orders what matters; this flag is only a wish.
        self.queueing.store(delivery == Delivery::Queue, Ordering::Release);
    }

    /// The oldest report that waits. When none does, this is one load.
    pub fn take(&self) -> Option<Report> {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut queue = self.queue();
        let report = queue.pop_front();
        self.waiting.store(queue.len(), Ordering::Release);
        report
    }

    /// Errors of this kind so far.
    pub fn count(&self, kind: K) -> u64 {
        self.counts[kind.index()].load(Ordering::Relaxed)
    }

    /// Errors of all kinds so far.
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Reports that found the queue full, and were counted only.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn report(&self, request: u64, error: Error) -> ErrorId {
        self.counts[K::of(&error).index()].fetch_add(1, Ordering::Relaxed);
        if let Some(observer) = &self.observer {
            observer(request, &error);
        }
        let id = ErrorId::from(1 + self.last_id.fetch_add(1, Ordering::Relaxed));
        if self.queueing.load(Ordering::Acquire) {
            self.enqueue(Report { request, id, error });
        }
        id
    }

    fn enqueue(&self, report: Report) {
        let mut queue = self.queue();
        if queue.len() >= self.limit {
            self.lost.fetch_add(1, Ordering::Relaxed);
            // Before the report is dropped: an error's destructor may be anyone's code.
            drop(queue);
            return;
        }
        queue.push_back(report);
        let waiting = queue.len();
        self.waiting.store(waiting, Ordering::Release);
        drop(queue);
        if let (1, Some(waker)) = (waiting, &self.waker) {
            waker();
        }
    }

    fn withdraw(&self, id: ErrorId) {
        let mut queue = self.queue();
        let at = queue.iter().position(|report| report.id == id);
        let withdrawn = at.and_then(|at| queue.remove(at));
        self.waiting.store(queue.len(), Ordering::Release);
        drop(queue);
        drop(withdrawn);
    }

    /// Nothing that panics is done under the lock, so a poisoned one is as good as any.
    fn queue(&self) -> MutexGuard<'_, VecDeque<Report>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Kind> Default for Reports<K> {
    fn default() -> Reports<K> {
        Reports::new()
    }
}

impl<K> fmt::Debug for Reports<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reports")
            .field("counts", &self.counts)
            .field("waiting", &self.waiting)
            .field("limit", &self.limit)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

/// The hook of one connection, told of each request in turn.
pub struct RequestHook<K> {
    /// Only the connection's task stores it; an atomic because a hook is shared, at the price of a plain store.
    request: AtomicU64,
    reports: Arc<Reports<K>>,
}

impl<K: Kind> RequestHook<K> {
    /// From now on, errors are those of this request. Before the first, it is 0.
    #[inline]
    pub fn begin(&self, request: u64) {
        // The task is the only writer, and what moves it to another thread orders this.
        self.request.store(request, Ordering::Relaxed);
    }

    /// The request that errors are of now.
    pub fn request(&self) -> u64 {
        self.request.load(Ordering::Relaxed)
    }

    /// Where the reports go.
    pub fn reports(&self) -> &Arc<Reports<K>> {
        &self.reports
    }
}

impl<K: Kind> ErrorHook for RequestHook<K> {
    /// # Allocation
    /// None.
    fn throw(&self, error: Error) -> ErrorId {
        self.reports.report(self.request(), error)
    }

    /// Withdraws the report if the application has not taken it yet. It stays counted.
    fn clear(&self, id: &ErrorId) {
        self.reports.withdraw(*id);
    }
}

impl<K> fmt::Debug for RequestHook<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHook")
            .field("request", &self.request)
            .field("reports", &self.reports)
            .finish()
    }
}

type Observer = Box<dyn Fn(u64, &Error) + Send + Sync>;
type Waker = Box<dyn Fn() + Send + Sync>;
