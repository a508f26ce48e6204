//! A running supervisor with worker processes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

use rookery_server::{Config, Listener, ListenerConfig, Server};
use rookery_supervisor::{
    BackendRegistry, Frontend, Outcome, PoolLimits, RecyclePolicy, SupervisorCommand,
    SupervisorConfig, SupervisorEvent, Timeouts, pool, supervise,
};
use rookery_test_support::client::{Client, Response};
use rookery_test_support::wait_until;
use rookery_trace::Tracer;
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::support::worker_program::{MODE, command};

/// The events that supervisors of this process have reported, each with the thread of its
/// supervisor.
static TOLD: Mutex<Vec<(ThreadId, String)>> = Mutex::new(Vec::new());

/// The configuration of a supervisor in a test.
#[derive(Clone)]
#[allow(clippy::struct_excessive_bools, reason = "choices that have nothing to do with each other")]
pub(crate) struct Wish {
    pub(crate) workers: u32,
    pub(crate) spares: u32,
    pub(crate) surges: bool,
    pub(crate) warmup: Vec<String>,
    pub(crate) times: Timeouts,
    /// The maximum time for which a request waits, in the queue and in a worker.
    pub(crate) queue_timeout: Duration,
    pub(crate) recycle: RecyclePolicy,
    pub(crate) start_retries: u32,
    pub(crate) restarts: bool,
    pub(crate) fails_fast: bool,
    pub(crate) is_dev: bool,
    /// A delay of the supervisor's thread after each event.
    pub(crate) delay: Duration,
    /// The interval in which the supervisor's loop has to iterate, as for a watchdog.
    pub(crate) turns_every: Duration,
    /// The mode of a start, by the number of earlier starts.
    pub(crate) mode: fn(usize) -> &'static str,
    pub(crate) tracer: Option<Arc<Tracer>>,
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
            is_dev: false,
            delay: Duration::ZERO,
            turns_every: Duration::MAX,
            mode: |_| "",
            tracer: None,
        }
    }
}

struct Door {
    listener: Mutex<Option<Listener>>,
    is_ready: AtomicBool,
    delay: Duration,
    /// The time for which the supervisor's thread sleeps after the next event.
    freeze: Mutex<Duration>,
    turns_every: Duration,
    turns: AtomicUsize,
    /// The starts of the app that have succeeded or failed.
    starts: Mutex<Vec<String>>,
    /// The reported errors of sessions.
    session_errors: Mutex<Vec<String>>,
}

impl Frontend for Door {
    fn on_ready(&self, _: Option<&str>) {
        self.is_ready.store(true, Ordering::Relaxed);
    }

    fn drain(&self, close_over: Duration) {
        self.listener.lock().unwrap().as_ref().unwrap().drain_over(close_over);
    }

    fn cut(&self) {
        self.listener.lock().unwrap().as_ref().unwrap().cut();
    }

    fn log_lines_lost(&self) -> u64 {
        3
    }

    fn connections(&self) -> usize {
        self.listener.lock().unwrap().as_ref().unwrap().connections()
    }

    fn take_thread_failure(&self) -> Option<String> {
        self.listener.lock().unwrap().as_ref().unwrap().take_failure()
    }

    fn heartbeat_interval(&self) -> Duration {
        let freeze = std::mem::take(&mut *self.freeze.lock().unwrap());
        std::thread::sleep(self.delay + freeze);
        self.turns_every
    }

    fn on_event(&self, event: SupervisorEvent<'_>) {
        match event {
            SupervisorEvent::Heartbeat { .. } => {
                self.turns.fetch_add(1, Ordering::Relaxed);
            }
            SupervisorEvent::AppReady => self.starts.lock().unwrap().push("ready".to_owned()),
            SupervisorEvent::StartFailed { exit, report } => {
                let text = report.map(|report| report.text.as_str()).unwrap_or_default();
                self.starts.lock().unwrap().push(format!("{exit} {text}"));
            }
            SupervisorEvent::SessionError(report) => {
                let report = String::from_utf8(report.to_vec()).unwrap();
                self.session_errors.lock().unwrap().push(report);
            }
            _ => {}
        }
    }
}

/// Returns the number of child processes that this thread has started, including zombies.
fn processes() -> usize {
    std::fs::read_to_string("/proc/thread-self/children").unwrap().split_whitespace().count()
}

/// Returns the supervisor's configuration for a test, without its folder and listeners.
fn plan_of(wish: Wish, beside: Arc<Mutex<Vec<usize>>>) -> SupervisorConfig {
    let starts = Mutex::new(0);
    let make = move || -> Result<Command, String> {
        beside.lock().unwrap().push(processes());
        let mut starts = starts.lock().unwrap();
        let mode = (wish.mode)(*starts);
        *starts += 1;
        if mode == "no command" {
            return Err("there is no command".to_owned());
        }
        let mut command = command();
        command.env(MODE, mode);
        Ok(command)
    };
    SupervisorConfig {
        workers: wish.workers,
        spares: wish.spares,
        surges: wish.surges,
        warmup: wish.warmup,
        command: Box::new(make),
        folder: PathBuf::new(),
        files: None,
        times: wish.times,
        recycle: wish.recycle,
        start_retries: wish.start_retries,
        restarts: wish.restarts,
        is_on_terminal: false,
        is_dev: wish.is_dev,
        fails_fast: wish.fails_fast,
        log: |line| TOLD.lock().unwrap().push((std::thread::current().id(), line.to_owned())),
        warn: |line| TOLD.lock().unwrap().push((std::thread::current().id(), line.to_owned())),
    }
}

/// A running supervisor with worker processes, which ends when this value is dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) registry: Arc<BackendRegistry>,
    pub(crate) folder: TempDir,
    /// The number of workers that existed at each start, including those that were ending.
    pub(crate) beside: Arc<Mutex<Vec<usize>>>,
    door: Arc<Door>,
    requests: UnboundedSender<SupervisorCommand>,
    supervisor: Option<JoinHandle<Outcome>>,
    pub(crate) server: Server,
}

impl Running {
    /// Starts a supervisor, and waits until all its workers are ready.
    pub(crate) fn new(wish: Wish) -> Running {
        let workers = wish.workers as usize;
        let running = Running::start(wish);
        wait_until("they are ready", || running.registry.backends().len() == workers);
        // The event follows a moment after the last worker has been added.
        wait_until("it is said to be ready", || running.door.is_ready.load(Ordering::Relaxed));
        running
    }

    pub(crate) fn start(wish: Wish) -> Running {
        let registry = Arc::new(BackendRegistry::default());
        if let Some(tracer) = &wish.tracer {
            registry.set_tracer(Arc::clone(tracer));
        }
        let limits = PoolLimits { queue_timeout: wish.queue_timeout, ..PoolLimits::default() };
        let server =
            Server::with_application(Config::default(), pool(Arc::clone(&registry), limits));
        let site = ListenerConfig { files: registry.files(), ..ListenerConfig::default() };
        let listener = server.listen_tcp("127.0.0.1:0".parse().unwrap(), site).unwrap();
        let address = listener.local_addr().unwrap();
        let door = Arc::new(Door {
            listener: Mutex::new(Some(listener)),
            is_ready: AtomicBool::new(false),
            delay: wish.delay,
            freeze: Mutex::default(),
            turns_every: wish.turns_every,
            turns: AtomicUsize::new(0),
            starts: Mutex::default(),
            session_errors: Mutex::default(),
        });
        let folder = tempfile::tempdir().unwrap();
        let (requests, asked) = unbounded_channel();
        let beside = Arc::new(Mutex::new(Vec::new()));
        let supervisor = std::thread::spawn({
            let (registry, door, folder, beside) = (
                Arc::clone(&registry),
                Arc::clone(&door),
                folder.path().to_path_buf(),
                Arc::clone(&beside),
            );
            move || {
                let plan = SupervisorConfig { folder, ..plan_of(wish, beside) };
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
            server,
        }
    }

    /// Reloads with another configuration.
    pub(crate) fn change(&self, wish: Wish) {
        self.ask(SupervisorCommand::Change(Box::new(plan_of(wish, Arc::clone(&self.beside)))));
    }

    pub(crate) fn ask(&self, request: SupervisorCommand) {
        self.requests.send(request).unwrap();
    }

    pub(crate) fn outcome(&mut self) -> Outcome {
        self.supervisor.take().unwrap().join().unwrap()
    }

    /// Lets the supervisor's thread sleep for this time once.
    pub(crate) fn freeze(&self, time: Duration) {
        *self.door.freeze.lock().unwrap() = time;
        wait_until("it sleeps", || self.door.freeze.lock().unwrap().is_zero());
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

    /// Returns true if this supervisor has reported an event that contains these words. Events of
    /// other supervisors in this process do not count.
    pub(crate) fn has_told(&self, words: &[&str]) -> bool {
        self.times_told(words) > 0
    }

    /// Returns the number of this supervisor's events that contain these words.
    pub(crate) fn times_told(&self, words: &[&str]) -> usize {
        let own = self.supervisor.as_ref().unwrap().thread().id();
        let told = TOLD.lock().unwrap();
        let is_it = |(thread, line): &&(ThreadId, String)| {
            *thread == own && words.iter().all(|word| line.contains(word))
        };
        told.iter().filter(is_it).count()
    }

    /// Returns the process ids of all processes of workers, also of those that get no requests.
    pub(crate) fn children(&self) -> Vec<i32> {
        let folder = self.folder.path().display().to_string();
        let processes = std::fs::read_dir("/proc").unwrap().flatten().filter(|process| {
            let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
            String::from_utf8_lossy(&environment).contains(&format!("TMPDIR={folder}"))
        });
        processes.filter_map(|process| process.file_name().to_str()?.parse().ok()).collect()
    }

    /// Returns the starts of the app that have succeeded or failed so far.
    pub(crate) fn app_starts(&self) -> Vec<String> {
        self.door.starts.lock().unwrap().clone()
    }

    /// Returns the errors of sessions that have been reported so far.
    pub(crate) fn session_errors(&self) -> Vec<String> {
        self.door.session_errors.lock().unwrap().clone()
    }

    /// Returns the number of iterations of the supervisor's loop.
    pub(crate) fn turns(&self) -> usize {
        self.door.turns.load(Ordering::Relaxed)
    }

    /// Returns the process ids of the workers that get requests.
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
            // The second command makes the supervisor stop immediately.
            let _ = self.requests.send(SupervisorCommand::Stop);
            let _ = self.requests.send(SupervisorCommand::Stop);
            let _ = supervisor.join();
        }
    }
}

/// Returns true if any supervisor has reported an event that contains these words, which must be
/// unique to one test.
pub(crate) fn is_told(words: &[&str]) -> bool {
    TOLD.lock().unwrap().iter().any(|(_, line)| words.iter().all(|word| line.contains(word)))
}

/// Returns the number of events of all supervisors that contain this word.
pub(crate) fn how_often(word: &str) -> usize {
    TOLD.lock().unwrap().iter().filter(|(_, line)| line.contains(word)).count()
}

/// Returns true if a process exists and is not a zombie.
pub(crate) fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

pub(crate) fn send_signal(pid: i32, signal: i32) {
    // Ids of 1 and less do not name a single process that a test could have started.
    assert!(pid > 1);
    // SAFETY: the call passes no memory.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

/// Clients that send requests continuously on threads of their own, and record the statuses of the
/// responses.
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

    /// Stops the clients and returns the status of each response.
    pub(crate) fn end(self) -> Vec<u16> {
        self.is_over.store(true, Ordering::Relaxed);
        self.clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    }
}

/// Sleeps, so that other threads and processes can make progress.
pub(crate) fn while_(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}
