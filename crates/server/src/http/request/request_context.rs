//! A call: one request and its reply.

use std::rc::Rc;
use std::sync::Arc;

use bytes::BytesMut;
use http::HeaderValue;
use http::request::Parts;
use rookery_error::ErrorHook;
use rookery_exchange::{Exchange, ExchangeId, Share};

use crate::application::dispatch::Dispatch;
use crate::connections::admission::UNCHARGED_BYTES;
use crate::http::connection::activity::Phase;
use crate::http::connection::http_connection::HttpConnection;
use crate::http::http_state::HttpState;
use crate::http::request::context_pool::ContextParts;
use crate::http::request::head::{names_host, request_id};
use crate::http::response::header_name_cache::HeaderNameCache;
use crate::http::response::stream::response_stream::ResponseStream;
use crate::logging::access_log::pending_record::PendingRecord;
use crate::rejection::Rejection;

/// A reply counts as no more than this part of its share: its size is the application's choice, and one that is larger
/// than the share must not be impossible.
const MAX_RESPONSE_PART: usize = 4;

/// A call, from the end of its request's head until its reply has been made; owned by whoever works on it. Its connection
/// is told of each step, and keeps the rest until the last byte has been written.
///
/// A connection may have several at once; nothing here knows that HTTP/1 has one after the other.
#[derive(Debug)]
pub(crate) struct RequestContext {
    pub(crate) connection: Rc<HttpConnection>,
    pub(crate) id: ExchangeId,
    state: State,
    /// Whether the Host is a name that browsers may be told to come to by HTTPS alone.
    has_host_name: bool,
    /// Whether the client is given the cookie that names this process.
    pub(crate) needs_session_cookie: bool,
    /// `None` when the connection has them.
    parts: Option<Box<ContextParts>>,
}

/// How far a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The request is being read.
    Request,
    /// The application has it.
    Application,
    /// The reply is being made and sent.
    Response,
}

impl RequestContext {
    /// Begins a call whose head has been read.
    pub(crate) fn begin(connection: &Rc<HttpConnection>) -> RequestContext {
        connection.begin_request();
        let id = Dispatch::next_id();
        let parts = connection.shared.take_context_parts();
        parts.hook.begin(id);
        RequestContext {
            connection: Rc::clone(connection),
            id,
            state: State::Request,
            has_host_name: false,
            needs_session_cookie: false,
            parts: Some(parts),
        }
    }

    pub(crate) fn shared(&self) -> &HttpState {
        &self.connection.shared
    }

    fn parts(&mut self) -> &mut ContextParts {
        self.parts.as_mut().expect("taken by `drop` alone")
    }

    /// Whom errors of this call are thrown to.
    pub(crate) fn hook(&mut self) -> Arc<dyn ErrorHook> {
        Arc::clone(&self.parts().hook) as _
    }

    /// The access log's entry.
    pub(crate) fn pending_record(&mut self) -> &mut PendingRecord {
        &mut self.parts().pending_record
    }

    /// Whether a line of the access log is made of it.
    pub(crate) fn is_logged(&self) -> bool {
        self.parts.as_ref().is_some_and(|parts| parts.pending_record.is_begun())
    }

    /// What the bytes of the reply are copied into, and the names of its headers.
    pub(crate) fn buffer_and_names(&mut self) -> (&mut BytesMut, &HeaderNameCache) {
        let parts = self.parts.as_mut().expect("taken by `drop` alone");
        (&mut parts.buffer, &self.connection.shared.header_names)
    }

    /// What browsers are told of coming by HTTPS alone.
    pub(crate) fn hsts(&self) -> Option<&HeaderValue> {
        self.connection.config.tls.as_ref().filter(|_| self.has_host_name)?.hsts()
    }

    /// Begins the log's entry, of a client that a supervisor may have said something of.
    pub(crate) fn begin_log(
        &mut self,
        head: &Parts,
        worker_header: Option<&rookery_worker_protocol::WorkerHeader>,
    ) {
        self.has_host_name = self.connection.has_tls() && names_host(&head.headers);
        let RequestContext { connection, parts: Some(parts), id, .. } = self else { return };
        if connection.config.is_supervised() {
            // The supervisor logs what it passes on; the log of this process is for its own clients.
            return;
        }
        let request = (&head.method, &head.uri, head.version);
        let remote = worker_header
            .map_or_else(|| connection.ends.get().remote, |worker_header| worker_header.remote);
        parts.pending_record.begin(&connection.shared.log, remote, request, || {
            request_id(
                *id,
                &head.headers,
                connection.is_proxy,
                worker_header
                    .and_then(|worker_header| Some(worker_header.id.as_deref()?.as_bytes())),
            )
        });
    }

    // ---- its states ----

    /// The request is being read: as at the beginning, and again after the application has seen the head.
    pub(crate) fn begin_reading(&mut self) {
        self.enter(State::Request);
    }

    /// The application has it.
    pub(crate) fn is_asked(&mut self) {
        self.enter(State::Application);
    }

    /// The reply is being made.
    pub(crate) fn begin_response(&mut self) {
        self.enter(State::Response);
    }

    /// The reply comes in pieces.
    pub(crate) fn begin_response_stream(&mut self, stream: &Rc<ResponseStream>) {
        self.state = State::Response;
        self.connection.begin_response_stream(stream);
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.connection.enter(match state {
            State::Request => Phase::Body,
            State::Application => Phase::Application,
            State::Response => Phase::Response,
        });
    }

    /// The rest of the request is not read: the connection ends with the reply.
    pub(crate) fn set_unread_body(&self, has_unread_input: bool) {
        self.connection.has_unread_input.set(has_unread_input);
    }

    // ---- what it holds ----

    /// Charges what the request holds in its exchange, and makes room for `also` beside it, which whoever has that charges.
    pub(crate) fn charge_request(
        &self,
        exchange: &mut Exchange,
        also: usize,
    ) -> Result<(), Rejection> {
        let (connections, held) =
            (&self.shared().connections, &self.connection.activity.request_bytes);
        let own = exchange.capacity();
        let (has, needs) = (held.get(), own + also);
        if needs <= has {
            return Ok(());
        }
        if !connections.admit(Share::Requests, has, needs - has) {
            return Err(Rejection::Overload);
        }
        held.set(needs);
        exchange.charge(&connections.budget, own);
        Ok(())
    }

    /// What is held beside the exchange has become less.
    pub(crate) fn reduce_charge(&self, exchange: &Exchange, also: usize) {
        let held = &self.connection.activity.request_bytes;
        held.set(held.get().min((exchange.capacity() + also).max(UNCHARGED_BYTES)));
    }

    /// Charges a reply of `len` bytes until it has been written.
    pub(crate) fn charge_response(&mut self, len: usize) -> Result<(), Rejection> {
        if len <= UNCHARGED_BYTES {
            return Ok(());
        }
        let (connections, held) =
            (&self.shared().connections, &self.connection.activity.response_bytes);
        let (has, more) =
            (held.get(), len.min(connections.budget.limit(Share::Replies) / MAX_RESPONSE_PART));
        if !connections.admit(Share::Replies, has, more) {
            return Err(Rejection::Overload);
        }
        held.set(has + more);
        let charge = &self.parts().response_charge;
        charge.set(charge.bytes() + more);
        Ok(())
    }
}

impl Drop for RequestContext {
    /// A reply that was made is on its way; of any other call the client has gone, or the connection is a WebSocket now.
    fn drop(&mut self) {
        let Some(parts) = self.parts.take() else { return };
        match self.state {
            State::Response => self.connection.begin_flush(parts),
            State::Request | State::Application => self.connection.shared.recycle(parts),
        }
    }
}
