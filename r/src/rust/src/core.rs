//! The state of the package, on R's main thread.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::ffi::{CString, c_char};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use rookery_exchange::{AppWaker, Exchange, Link, SendBacklog};
use rookery_server::tls::DevelopmentCertificate;
use rookery_server::{Config, Server};

use crate::admin::Administered;
use crate::allocator;
use crate::event::Header;
use crate::exchange::header_names::Names;
use crate::exchange::response_stream::Streamed;
use crate::limits::config_of;
use crate::listener::Listening;
use crate::listener::access_log::Log;
use crate::listener::tls::Counted;
use crate::worker::Membership;

/// Everything the package knows. One per process, in the local storage of R's main thread.
#[derive(Debug)]
pub(crate) struct Core {
    server: Server,
    pub(crate) link: Arc<Link>,
    pub(crate) listeners: HashMap<u32, Listening>,
    /// Exchanges that R holds; an index is the slot that C names.
    held: Vec<Option<Box<Exchange>>>,
    free: Vec<u32>,
    /// The R object of each WebSocket.
    pub(crate) sockets: ById<Bound>,
    /// The R object of each reply in pieces.
    pub(crate) streams: ById<Streamed>,
    /// Streams whose sources R asks again by itself, each in its turn.
    pub(crate) going_on: VecDeque<u64>,
    /// The R object of each request whose body comes in pieces.
    pub(crate) receivers: ById<Receiver>,
    pub(crate) names: Names,
    pub(crate) headers: Vec<Header>,
    pub(crate) ends: [Vec<u8>; 4],
    /// The message that C is reading.
    pub(crate) message: Option<rookery_exchange::Payload>,
    pub(crate) tokens: Vec<u64>,
    pub(crate) log: Log,
    /// What listeners speak TLS with.
    pub(crate) tls: HashMap<u32, Counted>,
    /// The certificate that C is reading of.
    pub(crate) development: Option<DevelopmentCertificate>,
    /// The limits that were set; empty: the defaults.
    pub(crate) limits: Vec<f64>,
    /// Whether a supervisor has started this process.
    pub(crate) membership: Membership,
    /// Who looks after this process, if anybody does.
    pub(crate) admin: Option<Administered>,
}

/// The R object of a request whose body comes in pieces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Receiver {
    /// Where R holds its exchange.
    pub(crate) slot: u32,
    /// C's token.
    pub(crate) token: u64,
}

/// By the numbers of exchanges, which are the server's and not chosen by peers: looked at for every message.
pub(crate) type ById<T> = HashMap<u64, T, BuildHasherDefault<IdHasher>>;

#[derive(Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    /// The map takes its place from the lowest bits, and what tells the items of one group apart from the highest.
    fn write_u64(&mut self, id: u64) {
        self.0 = (self.0 ^ id).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// A WebSocket that R has accepted.
#[derive(Debug, Clone)]
pub(crate) struct Bound {
    pub(crate) listener: u32,
    /// C's token of its object; 0 until there is one.
    pub(crate) token: u64,
    /// What waits to be sent to it.
    pub(crate) backlog: Arc<SendBacklog>,
}

impl Core {
    fn new(schedule: Schedule) -> Core {
        let server = Server::new(config_of(&[]), Box::new(schedule));
        let link = Arc::clone(server.link());
        Core {
            server,
            link,
            listeners: HashMap::new(),
            held: Vec::new(),
            free: Vec::new(),
            sockets: ById::default(),
            streams: ById::default(),
            going_on: VecDeque::new(),
            receivers: ById::default(),
            names: Names::new(),
            headers: Vec::new(),
            ends: Default::default(),
            message: None,
            tokens: Vec::new(),
            log: Log::default(),
            tls: HashMap::new(),
            development: None,
            limits: Vec::new(),
            membership: Membership::default(),
            admin: None,
        }
    }

    /// Another server in the place of the one there is, which nobody may use; the access log stays. Returns that.
    pub(crate) fn replace_server(&mut self, config: &Config) -> Server {
        let schedule = SCHEDULE.get().expect("called after rk_init");
        let server = Server::new(config.clone(), Box::new(schedule));
        server.set_access_log(self.log.opened());
        self.link = Arc::clone(server.link());
        let before = std::mem::replace(&mut self.server, server);
        self.look_at_server(config);
        before
    }

    /// Whether R holds no exchange.
    pub(crate) fn is_holding_nothing(&self) -> bool {
        self.held.iter().all(Option::is_none)
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// C's token of a WebSocket's R object; 0 when it has none.
    pub(crate) fn token(&self, socket: u64) -> u64 {
        self.sockets.get(&socket).map_or(0, |bound| bound.token)
    }

    /// Takes an exchange into R's hands.
    pub(crate) fn hold(&mut self, exchange: Box<Exchange>) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.held[slot as usize] = Some(exchange);
            slot
        } else {
            self.held.push(Some(exchange));
            u32::try_from(self.held.len() - 1).expect("fewer exchanges than 2^32")
        }
    }

    /// The exchange in a slot, if it is the one meant.
    pub(crate) fn held(&mut self, slot: u32, id: u64) -> Option<&mut Exchange> {
        self.held.get_mut(slot as usize)?.as_deref_mut().filter(|exchange| exchange.id() == id)
    }

    /// Takes all exchanges of a listener out of R's hands.
    #[allow(clippy::vec_box)] // An exchange keeps its place wherever it goes.
    pub(crate) fn take_held(&mut self, listener: u32) -> Vec<Box<Exchange>> {
        let mut taken = Vec::new();
        for (slot, held) in self.held.iter_mut().enumerate() {
            if let Some(exchange) = held.take_if(|exchange| exchange.listener() == listener) {
                self.free.push(u32::try_from(slot).expect("fewer exchanges than 2^32"));
                taken.push(exchange);
            }
        }
        taken
    }

    /// Takes an exchange out of R's hands.
    pub(crate) fn give(&mut self, slot: u32, id: u64) -> Option<Box<Exchange>> {
        self.held(slot, id)?;
        self.free.push(slot);
        self.held[slot as usize].take()
    }
}

/// R's event loop, as the I/O thread wakes it.
#[derive(Clone, Copy)]
struct Schedule {
    events: extern "C" fn(),
    released: extern "C" fn(),
}

impl AppWaker for Schedule {
    fn wake(&self) {
        (self.events)();
    }

    fn released(&self) {
        (self.released)();
    }
}

thread_local! {
    static CORE: RefCell<Option<Core>> = const { RefCell::new(None) };
    static SCHEDULE: Cell<Option<Schedule>> = const { Cell::new(None) };
    static ERROR: RefCell<CString> = RefCell::default();
}

/// Runs `body` with the core, which a forked child makes anew when it first needs it.
///
/// # Panics
/// On a thread that is not R's, and before `rk_init`: both are bugs of the shim's.
pub(crate) fn with<T>(body: impl FnOnce(&mut Core) -> T) -> T {
    CORE.with_borrow_mut(|core| {
        let new = || Core::new(SCHEDULE.get().expect("called on R's main thread after rk_init"));
        body(core.get_or_insert_with(new))
    })
}

/// Keeps a message for `rk_error`.
pub(crate) fn set_error(text: &str) {
    let text: String = text.chars().filter(|c| *c != '\0').collect();
    ERROR.set(CString::new(text).unwrap_or_default());
}

/// Starts the package's state; `schedule` asks R's event loop to take events, and `released` to
/// collect what was lent. Both may be called on any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rk_init(schedule: extern "C" fn(), released: extern "C" fn()) {
    allocator::reserve();
    crate::entry((), || {
        SCHEDULE.set(Some(Schedule { events: schedule, released }));
        with(|_| ());
    });
}

/// What went wrong last. Valid until the next call.
#[unsafe(no_mangle)]
pub extern "C" fn rk_error() -> *const c_char {
    ERROR.with_borrow(|text| text.as_ptr())
}

/// In a forked child: the I/O thread is not there, and its descriptors are the parent's.
#[unsafe(no_mangle)]
pub extern "C" fn rk_forked() {
    crate::entry((), || {
        rookery_exchange::renew_request_ids();
        crate::websocket_client::forked();
        // A fork from another thread (or while the core is in use) has no core to give up.
        let _ = CORE.try_with(|core| {
            if let Ok(mut core) = core.try_borrow_mut() {
                if let Some(core) = core.take() {
                    Server::close_inherited();
                    // Nothing of it is dropped: its locks may be held by a thread that was not forked.
                    std::mem::forget(core);
                }
            }
        });
    });
}
