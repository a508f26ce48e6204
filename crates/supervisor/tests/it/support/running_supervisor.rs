//! A supervisor that runs, with workers in processes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

use rookery_server::{Config, Listener, ListenerConfig, Server};
use rookery_supervisor::{
    BackendRegistry, Frontend, Outcome, PoolLimits, PublicListeners, RecyclePolicy,
    SupervisorCommand, SupervisorConfig, SupervisorEvent, Timeouts, pool, supervise,
};
use rookery_test_support::client::{Client, Response};
use rookery_test_support::wait_until;
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::support::worker_program::{MODE, command};

/// What supervisors of this process have told, each on its thread.
static TOLD: Mutex<Vec<(ThreadId, String)>> = Mutex::new(Vec::new());

/// What tests choose.
#[derive(Clone)]
#[allow(clippy::struct_excessive_bools, reason = "choices that have nothing to do with each other")]
pub(crate) struct Wish {
    pub(crate) workers: u32,
    pub(crate) spares: u32,
    pub(crate) surges: bool,
    pub(crate) warmup: Vec<String>,
    pub(crate) times: Timeouts,
    /// How long a request may wait, in the queue and in a worker.
    pub(crate) queue_timeout: Duration,
    pub(crate) recycle: RecyclePolicy,
    pub(crate) start_retries: u32,
    pub(crate) restarts: bool,
    pub(crate) fails_fast: bool,
    /// Whether the only worker accepts by itself.
    pub(crate) is_direct: bool,
    /// How long the supervisor's thread is kept from its work after each event.
    pub(crate) delay: Duration,
    /// How often whoever watches wants it to turn.
    pub(crate) turns_every: Duration,
    /// The mode of a start, by how many there were before.
    pub(crate) mode: fn(usize) -> &'static str,
}

impl Default for Wish {
    fn default() -> Wish {
        Wish {
            workers: 2,
            spares: 0,
            surges: true,
            warmup: Vec::new(),
            times: Timeouts::default(),
            queue_timeout: PoolLimits::default().queue_timeout,
            recycle: RecyclePolicy::default(),
            start_retries: 0,
            restarts: true,
            fails_fast: false,
            is_direct: false,
            delay: Duration::ZERO,
            turns_every: Duration::MAX,
            mode: |_| "",
        }
    }
}

struct Door {
    listener: Mutex<Option<Listener>>,
    is_ready: AtomicBool,
    /// Whether the front end accepts.
    accepts: AtomicBool,
    delay: Duration,
    turns_every: Duration,
    turns: AtomicUsize,
}

impl Frontend for Door {
    fn ready(&self) {
        self.is_ready.store(true, Ordering::Relaxed);
    }

    fn drain(&self) {
        self.listener.lock().unwrap().as_ref().unwrap().drain();
    }

    fn set_accepting(&self, is_on: bool) {
        self.accepts.store(is_on, Ordering::Relaxed);
        self.listener.lock().unwrap().as_ref().unwrap().set_accepting(is_on);
    }

    fn log_lines_lost(&self) -> u64 {
        3
    }

    fn connections(&self) -> usize {
        self.listener.lock().unwrap().as_ref().unwrap().connections()
    }

    fn turns_every(&self) -> Duration {
        std::thread::sleep(self.delay);
        self.turns_every
    }

    fn hear(&self, news: SupervisorEvent<'_>) {
        if matches!(news, SupervisorEvent::Turned { .. }) {
            self.turns.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Of this thread, those that have ended and have not been waited for among them.
fn processes() -> usize {
    std::fs::read_to_string("/proc/thread-self/children").unwrap().split_whitespace().count()
}

/// The plan of a wish, without its folder and listeners.
fn plan_of(wish: Wish, beside: Arc<Mutex<Vec<usize>>>) -> SupervisorConfig {
    let starts = Mutex::new(0);
    let make = move |_| -> Result<Command, String> {
        beside.lock().unwrap().push(processes());
        let mut starts = starts.lock().unwrap();
        let mut command = command();
        command.env(MODE, (wish.mode)(*starts));
        *starts += 1;
        Ok(command)
    };
    SupervisorConfig {
        workers: wish.workers,
        spares: wish.spares,
        surges: wish.surges,
        warmup: wish.warmup,
        command: Box::new(make),
        public: None,
        folder: PathBuf::new(),
        files: None,
        times: wish.times,
        recycle: wish.recycle,
        start_retries: wish.start_retries,
        restarts: wish.restarts,
        is_on_terminal: false,
        fails_fast: wish.fails_fast,
        tell: |line| TOLD.lock().unwrap().push((std::thread::current().id(), line.to_owned())),
    }
}

/// See the module.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) registry: Arc<BackendRegistry>,
    pub(crate) folder: TempDir,
    /// How many workers there were when each was started, those that were ending among them.
    pub(crate) beside: Arc<Mutex<Vec<usize>>>,
    door: Arc<Door>,
    requests: UnboundedSender<SupervisorCommand>,
    supervisor: Option<JoinHandle<Outcome>>,
    _server: Server,
}

impl Running {
    /// Starts it, and waits until all its workers are ready.
    pub(crate) fn new(wish: Wish) -> Running {
        let workers = wish.workers as usize;
        let running = Running::start(wish);
        wait_until("they are ready", || running.registry.backends().len() == workers);
        // It is told a moment after the last of them has joined.
        wait_until("it is said to be ready", || running.door.is_ready.load(Ordering::Relaxed));
        running
    }

    pub(crate) fn start(wish: Wish) -> Running {
        let registry = Arc::new(BackendRegistry::default());
        let limits = PoolLimits { queue_timeout: wish.queue_timeout, ..PoolLimits::default() };
        let server =
            Server::with_application(Config::default(), pool(Arc::clone(&registry), limits));
        let site = ListenerConfig { files: registry.files(), ..ListenerConfig::default() };
        let listener = server.listen_tcp("127.0.0.1:0".parse().unwrap(), site).unwrap();
        let address = listener.local_addr().unwrap();
        let sockets = if wish.is_direct { listener.copy_sockets().unwrap() } else { Vec::new() };
        let door = Arc::new(Door {
            listener: Mutex::new(Some(listener)),
            is_ready: AtomicBool::new(false),
            accepts: AtomicBool::new(true),
            delay: wish.delay,
            turns_every: wish.turns_every,
            turns: AtomicUsize::new(0),
        });
        let folder = tempfile::tempdir().unwrap();
        let (requests, asked) = unbounded_channel();
        let beside = Arc::new(Mutex::new(Vec::new()));
        let is_direct = wish.is_direct;
        let supervisor = std::thread::spawn({
            let (registry, door, folder, beside) = (
                Arc::clone(&registry),
                Arc::clone(&door),
                folder.path().to_path_buf(),
                Arc::clone(&beside),
            );
            move || {
                let public =
                    is_direct.then(|| PublicListeners { sockets, ..PublicListeners::default() });
                let plan = SupervisorConfig { public, folder, ..plan_of(wish, beside) };
                supervise(plan, registry, asked, &*door).unwrap()
            }
        });
        Running {
            address,
            registry,
            folder,
            beside,
            door,
            requests,
            supervisor: Some(supervisor),
            _server: server,
        }
    }

    /// Reloads with another plan.
    pub(crate) fn change(&self, wish: Wish) {
        self.ask(SupervisorCommand::Change(Box::new(plan_of(wish, Arc::clone(&self.beside)))));
    }

    pub(crate) fn ask(&self, request: SupervisorCommand) {
        self.requests.send(request).unwrap();
    }

    pub(crate) fn outcome(&mut self) -> Outcome {
        self.supervisor.take().unwrap().join().unwrap()
    }

    pub(crate) fn stop(&mut self) -> Outcome {
        self.ask(SupervisorCommand::Stop);
        self.outcome()
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.connect().get(path)
    }

    /// Whether it has told something with these words; others of this process tell the same.
    pub(crate) fn has_told(&self, words: &[&str]) -> bool {
        self.times_told(words) > 0
    }

    /// How often it has told something with these words.
    pub(crate) fn times_told(&self, words: &[&str]) -> usize {
        let own = self.supervisor.as_ref().unwrap().thread().id();
        let told = TOLD.lock().unwrap();
        let is_it = |(thread, line): &&(ThreadId, String)| {
            *thread == own && words.iter().all(|word| line.contains(word))
        };
        told.iter().filter(is_it).count()
    }

    /// Whether the front end accepts connections.
    pub(crate) fn front_end_accepts(&self) -> bool {
        self.door.accepts.load(Ordering::Relaxed)
    }

    /// Waits until the worker accepts, and returns its process.
    pub(crate) fn until_worker_accepts(&self) -> i32 {
        wait_until("the worker accepts", || {
            let backends = self.registry.backends();
            if self.front_end_accepts() || backends.len() != 1 {
                return false;
            }
            // It is acknowledged when it serves one of its own.
            let mut client = self.connect();
            client.get("/pid");
            backends[0].connections() > 0
        });
        self.pids()[0]
    }

    /// How often the supervisor has turned.
    pub(crate) fn turns(&self) -> usize {
        self.door.turns.load(Ordering::Relaxed)
    }

    /// The processes that answer.
    pub(crate) fn pids(&self) -> Vec<i32> {
        self.registry
            .backends()
            .iter()
            .map(|backend| backend.scoreboard.read().pid.try_into().unwrap())
            .collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(supervisor) = self.supervisor.take() {
            // Twice: at once.
            let _ = self.requests.send(SupervisorCommand::Stop);
            let _ = self.requests.send(SupervisorCommand::Stop);
            let _ = supervisor.join();
        }
    }
}

/// Whether some supervisor has told something with these words: those of one test alone.
pub(crate) fn is_told(words: &[&str]) -> bool {
    TOLD.lock().unwrap().iter().any(|(_, line)| words.iter().all(|word| line.contains(word)))
}

/// How often supervisors have told something with this word.
pub(crate) fn how_often(word: &str) -> usize {
    TOLD.lock().unwrap().iter().filter(|(_, line)| line.contains(word)).count()
}

/// Whether a process is there, and not merely to be waited for.
pub(crate) fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

pub(crate) fn send_signal(pid: i32, signal: i32) {
    // Anything less is a whole group.
    assert!(pid > 1);
    // SAFETY: passes no memory.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

/// Requests on and on, on threads of their own, and what became of them.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<u16>>>,
}

impl Load {
    pub(crate) fn start(address: SocketAddr, clients: usize, path: &'static str) -> Load {
        let is_over = Arc::new(AtomicBool::new(false));
        let clients = (0..clients)
            .map(|_| {
                let is_over = Arc::clone(&is_over);
                std::thread::spawn(move || {
                    let mut client = Client::connect(address);
                    let mut seen = Vec::new();
                    while !is_over.load(Ordering::Relaxed) {
                        seen.push(client.get(path).status);
                    }
                    seen
                })
            })
            .collect();
        Load { is_over, clients }
    }

    /// The status of each.
    pub(crate) fn end(self) -> Vec<u16> {
        self.is_over.store(true, Ordering::Relaxed);
        self.clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    }
}

/// A while in which things happen.
pub(crate) fn while_(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}
