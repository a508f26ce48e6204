//! The tracer of a process: the decision which spans are recorded, and the way to the exporter.

use std::fmt;
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rookery_exchange::TraceContext;
use rookery_system::blocking::BlockingPool;
use rookery_system::signals::with_signals_blocked;

use crate::exporter::Exporter;
use crate::ids::IdGenerator;
use crate::queue::{Queue, SpanCounters};
use crate::sampler::Sampler;
use crate::settings::Settings;
use crate::span::Span;

/// The maximum time that the end of a program waits for the export of the last spans.
pub const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// The interval at which the end of a program checks whether it has to go on waiting.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The maximum number of threads for name lookups, which block.
const MAX_LOOKUPS: usize = 1;

/// The tracer of a process. Its functions may be called on any thread, and never block.
pub struct Tracer {
    ids: IdGenerator,
    sampler: Sampler,
    queue: Arc<Queue>,
    counters: Arc<SpanCounters>,
    /// Receives an error when the exporter's thread has ended.
    ended: Mutex<Option<Receiver<()>>>,
}

impl Tracer {
    /// Starts a tracer and the thread of its exporter. `notice` is called on that thread to show a
    /// line to the operator, for example when the collector cannot be reached.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub fn start(settings: Settings, notice: fn(&str)) -> io::Result<Arc<Tracer>> {
        let queue = Arc::new(Queue::new(settings.queue_size, settings.batch_size));
        let counters = Arc::<SpanCounters>::default();
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let sampler = settings.sampler;
        let exporter = Exporter {
            settings,
            queue: Arc::clone(&queue),
            counters: Arc::clone(&counters),
            notice,
        };
        let (ends, ended) = mpsc::channel::<()>();
        with_signals_blocked(|| {
            std::thread::Builder::new().name("rookery-trace".to_owned()).spawn(move || {
                let _ends = ends;
                // The thread does not wait for a name lookup when it ends, because the lookup may
                // block for any length of time.
                let lookups = BlockingPool::on_demand("rookery-lookup", MAX_LOOKUPS);
                let _entered = lookups.enter();
                runtime.block_on(exporter.run());
            })
        })?;
        let ended = Mutex::new(Some(ended));
        Ok(Arc::new(Tracer { ids: IdGenerator::new(), sampler, queue, counters, ended }))
    }

    /// Returns the identity of a new span, and decides whether the span is recorded. Without a
    /// parent, the span begins a trace. Allocates no memory.
    pub fn begin(&self, parent: Option<&TraceContext>) -> TraceContext {
        let trace_id = parent.map_or_else(|| self.ids.trace_id(), |parent| parent.trace_id);
        let is_sampled = self.sampler.is_sampled(&trace_id, parent.map(TraceContext::is_sampled));
        // Flags that this version of the standard does not define are cleared (W3C Trace Context
        // Level 2, 3.2.2.5.3).
        let flags = parent.map_or(0, |parent| parent.flags & TraceContext::RANDOM);
        let flags = flags | if is_sampled { TraceContext::SAMPLED } else { 0 };
        TraceContext { trace_id, span_id: self.ids.span_id(), flags }
    }

    /// Returns the identity of a child of a span of this process or its supervisor. It is recorded
    /// if the parent is.
    pub fn child(&self, parent: &TraceContext) -> TraceContext {
        TraceContext { span_id: self.ids.span_id(), ..*parent }
    }

    /// Returns the identity of a span that begins a trace and is recorded in any case, because the
    /// span that it is linked to is.
    pub fn begin_linked(&self) -> TraceContext {
        TraceContext {
            trace_id: self.ids.trace_id(),
            span_id: self.ids.span_id(),
            flags: TraceContext::SAMPLED,
        }
    }

    /// Ends a span and queues it for the export. The span is dropped if the queue is full.
    pub fn end(&self, span: Span) {
        if !self.queue.push(span.encode()) {
            self.counters.dropped.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Returns how many spans were exported, and how many were not.
    pub fn counters(&self) -> &Arc<SpanCounters> {
        &self.counters
    }

    /// Exports the spans that are queued, and waits for this for at most `limit`. Later spans are
    /// dropped.
    pub fn shut_down(&self, limit: Duration) {
        self.shut_down_unless(limit, || false);
    }

    /// Does the same as [`shut_down`](Self::shut_down), but does not wait any longer once `is_over`
    /// returns true. `is_over` is called repeatedly on this thread.
    pub fn shut_down_unless(&self, limit: Duration, mut is_over: impl FnMut() -> bool) {
        self.queue.close(Instant::now() + limit);
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(ended) = ended else { return };
        // The thread ends by itself if it is late. It needs a moment after the deadline.
        let until = Instant::now() + limit + Duration::from_millis(100);
        while ended.recv_timeout(CHECK_INTERVAL) == Err(RecvTimeoutError::Timeout)
            && Instant::now() < until
            && !is_over()
        {}
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.queue.close(Instant::now() + FLUSH_TIMEOUT);
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("sampler", &self.sampler).finish_non_exhaustive()
    }
}
