//! A connection: hyper driven over a [`Stream`], its deadlines, and the way out to a WebSocket.

mod deadline;
mod farewell;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use rookery_error::RequestHook;
use rookery_exchange::{Charge, Exchange, ListenerId, Share};

use self::farewell::{close, reject};
use crate::access_log::Line;
use crate::answer::answer;
use crate::descriptor::Served;
use crate::hub::Hub;
use crate::overload::FREE;
use crate::pace::Pace;
use crate::rejection::Rejection;
use crate::seats::Seat;
use crate::server::Site;
use crate::socket;
use crate::stream::{Socket, Stream};

/// What a connection is doing, which decides what it is given time for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Between requests.
    Idle,
    /// A head has begun to arrive.
    Head,
    /// A body is arriving.
    Body,
    /// The application works.
    Application,
    /// The reply is being made and written.
    Reply,
    /// The reply has been made; its last bytes are being written.
    Flush,
}

/// Everything about a connection but its hyper state machine.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) hub: Rc<Hub>,
    /// Its place among the hub's connections.
    pub(crate) key: Cell<usize>,
    /// Knows which request is being served.
    pub(crate) hook: Arc<RequestHook<Rejection>>,
    pub(crate) listener: ListenerId,
    pub(crate) site: Site,
    // Before the socket: a descriptor that was closed may be somebody else's by now.
    served: Served,
    /// Its place among those of its address, if they are counted.
    seat: Option<Seat>,
    pub(crate) socket: RefCell<Socket>,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) phase: Cell<Phase>,
    /// The tick of the last progress.
    since: Cell<u32>,
    /// Whether the last read or write had to wait for the peer.
    is_read_blocked: Cell<bool>,
    is_write_blocked: Cell<bool>,
    /// How fast the peer is at what it has to do.
    pace: Pace,
    /// Bytes of the head so far.
    head_read: Cell<u32>,
    /// Whether the end may wait for the peer to see it.
    lingers: Cell<bool>,
    /// What it is charged for: itself with what it reads into, and the reply that is being sent.
    pub(crate) charge: Charge,
    pub(crate) reply: Charge,
    /// Bytes of the buffer it reads into, and of the request under way.
    pub(crate) buffer: Cell<usize>,
    pub(crate) request_held: Cell<usize>,
    /// Bytes of that which a thread has that works on it: they do not go with the connection.
    pub(crate) away: Cell<usize>,
    /// What it was told to let go of, and has not yet.
    leaving: Cell<Option<(Share, usize)>>,
    /// Its number among all connections: the older has the lower.
    pub(crate) serial: u64,
    /// Whether the connection is to end: at once, or after the reply that the application owes.
    end: Cell<End>,
    waker: RefCell<Option<Waker>>,
    /// Whether hyper's table of headers is still the small one.
    is_small: Cell<bool>,
    /// Whether hyper has written an answer of its own to a head it could not read. It is not sent: ours is.
    is_refused: Cell<bool>,
    /// Whether the peer is looked at while the application works: not after a FIN or with bytes waiting.
    pub(crate) is_watched: Cell<bool>,
    /// Whether the peer has sent a FIN while the application works: it is asked each tick whether it is still there.
    is_half_closed: Cell<bool>,
    /// Whether it has been found that it is not.
    has_gone: Cell<bool>,
    /// Whether the request's body was left unread.
    pub(crate) has_rest: Cell<bool>,
    /// The accepted handshake of a WebSocket.
    pub(crate) upgrade: RefCell<Option<Box<Exchange>>>,
    /// The bytes of replies: split off, sent, and used again.
    pub(crate) out: RefCell<BytesMut>,
    /// The access log's line of the request under way.
    pub(crate) line: Line,
}

/// A socket and what goes with it.
#[derive(Debug)]
pub(crate) struct Transport {
    // Before the socket, as in a connection.
    _served: Served,
    _seat: Option<Seat>,
    _charge: Charge,
    pub(crate) socket: Socket,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    No,
    AfterReply,
    Now,
    /// The head was too slow.
    TimedOut,
    /// The body was.
    TooSlow,
    /// There is no room for the request.
    Overload,
}

impl End {
    fn is_now(self) -> bool {
        !matches!(self, End::No | End::AfterReply)
    }
}

impl Connection {
    pub(crate) fn new(
        hub: &Rc<Hub>,
        listener: ListenerId,
        site: &Site,
        socket: Socket,
        served: Served,
        ends: (Option<SocketAddr>, Option<SocketAddr>),
        seat: Option<Seat>,
    ) -> Rc<Connection> {
        Rc::new(Connection {
            hub: Rc::clone(hub),
            key: Cell::new(usize::MAX),
            hook: hub.reports.hook(),
            listener,
            site: site.clone(),
            socket: RefCell::new(socket),
            served,
            seat,
            remote: ends.0,
            local: ends.1,
            // Its first head has to come as soon as any other.
            phase: Cell::new(Phase::Head),
            since: Cell::new(hub.tick()),
            is_read_blocked: Cell::new(false),
            is_write_blocked: Cell::new(false),
            pace: Pace::default(),
            head_read: Cell::new(0),
            lingers: Cell::new(true),
            charge: Charge::new(&hub.budget, Share::Connections),
            reply: Charge::new(&hub.budget, Share::Replies),
            buffer: Cell::new(FREE),
            request_held: Cell::new(FREE),
            away: Cell::new(0),
            leaving: Cell::new(None),
            serial: hub.seats.next_serial(),
            end: Cell::new(End::No),
            waker: RefCell::default(),
            is_small: Cell::new(true),
            is_refused: Cell::new(false),
            is_watched: Cell::new(true),
            is_half_closed: Cell::new(false),
            has_gone: Cell::new(false),
            has_rest: Cell::new(false),
            upgrade: RefCell::default(),
            out: RefCell::default(),
            line: Line::default(),
        })
    }

    /// Notes progress.
    pub(crate) fn touch(&self) {
        self.since.set(self.hub.tick());
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.touch();
        self.pace.start();
    }

    /// Something was read, or nothing was there.
    pub(crate) fn has_read(&self, read: &Poll<io::Result<usize>>) {
        self.is_read_blocked.set(read.is_pending());
        let Poll::Ready(Ok(n)) = *read else { return };
        self.is_watched.set(n > 0);
        match self.phase.get() {
            Phase::Idle => self.enter(Phase::Head),
            // A head has all of its time from its first byte on, however it trickles.
            Phase::Head => {}
            _ => self.touch(),
        }
        match self.phase.get() {
            Phase::Head => self.head_read.set(self.head_read.get().saturating_add(n as u32)),
            Phase::Body => {}
            // The next request comes before this reply has been read: that is not reading it.
            _ => return,
        }
        self.pace.count(n);
    }

    pub(crate) fn has_written(&self, written: &Poll<io::Result<usize>>) {
        self.is_write_blocked.set(written.is_pending());
        if let Poll::Ready(written) = written {
            self.touch();
            self.pace.count(*written.as_ref().unwrap_or(&0));
        }
    }

    /// Bytes of the head so far; 0 when it is whole.
    pub(crate) fn head_read(&self) -> usize {
        if self.phase.get() == Phase::Head { self.head_read.get() as usize } else { 0 }
    }

    /// hyper has nothing more to write.
    pub(crate) fn has_flushed(&self) {
        if self.phase.get() == Phase::Flush {
            self.enter(Phase::Idle);
            self.head_read.set(0);
            self.reply.set(0);
            self.line.end(self.remote);
            if self.end.get() == End::AfterReply {
                self.end.set(End::Now);
            }
        }
    }

    /// Whether what hyper writes is an answer of its own to a head it could not read: those are ours to give.
    pub(crate) fn refuses(&self) -> bool {
        let refuses = matches!(self.phase.get(), Phase::Idle | Phase::Head);
        self.is_refused.set(self.is_refused.get() || refuses);
        refuses
    }

    /// Ends the connection: at once if no reply is owed, else after it. Says whether one is owed by the application.
    pub(crate) fn stop(&self) -> bool {
        let phase = self.phase.get();
        let owes = matches!(phase, Phase::Application | Phase::Reply | Phase::Flush);
        self.end.set(if owes { End::AfterReply } else { End::Now });
        self.wake();
        phase == Phase::Application
    }

    /// Ends the connection at once.
    pub(crate) fn abort(&self) {
        self.lingers.set(false);
        self.end.set(End::Now);
        self.wake();
    }

    /// Whether a reply must tell the client that the connection ends with it.
    pub(crate) fn is_ending(&self) -> bool {
        self.end.get() != End::No
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// What a WebSocket keeps: the rest of a connection is as large as all that it has itself.
    pub(crate) fn into_transport(self) -> Transport {
        Transport {
            _served: self.served,
            _seat: self.seat,
            _charge: self.charge,
            socket: self.socket.into_inner(),
        }
    }

    /// Whether the peer has reset the connection, or closed all of it where that can be told. Costs no system call unless the socket has something to tell.
    pub(crate) fn is_reset(&self, cx: &mut Context<'_>) -> bool {
        let socket = self.socket.borrow();
        while self.is_watched.get() {
            match socket.poll_read_ready(cx) {
                Poll::Pending => return false,
                Poll::Ready(Err(_)) => return true,
                Poll::Ready(Ok(())) => match socket.try_peek() {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return true,
                    // The next request: nothing changes before this one is answered.
                    Ok(1..) => self.is_watched.set(false),
                    Ok(0) => {
                        self.is_watched.set(false);
                        self.is_half_closed.set(true);
                        if socket.is_hung_up() {
                            return true;
                        }
                        // A client that closed has a system that answers a probe with a reset, once it has forgotten
                        // the connection (a minute, with Linux); that of one that still reads says that all is well.
                        socket.probe((self.hub.limits.idle_time / PROBES).clamp(PROBE_LEAST, PROBE_MOST));
                    }
                },
            }
        }
        self.has_gone.get()
    }
}

/// A peer that has sent a FIN is probed this often within the time for being idle, with these bounds: seldom enough
/// for the network, and often enough for an application that works for minutes.
const PROBES: u32 = 8;
const PROBE_LEAST: Duration = Duration::from_secs(1);
const PROBE_MOST: Duration = Duration::from_secs(15);

/// How driving hyper ended.
enum Outcome {
    Done,
    Ended(End),
    Failed(hyper::Error),
    Upgrade(Box<Exchange>),
}

/// hyper's own table of headers lies on its stack; one of 2,000 lines would be allocated for each request. So a
/// connection starts with the small one, and the rare head that does not fit is read again with the large one.
const SMALL_TABLE: usize = 100;

/// A connection that the hub knows of, until this is dropped: also when its task panics, or ends with the thread.
#[derive(Debug)]
pub(crate) struct Joined(Rc<Connection>);

impl Joined {
    pub(crate) fn new(connection: Rc<Connection>) -> Joined {
        connection.key.set(connection.hub.join(&connection));
        Joined(connection)
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.0.has_left();
        self.0.hub.leave(self.0.key.get());
    }
}

/// Serves a connection to its end.
pub(crate) async fn serve(joined: Joined) {
    let connection = Rc::clone(&joined.0);
    let mut rewound = Bytes::new();
    loop {
        let limits = &connection.hub.limits;
        let mut builder = http1::Builder::new();
        builder.half_close(true).title_case_headers(true).max_buf_size(limits.head_bytes.max(MIN_BUFFER));
        if !connection.is_small.get() || limits.header_lines < SMALL_TABLE {
            builder.max_headers(limits.header_lines);
        }
        let stream = Stream { connection: Rc::clone(&connection), rewound: std::mem::take(&mut rewound) };
        let service = service_fn(|request| answer(Rc::clone(&connection), request));
        let mut http = builder.serve_connection(stream, service);
        let outcome = {
            let mut http = Pin::new(&mut http);
            poll_fn(|cx| {
                {
                    let mut waker = connection.waker.borrow_mut();
                    if waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
                        *waker = Some(cx.waker().clone());
                    }
                }
                if connection.end.get().is_now() {
                    return Poll::Ready(Outcome::Ended(connection.end.get()));
                }
                match http.as_mut().poll(cx) {
                    Poll::Ready(Ok(())) => Poll::Ready(Outcome::Done),
                    Poll::Ready(Err(error)) => Poll::Ready(Outcome::Failed(error)),
                    Poll::Pending => {
                        if let Some(exchange) = connection.upgrade.borrow_mut().take() {
                            return Poll::Ready(Outcome::Upgrade(exchange));
                        }
                        // A reply was flushed after `stop`: hyper waits for the next request, which is not wanted.
                        match connection.end.get() {
                            end if end.is_now() => Poll::Ready(Outcome::Ended(end)),
                            _ => Poll::Pending,
                        }
                    }
                }
            })
            .await
        };
        match outcome {
            Outcome::Ended(End::TimedOut) => reject(&connection, Rejection::HeadTimeout),
            Outcome::Ended(End::Overload) => reject(&connection, Rejection::Overload),
            Outcome::Ended(End::TooSlow) => reject(&connection, Rejection::BodyTimeout),
            Outcome::Failed(error) if error.is_parse_too_large() && connection.is_refused.get() => {
                if connection.is_small.replace(false) && limits.header_lines > SMALL_TABLE {
                    connection.is_refused.set(false);
                    rewound = http.into_parts().read_buf;
                    continue;
                }
                reject(&connection, Rejection::HeadTooLarge);
            }
            // The preface of HTTP/2 is refused without a word.
            Outcome::Failed(error)
                if connection.is_refused.get()
                    || (error.is_parse() && connection.phase.get() == Phase::Head) =>
            {
                reject(&connection, Rejection::Unreadable);
            }
            Outcome::Done | Outcome::Ended(_) | Outcome::Failed(_) => {}
            Outcome::Upgrade(exchange) => {
                let read = http.into_parts().read_buf;
                connection.line.set_status(101);
                connection.line.end(connection.remote);
                drop(joined);
                // A task of its own: the one that held hyper is large, and a WebSocket lives long. Whatever could
                // wake that one would keep its memory; with the connection its wakers go.
                socket::spawn(connection, exchange, &read);
                return;
            }
        }
        break;
    }
    // hyper is gone, and with it the request and the reply.
    connection.settle();
    // Of a request whose client went away, or that was refused.
    connection.line.end(connection.remote);
    // A WebSocket that was accepted in the very turn in which the connection ended.
    let accepted = connection.upgrade.borrow_mut().take();
    if let Some(exchange) = accepted {
        connection.hub.pending.close(exchange.slot());
        connection.hub.disown(exchange);
    }
    close(&connection).await;
}

/// hyper takes no smaller buffer.
const MIN_BUFFER: usize = 8192;
