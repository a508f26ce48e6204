//! A call: one request and its reply.

use std::rc::Rc;
use std::sync::Arc;

use bytes::BytesMut;
use http::HeaderValue;
use http::request::Parts;
use rookery_error::ErrorHook;
use rookery_exchange::{Exchange, ExchangeId, Share};

use super::call_parts::CallParts;
use super::connection::Connection;
use super::context::Http;
use super::head::{names_host, request_id};
use super::header_names::HeaderNames;
use super::standing::Phase;
use super::stream::Stream;
use crate::application::dispatch::Dispatch;
use crate::connections::admission::UNCHARGED_BYTES;
use crate::logging::access_log::pending_record::PendingRecord;
use crate::rejection::Rejection;

/// A reply counts as no more than this part of its share: its size is the application's choice, and one that is larger
/// than the share must not be impossible.
const LARGEST_REPLY: usize = 4;

/// A call, from the end of its request's head until its reply has been made; owned by whoever works on it. Its connection
/// is told of each step, and keeps the rest until the last byte has been written.
///
/// A connection may have several at once; nothing here knows that HTTP/1 has one after the other.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) connection: Rc<Connection>,
    pub(super) id: ExchangeId,
    state: State,
    /// Whether the Host is a name that browsers may be told to come to by HTTPS alone.
    is_for_name: bool,
    /// Whether the client is given the cookie that names this process.
    pub(super) gives_cookie: bool,
    /// `None` when the connection has them.
    parts: Option<Box<CallParts>>,
}

/// How far a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The request is being read.
    Request,
    /// The application has it.
    Application,
    /// The reply is being made and sent.
    Reply,
}

impl Call {
    /// Begins a call whose head has been read.
    pub(super) fn begin(connection: &Rc<Connection>) -> Call {
        connection.begin_call();
        let id = Dispatch::next_id();
        let parts = connection.http.parts();
        parts.hook.begin(id);
        Call {
            connection: Rc::clone(connection),
            id,
            state: State::Request,
            is_for_name: false,
            gives_cookie: false,
            parts: Some(parts),
        }
    }

    pub(super) fn http(&self) -> &Http {
        &self.connection.http
    }

    fn parts(&mut self) -> &mut CallParts {
        self.parts.as_mut().expect("taken by `drop` alone")
    }

    /// Whom errors of this call are thrown to.
    pub(super) fn hook(&mut self) -> Arc<dyn ErrorHook> {
        Arc::clone(&self.parts().hook) as _
    }

    /// The access log's entry.
    pub(super) fn pending_record(&mut self) -> &mut PendingRecord {
        &mut self.parts().pending_record
    }

    /// Whether a line of the access log is made of it.
    pub(super) fn is_logged(&self) -> bool {
        self.parts.as_ref().is_some_and(|parts| parts.pending_record.is_begun())
    }

    /// What the bytes of the reply are copied into, and the names of its headers.
    pub(super) fn out_and_names(&mut self) -> (&mut BytesMut, &HeaderNames) {
        let parts = self.parts.as_mut().expect("taken by `drop` alone");
        (&mut parts.out, &self.connection.http.header_names)
    }

    /// What browsers are told of coming by HTTPS alone.
    pub(super) fn hsts(&self) -> Option<&HeaderValue> {
        self.connection.site.tls.as_ref().filter(|_| self.is_for_name)?.hsts()
    }

    /// Begins the log's entry, of a client that a supervisor may have said something of.
    pub(super) fn log(&mut self, head: &Parts, said: Option<&rookery_worker::Call>) {
        self.is_for_name = self.connection.has_tls() && names_host(&head.headers);
        let Call { connection, parts: Some(parts), id, .. } = self else { return };
        if connection.site.is_supervised() {
            // The supervisor logs what it passes on; the log of this process is for its own clients.
            return;
        }
        let request = (&head.method, &head.uri, head.version);
        let remote = said.map_or_else(|| connection.ends.get().remote, |said| said.remote);
        parts.pending_record.begin(&connection.http.log, remote, request, || {
            request_id(
                *id,
                &head.headers,
                connection.is_proxy,
                said.and_then(|said| Some(said.id.as_deref()?.as_bytes())),
            )
        });
    }

    // ---- its states ----

    /// The request is being read: as at the beginning, and again after the application has seen the head.
    pub(super) fn reads_request(&mut self) {
        self.step(State::Request);
    }

    /// The application has it.
    pub(super) fn is_asked(&mut self) {
        self.step(State::Application);
    }

    /// The reply is being made.
    pub(super) fn replies(&mut self) {
        self.step(State::Reply);
    }

    /// The reply comes in pieces.
    pub(super) fn streams(&mut self, stream: &Rc<Stream>) {
        self.state = State::Reply;
        self.connection.stream(stream);
    }

    fn step(&mut self, state: State) {
        self.state = state;
        self.connection.enter(match state {
            State::Request => Phase::Body,
            State::Application => Phase::Application,
            State::Reply => Phase::Reply,
        });
    }

    /// The rest of the request is not read: the connection ends with the reply.
    pub(super) fn leaves_rest(&self, has_rest: bool) {
        self.connection.has_rest.set(has_rest);
    }

    // ---- what it holds ----

    /// Charges what the request holds in its exchange, and makes room for `also` beside it, which whoever has that charges.
    pub(super) fn hold_request(
        &self,
        exchange: &mut Exchange,
        also: usize,
    ) -> Result<(), Rejection> {
        let (connections, held) = (&self.http().connections, &self.connection.standing.request);
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
    pub(super) fn let_go_beside(&self, exchange: &Exchange, also: usize) {
        let held = &self.connection.standing.request;
        held.set(held.get().min((exchange.capacity() + also).max(UNCHARGED_BYTES)));
    }

    /// Charges a reply of `len` bytes until it has been written.
    pub(super) fn hold_reply(&mut self, len: usize) -> Result<(), Rejection> {
        if len <= UNCHARGED_BYTES {
            return Ok(());
        }
        let (connections, held) = (&self.http().connections, &self.connection.standing.reply);
        let (has, more) =
            (held.get(), len.min(connections.budget.limit(Share::Replies) / LARGEST_REPLY));
        if !connections.admit(Share::Replies, has, more) {
            return Err(Rejection::Overload);
        }
        held.set(has + more);
        let charge = &self.parts().reply;
        charge.set(charge.bytes() + more);
        Ok(())
    }
}

impl Drop for Call {
    /// A reply that was made is on its way; of any other call the client has gone, or the connection is a WebSocket now.
    fn drop(&mut self) {
        let Some(parts) = self.parts.take() else { return };
        match self.state {
            State::Reply => self.connection.flush(parts),
            State::Request | State::Application => self.connection.http.keep(parts),
        }
    }
}
