//! What the connections of an I/O thread have in common.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rookery_error::{ErrorHook as _, Reports};
use rookery_exchange::{Blocks, Exchange};

use super::bodies::Bodies;
use super::call_parts::{CallParts, KeptParts};
use super::compress::Gzip;
use super::handshakes::Handshakes;
use super::header_names::HeaderNames;
use super::streams::Streams;
use crate::application::dispatch::{Dispatch, is_accepted, is_streamed};
use crate::connections::table::ConnectionTable;
use crate::logging::access_log::pending_record::CurrentLog;
use crate::net::transport::Scratch;
use crate::rejection::Rejection;
use crate::static_files::FileCache;
use crate::websocket::sockets::WebSockets;

/// What the connections of an I/O thread have in common.
pub(crate) struct Http {
    pub(crate) connections: Rc<ConnectionTable>,
    pub(crate) dispatch: Rc<Dispatch>,
    pub(crate) websockets: Rc<WebSockets>,
    /// Handshakes of TLS that are under way.
    pub(crate) handshakes: Handshakes,
    /// Replies that come in pieces.
    pub(crate) streams: Streams,
    /// Bodies of requests that go to the application in pieces.
    pub(crate) bodies: Bodies,
    /// Where entries of the access log go, if anywhere.
    pub(super) log: Arc<CurrentLog>,
    /// Where errors go.
    reports: Arc<Reports<Rejection>>,
    /// What connections that are being closed read into.
    pub(super) scratch: Rc<Scratch>,
    /// What large bodies that stay in memory lie in.
    pub(super) blocks: Arc<Blocks>,
    /// Compresses small bodies; 300 KiB, made when first needed.
    pub(super) gzip: RefCell<Option<Gzip>>,
    pub(super) header_names: HeaderNames,
    /// Small files that are kept in memory.
    pub(super) file_cache: RefCell<FileCache>,
    parts: KeptParts,
    /// When something was last said on account of what a peer sent.
    noticed: Cell<Option<Instant>>,
}

/// Peers make the server say something at most this often.
const NOTICE_EVERY: Duration = Duration::from_secs(60);

impl Http {
    pub(crate) fn new(
        websockets: Rc<WebSockets>,
        scratch: Rc<Scratch>,
        log: Arc<CurrentLog>,
        reports: Arc<Reports<Rejection>>,
    ) -> Rc<Http> {
        Rc::new(Http {
            connections: Rc::clone(&websockets.shared.connections),
            dispatch: Rc::clone(&websockets.shared.dispatch),
            websockets,
            handshakes: Handshakes::default(),
            streams: Streams::default(),
            bodies: Bodies::default(),
            log,
            reports,
            scratch,
            blocks: Arc::default(),
            gzip: RefCell::default(),
            header_names: HeaderNames::default(),
            file_cache: RefCell::default(),
            parts: KeptParts::default(),
            noticed: Cell::new(None),
        })
    }

    /// The parts of a new call.
    pub(super) fn parts(&self) -> Box<CallParts> {
        self.parts.take(&self.reports, &self.connections.budget)
    }

    /// Takes the parts of a call back, whose entry is recorded.
    pub(super) fn keep(&self, parts: Box<CallParts>) {
        self.parts.give(parts);
    }

    /// Reports what happened outside a call.
    pub(super) fn report(&self, rejection: Rejection) {
        let hook = self.reports.hook();
        // What has no head has no id yet.
        hook.begin(Dispatch::next_id());
        hook.throw(rejection.error());
    }

    /// Opens the stream that is the reply of an exchange.
    pub(crate) fn open_stream(&self, exchange: &Exchange) {
        self.streams.open(&self.connections, &self.dispatch, exchange);
    }

    /// Whether something may be said again that peers have it say.
    pub(super) fn may_notice(&self) -> bool {
        let now = Instant::now();
        let may = self.noticed.get().is_none_or(|last| now.duration_since(last) >= NOTICE_EVERY);
        if may {
            self.noticed.set(Some(now));
        }
        may
    }

    /// Takes an exchange back whose client has gone.
    pub(super) fn disown(&self, exchange: Box<Exchange>) {
        if is_accepted(&exchange) {
            self.websockets.forget(exchange.id());
        } else if is_streamed(&exchange) {
            self.streams.forget(exchange.id());
        }
        self.dispatch.disown(exchange);
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}
