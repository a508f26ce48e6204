//! The request context: the data that the server keeps for a request until its response is
//! complete.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::BytesMut;
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use rookery_error::ErrorHook;
use rookery_exchange::{Charge, Exchange, ExchangeId, Peer, RequestId, Share};

use crate::application::dispatch::Dispatch;
use crate::connections::admission::UNCHARGED_BYTES;
use crate::http::connection::activity::Phase;
use crate::http::connection::http_connection::HttpConnection;
use crate::http::http_state::HttpState;
use crate::http::request::context_pool::ContextParts;
use crate::http::request::head::{
    RecordedHeaders, names_host, request_id, trace_context, used_https,
};
use crate::http::request::request_span::{Client, RequestSpan, keeps_trace_state};
use crate::http::response::header_name_cache::HeaderNameCache;
use crate::http::response::stream::response_stream::ResponseStream;
use crate::logging::access_log::pending_record::{ClientTexts, PendingRecord};
use crate::rejection::Rejection;

/// The request context: the data that the server keeps for a request from the end of its head until
/// its response is complete. The function that currently works on the request owns the context.
#[derive(Debug)]
pub(crate) struct RequestContext {
    pub(crate) connection: Rc<HttpConnection>,
    pub(crate) id: ExchangeId,
    state: State,
    /// True if the request's Host header contains a host name. Only then may the response contain a
    /// `Strict-Transport-Security` header.
    has_host_name: bool,
    /// The reusable parts of the request context, or `None` once the connection has taken them.
    parts: Option<Box<ContextParts>>,
}

/// The step that the processing of a request has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The server is reading the request.
    Request,
    /// The application is processing the request.
    Application,
    /// The server is producing and sending the response.
    Response,
}

impl RequestContext {
    /// Creates the request context of a request whose head has been read.
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
            parts: Some(parts),
        }
    }

    pub(crate) fn shared(&self) -> &HttpState {
        &self.connection.shared
    }

    fn parts(&mut self) -> &mut ContextParts {
        self.parts.as_mut().expect("only `drop` takes them")
    }

    /// Returns the error hook, which receives the errors that occur while this request is served.
    pub(crate) fn hook(&mut self) -> Arc<dyn ErrorHook> {
        Arc::clone(&self.parts().hook) as _
    }

    /// Returns the access log data of the request, which is not complete yet.
    pub(crate) fn pending_record(&mut self) -> &mut PendingRecord {
        &mut self.parts().pending_record
    }

    /// Returns true if the request is written to the access log.
    pub(crate) fn is_logged(&self) -> bool {
        self.parts.as_ref().is_some_and(|parts| parts.pending_record.is_begun())
    }

    /// Returns the buffer that the response is copied into, and the cache of response header names.
    pub(crate) fn buffer_and_names(&mut self) -> (&mut BytesMut, &HeaderNameCache) {
        let parts = self.parts.as_mut().expect("only `drop` takes them");
        (&mut parts.buffer, &self.connection.shared.header_names)
    }

    /// Returns the `Strict-Transport-Security` value for the response, if it must contain this
    /// header.
    pub(crate) fn hsts(&self) -> Option<&HeaderValue> {
        self.connection.config.tls.as_ref().filter(|_| self.has_host_name)?.hsts()
    }

    /// Returns the address of the client, which a trusted proxy may have named. Returns `None` for
    /// a client of a Unix socket.
    pub(crate) fn client(&self) -> Option<SocketAddr> {
        self.parts.as_ref().and_then(|parts| parts.client)
    }

    /// Returns the peer to which the request is attributed.
    pub(crate) fn peer(&self) -> Peer {
        self.connection.peer_of_request()
    }

    /// Finds the address of the client, and begins the access log record of the request and its
    /// span.
    pub(crate) fn begin_log(&mut self, head: &Parts) {
        self.has_host_name = self.connection.has_tls() && names_host(&head.headers);
        let RequestContext { connection, parts: Some(parts), id, .. } = self else { return };
        let remote = connection.client_address(&head.headers);
        parts.client = remote;
        connection.attribute_request(remote);
        let is_recorded = connection.shared.tracer.is_some() || connection.shared.log.is_on();
        let headers = if is_recorded {
            RecordedHeaders::of(&head.headers)
        } else {
            RecordedHeaders::default()
        };
        if let Some(tracer) = &connection.shared.tracer {
            // The context is passed on even if the span is not recorded.
            let context = tracer.begin(headers.trace.as_ref());
            parts.trace = Some(context);
            if context.is_sampled() {
                let (has_tls, is_proxy) = (connection.has_tls(), connection.is_proxy());
                let is_announced = connection.config.proxy_protocol.is_some();
                let client = Client {
                    address: remote,
                    // Behind a PROXY header, the address of the peer is not kept.
                    peer: connection.ends.get().remote.filter(|_| !is_announced),
                    is_https: used_https(&head.headers, has_tls, is_proxy),
                };
                parts.span = Some(RequestSpan::begin(tracer, context, head, &client));
            }
        }
        let trace = parts.trace.or(headers.trace);
        let (log, client) = (&connection.shared.log, (remote, connection.has_tls()));
        let certificate = connection.client_certificate.get();
        let texts = ClientTexts {
            referer: headers.referer,
            user_agent: headers.user_agent,
            host: headers.host,
            user: certificate.map_or(&[], |certificate| certificate.subject.as_bytes()),
        };
        parts.pending_record.begin(log, client, head, &texts, || {
            let id = request_id(*id, &head.headers, connection.is_proxy(), trace.as_ref());
            (id, trace)
        });
    }

    /// Returns the id of the request, which a record in the access log also has. `headers` are the
    /// headers of the request.
    pub(crate) fn request_id(&self, headers: &HeaderMap) -> RequestId {
        let own = self.parts.as_ref().and_then(|parts| parts.trace);
        let trace = own.or_else(|| trace_context(headers));
        request_id(self.id, headers, self.connection.is_proxy(), trace.as_ref())
    }

    /// Puts the context of the request's span into the exchange (the object of a request and its
    /// response), in place of the client's context. Without a tracer, the client's headers stay.
    pub(crate) fn apply_trace(&self, exchange: &mut Exchange, head: &Parts) {
        if let Some(trace) = self.parts.as_ref().and_then(|parts| parts.trace.as_ref()) {
            exchange.set_trace_context(trace);
            if !keeps_trace_state(&head.headers) {
                exchange.remove_header(b"tracestate");
            }
        }
    }

    /// Records what the application's response says about the request, for the access log and the
    /// span.
    pub(crate) fn set_response(&mut self, exchange: &Exchange) {
        let parts = self.parts();
        parts.pending_record.set_response(exchange);
        if let Some(span) = &mut parts.span {
            span.set_route(exchange.route());
        }
    }

    /// Records the status of the response for the access log and the span.
    pub(crate) fn set_status(&mut self, status: u16) {
        let parts = self.parts();
        parts.pending_record.set_status(status);
        if let Some(span) = &mut parts.span {
            span.set_status(status);
        }
    }

    // ---- steps ----

    /// Marks the request as being read. Called again if the application has first seen only the
    /// head and then wants the body.
    pub(crate) fn begin_reading(&mut self) {
        self.enter(State::Request);
    }

    /// Marks the request as being processed by the application.
    pub(crate) fn begin_waiting(&mut self) {
        self.enter(State::Application);
    }

    /// Marks the request as having a response, which the server now produces and sends.
    pub(crate) fn begin_response(&mut self) {
        self.enter(State::Response);
        self.release_request_file();
    }

    /// Begins the application's streamed response to this request.
    pub(crate) fn begin_response_stream(&mut self, stream: &Rc<ResponseStream>) {
        self.state = State::Response;
        self.release_request_file();
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

    /// Records whether a part of the request body stays unread. If so, the connection closes after
    /// the response.
    pub(crate) fn set_unread_body(&self, has_unread_input: bool) {
        self.connection.has_unread_input.set(has_unread_input);
    }

    // ---- memory ----

    /// Charges the memory budget for the request's exchange (the object of the request and its
    /// response). Also checks that `also` further bytes, which the caller must charge itself, fit
    /// into the budget.
    ///
    /// # Errors
    /// Returns [`Rejection::Overload`] if the memory budget is exhausted.
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
        if !connections.admit(self.peer(), Share::Incoming, has, needs - has) {
            return Err(Rejection::Overload);
        }
        held.set(needs);
        exchange.charge(&connections.budget, own);
        Ok(())
    }

    /// Reduces the memory that is counted for the request to the size of its exchange (the object
    /// of the request and its response) plus `also` bytes. Does nothing if less is counted.
    pub(crate) fn reduce_charge(&self, exchange: &Exchange, also: usize) {
        let held = &self.connection.activity.request_bytes;
        held.set(held.get().min((exchange.capacity() + also).max(UNCHARGED_BYTES)));
    }

    /// Charges the memory budget for a response of `len` bytes until it has been written. What was
    /// [charged](Self::keep_response_charge) when the response arrived is not charged again, and is
    /// released if the body is not sent.
    ///
    /// # Errors
    /// Returns [`Rejection::Overload`] if the memory budget is exhausted.
    pub(crate) fn charge_response(&mut self, len: usize) -> Result<(), Rejection> {
        let charged = self.parts().response_charge.bytes();
        if len <= UNCHARGED_BYTES && charged == 0 {
            return Ok(());
        }
        let (connections, held) =
            (&self.shared().connections, &self.connection.activity.response_bytes);
        let is_small = len <= UNCHARGED_BYTES;
        let needs = if is_small { 0 } else { connections.budget.bytes_of_response(len) };
        let more = needs.saturating_sub(charged);
        if more > 0 && !connections.admit(self.peer(), Share::Outgoing, held.get(), more) {
            return Err(Rejection::Overload);
        }
        held.set((held.get() + needs).saturating_sub(charged));
        self.parts().response_charge.set(needs);
        Ok(())
    }

    /// Keeps the charge of a response that was admitted when it arrived until the response has been
    /// written.
    pub(crate) fn keep_response_charge(&mut self, charge: &Charge) {
        self.parts().response_charge.set(charge.bytes());
    }

    /// Charges the descriptor of a temporary file for the body of the request. The returned value
    /// must be kept until the file is closed.
    ///
    /// # Errors
    /// Returns [`Rejection::Overload`] if the descriptors for files are exhausted.
    pub(crate) fn charge_request_file(&self) -> Result<Charge, Rejection> {
        self.charge_file(&self.connection.activity.request_files)
    }

    /// Charges the descriptor of a file that the response consists of. The returned value must be
    /// kept until the file is closed.
    ///
    /// # Errors
    /// Returns [`Rejection::Overload`] if the descriptors for files are exhausted.
    pub(crate) fn charge_response_file(&self) -> Result<Charge, Rejection> {
        self.charge_file(&self.connection.activity.response_files)
    }

    fn charge_file(&self, held: &Cell<usize>) -> Result<Charge, Rejection> {
        let (connections, has) = (&self.shared().connections, held.get());
        if !connections.admit(self.peer(), Share::Descriptors, has, 1) {
            return Err(Rejection::Overload);
        }
        self.connection.set_open_files(held, has + 1);
        Ok(connections.charge(Share::Descriptors, 1))
    }

    /// Ends the count of the temporary file for the body, because the request has a response.
    fn release_request_file(&self) {
        self.connection.set_open_files(&self.connection.activity.request_files, 0);
    }

    /// Ends the charge for the descriptor of a file that the response was to consist of.
    pub(crate) fn release_response_file(&self, charge: Charge) {
        let held = &self.connection.activity.response_files;
        self.connection.set_open_files(held, held.get().saturating_sub(1));
        drop(charge);
    }
}

impl Drop for RequestContext {
    /// Passes the reusable parts of the request context to the connection if the request has a
    /// response. Otherwise (the client disconnected, or the connection became a WebSocket) returns
    /// them to the pool.
    fn drop(&mut self) {
        let Some(mut parts) = self.parts.take() else { return };
        match self.state {
            State::Response => self.connection.begin_flush(parts),
            State::Request | State::Application => {
                if let Some((status, bytes, reason)) = self.connection.server_end() {
                    parts.pending_record.end_without_response(status, bytes, reason);
                }
                self.connection.shared.recycle(parts);
            }
        }
    }
}
