//! A connection: everything about it but hyper's state machine.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use rookery_exchange::{Charge, ClientCertificate, Departure, Exchange, ListenerId, Share};

use super::call_parts::CallParts;
use super::context::Http;
use super::head::came_by_https;
use super::http2::session::{Flushed, Session};
use super::sending::{Sending, Sent, SentFile};
use super::site::Site;
use super::standing::{Phase, Standing};
use super::stream::Stream;
use crate::net::listen::Ends;
use crate::net::tls::stream::TLS_BYTES;
use crate::net::transport::Transport;
use crate::peers::room::{CONNECTION_BYTES, FREE};
use crate::peers::table::Peer;

/// What a connection is charged.
pub(crate) fn connection_bytes(has_tls: bool) -> usize {
    if has_tls { CONNECTION_BYTES + TLS_BYTES } else { CONNECTION_BYTES }
}

/// Everything about a connection but hyper's state machine; or a stream of an HTTP/2 connection, which is one to its call: its
/// own peer with its own deadlines, without a transport and without a seat.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) http: Rc<Http>,
    /// Its place among the peers.
    pub(super) key: Cell<usize>,
    pub(super) listener: ListenerId,
    pub(super) site: Site,
    pub(super) transport: RefCell<Transport>,
    pub(super) ends: Cell<Ends>,
    /// Whether the peer is a proxy whose word is taken.
    pub(super) is_proxy: bool,
    /// Whom its certificate says the peer is.
    pub(super) client: OnceCell<Arc<ClientCertificate>>,
    pub(super) standing: Standing,
    /// What it is charged for: itself with what it reads into.
    pub(super) charge: Charge,
    /// Bytes of the buffer it reads into.
    buffer: Cell<usize>,
    /// Whether its handshake is among those under way.
    is_shaking: Cell<bool>,
    /// What it was told to let go of, and has not yet.
    leaving: Cell<Option<(Share, usize)>>,
    serial: u64,
    /// Whether the connection is to end: at once, or after the reply that the application owes.
    pub(super) end: Cell<End>,
    /// Whether the end may wait for the peer to see it.
    pub(super) lingers: Cell<bool>,
    /// Whether it has been idle for long enough to give up its buffers.
    is_parked: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    /// Whether hyper has written an answer of its own to a head it could not read. It is not sent: ours is.
    pub(super) is_refused: Cell<bool>,
    /// Whether the peer is looked at while the application works: not after a FIN or with bytes waiting.
    is_watched: Cell<bool>,
    /// Whether the peer has sent a FIN while the application works: it is asked each tick whether it is still there.
    is_half_closed: Cell<bool>,
    /// Whether it has been found that it is not.
    has_gone: Cell<bool>,
    /// Whether the application has had its time for the request.
    is_overdue: Cell<bool>,
    /// Whether a request's body was left unread.
    pub(super) has_rest: Cell<bool>,
    /// The accepted handshake of a WebSocket.
    pub(super) upgrade: RefCell<Option<Box<Exchange>>>,
    /// The files that are being sent.
    sending: RefCell<Option<Box<Sending>>>,
    /// Those of the call whose reply has been made, and whose last bytes are being written.
    flushing: RefCell<Option<Box<CallParts>>>,
    /// The reply that comes in pieces, until its last byte has been written.
    stream: RefCell<Option<Rc<Stream>>>,
    /// Why it ends, where that is not its peer's doing.
    departure: Cell<Option<Departure>>,
    /// Whether the connection is to end with a reset, because what its peer has of a reply must not look whole.
    pub(super) reset: Cell<Reset>,
    /// Over HTTP/2: what the streams have in common.
    session: OnceCell<Rc<Session>>,
    is_stream: bool,
    /// Whether a stream has a part of a piece that has not been handed over: then not all has been written.
    pub(super) holds_back: Cell<bool>,
}

/// How a connection ends whose peer has a part of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reset {
    No,
    /// When the peer's system has what was written, or the time of a close is over.
    Written,
    Now,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    No,
    AfterReply,
    Now,
    /// The head was too slow.
    HeadTimeout,
    /// The body was.
    BodyTimeout,
    /// There is no room for the request.
    Overload,
}

impl End {
    pub(super) fn is_now(self) -> bool {
        !matches!(self, End::No | End::AfterReply)
    }
}

impl Connection {
    pub(crate) fn new(
        http: &Rc<Http>,
        listener: ListenerId,
        site: &Site,
        transport: Transport,
        ends: Ends,
    ) -> Rc<Connection> {
        let standing = Standing::new(http.peers.clock.now(), site.greets());
        let charge = http.peers.charge(Share::Connections, connection_bytes(site.tls.is_some()));
        Rc::new(Connection {
            is_proxy: site.proxies.has(ends.remote.map(|remote| remote.ip())),
            ..Connection::fresh(http, listener, site, transport, ends, standing, charge)
        })
    }

    /// A stream of an HTTP/2 connection, with what it is charged.
    pub(super) fn of_stream(
        connection: &Connection,
        session: &Rc<Session>,
        charge: Charge,
    ) -> Rc<Connection> {
        let Connection { http, listener, site, ends, .. } = connection;
        let standing = Standing::of_stream(http.peers.clock.now());
        Rc::new(Connection {
            is_proxy: connection.is_proxy,
            client: connection.client.clone(),
            lingers: Cell::new(false),
            // Its task is told by h2 when the peer gives it up.
            is_watched: Cell::new(false),
            session: OnceCell::from(Rc::clone(session)),
            is_stream: true,
            ..Connection::fresh(http, *listener, site, Transport::within(), ends.get(), standing, charge)
        })
    }

    /// One that nothing has happened on.
    fn fresh(
        http: &Rc<Http>,
        listener: ListenerId,
        site: &Site,
        transport: Transport,
        ends: Ends,
        standing: Standing,
        charge: Charge,
    ) -> Connection {
        Connection {
            http: Rc::clone(http),
            key: Cell::new(usize::MAX),
            listener,
            site: site.clone(),
            transport: RefCell::new(transport),
            ends: Cell::new(ends),
            is_proxy: false,
            client: OnceCell::new(),
            standing,
            charge,
            buffer: Cell::new(FREE),
            is_shaking: Cell::new(false),
            leaving: Cell::new(None),
            serial: http.peers.next_serial(),
            end: Cell::new(End::No),
            lingers: Cell::new(true),
            is_parked: Cell::new(false),
            waker: RefCell::default(),
            is_refused: Cell::new(false),
            is_watched: Cell::new(true),
            is_half_closed: Cell::new(false),
            has_gone: Cell::new(false),
            is_overdue: Cell::new(false),
            has_rest: Cell::new(false),
            upgrade: RefCell::default(),
            sending: RefCell::default(),
            flushing: RefCell::default(),
            stream: RefCell::default(),
            departure: Cell::new(None),
            reset: Cell::new(Reset::No),
            session: OnceCell::new(),
            is_stream: false,
            holds_back: Cell::new(false),
        }
    }

    /// It is one of HTTP/2 from now on.
    pub(super) fn set_session(&self, session: Rc<Session>) -> Rc<Session> {
        Rc::clone(self.session.get_or_init(|| session))
    }

    /// Whether it is a stream of an HTTP/2 connection.
    pub(super) fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// The session of an HTTP/2 connection, not of its streams.
    fn own_session(&self) -> Option<&Session> {
        self.session.get().filter(|_| !self.is_stream).map(|session| &**session)
    }

    /// A head of so many bytes has been read, by h2: what is longer than usual is charged with its request.
    pub(super) fn has_head_of(&self, bytes: usize) {
        self.buffer.set(bytes);
    }

    /// What the application has of a call whose client has gone.
    pub(super) fn leaves_behind(&self, departed: &Arc<AtomicBool>) {
        if let Some(session) = self.session.get() {
            session.leaves_behind(departed);
        }
    }

    /// Has its task polled.
    pub(super) fn poll_again(&self) {
        Peer::wake(self);
    }

    /// Tells the application how the client came, and who it is.
    pub(super) fn show_transport(&self, exchange: &mut Exchange, headers: &HeaderMap) {
        exchange.set_believed(self.is_proxy);
        exchange
            .set_transport(came_by_https(headers, self.has_tls(), self.is_proxy), self.client.get().cloned());
    }

    fn now(&self) -> u32 {
        self.http.peers.clock.now()
    }

    pub(super) fn has_tls(&self) -> bool {
        self.site.tls.is_some()
    }

    pub(super) fn enter(&self, phase: Phase) {
        self.standing.enter(phase, self.now());
    }

    /// Whether its peer speaks HTTP/2, as TLS has agreed on (RFC 7301).
    pub(super) fn speaks_http2(&self) -> bool {
        self.has_tls() && self.transport.borrow_mut().tls().is_some_and(|tls| tls.speaks_http2())
    }

    /// What browsers are told of coming by HTTPS alone, where the head of a request says nothing of its host: by the name that TLS was told,
    /// which is never an address.
    pub(super) fn hsts(&self) -> Option<&HeaderValue> {
        let hsts = self.site.tls.as_ref()?.hsts()?;
        self.transport.borrow_mut().tls()?.server_name()?;
        Some(hsts)
    }

    /// Its handshake is under way.
    pub(super) fn begin_handshake(&self) {
        if self.has_tls() {
            self.is_shaking.set(true);
            self.http.handshakes.begin();
        }
    }

    /// Its handshake has ended, or waits for the peer.
    pub(super) fn end_handshake(&self) {
        if self.is_shaking.replace(false) {
            self.http.handshakes.end();
        }
    }

    // ---- what its transport did ----

    /// Something was read, or nothing was there.
    pub(super) fn has_read(&self, read: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(n)) = *read {
            self.is_watched.set(n > 0);
        }
        self.standing.has_read(read, self.now());
    }

    /// Writes what hyper has for the peer, and the files whose place is among it.
    pub(super) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut transport = self.transport.borrow_mut();
        let mut sending = self.sending.borrow_mut();
        let written = match &mut *sending {
            None => transport.poll_write_vectored(cx, buffers),
            Some(files) => match files.poll_write(cx, &mut transport, buffers, self.now()) {
                Sent::Socket(written) => {
                    if files.left() == 0 {
                        *sending = None;
                    }
                    written
                }
                Sent::Disk => {
                    self.standing.waits_for_disk();
                    return Poll::Pending;
                }
            },
        };
        self.standing.has_written(&written, self.now());
        written
    }

    /// Queues a part of a file, of `left` bytes at most, to be sent where hyper writes what it is given for it.
    pub(super) fn send_file(&self, file: &Arc<SentFile>, at: u64, left: u64) -> Bytes {
        self.sending.borrow_mut().get_or_insert_default().push(file, at, left)
    }

    /// Waits, over TLS, until the system has all that was written.
    pub(super) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.has_tls() {
            return Poll::Ready(Ok(()));
        }
        let flushed = self.transport.borrow_mut().poll_flush(cx);
        if flushed.is_pending() {
            self.standing.has_written(&Poll::Pending, self.now());
        } else {
            self.standing.has_left();
        }
        flushed
    }

    /// hyper has nothing more to write.
    pub(super) fn has_flushed(&self) {
        if self.standing.phase() == Phase::Flush {
            self.standing.has_flushed(self.now());
            self.end_flush();
            if self.end.get() == End::AfterReply {
                self.end.set(End::Now);
            }
        } else if self.standing.phase() == Phase::Stream {
            self.has_flushed_stream();
        }
    }

    /// Whether what hyper writes is an answer of its own to a head it could not read: those are ours to give.
    pub(super) fn refuses(&self) -> bool {
        let refuses = matches!(self.standing.phase(), Phase::Idle | Phase::Head);
        self.is_refused.set(self.is_refused.get() || refuses);
        refuses
    }

    // ---- its calls ----

    /// Another call begins; the one before, which has not been flushed, is done for the log.
    pub(super) fn begin_call(&self) {
        if let Some(parts) = &mut *self.flushing.borrow_mut() {
            parts.entry.end();
        }
        self.enter(Phase::Body);
        self.is_parked.set(false);
        self.has_rest.set(false);
        self.is_overdue.set(false);
        self.standing.request.set(FREE);
    }

    /// The reply of a call has been made: what is left of the call is kept until its last byte has been written.
    pub(super) fn flush(&self, parts: Box<CallParts>) {
        if let Some(before) = self.flushing.replace(Some(parts)) {
            let both = before.reply.bytes();
            self.http.keep(before);
            if let Some(parts) = &*self.flushing.borrow() {
                parts.reply.set(parts.reply.bytes() + both);
            }
        }
        if matches!(self.standing.phase(), Phase::Reply | Phase::Stream) {
            self.enter(Phase::Flush);
        }
    }

    fn end_flush(&self) {
        self.standing.reply.set(0);
        if let Some(parts) = self.flushing.take() {
            self.http.keep(parts);
        }
        self.end_stream(Departure::Done);
    }

    // ---- a reply that comes in pieces ----

    /// Its reply is a stream.
    pub(super) fn stream(&self, stream: &Rc<Stream>) {
        stream.join_peer(self.key.get());
        let limits = &self.http.peers.limits;
        self.transport.borrow().set_for_streaming(limits.idle_time);
        self.stream.replace(Some(Rc::clone(stream)));
        self.enter(Phase::Stream);
        if self.end.get() == End::AfterReply {
            stream.stop();
        }
    }

    /// Whether it goes on with a request's body, as the application wishes. One that ends with its reply does not: it would end now, had
    /// the application wished it a moment earlier. Of HTTP/2 whatever has begun is served.
    pub(super) fn may_receive(&self) -> bool {
        let ends = self.end.get() == End::AfterReply && !self.is_stream;
        if ends {
            self.end.set(End::Now);
        }
        !ends && !self.end.get().is_now()
    }

    /// The stream that is its reply.
    pub(super) fn open_stream(&self) -> Option<Rc<Stream>> {
        self.stream.borrow().clone()
    }

    fn has_flushed_stream(&self) {
        let is_to_be_polled = self.stream.borrow().as_ref().is_some_and(|stream| stream.has_flushed());
        if is_to_be_polled {
            self.wake();
        }
    }

    /// Whether there is nothing to be said any more to the client of a stream: it has gone, which a FIN tells as well while more may
    /// come, or the stream has failed.
    pub(super) fn is_stream_over(&self, cx: &mut Context<'_>) -> bool {
        let stream = self.stream.borrow();
        let is_cut = stream.as_ref().is_some_and(|stream| stream.is_cut());
        let is_handed_over = || stream.as_ref().is_some_and(|stream| stream.is_handed_over());
        is_cut || self.is_reset(cx) || (self.is_half_closed.get() && !is_handed_over())
    }

    /// Whether its stream goes on without hyper.
    pub(super) fn leaves_hyper(&self) -> bool {
        let stream = self.stream.borrow();
        self.standing.phase() == Phase::Stream && stream.as_ref().is_some_and(|stream| stream.leaves_hyper())
    }

    /// hyper is gone, and has left `read` bytes of what comes next; its stream goes on.
    pub(super) fn goes_on_without_hyper(&self, read: usize) {
        // The call ended with hyper: what is left of it is kept until the last byte of its reply has been written.
        self.enter(Phase::Stream);
        if let Some(parts) = &mut *self.flushing.borrow_mut() {
            parts.out = BytesMut::new();
        }
        if read == 0 {
            self.unpark();
        }
        self.http.peers.reclaim.expect();
    }

    /// Counts bytes of the reply that are written without hyper, for the log.
    pub(super) fn count_reply(&self, bytes: usize) {
        if let Some(parts) = &mut *self.flushing.borrow_mut() {
            parts.entry.add_bytes(bytes);
        }
    }

    /// The last byte of its stream has been written without hyper.
    pub(super) fn has_written_stream(&self) {
        let is_last = self.stream.borrow().as_ref().is_some_and(|stream| stream.is_last());
        self.enter(Phase::Flush);
        self.has_flushed();
        if is_last {
            self.end.set(End::Now);
        }
    }

    fn end_stream(&self, reason: Departure) {
        if let Some(stream) = self.stream.take() {
            self.http.streams.end(&stream, reason);
        }
    }

    /// Decides why what it owes its peer ends, if it is not whole by then.
    fn decide(&self, reason: Departure) {
        self.departure.set(self.departure.get().or(Some(reason)));
        if let Some(stream) = &*self.stream.borrow() {
            stream.decide(reason);
        }
    }

    /// Whether it is to give up what an idle connection does not need.
    pub(super) fn may_park(&self) -> bool {
        self.is_parked.get() && self.standing.phase() == Phase::Idle
    }

    /// It has given that up, and what it reads next needs it again.
    pub(super) fn unpark(&self) {
        self.is_parked.set(false);
        self.buffer.set(FREE);
        self.charge.set(connection_bytes(self.has_tls()));
    }

    // ---- its end ----

    /// Whether a reply must tell the client that the connection ends with it.
    pub(super) fn closes_after_reply(&self) -> bool {
        self.end.get() != End::No || self.has_rest.get()
    }

    /// Ends the connection at once if `end` says so, and has its task see to it.
    fn end(&self, end: End) {
        self.end.set(end);
        self.wake();
    }

    /// Ends what is too slow: with 408 where no answer has begun and the peer has sent something.
    fn give_up(&self) {
        self.decide(Departure::Timeout);
        self.end(match self.standing.phase() {
            _ if !self.standing.can_be_answered() => End::Now,
            Phase::Head => End::HeadTimeout,
            _ => End::BodyTimeout,
        });
    }

    /// Ends the connection for want of room: with 503 where no answer has begun and the peer has sent something.
    fn overload(&self) {
        self.decide(Departure::Slow);
        self.end(if self.standing.can_be_answered() { End::Overload } else { End::Now });
    }

    /// hyper is gone, and with it the request and the reply: all that was charged beside the connection itself is gone.
    pub(super) fn settle(&self) {
        self.end_handshake();
        if let Some(stream) = &*self.stream.borrow() {
            self.reset.set(if stream.is_cut() { Reset::Written } else { Reset::Now });
        }
        let streamed = self.stream.borrow().as_ref().and_then(|stream| stream.decided());
        self.end_stream(Departure::Client);
        if let Some(parts) = &mut *self.flushing.borrow_mut() {
            // Had its last byte been written, they would not be here.
            parts.entry.abort(streamed.or(self.departure.get()).unwrap_or(Departure::Client));
        }
        self.has_left();
        self.charge.set(connection_bytes(self.has_tls()).min(self.charge.bytes()));
        if let (Some(files), Some(parts)) = (self.sending.take(), &mut *self.flushing.borrow_mut()) {
            // hyper has been told of it, and the log by that.
            parts.entry.take_back(files.left());
        }
        self.end_flush();
    }

    /// What it was told to let go of is not waited for any more.
    fn has_left(&self) {
        if let Some((share, held)) = self.leaving.take() {
            self.http.peers.has_left(share, held);
        }
    }

    /// What is left for a WebSocket; `None` while somebody else has the connection.
    pub(super) fn into_transport(self: Rc<Self>) -> Option<(Transport, Charge)> {
        let connection = Rc::into_inner(self)?;
        Some((connection.transport.into_inner(), connection.charge))
    }

    // ---- room ----

    /// Charges a buffer of `bytes` to read into. `false` when the connection ends for want of it.
    pub(super) fn hold_buffer(&self, bytes: usize) -> bool {
        if bytes <= self.buffer.get() {
            return true;
        }
        let more = bytes - self.buffer.replace(bytes);
        let has = self.charge.bytes();
        if !self.http.peers.make_room(Share::Connections, has, more) {
            self.overload();
            return false;
        }
        self.charge.set(has + more);
        true
    }

    /// Whether its head is in hyper's first buffer, which every connection is charged for.
    pub(super) fn has_small_buffer(&self) -> bool {
        self.buffer.get() <= FREE
    }

    // ---- who waits, and whether there is anybody to answer ----

    /// Notes whose task drives the connection.
    pub(super) fn set_waker(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }

    /// Whether the peer has reset the connection, or closed all of it where that can be told. Costs no system call unless
    /// the transport has something to tell.
    pub(super) fn is_reset(&self, cx: &mut Context<'_>) -> bool {
        let mut transport = self.transport.borrow_mut();
        while self.is_watched.get() {
            match transport.poll_read_ready(cx) {
                Poll::Pending => return false,
                Poll::Ready(Err(_)) => return true,
                Poll::Ready(Ok(())) => match transport.try_peek(cx) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return true,
                    // The next request: nothing changes before this one is answered.
                    Ok(1..) => self.is_watched.set(false),
                    Ok(0) => {
                        self.is_watched.set(false);
                        self.is_half_closed.set(true);
                        if transport.is_hung_up() {
                            return true;
                        }
                        // A client that closed has a system that answers a probe with a reset, once it has forgotten
                        // the connection (a minute, with Linux); that of one that still reads says that all is well.
                        let idle = self.http.peers.limits.idle_time;
                        transport.probe((idle / PROBES).clamp(PROBE_LEAST, PROBE_MOST));
                    }
                },
            }
        }
        self.has_gone.get()
    }

    /// Whether the application has had its time for the request.
    pub(super) fn is_overdue(&self) -> bool {
        self.is_overdue.get()
    }

    /// Whether the peer has sent a FIN behind bytes that are not read before the reply has ended: a system call, where
    /// nothing else would tell.
    fn has_shut(&self) -> bool {
        !self.is_watched.get() && !self.is_half_closed.get() && self.transport.borrow().has_peer_shut()
    }
}

/// Ticks after which an idle connection gives its buffers up: they are made anew with the next request, which costs two
/// allocations, so not at once.
const PARK_TICKS: u32 = 2;

/// A peer that has sent a FIN is probed this often within the time for being idle, with these bounds: seldom enough
/// for the network, and often enough for an application that works for minutes.
const PROBES: u32 = 8;
const PROBE_LEAST: Duration = Duration::from_secs(1);
const PROBE_MOST: Duration = Duration::from_secs(15);

impl Peer for Connection {
    fn listener(&self) -> ListenerId {
        self.listener
    }

    fn serial(&self) -> u64 {
        self.serial
    }

    fn sweep(&self, now: u32) {
        if let Some(session) = self.own_session() {
            return self.sweep_session(session, now);
        }
        if self.standing.phase() == Phase::Stream {
            if self.has_shut() {
                self.is_half_closed.set(true);
                self.wake();
            }
            if let Some(stream) = self.open_stream() {
                stream.sweep(now);
            }
        }
        if self.is_owed()
            && self.is_half_closed.get()
            && !self.has_gone.get()
            && self.transport.borrow().is_hung_up()
        {
            self.has_gone.set(true);
            self.wake();
        }
        if self.standing.is_overdue(&self.http.peers.clock.ticks, now) && !self.is_overdue.replace(true) {
            self.wake();
        }
        if self.session.get().is_some_and(|session| session.is_blocked()) {
            // Its own peer may take what another stream keeps from it.
            self.standing.excuse(now);
        }
        let unsent = || self.transport.borrow().unsent();
        if self.may_be_late() && self.standing.is_late(&self.http.peers.clock.ticks, now, unsent) {
            self.give_up();
        } else if self.standing.is_idle_for(PARK_TICKS, now) && !self.is_parked.replace(true) {
            self.wake();
        }
    }

    fn slowness(&self, now: u32) -> Option<u32> {
        if self.is_ending() || !self.may_be_late() {
            return None;
        }
        match self.own_session().filter(|session| session.has_streams()) {
            Some(session) => session.slowness(now),
            None => self.standing.slowness(&self.http.peers.clock.ticks, now),
        }
    }

    fn held(&self, share: Share) -> usize {
        match &*self.stream.borrow() {
            _ if self.is_ending() => 0,
            // What its streams hold is had from them.
            _ if self.own_session().is_some_and(Session::has_streams) => 0,
            Some(stream) if share == Share::Queues => stream.held(),
            _ => self.standing.held(share, self.charge.bytes()),
        }
    }

    fn evict(&self, share: Share, held: usize) {
        let away = if share == Share::Requests { self.standing.away.get() } else { 0 };
        let leaving = held.saturating_sub(away);
        self.http.peers.expect_to_leave(share, leaving);
        self.leaving.set(Some((share, leaving)));
        self.overload();
    }

    fn give_seat(&self) {
        self.lingers.set(false);
        self.give_up();
    }

    fn stop(&self) {
        let phase = self.standing.phase();
        // Over HTTP/2 whatever has begun is served, and the peer is told that nothing else is.
        let owes = self.session.get().is_some()
            || matches!(phase, Phase::Application | Phase::Reply | Phase::Stream | Phase::Flush);
        if phase == Phase::Idle && owes {
            // From now on it has the time of a close.
            self.enter(Phase::Idle);
        }
        self.end(if owes { End::AfterReply } else { End::Now });
        if let Some(stream) = self.open_stream() {
            stream.stop();
        }
    }

    fn abort(&self) {
        self.decide(Departure::Stop);
        self.lingers.set(false);
        self.end(End::Now);
    }

    fn is_owed(&self) -> bool {
        match self.own_session() {
            None => self.standing.phase() == Phase::Application,
            Some(session) => session.is_owed(),
        }
    }

    fn has_seat(&self) -> bool {
        !self.is_stream
    }

    fn is_unfinished(&self) -> bool {
        match self.own_session() {
            // That its peer hears of the end is not waited for when nothing is under way.
            Some(session) => !session.has_streams(),
            None if self.is_stream && self.standing.phase() == Phase::Body => true,
            None => self.open_stream().is_some_and(|stream| stream.is_open()),
        }
    }

    fn is_ending(&self) -> bool {
        self.end.get() != End::No
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

impl Connection {
    /// Whether it is given up for what its peer is late with. A supervisor has its own deadlines for the clients that it speaks for, and what it
    /// keeps for the next request is not to be closed in its face; but what ends is not waited for without end.
    fn may_be_late(&self) -> bool {
        !self.site.is_supervised() || self.is_ending()
    }

    /// Looks at the deadlines of an HTTP/2 connection; its streams have their own.
    fn sweep_session(&self, session: &Session, now: u32) {
        let ticks = &self.http.peers.clock.ticks;
        let is_late_head =
            session.unfinished_since().is_some_and(|since| now.wrapping_sub(since) > ticks.head);
        let is_late_end = self.end.get() == End::AfterReply && self.standing.is_idle_for(ticks.close, now);
        if session.has_only_sockets() && !self.is_ending() {
            self.standing.excuse(now);
        }
        let unsent = || self.transport.borrow().unsent();
        if is_late_head || is_late_end || self.standing.is_late(ticks, now, unsent) {
            self.give_up();
        }
    }
}

impl Flushed for Connection {
    fn has_flushed(&self) {
        if !self.holds_back.get() {
            Connection::has_flushed(self);
            self.wake();
        }
    }

    fn is_lost(&self) {
        self.end(End::Now);
    }
}
