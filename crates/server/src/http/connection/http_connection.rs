//! A connection: everything about it but hyper's state machine.

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
use crate::http::request::head::came_by_https;
use crate::http::response::sendfile::{SendfileQueue, SentFile, WriteResult};
use crate::http::response::stream::response_stream::ResponseStream;
use crate::net::addresses::ConnectionAddresses;
use crate::net::tls::stream::TLS_BYTES;
use crate::net::transport::Transport;

pub(crate) use self::closing::{CloseState, ResetMode};

/// What a connection is charged.
pub(crate) fn connection_bytes(has_tls: bool) -> usize {
    if has_tls { CONNECTION_BYTES + TLS_BYTES } else { CONNECTION_BYTES }
}

/// Everything about a connection but hyper's state machine; or a stream of an HTTP/2 connection, which is one to its call: its
/// own peer with its own deadlines, without a transport and without a seat.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    pub(crate) shared: Rc<HttpState>,
    /// Its place among the peers.
    pub(crate) key: Cell<usize>,
    pub(crate) listener: ListenerId,
    pub(crate) config: ListenerConfig,
    pub(crate) transport: RefCell<Transport>,
    pub(crate) ends: Cell<ConnectionAddresses>,
    /// Whether the peer is a proxy whose word is taken.
    pub(crate) is_proxy: bool,
    /// Whom its certificate says the peer is.
    pub(crate) client_certificate: OnceCell<Arc<ClientCertificate>>,
    pub(crate) activity: Activity,
    /// What it is charged for: itself with what it reads into.
    pub(crate) charge: Charge,
    /// Bytes of the buffer it reads into.
    buffer: Cell<usize>,
    /// Whether its handshake is among those under way.
    is_handshaking: Cell<bool>,
    /// What it was told to let go of, and has not yet.
    pending_release: Cell<Option<(Share, usize)>>,
    serial: u64,
    /// Whether the connection is to end: at once, or after the reply that the application owes.
    pub(crate) close_state: Cell<CloseState>,
    /// Whether it ends with its next reply, or once it has been idle for a while.
    pub(crate) is_draining: Cell<bool>,
    /// Whether the end may wait for the peer to see it.
    pub(crate) may_linger: Cell<bool>,
    /// Whether it has been idle for long enough to give up its buffers.
    is_parked: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    /// Whether hyper has written an answer of its own to a head it could not read. It is not sent: ours is.
    pub(crate) is_head_refused: Cell<bool>,
    /// Whether the peer is looked at while the application works: not after a FIN or with bytes waiting.
    is_watched: Cell<bool>,
    /// Whether the peer has sent a FIN while the application works: it is asked each tick whether it is still there.
    is_half_closed: Cell<bool>,
    /// Whether it has been found that it is not.
    is_disconnected: Cell<bool>,
    /// Whether the application has had its time for the request.
    has_request_timed_out: Cell<bool>,
    /// Whether a request's body was left unread.
    pub(crate) has_unread_input: Cell<bool>,
    /// The accepted handshake of a WebSocket.
    pub(crate) accepted_websocket: RefCell<Option<Box<Exchange>>>,
    /// The files that are being sent.
    sendfile_queue: RefCell<Option<Box<SendfileQueue>>>,
    /// Those of the call whose reply has been made, and whose last bytes are being written.
    flushing: RefCell<Option<Box<ContextParts>>>,
    /// The reply that comes in pieces, until its last byte has been written.
    response_stream: RefCell<Option<Rc<ResponseStream>>>,
    /// Why it ends, where that is not its peer's doing.
    end_reason: Cell<Option<StreamEnd>>,
    /// Whether the connection is to end with a reset, because what its peer has of a reply must not look whole.
    pub(crate) reset_mode: Cell<ResetMode>,
    /// Over HTTP/2: what the streams have in common.
    http2_session: OnceCell<Rc<Http2Session>>,
    is_http2_stream: bool,
    /// Whether a stream has a part of a piece that has not been handed over: then not all has been written.
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

    /// A stream of an HTTP/2 connection, with what it is charged.
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
            // Its task is told by h2 when the peer gives it up.
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

    /// One that nothing has happened on.
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

    /// It is one of HTTP/2 from now on.
    pub(crate) fn set_http2_session(&self, session: Rc<Http2Session>) -> Rc<Http2Session> {
        Rc::clone(self.http2_session.get_or_init(|| session))
    }

    /// Whether it is a stream of an HTTP/2 connection.
    pub(crate) fn is_http2_stream(&self) -> bool {
        self.is_http2_stream
    }

    /// The session of an HTTP/2 connection, not of its streams.
    fn own_session(&self) -> Option<&Http2Session> {
        self.http2_session.get().filter(|_| !self.is_http2_stream).map(|session| &**session)
    }

    /// A head of so many bytes has been read, by h2: what is longer than usual is charged with its request.
    pub(crate) fn on_head_read(&self, bytes: usize) {
        self.buffer.set(bytes);
    }

    /// What the application has of a call whose client has gone.
    pub(crate) fn on_request_abandoned(&self, fate: &Arc<ExchangeStatus>) {
        if let Some(session) = self.http2_session.get() {
            session.add_abandoned(fate);
        }
    }

    /// Has its task polled.
    pub(crate) fn wake_task(&self) {
        TableEntry::wake(self);
    }

    /// Tells the application how the client came, and who it is.
    pub(crate) fn set_transport_info(&self, exchange: &mut Exchange, headers: &HeaderMap) {
        exchange.set_from_trusted_proxy(self.is_proxy);
        exchange.set_transport(
            came_by_https(headers, self.has_tls(), self.is_proxy),
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

    /// Whether its peer speaks HTTP/2, as TLS has agreed on (RFC 7301).
    pub(crate) fn speaks_http2(&self) -> bool {
        self.has_tls() && self.transport.borrow_mut().tls().is_some_and(|tls| tls.speaks_http2())
    }

    /// What browsers are told of coming by HTTPS alone, where the head of a request says nothing of its host: by the name that TLS was told,
    /// which is never an address.
    pub(crate) fn hsts(&self) -> Option<&HeaderValue> {
        let hsts = self.config.tls.as_ref()?.hsts()?;
        self.transport.borrow_mut().tls()?.server_name()?;
        Some(hsts)
    }

    /// Its handshake is under way.
    pub(crate) fn begin_handshake(&self) {
        if self.has_tls() {
            self.is_handshaking.set(true);
            self.shared.handshake_limit.begin();
        }
    }

    /// Its handshake has ended, or waits for the peer.
    pub(crate) fn end_handshake(&self) {
        if self.is_handshaking.replace(false) {
            self.shared.handshake_limit.end();
        }
    }

    // ---- what its transport did ----

    /// Something was read, or nothing was there.
    pub(crate) fn on_read(&self, read: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(n)) = *read {
            self.is_watched.set(n > 0);
        }
        self.activity.on_read(read, self.now());
    }

    /// Blank lines were read between two requests.
    pub(crate) fn on_blank_lines(&self, n: usize) {
        self.is_watched.set(true);
        self.activity.on_blank_lines(n);
    }

    /// Whether no request is under way and none has begun to come.
    pub(crate) fn is_between_requests(&self) -> bool {
        self.activity.phase() == Phase::Idle
    }

    /// Notes that `bytes` of the next head were read behind the request before, if any were: it has the time of a head from
    /// the end of the reply on.
    pub(crate) fn on_head_left_over(&self, bytes: usize) {
        if bytes > 0 {
            self.activity.on_head_left_over(bytes);
        }
    }

    /// Writes what hyper has for the peer, and the files whose place is among it.
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

    /// Queues a part of a file, of `left` bytes at most, to be sent where hyper writes what it is given for it.
    pub(crate) fn queue_file(&self, file: &Arc<SentFile>, at: u64, left: u64) -> Bytes {
        self.sendfile_queue.borrow_mut().get_or_insert_default().push(file, at, left)
    }

    /// Waits, over TLS, until the system has all that was written.
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

    /// hyper has nothing more to write.
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

    /// Whether what hyper writes is an answer of its own to a head it could not read: those are ours to give.
    pub(crate) fn suppress_hyper_error(&self) -> bool {
        let suppress_hyper_error = matches!(self.activity.phase(), Phase::Idle | Phase::Head);
        self.is_head_refused.set(self.is_head_refused.get() || suppress_hyper_error);
        suppress_hyper_error
    }

    // ---- room ----

    /// Charges a buffer of `bytes` to read into. `false` when the connection ends for want of it.
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

    /// Whether its head is in hyper's first buffer, which every connection is charged for.
    pub(crate) fn has_small_buffer(&self) -> bool {
        self.buffer.get() <= UNCHARGED_BYTES
    }

    /// Notes whose task drives the connection.
    pub(crate) fn set_waker(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }
}
