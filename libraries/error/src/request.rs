//! The error hook of a server, which assigns each error to the request in which it occurred.
//!
//! - The server has one [`Reports`]. It counts errors by kind, passes them to an observer such as a
//!   log, and queues them for the application if the application asks for them.
//! - Each connection has one [`RequestHook`]. The connection's task is wrapped in an
//!   [`ErrorHookFuture`](crate::ErrorHookFuture), which makes this hook current. At the beginning
//!   of each request, the task stores the request's id in the hook, which needs no allocation.

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Error, ErrorHook, ErrorId};

/// The default maximum length of the queue of error reports for the application. The queue takes 6
/// KiB (256 reports of 24 bytes). When it is full, further errors are only counted
/// ([`Reports::lost`]). Little is lost then, because the first errors of a burst show the cause,
/// and later errors usually repeat it.
pub const QUEUED_REPORTS: usize = 256;

/// A kind of error, such as an HTTP status. [`Reports`] has a counter for each kind.
pub trait Kind: Copy + 'static {
    /// The number of kinds of errors.
    const COUNT: usize;

    /// Returns the kind to which an error belongs.
    fn of(error: &Error) -> Self;

    /// Returns the index of this kind of error, which is less than [`COUNT`](Kind::COUNT).
    fn index(self) -> usize;
}

/// Whether errors are queued for the application, or only counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delivery {
    /// Errors are counted and passed to the observer (a function such as a log), but not queued.
    /// This is the initial state.
    Count,
    /// Errors are counted, passed to the observer (a function such as a log), and queued for the
    /// application.
    Queue,
}

/// A report of an error: the error together with the request in which it occurred.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report {
    /// The id of the request in which the error occurred, as set by [`RequestHook::begin`].
    pub request: u64,
    /// The id that `throw` returned for the error.
    pub id: ErrorId,
    /// The error that was thrown.
    pub error: Error,
}

/// The errors of one server: a counter for each kind of error, and a bounded queue of error reports
/// for the application.
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
    /// The number of reports in `queue`. It is read without locking the queue.
    waiting: AtomicUsize,
    queue: Mutex<VecDeque<Report>>,
    observer: Option<Observer>,
    waker: Option<Waker>,
    kinds: PhantomData<fn() -> K>,
}

impl<K: Kind> Reports<K> {
    /// Makes counters of errors, and a queue for up to [`QUEUED_REPORTS`] error reports.
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

    /// Sets the maximum number of queued error reports.
    #[must_use]
    pub fn with_limit(self, limit: usize) -> Reports<K> {
        Reports { limit, ..self }
    }

    /// Sets an observer of errors, such as a log: a function that is called with each error and its
    /// request's id, on the thread that throws the error.
    #[must_use]
    pub fn with_observer(
        self,
        observer: impl Fn(u64, &Error) + Send + Sync + 'static,
    ) -> Reports<K> {
        Reports { observer: Some(Box::new(observer)), ..self }
    }

    /// Sets a function that is called whenever an error report is added to an empty queue. It is
    /// called on the thread that throws the error, and must not block.
    #[must_use]
    pub fn with_waker(self, waker: impl Fn() + Send + Sync + 'static) -> Reports<K> {
        Reports { waker: Some(Box::new(waker)), ..self }
    }

    /// Returns a new error hook for one connection. The connection must serve only one request at a
    /// time, because the hook stores one request id.
    ///
    /// # Allocation
    /// One allocation.
    pub fn hook(self: &Arc<Self>) -> Arc<RequestHook<K>> {
        Arc::new(RequestHook { request: AtomicU64::new(0), reports: Arc::clone(self) })
    }

    /// Starts or stops the queueing of errors for the application. Reports that are already queued
    /// stay in the queue.
    ///
    /// # Allocation
    /// The whole queue is allocated here, so that throwing an error allocates nothing.
    pub fn set_delivery(&self, delivery: Delivery) {
        if delivery == Delivery::Queue {
            let mut queue = self.queue();
            let missing = self.limit.saturating_sub(queue.len());
            queue.reserve_exact(missing);
        }
        // Stored after the queue has its capacity. The lock provides the ordering; this flag may be
        // read late.
        self.queueing.store(delivery == Delivery::Queue, Ordering::Release);
    }

    /// Removes the oldest error report from the queue and returns it. Returns `None` if the queue
    /// is empty, at the cost of one atomic load.
    pub fn take(&self) -> Option<Report> {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut queue = self.queue();
        let report = queue.pop_front();
        self.waiting.store(queue.len(), Ordering::Release);
        report
    }

    /// Returns the number of errors of this kind that were thrown so far.
    pub fn count(&self, kind: K) -> u64 {
        self.counts[kind.index()].load(Ordering::Relaxed)
    }

    /// Returns the number of errors of all kinds that were thrown so far.
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Returns the number of errors that were only counted and not queued, because the queue was
    /// full.
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
            // Before the report is dropped, because the destructor of an error may run any code.
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

    /// Locks the queue of error reports. The lock may be used even if it is poisoned, because no
    /// code that holds it can panic in the middle of a change.
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

/// The error hook of one connection. It stores the id of the connection's current request.
pub struct RequestHook<K> {
    /// The id of the connection's current request. Only the connection's task changes it. It is
    /// atomic because the hook is shared through an `Arc`. A change costs no more than a plain
    /// store.
    request: AtomicU64,
    reports: Arc<Reports<K>>,
}

impl<K: Kind> RequestHook<K> {
    /// Sets the id of the request to which errors belong from now on. Before the first call, the id
    /// is 0.
    #[inline]
    pub fn begin(&self, request: u64) {
        // The task is the only writer, and moving it to another thread orders the store.
        self.request.store(request, Ordering::Relaxed);
    }

    /// Returns the id of the request to which errors belong now.
    pub fn request(&self) -> u64 {
        self.request.load(Ordering::Relaxed)
    }

    /// Returns the server's error counters and its queue of error reports.
    pub fn reports(&self) -> &Arc<Reports<K>> {
        &self.reports
    }
}

impl<K: Kind> ErrorHook for RequestHook<K> {
    /// Counts the error, passes it to the observer (a function such as a log), and queues it if
    /// errors are to be delivered to the application.
    ///
    /// # Allocation
    /// None.
    fn throw(&self, error: Error) -> ErrorId {
        self.reports.report(self.request(), error)
    }

    /// Removes an error's report from the queue if the application has not taken it yet. The error
    /// stays counted.
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
