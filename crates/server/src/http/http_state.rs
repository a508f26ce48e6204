//! The state that all HTTP connections of an I/O thread share.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rookery_error::{ErrorHook as _, Reports};
use rookery_exchange::{BodyBufferPool, Exchange, Share};
use rookery_trace::Tracer;

use crate::application::dispatch::{Dispatch, is_accepted, is_streamed};
use crate::connections::table::ConnectionTable;
use crate::http::connection::head_start::HeadStart;
use crate::http::request::context_pool::{ContextParts, ContextPool};
use crate::http::request::stream::registry::RequestStreams;
use crate::http::response::compress::Gzip;
use crate::http::response::header_name_cache::HeaderNameCache;
use crate::http::response::stream::registry::ResponseStreams;
use crate::logging::access_log::pending_record::RequestLog;
use crate::net::transport::Scratch;
use crate::rejection::Rejection;
use crate::static_files::FileCache;
use crate::websocket::registry::WebSocketRegistry;

/// The state that all HTTP connections of an I/O thread share.
pub(crate) struct HttpState {
    pub(crate) connections: Rc<ConnectionTable>,
    pub(crate) dispatch: Rc<Dispatch>,
    pub(crate) websockets: Rc<WebSocketRegistry>,
    /// The open streamed responses of the I/O thread.
    pub(crate) response_streams: ResponseStreams,
    /// The request bodies that are being passed to the application chunk by chunk.
    pub(crate) request_streams: RequestStreams,
    /// The tracer, if the requests of clients are traced.
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// The access log that records are written to and the table in which requests are counted, if
    /// there are any.
    pub(crate) log: RequestLog,
    /// The first bytes of the request head that was read last, if there is an access log.
    pub(crate) head_start: HeadStart,
    /// The object that counts failed requests and queues error reports for the application.
    reports: Arc<Reports<Rejection>>,
    /// The scratch buffer that a closing connection reads its client's last bytes into. Its
    /// contents are discarded.
    pub(crate) scratch: Rc<Scratch>,
    /// The pool of memory blocks for request bodies that are large but still kept in memory.
    pub(crate) blocks: Arc<BodyBufferPool>,
    /// The gzip compressor for small response bodies. It is created when first needed, because it
    /// takes several hundred KiB.
    pub(crate) gzip: RefCell<Option<Gzip>>,
    pub(crate) header_names: HeaderNameCache,
    /// The cache of small static files in memory.
    pub(crate) file_cache: RefCell<FileCache>,
    context_pool: ContextPool,
    /// The time of the last notice to the operator that was caused by client input.
    last_notice: Cell<Option<Instant>>,
}

/// The minimum time between two notices to the operator that are caused by client input.
const NOTICE_INTERVAL: Duration = Duration::from_secs(60);

/// The divisor of the memory budget for what clients send that gives the maximum size of unused
/// memory blocks, which the budget does not count.
const KEPT_BLOCKS_PART: usize = 4;

impl HttpState {
    pub(crate) fn new(
        websockets: Rc<WebSocketRegistry>,
        scratch: Rc<Scratch>,
        log: RequestLog,
        reports: Arc<Reports<Rejection>>,
        tracer: Option<Arc<Tracer>>,
    ) -> Rc<HttpState> {
        let scoreboard = websockets.shared.dispatch.scoreboard.clone();
        let kept_blocks =
            websockets.shared.connections.budget.limit(Share::Incoming) / KEPT_BLOCKS_PART;
        Rc::new(HttpState {
            connections: Rc::clone(&websockets.shared.connections),
            dispatch: Rc::clone(&websockets.shared.dispatch),
            websockets,
            response_streams: ResponseStreams::new(scoreboard.clone()),
            request_streams: RequestStreams::new(scoreboard),
            tracer,
            log,
            head_start: HeadStart::default(),
            reports,
            scratch,
            blocks: Arc::new(BodyBufferPool::with_limit(kept_blocks)),
            gzip: RefCell::default(),
            header_names: HeaderNameCache::default(),
            file_cache: RefCell::default(),
            context_pool: ContextPool::default(),
            last_notice: Cell::new(None),
        })
    }

    /// Takes the reusable parts of a request context (the server's data about a request) from the
    /// pool, for use by a new request.
    pub(crate) fn take_context_parts(&self) -> Box<ContextParts> {
        self.context_pool.take(&self.reports, &self.connections.budget)
    }

    /// Writes the access log record of a request, and returns the parts of its request context to
    /// the pool.
    pub(crate) fn recycle(&self, parts: Box<ContextParts>) {
        self.context_pool.put_back(parts);
    }

    /// Reports an error that does not belong to any request.
    pub(crate) fn report(&self, rejection: Rejection) {
        let hook = self.reports.hook();
        // No head was read, so no id was assigned yet.
        hook.begin(Dispatch::next_id());
        hook.throw(rejection.error());
    }

    /// Opens the streamed response that the application has begun for a request.
    pub(crate) fn open_response_stream(&self, exchange: &Exchange) {
        self.response_streams.open(&self.connections, &self.dispatch, exchange);
    }

    /// Returns true if a notice to the operator may be written now. If so, records the time,
    /// because notices that clients can cause are rate-limited.
    pub(crate) fn claim_notice(&self) -> bool {
        let now = Instant::now();
        let may =
            self.last_notice.get().is_none_or(|last| now.duration_since(last) >= NOTICE_INTERVAL);
        if may {
            self.last_notice.set(Some(now));
        }
        may
    }

    /// Discards the request and response of a client that disconnected, together with its WebSocket
    /// or streamed response.
    pub(crate) fn discard_exchange(&self, exchange: Box<Exchange>) {
        if is_accepted(&exchange) {
            self.websockets.remove(exchange.id());
        } else if is_streamed(&exchange) {
            self.response_streams.forget(exchange.id());
        }
        self.dispatch.discard_exchange(exchange);
    }
}

impl fmt::Debug for HttpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpState").finish_non_exhaustive()
    }
}
