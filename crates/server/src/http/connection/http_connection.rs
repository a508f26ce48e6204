//! The state of a connection, apart from hyper's own state.

mod closing;
mod request_lifecycle;
mod table_entry;

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use rookery_exchange::{
    Charge, ClientCertificate, Exchange, ExchangeStatus, ListenerId, Share, StreamEnd,
};

use crate::connections::admission::{CONNECTION_BYTES, UNCHARGED_BYTES};
use crate::connections::table::TableEntry;
use crate::http::connection::activity::{Activity, Phase};
use crate::http::http_state::HttpState;
use crate::http::http2::session::Http2Session;
use crate::http::listener_config::ListenerConfig;
use crate::http::request::context_pool::ContextParts;
use crate::http::request::head::used_https;
use crate::http::response::sendfile::{SendfileQueue, SentFile, WriteResult};
use crate::http::response::stream::response_stream::ResponseStream;
use crate::net::addresses::ConnectionAddresses;
use crate::net::tls::stream::TLS_BYTES;
use crate::net::transport::Transport;

pub(crate) use self::closing::{CloseState, ResetMode};

/// Returns the number of bytes that a connection is charged for.
pub(crate) fn connection_bytes(has_tls: bool) -> usize {
    if has_tls { CONNECTION_BYTES + TLS_BYTES } else { CONNECTION_BYTES }
}

/// The state of a connection, apart from hyper's own state. Its [`Phase`] documents the state
/// transitions.
///
/// A stream of an HTTP/2 connection has an `HttpConnection` of its own, with its own deadlines, but
/// without a transport. In the connection table it is a substream.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    pub(crate) shared: Rc<HttpState>,
    /// The key of the connection in the connection table.
    pub(crate) key: Cell<usize>,
    pub(crate) listener: ListenerId,
    pub(crate) config: ListenerConfig,
    pub(crate) transport: RefCell<Transport>,
    pub(crate) ends: Cell<ConnectionAddresses>,
    /// True if the client is a trusted proxy, whose forwarding headers are used.
    pub(crate) is_proxy: bool,
    /// The identity in the client's TLS certificate.
    pub(crate) client_certificate: OnceCell<Arc<ClientCertificate>>,
    pub(crate) activity: Activity,
    /// The charge for the connection and its read buffer.
    pub(crate) charge: Charge,
    /// The size of the read buffer in bytes.
    buffer: Cell<usize>,
    /// True if the connection is counted as a handshake under way.
    is_handshaking: Cell<bool>,
    /// The bytes that an eviction waits for and that have not been freed yet.
    pending_release: Cell<Option<(Share, usize)>>,
    serial: u64,
    /// Whether the connection must be closed, and when.
    pub(crate) close_state: Cell<CloseState>,
    /// True if the connection closes after its next response, or after some idle time.
    pub(crate) is_draining: Cell<bool>,
    /// True if the close may wait until the client has read the response.
    pub(crate) may_linger: Cell<bool>,
    /// True if the connection has been idle for long enough to free its buffers.
    is_parked: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    /// True if hyper has rejected a head that it could not parse. hyper's error response is
    /// discarded, and the server sends its own.
    pub(crate) is_head_refused: Cell<bool>,
    /// True while a disconnect of the client is watched for during the application's work. This
    /// ends when the client sends a FIN or further bytes.
    is_watched: Cell<bool>,
    /// True if the client sent a FIN during the application's work. Each sweep then checks whether
    /// the client is still connected.
    is_half_closed: Cell<bool>,
    /// True once a sweep has found that the half-closed client disconnected.
    is_disconnected: Cell<bool>,
    /// True once the application has exceeded the request timeout.
    has_request_timed_out: Cell<bool>,
    /// True if input of the client was left unread, so that the close must linger.
    pub(crate) has_unread_input: Cell<bool>,
    /// The exchange of an opening handshake that the application has accepted.
    pub(crate) accepted_websocket: RefCell<Option<Box<Exchange>>>,
    /// The files that are being sent.
    sendfile_queue: RefCell<Option<Box<SendfileQueue>>>,
    /// The parts of a request context whose response is complete but not fully written.
    flushing: RefCell<Option<Box<ContextParts>>>,
    /// The streamed response, until its last byte has been written.
    response_stream: RefCell<Option<Rc<ResponseStream>>>,
    /// The reason why the connection ends, unless the client caused it.
    end_reason: Cell<Option<StreamEnd>>,
    /// Whether the connection is closed with a reset, so that the client cannot mistake an
    /// incomplete response for a complete one.
    pub(crate) reset_mode: Cell<ResetMode>,
    /// The state that all streams of an HTTP/2 connection share.
    http2_session: OnceCell<Rc<Http2Session>>,
    is_http2_stream: bool,
    /// True if a part of a chunk has not been passed to h2 yet, so that a flush does not complete
    /// the response.
    pub(crate) has_partial_chunk: Cell<bool>,
}

impl HttpConnection {
    pub(crate) fn new(
        shared: &Rc<HttpState>,
        listener: ListenerId,
        config: &ListenerConfig,
        transport: Transport,
        ends: ConnectionAddresses,
    ) -> Rc<HttpConnection> {
        let activity = Activity::new(shared.connections.clock.now(), config.has_handshake());
        let charge =
            shared.connections.charge(Share::Connections, connection_bytes(config.tls.is_some()));
        Rc::new(HttpConnection {
            is_proxy: config.proxies.contains(ends.remote.map(|remote| remote.ip())),
            ..HttpConnection::initial(shared, listener, config, transport, ends, activity, charge)
        })
    }

    /// Creates the state of an HTTP/2 stream, with the charge for it.
    pub(crate) fn for_http2_stream(
        connection: &HttpConnection,
        session: &Rc<Http2Session>,
        charge: Charge,
    ) -> Rc<HttpConnection> {
        let HttpConnection { shared, listener, config, ends, .. } = connection;
        let activity = Activity::for_http2_stream(shared.connections.clock.now());
        Rc::new(HttpConnection {
            is_proxy: connection.is_proxy,
            client_certificate: connection.client_certificate.clone(),
            may_linger: Cell::new(false),
            // h2 notifies the stream's task when the client resets the stream.
            is_watched: Cell::new(false),
            http2_session: OnceCell::from(Rc::clone(session)),
            is_http2_stream: true,
            ..HttpConnection::initial(
                shared,
                *listener,
                config,
                Transport::placeholder(),
                ends.get(),
                activity,
                charge,
            )
        })
    }

    /// Returns the state of a connection on which nothing has happened yet.
    fn initial(
        shared: &Rc<HttpState>,
        listener: ListenerId,
        config: &ListenerConfig,
        transport: Transport,
        ends: ConnectionAddresses,
        activity: Activity,
        charge: Charge,
    ) -> HttpConnection {
        HttpConnection {
            shared: Rc::clone(shared),
            key: Cell::new(usize::MAX),
            listener,
            config: config.clone(),
            transport: RefCell::new(transport),
            ends: Cell::new(ends),
            is_proxy: false,
            client_certificate: OnceCell::new(),
            activity,
            charge,
            buffer: Cell::new(UNCHARGED_BYTES),
            is_handshaking: Cell::new(false),
            pending_release: Cell::new(None),
            serial: shared.connections.next_serial(),
            close_state: Cell::new(CloseState::Open),
            is_draining: Cell::new(false),
            may_linger: Cell::new(true),
            is_parked: Cell::new(false),
            waker: RefCell::default(),
            is_head_refused: Cell::new(false),
            is_watched: Cell::new(true),
            is_half_closed: Cell::new(false),
            is_disconnected: Cell::new(false),
            has_request_timed_out: Cell::new(false),
            has_unread_input: Cell::new(false),
            accepted_websocket: RefCell::default(),
            sendfile_queue: RefCell::default(),
            flushing: RefCell::default(),
            response_stream: RefCell::default(),
            end_reason: Cell::new(None),
            reset_mode: Cell::new(ResetMode::None),
            http2_session: OnceCell::new(),
            is_http2_stream: false,
            has_partial_chunk: Cell::new(false),
        }
    }

    /// Makes this an HTTP/2 connection.
    pub(crate) fn set_http2_session(&self, session: Rc<Http2Session>) -> Rc<Http2Session> {
        Rc::clone(self.http2_session.get_or_init(|| session))
    }

    /// Returns true if this is a stream of an HTTP/2 connection.
    pub(crate) fn is_http2_stream(&self) -> bool {
        self.is_http2_stream
    }

    /// Returns the HTTP/2 session if this is an HTTP/2 connection and not one of its streams.
    fn own_session(&self) -> Option<&Http2Session> {
        self.http2_session.get().filter(|_| !self.is_http2_stream).map(|session| &**session)
    }

    /// Notes the size of a head that h2 has read. A large head is charged to its request.
    pub(crate) fn on_head_read(&self, bytes: usize) {
        self.buffer.set(bytes);
    }

    /// Notes that the application still has a request whose client disconnected.
    pub(crate) fn on_request_abandoned(&self, status: &Arc<ExchangeStatus>) {
        if let Some(session) = self.http2_session.get() {
            session.add_abandoned(status);
        }
    }

    /// Wakes the connection's task.
    pub(crate) fn wake_task(&self) {
        TableEntry::wake(self);
    }

    /// Tells the application whether the client used HTTPS, and passes on the client's certificate.
    pub(crate) fn set_transport_info(&self, exchange: &mut Exchange, headers: &HeaderMap) {
        exchange.set_from_trusted_proxy(self.is_proxy);
        exchange.set_transport(
            used_https(headers, self.has_tls(), self.is_proxy),
            self.client_certificate.get().cloned(),
        );
    }

    fn now(&self) -> u32 {
        self.shared.connections.clock.now()
    }

    pub(crate) fn has_tls(&self) -> bool {
        self.config.tls.is_some()
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.activity.enter(phase, self.now());
    }

    /// Returns true if HTTP/2 was negotiated in the TLS handshake (RFC 7301).
    pub(crate) fn speaks_http2(&self) -> bool {
        self.has_tls() && self.transport.borrow_mut().tls().is_some_and(|tls| tls.is_http2())
    }

    /// Returns the `Strict-Transport-Security` value for a response to an unreadable head, whose
    /// host is unknown. It is sent only if the client named a host in the TLS handshake, which is
    /// never an address.
    pub(crate) fn hsts(&self) -> Option<&HeaderValue> {
        let hsts = self.config.tls.as_ref()?.hsts()?;
        self.transport.borrow_mut().tls()?.server_name()?;
        Some(hsts)
    }

    /// Counts the connection among the handshakes under way.
    pub(crate) fn begin_handshake(&self) {
        if self.has_tls() {
            self.is_handshaking.set(true);
            self.shared.handshake_limit.begin();
        }
    }

    /// Stops counting the handshake, because it has completed or waits for the client.
    pub(crate) fn end_handshake(&self) {
        if self.is_handshaking.replace(false) {
            self.shared.handshake_limit.end();
        }
    }

    // ---- transport events ----

    /// Notes the result of a read.
    pub(crate) fn on_read(&self, read: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(n)) = *read {
            self.is_watched.set(n > 0);
        }
        self.activity.on_read(read, self.now());
    }

    /// Notes that `n` bytes of blank lines were read between two requests.
    pub(crate) fn on_blank_lines(&self, n: usize) {
        self.is_watched.set(true);
        self.activity.on_blank_lines(n);
    }

    /// Returns true if no request is under way and no part of a head has arrived.
    pub(crate) fn is_between_requests(&self) -> bool {
        self.activity.phase() == Phase::Idle
    }

    /// Notes that `bytes` of the next head have already been read, if any. Its deadline counts from
    /// the end of the previous response.
    pub(crate) fn on_head_left_over(&self, bytes: usize) {
        if bytes > 0 {
            self.activity.on_head_left_over(bytes);
        }
    }

    /// Writes the bytes that hyper provides, and the files whose placeholders are among them.
    pub(crate) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut transport = self.transport.borrow_mut();
        let mut sendfile_queue = self.sendfile_queue.borrow_mut();
        let written = match &mut *sendfile_queue {
            None => transport.poll_write_vectored(cx, buffers),
            Some(files) => {
                match files.poll_write(
                    cx,
                    &mut transport,
                    buffers,
                    &self.shared.scratch,
                    self.now(),
                ) {
                    WriteResult::Socket(written) => {
                        if files.left() == 0 {
                            *sendfile_queue = None;
                        }
                        written
                    }
                    WriteResult::DiskWait => {
                        self.activity.on_disk_wait();
                        return Poll::Pending;
                    }
                }
            }
        };
        self.activity.on_written(&written, self.now());
        written
    }

    /// Queues at most `left` bytes of a file, and returns the placeholder that hyper writes in
    /// place of the file's bytes.
    pub(crate) fn queue_file(&self, file: &Arc<SentFile>, at: u64, left: u64) -> Bytes {
        self.sendfile_queue.borrow_mut().get_or_insert_default().push(file, at, left)
    }

    /// Over TLS, waits until the system has accepted all encrypted bytes.
    pub(crate) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.has_tls() {
            return Poll::Ready(Ok(()));
        }
        let flushed = self.transport.borrow_mut().poll_flush(cx);
        if flushed.is_pending() {
            self.activity.on_written(&Poll::Pending, self.now());
        } else {
            self.activity.on_write_drained();
        }
        flushed
    }

    /// Notes that hyper has written all bytes that it had.
    pub(crate) fn on_all_written(&self) {
        if self.activity.phase() == Phase::Flush {
            self.activity.on_flushed(self.now());
            self.end_flush();
            if self.close_state.get() == CloseState::AfterResponse {
                self.close_state.set(CloseState::Now);
            }
        } else if self.activity.phase() == Phase::Stream {
            self.on_stream_flushed();
        }
    }

    /// Returns true if the bytes that hyper wants to write are its own error response to an
    /// unreadable head, and notes that the head was refused. The server discards these bytes and
    /// sends its own error response.
    pub(crate) fn suppress_hyper_error(&self) -> bool {
        let suppress_hyper_error = matches!(self.activity.phase(), Phase::Idle | Phase::Head);
        self.is_head_refused.set(self.is_head_refused.get() || suppress_hyper_error);
        suppress_hyper_error
    }

    // ---- memory ----

    /// Charges the connection for a read buffer of `bytes`. If the memory budget is exhausted,
    /// closes the connection and returns false.
    pub(crate) fn charge_buffer(&self, bytes: usize) -> bool {
        if bytes <= self.buffer.get() {
            return true;
        }
        let more = bytes - self.buffer.replace(bytes);
        let has = self.charge.bytes();
        if !self.shared.connections.admit(Share::Connections, has, more) {
            self.close_for_overload();
            return false;
        }
        self.charge.set(has + more);
        true
    }

    /// Returns true if the head fits into hyper's first buffer, which every connection is charged
    /// for.
    pub(crate) fn has_small_buffer(&self) -> bool {
        self.buffer.get() <= UNCHARGED_BYTES
    }

    /// Stores the waker of the task that drives the connection.
    pub(crate) fn set_waker(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }
}
