//! The state of the R package's Rust code, which belongs to R's main thread.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{CString, c_char};
use std::sync::Arc;

use rookery_exchange::{AppWaker, ById, Command, Event, Exchange, Link, SendBacklog, StreamFlow};
use rookery_server::access_log::AccessLog;
use rookery_server::static_files::StaticFiles;
use rookery_server::{Config, OriginPolicy, Server, Supervision, WorkerRings, output};
use rookery_settings::{Section, Setting, table};
use rookery_status::{AdminListener, RunFolder, Standalone};
use rookery_worker_protocol::{RState, Scoreboard, now};

use crate::admin::profiling::Profiling;
use crate::allocator;
use crate::exchange::header_names::{Header, HeaderNames};
use crate::listener::active::{ActiveListener, CountedTls};
use crate::text::address::AddressText;
use crate::tracing::invocation_spans::Tracing;

/// The state of the R package's Rust code. Each process has one such object, in the thread-local
/// storage of R's main thread.
#[derive(Debug)]
pub(crate) struct Core {
    server: Server,
    pub(crate) link: Arc<Link>,
    pub(crate) listeners: HashMap<u32, ActiveListener>,
    /// The exchanges (requests with their responses) that R is processing. C refers to an exchange
    /// by its index in this list, which is called its slot.
    held: Vec<Option<Box<Exchange>>>,
    free: Vec<u32>,
    /// The WebSockets that R has accepted. The key is the id of the exchange (the request with its
    /// response) that opened the WebSocket.
    pub(crate) sockets: ById<BoundWebSocket>,
    /// The streamed responses that R has started. The key is the id of the exchange (the request
    /// with its response).
    pub(crate) streams: ById<OpenStream>,
    /// The streamed responses for which R gets the next chunk from the app at once, without waiting
    /// until the server asks for it. Each element is the id of an exchange (a request with its
    /// response).
    pub(crate) pull_queue: VecDeque<u64>,
    /// The requests whose bodies the app receives in chunks. The key is the id of the exchange (the
    /// request with its response).
    pub(crate) receivers: ById<Receiver>,
    /// The requests that R is processing and whose bodies it has received in chunks, or receives.
    pub(crate) received: HashSet<u64>,
    pub(crate) names: HeaderNames,
    pub(crate) headers: Vec<Header>,
    /// The client's end of the connection of the last request.
    pub(crate) remote: AddressText,
    /// The server's end of that connection.
    pub(crate) local: AddressText,
    /// The data of the event that C is reading, kept alive until the next event.
    pub(crate) shown_payload: Option<rookery_exchange::Payload>,
    pub(crate) tokens: Vec<u64>,
    pub(crate) log: Log,
    /// The TLS configurations of the open listeners. The key is the id of the listener.
    pub(crate) tls: HashMap<u32, CountedTls>,
    /// The values of all limits as R has set them. Empty if all limits have their defaults.
    pub(crate) limits: Vec<f64>,
    /// The state of this process as a worker of a supervisor, if it is one.
    pub(crate) worker_state: WorkerState,
    /// The admin listener, which serves status and metrics, if it was started.
    pub(crate) admin: Option<AdminServer>,
    /// The tracer and the spans of R code that is running.
    pub(crate) tracing: Tracing,
    pub(crate) profiling: Profiling,
}

/// The running admin listener, which serves status and metrics. Its fields are in the order in
/// which they must be dropped.
#[derive(Debug)]
pub(crate) struct AdminServer {
    pub(crate) admin: AdminListener,
    /// The folder that contains the admin socket, by which `rookery status` finds this process.
    /// `None` if the folder could not be created.
    pub(crate) folder: Option<RunFolder>,
    pub(crate) one: Arc<Standalone>,
}

/// The state of this process as a worker of a supervisor.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) supervision: Arc<Supervision>,
    /// The id of the listener that serves the requests from the supervisor. `None` until there is
    /// one.
    pub(crate) listening: Option<u32>,
    /// The static paths of the listener that serves the requests from the supervisor.
    pub(crate) files: Option<StaticFiles>,
    /// The origins whose pages may open WebSockets. `None` allows all.
    pub(crate) origins: Option<OriginPolicy>,
    /// The rings in which requests arrive from the supervisor.
    pub(crate) rings: Box<WorkerRings>,
    /// Whether this worker has told the supervisor that it accepts no new requests.
    pub(crate) is_leaving: bool,
}

/// The state of this process as a worker: not a worker, a worker that a supervisor has started, or
/// one that cannot work.
#[derive(Debug, Default)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "workers exist only on Linux"))]
pub(crate) enum WorkerState {
    #[default]
    NotAWorker,
    Worker(Worker),
    /// A supervisor has started this process, but its file descriptors or environment variables
    /// cannot be used.
    Failed(String),
}

/// The access log of the process, and the log record that C is reading.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) open: Option<Arc<AccessLog>>,
    pub(crate) line: Vec<u8>,
}

/// A streamed response that R has started. It is kept until R has been notified of its end.
#[derive(Debug)]
pub(crate) struct OpenStream {
    /// The number by which the C code finds the R object of the streamed response.
    pub(crate) token: u64,
    pub(crate) flow: Arc<StreamFlow>,
    /// The number of chunks that R has written to the streamed response.
    pub(crate) chunks: u64,
    /// The method and path of the request, without secrets, for the scoreboard. Empty without a
    /// scoreboard.
    pub(crate) task: Vec<u8>,
}

/// A request whose body the app receives in chunks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Receiver {
    /// The slot of the exchange (the request with its response): its index among the exchanges that
    /// R is processing.
    pub(crate) slot: u32,
    /// The number by which the C code finds the R object that receives the body.
    pub(crate) token: u64,
}

/// A WebSocket that R has accepted.
#[derive(Debug, Clone)]
pub(crate) struct BoundWebSocket {
    pub(crate) listener: u32,
    /// The number by which the C code finds the WebSocket's R object, or 0 until the object exists.
    pub(crate) token: u64,
    /// The messages that wait to be sent to the client of the WebSocket.
    pub(crate) backlog: Arc<SendBacklog>,
}

/// Returns the limits in the table of settings.
pub(crate) fn limit_rows() -> impl Iterator<Item = &'static Setting> {
    table::all().filter(|row| row.section == Section::Limits)
}

/// Returns a server configuration with the given limits. `values` has the order of [`limit_rows`],
/// and NaN stands for the default of a limit.
pub(crate) fn config_of(values: &[f64]) -> Config {
    let mut config = Config { trim: allocator::TRIM, ..Config::default() };
    for (row, value) in limit_rows().zip(values).filter(|(_, value)| !value.is_nan()) {
        config.set_limit(row.name, *value);
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
            received: HashSet::new(),
            names: HeaderNames::new(),
            headers: Vec::new(),
            remote: AddressText::default(),
            local: AddressText::default(),
            shown_payload: None,
            tokens: Vec::new(),
            log: Log::default(),
            tls: HashMap::new(),
            limits: Vec::new(),
            worker_state: WorkerState::default(),
            admin: None,
            tracing: Tracing::default(),
            profiling: Profiling::default(),
        }
    }

    /// Replaces the server by a new one with another configuration, and returns the previous
    /// server. The previous server must not be in use. The new server continues the previous
    /// server's access log.
    pub(crate) fn replace_server(&mut self, config: &Config) -> Server {
        let schedule = SCHEDULE.get().expect("called after rk_init");
        let server = Server::new(config.clone(), Box::new(schedule));
        server.set_access_log(self.log.open.clone());
        self.link = Arc::clone(server.link());
        if let WorkerState::Worker(Worker { rings, .. }) = &self.worker_state {
            rings.attach(&self.link);
        }
        let before = std::mem::replace(&mut self.server, server);
        self.continue_tracing();
        before
    }

    /// Returns true if R is not processing any request.
    pub(crate) fn holds_no_exchange(&self) -> bool {
        self.held.iter().all(Option::is_none)
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// Returns the scoreboard (the memory in which this process publishes what R is doing). Returns
    /// `None` if there is none.
    pub(crate) fn scoreboard(&self) -> Option<&Scoreboard> {
        self.supervised_scoreboard()
            .or_else(|| self.admin.as_ref().map(|admin| &***admin.one.scoreboard()))
    }

    /// Returns the scoreboard (the memory in which a worker publishes its state for the
    /// supervisor). Returns `None` if this process is not a worker.
    pub(crate) fn supervised_scoreboard(&self) -> Option<&Scoreboard> {
        match &self.worker_state {
            WorkerState::Worker(worker) => Some(worker.supervision.scoreboard()),
            _ => None,
        }
    }

    /// Records in the scoreboard (the memory that status reports read) what R is doing.
    pub(crate) fn set_r_activity(&self, r: RState) {
        if let Some(scoreboard) = self.scoreboard() {
            scoreboard.set_r_state(r, now());
            self.publish_span_counts();
        }
    }

    /// Sends a command to the process that has the client's connection: to the supervisor, or to
    /// this process's own server.
    pub(crate) fn send(&mut self, command: Command) {
        if WorkerRings::is_from_front_end(command.id()) {
            if let WorkerState::Worker(Worker { rings, .. }) = &mut self.worker_state {
                return rings.send(command, &self.link);
            }
        }
        self.link.send(command);
    }

    /// Takes the next event of the link or of the rings.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        let WorkerState::Worker(Worker { rings, listening, .. }) = &mut self.worker_state else {
            return self.link.next();
        };
        // Without locking the queue of the link.
        let event = if self.link.has_events() { self.link.next() } else { None };
        if event.is_some() {
            return event;
        }
        match rings.next(*listening, &self.link) {
            Ok(Some(event)) => Some(event),
            Ok(None) => self.link.next(),
            Err(error) => {
                // The supervisor starts another worker, and other workers get the requests.
                crate::write_log_line(&format!(
                    "this worker cannot take further requests from its supervisor, and ends \
                     ({error}, or it has no more file descriptors)"
                ));
                output::flush();
                std::process::abort();
            }
        }
    }

    /// Wakes the processes and threads for which commands wait.
    pub(crate) fn flush(&mut self) {
        if let WorkerState::Worker(Worker { rings, .. }) = &mut self.worker_state {
            rings.flush();
        }
        self.link.flush();
    }

    /// Returns the number by which the C code finds the R object of a WebSocket, or 0 if there is
    /// no object.
    pub(crate) fn token(&self, socket: u64) -> u64 {
        self.sockets.get(&socket).map_or(0, |bound| bound.token)
    }

    /// Stores an exchange (a request with its response) that R begins to process. Returns its slot,
    /// by which C refers to the exchange.
    pub(crate) fn hold(&mut self, exchange: Box<Exchange>) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.held[slot as usize] = Some(exchange);
            slot
        } else {
            self.held.push(Some(exchange));
            u32::try_from(self.held.len() - 1).expect("fewer exchanges than 2^32")
        }
    }

    /// Returns the exchange (the request with its response) in a slot. Returns `None` if the slot
    /// does not contain the exchange with this id.
    pub(crate) fn held(&mut self, slot: u32, id: u64) -> Option<&mut Exchange> {
        self.held.get_mut(slot as usize)?.as_deref_mut().filter(|exchange| exchange.id() == id)
    }

    /// Returns the exchange (the request with its response) in a slot, if R is processing it.
    pub(crate) fn held_in(&self, slot: u32) -> Option<&Exchange> {
        self.held.get(slot as usize)?.as_deref()
    }

    /// Returns the request with this id, if R is processing it and if all that the client has sent
    /// is known: R alone knows a body that it receives in chunks.
    pub(crate) fn known_request(&self, id: &[u8]) -> Option<&Exchange> {
        let is_it = |exchange: &&Exchange| exchange.request_id().as_bytes() == id;
        let held = self.held.iter().flatten().map(|exchange| &**exchange).find(is_it)?;
        (!id.is_empty() && !self.received.contains(&held.id())).then_some(held)
    }

    /// Removes all exchanges (requests with their responses) of a listener that R is processing,
    /// and returns them.
    #[allow(clippy::vec_box)] // Exchanges stay at their address.
    pub(crate) fn take_held(&mut self, listener: u32) -> Vec<Box<Exchange>> {
        let mut taken = Vec::new();
        for (slot, held) in self.held.iter_mut().enumerate() {
            if let Some(exchange) = held.take_if(|exchange| exchange.listener() == listener) {
                self.free.push(u32::try_from(slot).expect("fewer exchanges than 2^32"));
                self.received.remove(&exchange.id());
                taken.push(exchange);
            }
        }
        taken
    }

    /// Removes an exchange (a request with its response) from the list of exchanges that R is
    /// processing, and returns it. `slot` is the index in this list. Returns `None` if the slot
    /// does not contain the exchange with this id.
    pub(crate) fn give(&mut self, slot: u32, id: u64) -> Option<Box<Exchange>> {
        self.held(slot, id)?;
        // Even a search in an empty set hashes the id.
        if !self.received.is_empty() {
            self.received.remove(&id);
        }
        self.free.push(slot);
        self.held[slot as usize].take()
    }
}

/// The C functions by which the I/O thread wakes R's event loop: one for new events, and one for
/// memory that R can release.
#[derive(Clone, Copy)]
pub(crate) struct Schedule {
    pub(crate) events: extern "C" fn(),
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

/// Runs `body` with the state of the package's Rust code. A forked child process creates a new
/// state at its first call.
///
/// # Panics
/// Panics if the caller is not R's main thread, or if `rk_init` has not been called. Either is a
/// bug in the C code.
pub(crate) fn with<T>(body: impl FnOnce(&mut Core) -> T) -> T {
    CORE.with_borrow_mut(|core| {
        let new = || Core::new(SCHEDULE.get().expect("called on R's main thread after rk_init"));
        body(core.get_or_insert_with(new))
    })
}

/// Returns the C function that makes R take events.
#[cfg(target_os = "linux")]
pub(crate) fn schedule() -> Option<extern "C" fn()> {
    SCHEDULE.get().map(|schedule| schedule.events)
}

/// Sets the error message that `rk_error` returns to C.
pub(crate) fn set_error(text: &str) {
    let text: String = text.chars().filter(|c| *c != '\0').collect();
    ERROR.set(CString::new(text).unwrap_or_default());
}

/// Creates the state of the package's Rust code. `schedule` is called to make R's event loop
/// process new events. `released` is called to make R release memory that it has lent. They may be
/// called on any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rk_init(schedule: extern "C" fn(), released: extern "C" fn()) {
    allocator::reserve();
    crate::entry((), || {
        SCHEDULE.set(Some(Schedule { events: schedule, released }));
        with(|_| ());
    });
}

/// Returns the version of this library, which C compares with its own.
#[unsafe(no_mangle)]
pub extern "C" fn rk_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Returns the message of the last error. The text is valid until the next call of this function.
#[unsafe(no_mangle)]
pub extern "C" fn rk_error() -> *const c_char {
    ERROR.with_borrow(|text| text.as_ptr())
}

/// Resets the state of the package's Rust code in a forked child process.
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
