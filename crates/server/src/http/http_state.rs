//! What the connections of an I/O thread have in common.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rookery_error::{ErrorHook as _, Reports};
use rookery_exchange::{BodyBufferPool, Exchange};

use crate::application::dispatch::{Dispatch, is_accepted, is_streamed};
use crate::connections::table::ConnectionTable;
use crate::http::connection::handshake_limit::HandshakeLimit;
use crate::http::request::context_pool::{ContextParts, ContextPool};
use crate::http::request::stream::registry::RequestStreams;
use crate::http::response::compress::Gzip;
use crate::http::response::header_name_cache::HeaderNameCache;
use crate::http::response::stream::registry::ResponseStreams;
use crate::logging::access_log::pending_record::CurrentLog;
use crate::net::transport::Scratch;
use crate::rejection::Rejection;
use crate::static_files::FileCache;
use crate::websocket::registry::WebSocketRegistry;

/// What the connections of an I/O thread have in common.
pub(crate) struct HttpState {
    pub(crate) connections: Rc<ConnectionTable>,
    pub(crate) dispatch: Rc<Dispatch>,
    pub(crate) websockets: Rc<WebSocketRegistry>,
    /// Handshakes of TLS that are under way.
    pub(crate) handshake_limit: HandshakeLimit,
    /// Replies that come in pieces.
    pub(crate) response_streams: ResponseStreams,
    /// Bodies of requests that go to the application in pieces.
    pub(crate) request_streams: RequestStreams,
    /// Where entries of the access log go, if anywhere.
    pub(crate) log: Arc<CurrentLog>,
    /// Where errors go.
    reports: Arc<Reports<Rejection>>,
    /// What connections that are being closed read into.
    pub(crate) scratch: Rc<Scratch>,
    /// What large bodies that stay in memory lie in.
    pub(crate) blocks: Arc<BodyBufferPool>,
    /// Compresses small bodies; 300 KiB, made when first needed.
    pub(crate) gzip: RefCell<Option<Gzip>>,
    pub(crate) header_names: HeaderNameCache,
    /// Small files that are kept in memory.
    pub(crate) file_cache: RefCell<FileCache>,
    context_pool: ContextPool,
    /// When something was last said on account of what a peer sent.
    last_notice: Cell<Option<Instant>>,
}

/// Peers make the server say something at most this often.
const NOTICE_INTERVAL: Duration = Duration::from_secs(60);

impl HttpState {
    pub(crate) fn new(
        websockets: Rc<WebSocketRegistry>,
        scratch: Rc<Scratch>,
        log: Arc<CurrentLog>,
        reports: Arc<Reports<Rejection>>,
    ) -> Rc<HttpState> {
        Rc::new(HttpState {
            connections: Rc::clone(&websockets.shared.connections),
            dispatch: Rc::clone(&websockets.shared.dispatch),
            websockets,
            handshake_limit: HandshakeLimit::default(),
            response_streams: ResponseStreams::default(),
            request_streams: RequestStreams::default(),
            log,
            reports,
            scratch,
            blocks: Arc::default(),
            gzip: RefCell::default(),
            header_names: HeaderNameCache::default(),
            file_cache: RefCell::default(),
            context_pool: ContextPool::default(),
            last_notice: Cell::new(None),
        })
    }

    /// The parts of a new call.
    pub(crate) fn take_context_parts(&self) -> Box<ContextParts> {
        self.context_pool.take(&self.reports, &self.connections.budget)
    }

    /// Takes the parts of a call back, whose entry is recorded.
    pub(crate) fn recycle(&self, parts: Box<ContextParts>) {
        self.context_pool.put_back(parts);
    }

    /// Reports what happened outside a call.
    pub(crate) fn report(&self, rejection: Rejection) {
        let hook = self.reports.hook();
        // What has no head has no id yet.
        hook.begin(Dispatch::next_id());
        hook.throw(rejection.error());
    }

    /// Opens the stream that is the reply of an exchange.
    pub(crate) fn open_response_stream(&self, exchange: &Exchange) {
        self.response_streams.open(&self.connections, &self.dispatch, exchange);
    }

    /// Whether something may be said again that peers have it say.
    pub(crate) fn claim_notice(&self) -> bool {
        let now = Instant::now();
        let may =
            self.last_notice.get().is_none_or(|last| now.duration_since(last) >= NOTICE_INTERVAL);
        if may {
            self.last_notice.set(Some(now));
        }
        may
    }

    /// Takes an exchange back whose client has gone.
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
