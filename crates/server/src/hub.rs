//! What the tasks of the I/O thread share: the link's server side, exchanges in flight, connections and WebSockets.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderName;
use rookery_error::{ErrorHook as _, Reports};
use rookery_exchange::{
    Blocks, Budget, Command, Event, Exchange, ExchangeId, Link, ListenerId, PushError, Pushed, Share,
    SocketId,
};
use tokio::sync::Notify;

use crate::access_log::Slot;
use crate::closing::Unnamed;
use crate::compress::Gzip;
use crate::config::Limits;
use crate::connection::Connection;
use crate::outbound::Buffers;
use crate::overload::Leaving;
use crate::pace::Ticks;
use crate::pending::Pending;
use crate::rejection::Rejection;
use crate::seats::Seats;
use crate::socket::{self, Mailbox};

/// Exchanges kept for reuse: as many as the default queue holds. Their bytes have a limit of their own,
/// [`Limits::pool_bytes`].
const KEPT_EXCHANGES: usize = 1024;

/// Bytes read at once from a WebSocket: what a loopback or 10 Gbit/s socket delivers per wake-up.
const SCRATCH_BYTES: usize = 64 << 10;

/// The close code to WebSockets of a stopped listener: going away (RFC 6455, 7.4.1).
pub(crate) const GOING_AWAY: u16 = 1001;

/// Header names outside the standard's that replies keep using.
const KEPT_NAMES: usize = 64;

/// Ids are unique in the process, so that a WebSocket of an earlier server is not taken for one of a later.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// An exchange kept for reuse.
#[derive(Debug)]
struct Pooled {
    exchange: Box<Exchange>,
    /// What it holds, counted when it came.
    bytes: usize,
}

/// The shared state of one I/O thread.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) link: Arc<Link>,
    pub(crate) limits: Limits,
    /// Where lines of the access log go, if anywhere.
    pub(crate) log: Arc<Slot>,
    /// Where errors go.
    pub(crate) reports: Arc<Reports<Rejection>>,
    pub(crate) ticks: Ticks,
    /// What peers make the server hold.
    pub(crate) budget: Arc<Budget>,
    pub(crate) leaving: Leaving,
    pub(crate) pending: Pending,
    /// Where WebSockets, and connections that are being closed, read into. One for all: idle ones hold none.
    pub(crate) scratch: RefCell<Box<[u8]>>,
    /// What WebSockets write from.
    pub(crate) buffers: Buffers,
    /// What large bodies that stay in memory lie in.
    pub(crate) blocks: Arc<Blocks>,
    /// Compresses small bodies; 300 KiB, made when first needed.
    pub(crate) gzip: RefCell<Option<Gzip>>,
    /// The application is to be woken, after the tasks that are ready now.
    pub(crate) settle: Notify,
    /// Wakes the pulse, see [`crate::pulse`].
    pub(crate) pulse: Notify,
    pub(crate) is_pulsing: Cell<bool>,
    pub(crate) is_app_slow: Cell<bool>,
    /// Wakes the sweep, which sleeps while there is no connection.
    pub(crate) sweep: Notify,
    /// Told whenever a connection or a WebSocket has ended.
    pub(crate) ended: Notify,
    tick: Cell<u32>,
    exchanges: RefCell<Vec<Pooled>>,
    /// Their bytes.
    pooled: Cell<usize>,
    commands: RefCell<VecDeque<Command>>,
    pub(crate) connections: RefCell<Vec<Option<Rc<Connection>>>>,
    free: RefCell<Vec<usize>>,
    pub(crate) seats: Seats,
    pub(crate) sockets: RefCell<HashMap<SocketId, Rc<Mailbox>>>,
    /// WebSockets that wait for the application to take messages.
    crowded: RefCell<Vec<Rc<Mailbox>>>,
    names: RefCell<Vec<(Box<[u8]>, HeaderName)>>,
}

impl Hub {
    pub(crate) fn new(
        link: Arc<Link>,
        limits: Limits,
        log: Arc<Slot>,
        reports: Arc<Reports<Rejection>>,
        budget: Arc<Budget>,
    ) -> Rc<Hub> {
        Rc::new(Hub {
            ticks: Ticks::of(&limits),
            budget,
            leaving: Leaving::default(),
            link,
            limits,
            log,
            reports,
            pending: Pending::default(),
            scratch: RefCell::new(vec![0; SCRATCH_BYTES].into()),
            buffers: Buffers::default(),
            blocks: Arc::default(),
            gzip: RefCell::default(),
            settle: Notify::new(),
            pulse: Notify::new(),
            is_pulsing: Cell::new(false),
            is_app_slow: Cell::new(false),
            sweep: Notify::new(),
            ended: Notify::new(),
            tick: Cell::new(0),
            exchanges: RefCell::default(),
            pooled: Cell::new(0),
            commands: RefCell::default(),
            connections: RefCell::default(),
            free: RefCell::default(),
            seats: Seats::default(),
            sockets: RefCell::default(),
            crowded: RefCell::default(),
            names: RefCell::default(),
        })
    }

    pub(crate) fn tick(&self) -> u32 {
        self.tick.get()
    }

    // ---- exchanges ----

    /// A new id.
    pub(crate) fn next_id() -> ExchangeId {
        NEXT_ID.fetch_add(1, Ordering::Relaxed)
    }

    /// An exchange and a place in [`pending`](Self::pending).
    pub(crate) fn begin(&self, id: ExchangeId, connection: &Connection) -> Box<Exchange> {
        let mut exchange = self.exchanges.borrow_mut().pop().map_or_else(Exchange::new, |kept| {
            self.count_pool(self.pooled.get() - kept.bytes);
            kept.exchange
        });
        exchange.begin(id, connection.listener, self.pending.open(id, connection.key.get()));
        exchange
    }

    /// Ends an exchange: closes its place and takes it back.
    pub(crate) fn finish(&self, exchange: Box<Exchange>) {
        self.pending.close(exchange.slot());
        self.recycle(exchange);
    }

    /// Takes an exchange back whose reply has been sent or is not wanted.
    pub(crate) fn recycle(&self, mut exchange: Box<Exchange>) {
        if let Some(spool) = exchange.body_mut().take_file() {
            drop(Unnamed::new(spool));
        }
        let mut exchanges = self.exchanges.borrow_mut();
        if exchanges.len() < KEPT_EXCHANGES {
            exchange.reset();
            let bytes = exchange.capacity();
            let pooled = self.pooled.get() + bytes;
            if pooled <= self.limits.pool_bytes {
                self.count_pool(pooled);
                exchanges.push(Pooled { exchange, bytes });
            }
        }
    }

    /// Notes how many bytes the exchanges kept for reuse have.
    fn count_pool(&self, bytes: usize) {
        self.pooled.set(bytes);
        self.budget.set_used(Share::Pool, bytes);
    }

    /// Hands an event to the application.
    pub(crate) fn push(&self, event: Event) -> Result<(), PushError> {
        match self.link.push(event)? {
            Pushed::Quiet => {}
            Pushed::Nudge => self.start_pulse(),
            Pushed::Settle => self.settle.notify_one(),
        }
        Ok(())
    }

    /// Hands over an event that is never refused.
    pub(crate) fn tell(&self, event: Event) {
        // Only requests are.
        let _ = self.push(event);
    }

    pub(crate) fn start_pulse(&self) {
        if !self.is_pulsing.replace(true) {
            self.pulse.notify_one();
        }
    }

    /// Carries out what the application has sent down; says whether there was anything.
    pub(crate) fn deliver(&self) -> bool {
        let mut commands = self.commands.take();
        self.link.commands(&mut commands);
        let was_any = !commands.is_empty();
        for command in commands.drain(..) {
            match command {
                Command::Respond(exchange) => self.hand_back(exchange, false),
                Command::Proceed(exchange) => self.hand_back(exchange, true),
                Command::Send { socket, kind, payload } => match self.socket(socket) {
                    Some(socket) => socket.send(self, kind, payload),
                    None => self.discard(payload),
                },
                Command::Close { socket, code, reason } => {
                    if let Some(socket) = self.socket(socket) {
                        socket.close(self, code, &reason);
                    }
                }
                Command::Abort { socket } => {
                    if let Some(socket) = self.socket(socket) {
                        socket.abort();
                    }
                }
            }
        }
        self.commands.replace(commands);
        if !self.crowded.borrow().is_empty() && self.link.has_room() {
            for socket in self.crowded.borrow_mut().drain(..) {
                socket.wake();
            }
        }
        was_any
    }

    fn hand_back(&self, exchange: Box<Exchange>, proceeds: bool) {
        if !proceeds && is_accepted(&exchange) {
            socket::open(self, &exchange);
            if self
                .pending
                .waiting(&exchange)
                .and_then(|key| self.connection(key))
                .is_some_and(|it| it.is_ending())
            {
                // Its listener is stopping: the WebSockets it had have been told already.
                self.socket(exchange.id()).expect("just opened").close(self, GOING_AWAY, b"");
            }
        }
        match self.pending.hand_back(exchange, proceeds) {
            Ok(key) => {
                if let Some(Some(connection)) = self.connections.borrow().get(key) {
                    connection.wake();
                }
            }
            Err(unwanted) => self.disown(unwanted),
        }
    }

    /// Takes an exchange back whose client has gone. A WebSocket that was accepted in vain has ended: each one that
    /// is accepted does, once.
    pub(crate) fn disown(&self, exchange: Box<Exchange>) {
        if is_accepted(&exchange) {
            let (socket, listener) = (exchange.id(), exchange.listener());
            self.close_socket(socket);
            self.tell(Event::Closed { socket, listener, code: 1006 });
        }
        self.recycle(exchange);
    }

    fn discard(&self, payload: rookery_exchange::Payload) {
        if let rookery_exchange::Payload::Pooled(buffer) = payload {
            self.link.recycle(buffer);
        }
    }

    /// Reports what happened to a WebSocket, outside the task of its request.
    pub(crate) fn report(&self, id: ExchangeId, rejection: Rejection) {
        let hook = self.reports.hook();
        hook.begin(id);
        hook.throw(rejection.error());
    }

    // ---- connections ----

    fn connection(&self, key: usize) -> Option<Rc<Connection>> {
        self.connections.borrow().get(key).cloned().flatten()
    }

    /// Takes a connection into the sweep.
    pub(crate) fn join(&self, connection: &Rc<Connection>) -> usize {
        let mut connections = self.connections.borrow_mut();
        let entry = Some(Rc::clone(connection));
        if let Some(key) = self.free.borrow_mut().pop() {
            connections[key] = entry;
            return key;
        }
        connections.push(entry);
        if connections.len() == 1 {
            self.sweep.notify_one();
        }
        connections.len() - 1
    }

    /// Takes a connection out of the sweep.
    pub(crate) fn leave(&self, key: usize) {
        let left = self.connections.borrow_mut()[key].take();
        self.free.borrow_mut().push(key);
        drop(left);
        self.trim();
    }

    /// Frees a seat for a newcomer; `false` when every connection is being served.
    pub(crate) fn free_seat(&self) -> bool {
        self.seats.take(&self.connections.borrow(), self.tick())
    }

    /// How many connections and WebSockets there are.
    pub(crate) fn population(&self) -> usize {
        self.connections.borrow().len() - self.free.borrow().len() + self.sockets.borrow().len()
    }

    fn trim(&self) {
        let mut connections = self.connections.borrow_mut();
        if connections.len() == self.free.borrow().len() {
            connections.clear();
            self.free.borrow_mut().clear();
            if connections.capacity() > KEPT_EXCHANGES {
                connections.shrink_to_fit();
                self.free.borrow_mut().shrink_to_fit();
            }
        }
        self.ended.notify_waiters();
    }

    /// The connections of a listener.
    pub(crate) fn connections_of(&self, listener: ListenerId) -> Vec<Rc<Connection>> {
        let connections = self.connections.borrow();
        connections.iter().flatten().filter(|connection| connection.listener == listener).cloned().collect()
    }

    /// Moves the clock on and looks at every deadline. Says whether there is anybody to look after.
    pub(crate) fn sweep(&self) -> bool {
        let now = self.tick.get().wrapping_add(1);
        self.tick.set(now);
        for connection in self.connections.borrow().iter().flatten() {
            connection.sweep(now);
        }
        for socket in self.sockets.borrow().values() {
            socket.sweep(self, now);
        }
        self.population() > 0
    }

    // ---- WebSockets ----

    pub(crate) fn open_socket(&self, id: SocketId, mailbox: Rc<Mailbox>) {
        self.sockets.borrow_mut().insert(id, mailbox);
        self.sweep.notify_one();
    }

    pub(crate) fn close_socket(&self, id: SocketId) {
        self.sockets.borrow_mut().remove(&id);
        self.ended.notify_waiters();
    }

    pub(crate) fn socket(&self, id: SocketId) -> Option<Rc<Mailbox>> {
        self.sockets.borrow().get(&id).cloned()
    }

    /// The WebSockets of a listener.
    pub(crate) fn sockets_of(&self, listener: ListenerId) -> Vec<Rc<Mailbox>> {
        self.sockets.borrow().values().filter(|socket| socket.listener == listener).cloned().collect()
    }

    /// Wakes `socket` when the application has taken messages.
    pub(crate) fn await_room(&self, socket: &Rc<Mailbox>) {
        let mut crowded = self.crowded.borrow_mut();
        if !crowded.iter().any(|other| Rc::ptr_eq(other, socket)) {
            crowded.push(Rc::clone(socket));
        }
    }

    // ---- header names ----

    /// The name of a reply's header. One that is not standard is allocated once, not once per reply.
    pub(crate) fn header_name(&self, name: &[u8]) -> Option<HeaderName> {
        let mut names = self.names.borrow_mut();
        if let Some((_, known)) = names.iter().find(|(bytes, _)| **bytes == *name) {
            return Some(known.clone());
        }
        let known = HeaderName::from_bytes(name).ok()?;
        if names.len() < KEPT_NAMES {
            names.push((name.into(), known.clone()));
        }
        Some(known)
    }
}

/// Whether this is a handshake that the application has accepted.
fn is_accepted(exchange: &Exchange) -> bool {
    exchange.is_upgrade() && exchange.reply().status() == 101
}
