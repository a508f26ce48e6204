//! The state of the package, on R's main thread.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::ffi::{CString, c_char};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use rookery_exchange::{AppWaker, Exchange, Link, SendBacklog, StreamFlow};
use rookery_server::access_log::{AccessLog, OwnedRecord};
use rookery_server::static_files::StaticFiles;
use rookery_server::tls::DevelopmentCertificate;
use rookery_server::{Config, NamedLimit, Server, Supervision};
use rookery_status::{AdminListener, RunFolder, Standalone};
use rookery_worker_protocol::{RState, Scoreboard, now};

use crate::allocator;
use crate::exchange::header_names::{Header, HeaderNames};
use crate::listener::active::{ActiveListener, CountedTls};

/// The state of the package. Each process has one, in the local storage of R's main thread.
#[derive(Debug)]
pub(crate) struct Core {
    server: Server,
    pub(crate) link: Arc<Link>,
    pub(crate) listeners: HashMap<u32, ActiveListener>,
    /// The exchanges that R holds; the index is the slot by which C names an exchange.
    held: Vec<Option<Box<Exchange>>>,
    free: Vec<u32>,
    /// The WebSockets that R has accepted, by id.
    pub(crate) sockets: ById<BoundWebSocket>,
    /// The streamed responses, by id.
    pub(crate) streams: ById<OpenStream>,
    /// The ids of pulled streams whose next chunk R requests itself, in order.
    pub(crate) pull_queue: VecDeque<u64>,
    /// The requests whose bodies the app receives in chunks, by id.
    pub(crate) receivers: ById<Receiver>,
    pub(crate) names: HeaderNames,
    pub(crate) headers: Vec<Header>,
    pub(crate) address_texts: [Vec<u8>; 4],
    /// The payload of the event that C is reading.
    pub(crate) shown_payload: Option<rookery_exchange::Payload>,
    pub(crate) tokens: Vec<u64>,
    pub(crate) log: Log,
    /// The TLS configurations of listeners.
    pub(crate) tls: HashMap<u32, CountedTls>,
    /// The development certificate whose paths C is reading.
    pub(crate) development_certificate: Option<DevelopmentCertificate>,
    /// The limits that were set; empty for the defaults.
    pub(crate) limits: Vec<f64>,
    /// Whether this process is a worker.
    pub(crate) worker_state: WorkerState,
    /// The admin listener, if there is one.
    pub(crate) admin: Option<AdminServer>,
}

/// The running admin listener. The fields are in the order in which they are dropped.
#[derive(Debug)]
pub(crate) struct AdminServer {
    pub(crate) _admin: AdminListener,
    /// The folder in which `rookery status` finds this process, if it could be created.
    pub(crate) _folder: Option<RunFolder>,
    pub(crate) one: Arc<Standalone>,
}

/// The state of a worker.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) supervision: Arc<Supervision>,
    /// The listener that uses the worker's socket.
    pub(crate) listening: Option<u32>,
    /// The static paths of that listener.
    pub(crate) files: Option<StaticFiles>,
    /// Whether the supervisor was notified that the worker takes no new requests.
    pub(crate) is_leaving: bool,
}

/// Whether a supervisor has started this process.
#[derive(Debug, Default)]
pub(crate) enum WorkerState {
    #[default]
    NotAWorker,
    Worker(Worker),
    /// The supervisor's file descriptors or environment variables cannot be used.
    Failed(String),
}

/// The access log of the process, and the record that C is reading.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) open: Option<Arc<AccessLog>>,
    pub(crate) record: Option<OwnedRecord>,
    pub(crate) remote: String,
}

/// A stream that R has started and whose end R does not know yet.
#[derive(Debug)]
pub(crate) struct OpenStream {
    /// C's token of the R object.
    pub(crate) token: u64,
    pub(crate) flow: Arc<StreamFlow>,
    /// The number of chunks that were written.
    pub(crate) chunks: u64,
}

/// A request whose body the app receives in chunks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Receiver {
    /// The slot of the exchange.
    pub(crate) slot: u32,
    /// C's token of the R object.
    pub(crate) token: u64,
}

/// A map by exchange id. It is read for every message; clients cannot choose the ids.
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

    /// Multiplies by an odd constant, because the map uses the lowest bits for the position and the
    /// highest bits to tell apart the items of a group.
    fn write_u64(&mut self, id: u64) {
        self.0 = (self.0 ^ id).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// A WebSocket that R has accepted.
#[derive(Debug, Clone)]
pub(crate) struct BoundWebSocket {
    pub(crate) listener: u32,
    /// C's token of the R object; 0 until there is one.
    pub(crate) token: u64,
    /// The queue of messages to send.
    pub(crate) backlog: Arc<SendBacklog>,
}

/// Returns the configuration with these limits; NaN stands for the default.
pub(crate) fn config_of(values: &[f64]) -> Config {
    let mut config = Config { trim: Some(allocator::reclaim), ..Config::default() };
    for (limit, value) in NamedLimit::all().iter().zip(values) {
        if !value.is_nan() {
            limit.set(&mut config, *value);
        }
    }
    config
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
            pull_queue: VecDeque::new(),
            receivers: ById::default(),
            names: HeaderNames::new(),
            headers: Vec::new(),
            address_texts: Default::default(),
            shown_payload: None,
            tokens: Vec::new(),
            log: Log::default(),
            tls: HashMap::new(),
            development_certificate: None,
            limits: Vec::new(),
            worker_state: WorkerState::default(),
            admin: None,
        }
    }

    /// Replaces the server, which must not be in use, by one with another configuration, and keeps
    /// the access log. Returns the previous server.
    pub(crate) fn replace_server(&mut self, config: &Config) -> Server {
        let schedule = SCHEDULE.get().expect("called after rk_init");
        let server = Server::new(config.clone(), Box::new(schedule));
        server.set_access_log(self.log.open.clone());
        self.link = Arc::clone(server.link());
        std::mem::replace(&mut self.server, server)
    }

    /// Returns whether R holds no exchange.
    pub(crate) fn holds_no_exchange(&self) -> bool {
        self.held.iter().all(Option::is_none)
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// Returns the scoreboard to which R's activity is written, if there is one.
    pub(crate) fn scoreboard(&self) -> Option<&Scoreboard> {
        self.supervised_scoreboard()
            .or_else(|| self.admin.as_ref().map(|admin| &***admin.one.scoreboard()))
    }

    /// Returns the scoreboard that a supervisor reads.
    pub(crate) fn supervised_scoreboard(&self) -> Option<&Scoreboard> {
        match &self.worker_state {
            WorkerState::Worker(worker) => Some(worker.supervision.scoreboard()),
            _ => None,
        }
    }

    /// Records what R is doing.
    pub(crate) fn set_r_activity(&self, r: RState) {
        if let Some(scoreboard) = self.scoreboard() {
            scoreboard.set_r_state(r, now());
        }
    }

    /// Returns C's token of a WebSocket's R object, or 0.
    pub(crate) fn token(&self, socket: u64) -> u64 {
        self.sockets.get(&socket).map_or(0, |bound| bound.token)
    }

    /// Stores an exchange that R holds from now on; returns its slot.
    pub(crate) fn hold(&mut self, exchange: Box<Exchange>) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.held[slot as usize] = Some(exchange);
            slot
        } else {
            self.held.push(Some(exchange));
            u32::try_from(self.held.len() - 1).expect("fewer exchanges than 2^32")
        }
    }

    /// Returns the exchange in a slot if it has this id.
    pub(crate) fn held(&mut self, slot: u32, id: u64) -> Option<&mut Exchange> {
        self.held.get_mut(slot as usize)?.as_deref_mut().filter(|exchange| exchange.id() == id)
    }

    /// Removes and returns all exchanges of a listener that R holds.
    #[allow(clippy::vec_box)] // Exchanges stay at their address.
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

    /// Removes and returns an exchange that R holds.
    pub(crate) fn give(&mut self, slot: u32, id: u64) -> Option<Box<Exchange>> {
        self.held(slot, id)?;
        self.free.push(slot);
        self.held[slot as usize].take()
    }
}

/// The C functions by which the I/O thread wakes R's event loop.
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

/// Runs `body` with the core. A forked child creates a new core at its first call.
///
/// # Panics
/// Panics on a thread other than R's main thread, and before `rk_init`, which are bugs in
/// the C code.
pub(crate) fn with<T>(body: impl FnOnce(&mut Core) -> T) -> T {
    CORE.with_borrow_mut(|core| {
        let new = || Core::new(SCHEDULE.get().expect("called on R's main thread after rk_init"));
        body(core.get_or_insert_with(new))
    })
}

/// Sets the message that `rk_error` returns.
pub(crate) fn set_error(text: &str) {
    let text: String = text.chars().filter(|c| *c != '\0').collect();
    ERROR.set(CString::new(text).unwrap_or_default());
}

/// Creates the package's state. `schedule` makes R's event loop take events, and `released` makes
/// it collect memory that was lent. Both may be called on any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rk_init(schedule: extern "C" fn(), released: extern "C" fn()) {
    allocator::reserve();
    crate::entry((), || {
        SCHEDULE.set(Some(Schedule { events: schedule, released }));
        with(|_| ());
    });
}

/// Returns the last error message, which is valid until the next call.
#[unsafe(no_mangle)]
pub extern "C" fn rk_error() -> *const c_char {
    ERROR.with_borrow(|text| text.as_ptr())
}

/// Resets the state in a forked child.
pub(crate) fn forked() {
    // A fork from another thread, or while the core is borrowed, has no core to drop.
    let _ = CORE.try_with(|core| {
        if let Ok(mut core) = core.try_borrow_mut() {
            if let Some(core) = core.take() {
                Server::close_inherited();
                // The core is not dropped, because its locks may be held by a thread that does
                // not exist in the child.
                std::mem::forget(core);
            }
        }
    });
}
