//! The server's own state of an HTTP connection, which complements the state in the HTTP libraries
//! hyper and h2.

mod closing;
mod memory_charge;
mod request_lifecycle;
mod table_entry;

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use rookery_exchange::{
    Charge, ClientCertificate, Exchange, ExchangeStatus, ListenerId, Peer, Share, StreamEnd,
};

use crate::connections::admission::{UNCHARGED_BYTES, idle_bytes};
use crate::connections::client_task;
use crate::connections::table::TableEntry;
use crate::http::connection::activity::{Activity, Phase};
use crate::http::http_state::HttpState;
use crate::http::http2::connection_state::Http2State;
use crate::http::listener_config::ListenerConfig;
use crate::http::request::client_address::client_address;
use crate::http::request::context_pool::ContextParts;
use crate::http::request::head::used_https;
use crate::http::response::sendfile::{SendfileQueue, SentFile, WriteResult};
use crate::http::response::stream::response_stream::ResponseStream;
use crate::net::addresses::ConnectionAddresses;
use crate::net::transport::Transport;

pub(crate) use self::closing::{CloseState, ResetMode, WaitAborted};

/// The server's own state of an HTTP connection, which complements the state in the HTTP libraries
/// hyper and h2. [`Phase`] documents the state transitions.
///
/// Each stream of an HTTP/2 connection also has an `HttpConnection`, with its own deadlines. The
/// `HttpConnection` of a stream has no transport, because all streams use the transport of their
/// connection.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    pub(crate) shared: Rc<HttpState>,
    /// The key of the connection in the connection table.
    pub(crate) key: Cell<usize>,
    pub(crate) listener: ListenerId,
    pub(crate) config: Rc<ListenerConfig>,
    pub(crate) transport: RefCell<Transport>,
    pub(crate) ends: Cell<ConnectionAddresses>,
    /// True if the client is a trusted proxy, so that the server uses its `X-Forwarded-*` headers.
    /// The client is the peer of the connection or the client that a PROXY header names.
    is_proxy: Cell<bool>,
    /// The peer that is this connection.
    peer: Cell<Peer>,
    /// The peer to which the current request is attributed; between two requests, that of the last.
    peer_of_request: Cell<Peer>,
    /// The identity in the client's TLS certificate, if the client sent one.
    pub(crate) client_certificate: OnceCell<Arc<ClientCertificate>>,
    pub(crate) activity: Activity,
    /// The charge to the memory budget for the connection and its read buffer.
    pub(crate) charge: Charge,
    /// The number of bytes of a request body that may arrive on this stream of a trusted proxy's
    /// HTTP/2 connection before the server reads them.
    pub(crate) body_window: Cell<usize>,
    /// The size of the connection's read buffer in bytes.
    buffer: Cell<usize>,
    /// The memory that will be freed when this connection closes: the part of the memory budget to
    /// which it belongs, and the number of bytes. `None` unless the connection is being closed to
    /// free memory.
    pending_release: Cell<Option<(Share, usize)>>,
    serial: u64,
    /// The decision whether and when the connection is closed, and with which error response.
    pub(crate) close_state: Cell<CloseState>,
    /// True if the server may delay closing the connection until the client has read the response.
    pub(crate) may_linger: Cell<bool>,
    /// True if the connection has been idle for so long that its buffers were freed.
    is_parked: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    /// True if hyper could not parse the request head. The server then discards hyper's error
    /// response and sends its own.
    pub(crate) is_head_refused: Cell<bool>,
    /// True while the server watches the transport, so that it notices immediately when the client
    /// disconnects.
    is_watched: Cell<bool>,
    /// True if the client sent a FIN while the application was processing its request. The server
    /// then checks periodically whether the client is still connected.
    is_half_closed: Cell<bool>,
    /// True once the server has found that the client, which had half-closed the connection before,
    /// has disconnected completely.
    is_disconnected: Cell<bool>,
    /// The status of the current request, while the server waits for the application's response.
    pending_status: RefCell<Option<Arc<ExchangeStatus>>>,
    /// The reason why the server must stop waiting for the application's response to the current
    /// request, if there is one.
    pub(crate) wait_end: Cell<Option<WaitAborted>>,
    /// True if the server left bytes from the client unread. The server must then discard further
    /// input for some time before it closes the connection, so that the client can read the
    /// response.
    pub(crate) has_unread_input: Cell<bool>,
    /// The request and response of a WebSocket opening handshake that the application has accepted.
    pub(crate) accepted_websocket: RefCell<Option<Box<Exchange>>>,
    /// The files that are being sent by `sendfile`, which copies no bytes to this process.
    sendfile_queue: RefCell<Option<Box<SendfileQueue>>>,
    /// The reusable parts of the request context (the server's data about a request), kept until
    /// the complete response has been written.
    flushing: RefCell<Option<Box<ContextParts>>>,
    /// The current streamed response, until its last byte has been written.
    response_stream: RefCell<Option<Rc<ResponseStream>>>,
    /// The reason why the server ends an incomplete response. `None` if the client caused the end.
    end_reason: Cell<Option<StreamEnd>>,
    /// The decision whether the connection is closed with a TCP reset, so that the client cannot
    /// mistake an incomplete response for a complete one.
    pub(crate) reset_mode: Cell<ResetMode>,
    /// The state that all streams of this HTTP/2 connection share. Unset for HTTP/1.1.
    http2_state: OnceCell<Rc<Http2State>>,
    is_http2_stream: bool,
    /// True if a part of a response chunk has not been passed to h2 yet. The response is then
    /// incomplete even if h2 has written all bytes that it got.
    pub(crate) has_partial_chunk: Cell<bool>,
}

impl HttpConnection {
    /// Creates the state of a connection that has just been accepted. `network` is the number of
    /// the client's network.
    pub(crate) fn new(
        shared: &Rc<HttpState>,
        listener: ListenerId,
        config: &Rc<ListenerConfig>,
        transport: Transport,
        (ends, network): (ConnectionAddresses, u64),
    ) -> Rc<HttpConnection> {
        let activity = Activity::new(shared.connections.clock.now(), config.has_handshake());
        let charge =
            shared.connections.charge(Share::Connections, idle_bytes(config.tls.is_some()));
        let connection =
            HttpConnection::initial(shared, listener, config, transport, ends, activity, charge);
        let remote = ends.remote.map(|remote| remote.ip());
        let peer = Peer::new(connection.serial, network);
        connection.is_proxy.set(config.proxies.contains(remote));
        connection.peer.set(peer);
        connection.peer_of_request.set(peer);
        Rc::new(connection)
    }

    /// Creates the state of an HTTP/2 stream for a request of `peer`. `charge` is the charge to the
    /// memory budget for the stream.
    pub(crate) fn for_http2_stream(
        connection: &HttpConnection,
        state: &Rc<Http2State>,
        charge: Charge,
        peer: Peer,
    ) -> Rc<HttpConnection> {
        let HttpConnection { shared, listener, config, ends, .. } = connection;
        let activity = Activity::for_http2_stream(shared.connections.clock.now());
        Rc::new(HttpConnection {
            is_proxy: connection.is_proxy.clone(),
            peer: connection.peer.clone(),
            peer_of_request: Cell::new(peer),
            client_certificate: connection.client_certificate.clone(),
            may_linger: Cell::new(false),
            // h2 notifies the stream's task when the client resets the stream.
            is_watched: Cell::new(false),
            http2_state: OnceCell::from(Rc::clone(state)),
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

    /// Returns the initial state of a connection that has exchanged no bytes yet.
    fn initial(
        shared: &Rc<HttpState>,
        listener: ListenerId,
        config: &Rc<ListenerConfig>,
        transport: Transport,
        ends: ConnectionAddresses,
        activity: Activity,
        charge: Charge,
    ) -> HttpConnection {
        HttpConnection {
            shared: Rc::clone(shared),
            key: Cell::new(usize::MAX),
            listener,
            config: Rc::clone(config),
            transport: RefCell::new(transport),
            ends: Cell::new(ends),
            is_proxy: Cell::new(false),
            peer: Cell::default(),
            peer_of_request: Cell::default(),
            client_certificate: OnceCell::new(),
            activity,
            charge,
            body_window: Cell::new(0),
            buffer: Cell::new(UNCHARGED_BYTES),
            pending_release: Cell::new(None),
            serial: shared.connections.next_serial(),
            close_state: Cell::new(CloseState::Open),
            may_linger: Cell::new(true),
            is_parked: Cell::new(false),
            waker: RefCell::default(),
            is_head_refused: Cell::new(false),
            is_watched: Cell::new(true),
            is_half_closed: Cell::new(false),
            is_disconnected: Cell::new(false),
            pending_status: RefCell::default(),
            wait_end: Cell::new(None),
            has_unread_input: Cell::new(false),
            accepted_websocket: RefCell::default(),
            sendfile_queue: RefCell::default(),
            flushing: RefCell::default(),
            response_stream: RefCell::default(),
            end_reason: Cell::new(None),
            reset_mode: Cell::new(ResetMode::None),
            http2_state: OnceCell::new(),
            is_http2_stream: false,
            has_partial_chunk: Cell::new(false),
        }
    }

    /// Marks this connection as an HTTP/2 connection, and returns `state`, the state that all its
    /// streams share.
    pub(crate) fn set_http2_state(&self, state: Rc<Http2State>) -> Rc<Http2State> {
        Rc::clone(self.http2_state.get_or_init(|| state))
    }

    /// Returns true if this is a stream of an HTTP/2 connection.
    pub(crate) fn is_http2_stream(&self) -> bool {
        self.is_http2_stream
    }

    /// Returns the state that all streams share if this is an HTTP/2 connection. Returns `None` for
    /// one of its streams, and for an HTTP/1.1 connection.
    fn own_http2_state(&self) -> Option<&Http2State> {
        self.http2_state.get().filter(|_| !self.is_http2_stream).map(|state| &**state)
    }

    /// Records the size of a request head that h2 has read, so that the memory budget can be
    /// charged for a large head.
    pub(crate) fn on_head_read(&self, bytes: usize) {
        self.buffer.set(bytes);
    }

    /// Records a request that the application still processes although its client has disconnected.
    pub(crate) fn on_request_abandoned(&self, status: &Arc<ExchangeStatus>) {
        if let Some(state) = self.http2_state.get() {
            state.add_abandoned(self.peer_of_request(), status);
        }
    }

    /// Wakes the task that drives this connection.
    pub(crate) fn wake_task(&self) {
        TableEntry::wake(self);
    }

    /// Stores in the exchange (the object of the request and its response) whether the client is a
    /// trusted proxy, whether it used HTTPS, and its TLS certificate.
    pub(crate) fn set_transport_info(&self, exchange: &mut Exchange, headers: &HeaderMap) {
        exchange.set_from_trusted_proxy(self.is_proxy());
        exchange.set_transport(
            used_https(headers, self.has_tls(), self.is_proxy()),
            self.client_certificate.get().cloned(),
        );
    }

    /// Returns true if the client is a trusted proxy, so that the server uses its `X-Forwarded-*`
    /// headers.
    pub(crate) fn is_proxy(&self) -> bool {
        self.is_proxy.get()
    }

    /// Returns true if the requests on the connection may be those of several clients: a trusted
    /// proxy has opened the connection, and has not named its client in a PROXY header.
    pub(crate) fn is_shared_by_clients(&self) -> bool {
        let remote = self.ends.get().remote;
        self.is_proxy() && self.config.proxies.contains(remote.map(|remote| remote.ip()))
    }

    /// Returns the address of the client of a request with these headers, which trusted proxies may
    /// have added.
    pub(crate) fn client_address(&self, headers: &HeaderMap) -> Option<SocketAddr> {
        let peer = self.ends.get().remote;
        if self.is_proxy() { client_address(headers, peer, &self.config.proxies) } else { peer }
    }

    /// Attributes the current request to the client with this address, if a trusted proxy has named
    /// it, or else to the connection.
    pub(crate) fn attribute_request(&self, client: Option<SocketAddr>) {
        // A stream has had its peer since it was opened.
        if self.is_proxy() && !self.is_http2_stream {
            let peer = self.peer_of_client(client);
            self.set_peer_of_request(peer);
            client_task::set_network(self.turns_of(peer));
        }
    }

    /// Returns the network with which what belongs to `peer` takes turns. A connection that several
    /// clients share takes turns as a network of its own.
    pub(crate) fn turns_of(&self, peer: Peer) -> u64 {
        let is_own = peer == self.peer.get() && self.is_shared_by_clients();
        if is_own { self.serial } else { peer.network() }
    }

    /// Lets a trusted proxy's connection take turns by itself until its next request, which may be
    /// that of another client.
    pub(crate) fn leave_client(&self) {
        if self.is_proxy() && self.is_between_requests() {
            client_task::set_network(self.turns_of(self.peer.get()));
        }
    }

    /// Returns the peer to which a request with these headers is attributed.
    pub(crate) fn peer_of(&self, headers: &HeaderMap) -> Peer {
        if !self.is_proxy() {
            return self.peer.get();
        }
        self.peer_of_client(self.client_address(headers))
    }

    fn peer_of_client(&self, client: Option<SocketAddr>) -> Peer {
        match client {
            Some(address) if client != self.ends.get().remote => {
                self.shared.connections.peers.forwarded(address.ip())
            }
            _ => self.peer.get(),
        }
    }

    fn set_peer_of_request(&self, peer: Peer) {
        let before = self.peer_of_request.replace(peer);
        let files = self.activity.charged(Share::Descriptors);
        if files > 0 {
            self.count_open_files(before, files, 0);
            self.count_open_files(peer, 0, files);
        }
        if !self.is_http2_stream {
            self.shared.connections.set_network(self.key.get(), peer.network());
        }
    }

    /// Returns the peer to which the current request is attributed.
    pub(crate) fn peer_of_request(&self) -> Peer {
        self.peer_of_request.get()
    }

    /// Replaces the addresses of the connection by those in its PROXY header.
    pub(crate) fn set_announced_addresses(&self, ends: ConnectionAddresses) {
        let remote = ends.remote.map(|remote| remote.ip());
        let is_proxy = self.config.proxies.contains(remote);
        self.peer.set(self.shared.connections.peers.connection(self.serial, remote));
        self.set_peer_of_request(self.peer.get());
        self.is_proxy.set(self.is_proxy() || is_proxy);
        self.ends.set(ends);
        client_task::set_network(self.turns_of(self.peer.get()));
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

    /// Returns the `Strict-Transport-Security` value for a response to an unreadable request head.
    /// Returns `None` unless the client named a host in the TLS handshake.
    pub(crate) fn hsts(&self) -> Option<&HeaderValue> {
        let hsts = self.config.tls.as_ref()?.hsts()?;
        // A server name in a TLS handshake is never an IP address.
        self.transport.borrow_mut().tls()?.server_name()?;
        Some(hsts)
    }

    // ---- transport events ----

    /// Records the result of a read from the client.
    pub(crate) fn on_read(&self, read: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(n)) = *read {
            self.is_watched.set(n > 0);
        }
        self.activity.on_read(read, self.now());
    }

    /// Records that the client sent `n` bytes of blank lines between two requests.
    pub(crate) fn on_blank_lines(&self, n: usize) {
        self.is_watched.set(true);
        self.activity.on_blank_lines(n);
    }

    /// Keeps the first bytes of a request head for the access log, if `read`, which has just been
    /// read, belongs to one.
    pub(crate) fn keep_head_start(&self, read: &[u8]) {
        if !self.shared.log.is_on() {
            return;
        }
        let (head_start, key) = (&self.shared.head_start, self.key.get());
        match self.activity.phase() {
            Phase::Head if self.activity.head_bytes() > 0 => head_start.extend(key, read),
            Phase::Idle | Phase::Head => head_start.keep(key, read),
            _ => {}
        }
    }

    /// Returns true if no request is under way on the connection and no part of a request head has
    /// arrived.
    pub(crate) fn is_between_requests(&self) -> bool {
        self.activity.phase() == Phase::Idle
    }

    /// Records that `bytes` bytes (possibly 0) of the next request head had already been read when
    /// the previous response ended. If there are any, the time limit for that head begins at the
    /// end of the response.
    pub(crate) fn on_head_left_over(&self, bytes: usize) {
        if bytes > 0 {
            self.activity.on_head_left_over(bytes);
        }
    }

    /// Writes response bytes from hyper to the client. Where hyper passes the placeholder that
    /// [`queue_file`](Self::queue_file) has returned, writes the contents of the file instead.
    pub(crate) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut transport = self.transport.borrow_mut();
        let mut sendfile_queue = self.sendfile_queue.borrow_mut();
        let written = match &mut *sendfile_queue {
            None => match client_task::write_limit() {
                None => transport.poll_write_vectored(cx, buffers),
                Some(max) => transport.poll_write_at_most(cx, max, buffers),
            },
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
        if let Poll::Ready(Ok(n)) = written {
            client_task::on_written(n);
        }
        self.activity.on_written(&written, self.now());
        written
    }

    /// Queues at most `left` bytes of a file for sending, starting at offset `at`. Returns
    /// placeholder bytes for hyper, which the connection replaces by the file's contents when hyper
    /// writes them.
    pub(crate) fn queue_file(&self, file: &Arc<SentFile>, at: u64, left: u64) -> Bytes {
        let mut queue = self.sendfile_queue.borrow_mut();
        queue.get_or_insert_default().push(self.peer_of_request(), file, at, left)
    }

    /// Waits until the operating system has accepted all encrypted bytes. Does nothing on a
    /// plaintext connection.
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

    /// Records that hyper has written all bytes that it had for the client.
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

    /// Returns true if hyper wants to write its own error response to an unreadable request head.
    /// If so, also sets `is_head_refused`, so that the server sends its own response instead.
    pub(crate) fn suppress_hyper_error(&self) -> bool {
        let suppress_hyper_error = matches!(self.activity.phase(), Phase::Idle | Phase::Head);
        self.is_head_refused.set(self.is_head_refused.get() || suppress_hyper_error);
        suppress_hyper_error
    }

    // ---- memory ----

    /// Stores the waker of the task that drives the connection.
    pub(crate) fn set_waker(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }
}
