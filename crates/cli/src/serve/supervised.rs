//! R processes behind one address: this process is the server and their supervisor.

use std::cell::{Cell, RefCell};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use rookery_server::access_log::{Format, Reopener};
use rookery_server::{Config, ListenerConfig, Notice, Server, SpoolFolder, output};
use rookery_status::{AdminHandler, AdminListener, ServerInfo};
use rookery_supervisor::{
    BackendRegistry, Exit, Frontend, MemoryLimit, Outcome, PoolLimits, PublicListeners,
    ReadinessPolicy, RecyclePolicy, SessionAffinity, SupervisorCommand, SupervisorConfig,
    SupervisorEvent, SupervisorStatus, Timeouts, memory_limit, open_files, pool, server_name,
    supervise,
};
use rookery_systemd::ServiceManager;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::app_detection::Target;
use crate::command_line::ServeSettings;
use crate::failure::Failure;
use crate::listen::address::Address;
use crate::listen::listeners::Listeners;
use crate::listen::orphaned_worker;
use crate::process::signals::{ReceivedSignal, Signals, StopCounter};
use crate::serve::access_log::{Log, LogTarget};
use crate::serve::file_watcher::FileWatcher;
use crate::serve::r_command;
use crate::serve::reload::Reload;
use crate::serve::tls::{self, TlsSetup};
use crate::settings::sources::{LoadedSettings, Sources};
use crate::settings::workers::{self, MaxMemory, Workers};
use crate::stderr::{log_line, print_lines};
use crate::terminal::browser;
use crate::terminal::r_prompt::PromptWatcher;
use crate::terminal::startup_screen::{StartupScreen, is_coloured};

/// The second signal to end: the process ends by it.
static SECOND_STOP: OnceLock<ReceivedSignal> = OnceLock::new();

/// Serves until a signal ends it.
///
/// # Errors
/// When the address cannot be had, a file that was named not be used, or no worker becomes ready.
pub(crate) fn serve(
    sources: Sources,
    read: &LoadedSettings,
    target: &Target,
    address: &Address,
    redirect_address: Option<&Address>,
    log: &LogTarget,
) -> Result<(), Failure> {
    let asked = &read.serve;
    let workers = &asked.workers;
    let signals = Signals::start().map_err(|error| {
        Failure::Unavailable(format!(
            "The thread that waits for signals cannot be started: {error}."
        ))
    })?;
    // Looked for once, and said at once when it is not there.
    r_command::worker_command(asked, target, address, None)?;
    let files = open_files();
    let opened = tls::load(&asked.settings)?;
    let tls = opened.as_ref().map(|opened| opened.tls.clone());
    let settings = asked.settings.server_settings()?;
    let config = settings.config;
    let limits = pool_limits(workers, asked, &config, target, address);
    let roster = Arc::new(BackendRegistry::default());
    let server = Server::with_application(config, pool(Arc::clone(&roster), limits));
    let log_to = log;
    let log = log_to.open(log_format(asked.format, workers))?;
    server.set_access_log(log.as_ref().map(Log::access_log));
    let site = ListenerConfig {
        // The app's static paths that are the same in all workers.
        files: roster.files(),
        // Where the app of the workers does.
        sees_heads: true,
        tls: tls.clone(),
        spool: Arc::new(SpoolFolder::new(settings.spool_folder, log_line)),
        sends_request_id: asked.settings.sends_request_id(),
        proxies: settings.proxies,
        proxy_protocol: settings.proxy_protocol,
        notice: Notice(log_line),
        ..ListenerConfig::default()
    };
    orphaned_worker::wait_for_orphaned_workers(
        std::iter::once(address).chain(redirect_address),
        &signals,
    );
    let listeners = Listeners::open(&server, address, redirect_address, site, &asked.settings)?;
    let public = if asked.may_accept() { Some(public_sockets(&listeners, log_to)?) } else { None };
    let status = SupervisorStatus::new(
        Arc::clone(&roster),
        ServerInfo {
            target: target.path.display().to_string(),
            address: listeners.addresses.clone(),
        },
        readiness(workers),
    );
    let status = Arc::new(status);
    let screen = StartupScreen {
        workers: Some(workers.count),
        development: opened.as_ref().and_then(|opened| opened.development.as_ref()),
        admin: asked.admin.as_ref(),
        reloads: workers.reload,
        ..StartupScreen::of(target, &listeners)
    };
    let frontend = SupervisorFrontend {
        screen: screen.text(is_coloured()),
        opens_browser: asked.opens_browser,
        listeners,
        admin: AdminListener::start(
            AdminHandler::new(Arc::clone(&status) as _),
            asked.admin.as_ref(),
        )
        .map_err(|error| Failure::Address(error.to_string()))?,
        manager: ServiceManager::from_environment(),
        state: Cell::new((Phase::Starting, WorkerCounts::default())),
        failure: RefCell::default(),
    };
    let renewer = opened.as_ref().map_or(Ok(None), TlsSetup::start_renewer)?;
    let (requests, receiver) = unbounded_channel();
    let reopens = log.as_ref().map(Log::reopener);
    let terminal = if workers.is_interactive { PromptWatcher::start() } else { None };
    let planner =
        Planner { target: target.clone(), address: address.clone(), log: log_to.clone(), files };
    let plan = planner.plan(asked, public);
    let reload = Arc::new(Reload {
        sources,
        target: target.clone(),
        start: asked.clone(),
        planner,
        status,
        tls,
        notes: Mutex::new(read.notes.clone()),
    });
    if workers.reload {
        start_file_watcher(Arc::clone(&reload), requests.clone())?;
    }
    let thread = std::thread::Builder::new().name("rookery-asked".to_owned());
    thread
        .spawn({
            let terminal = terminal.clone();
            move || {
                forward_signals(&signals, &reload, reopens.as_ref(), terminal.as_ref(), &requests)
            }
        })
        .map_err(|error| Failure::Unavailable(format!("A thread cannot be started: {error}.")))?;
    let outcome = supervise(plan, roster, receiver, &frontend);
    drop(renewer);
    if let Some(terminal) = terminal {
        terminal.restore();
    }
    if SECOND_STOP.get().is_none() {
        frontend.listeners.stop();
    }
    server.set_access_log(None);
    if let Some(log) = log {
        log.close();
    }
    if let Some(signal) = SECOND_STOP.get() {
        signal.terminate_process();
    }
    match outcome {
        Ok(outcome) => result_of(outcome, frontend.failure.take()),
        Err(error) => Err(Failure::Unavailable(format!("Workers cannot be started: {error}."))),
    }
}

/// Returns what the program ends with. `failure` is the message of the last failed start.
fn result_of(outcome: Outcome, failure: Option<String>) -> Result<(), Failure> {
    match outcome {
        Outcome::Stopped | Outcome::Ended(Exit::Status(0)) => Ok(()),
        Outcome::Ended(Exit::Status(status)) => {
            Err(Failure::WorkerExited(u8::try_from(status).unwrap_or(1)))
        }
        Outcome::Ended(Exit::Signal(number)) => {
            Err(Failure::WorkerExited(u8::try_from(128 + number).unwrap_or(1)))
        }
        Outcome::NeverReady => Err(Failure::NeverReady(failure)),
        Outcome::CrashLoop => Err(Failure::CrashLoop),
    }
}

/// Returns when something should be sent to this server.
pub(crate) fn readiness(workers: &Workers) -> ReadinessPolicy {
    ReadinessPolicy { min_ready: workers.min_ready, drain_status: workers.drain_status }
}

fn pool_limits(
    workers: &Workers,
    asked: &ServeSettings,
    config: &Config,
    target: &Target,
    address: &Address,
) -> PoolLimits {
    let of_address = match address {
        Address::Tcp { socket, .. } => socket.to_string(),
        Address::Unix(path) => path.display().to_string(),
    };
    let name = workers.name.clone();
    PoolLimits {
        queue: config.queue.requests,
        queue_time: workers.queue_timeout,
        in_flight: workers.max_in_flight,
        stream_bytes: config.queue.stream_bytes,
        sessions: workers
            .max_sessions
            .and_then(|most| usize::try_from(most).ok())
            .unwrap_or(usize::MAX),
        retries_begun: workers.retry_begun,
        keeps_half_closed: workers.keep_half_closed,
        name: name.unwrap_or_else(|| server_name(&target.path, &of_address)),
        sticky: match workers.sticky {
            workers::Sticky::Auto => SessionAffinity::Auto,
            workers::Sticky::None => SessionAffinity::None,
            workers::Sticky::Cookie => SessionAffinity::Cookie,
        },
        is_embedded: asked.is_embedded,
        ..PoolLimits::default()
    }
}

/// What plans are made of besides settings.
pub(crate) struct Planner {
    target: Target,
    address: Address,
    log: LogTarget,
    files: Option<libc::rlimit>,
}

impl Planner {
    /// Returns the plan of the supervisor for these settings.
    pub(crate) fn plan(
        &self,
        asked: &ServeSettings,
        public: Option<PublicListeners>,
    ) -> SupervisorConfig {
        let workers = &asked.workers;
        let (of_worker, target) = (asked.clone(), self.target.clone());
        let (address, log) = (self.address.clone(), self.log.clone());
        SupervisorConfig {
            workers: workers.count,
            spares: workers.spares,
            surges: workers.surge > 0,
            warmup: workers.warmup.clone(),
            command: Box::new(move |is_public| {
                r_command::worker_command(&of_worker, &target, &address, is_public.then_some(&log))
                    .map_err(|failure| failure.message())
            }),
            public,
            folder: std::env::temp_dir(),
            files: self.files,
            times: Timeouts {
                start: workers.start_timeout,
                drain: workers.drain,
                sessions: workers.drain_sessions,
                busy: workers.kill_stuck,
                interrupts: asked.settings.0.flag("interrupt_requests"),
                delay: asked.shutdown_delay,
                stop: if workers.is_interactive { workers.drain } else { Timeouts::default().stop },
            },
            restarts: workers.restarts,
            is_on_terminal: workers.is_interactive,
            start_retries: workers.start_retries,
            fails_fast: workers.fail_fast,
            recycle: RecyclePolicy {
                requests: workers.max_requests,
                age: workers.max_age,
                memory: worker_memory_limit(workers, memory_limit()),
            },
            tell: log_line,
        }
    }
}

/// The listeners that clients connect to, for workers to accept on.
fn public_sockets(listeners: &Listeners, log: &LogTarget) -> Result<PublicListeners, Failure> {
    let failed = |error| {
        Failure::Unavailable(format!("The listeners cannot be handed to a worker: {error}."))
    };
    let (sockets, redirects) = listeners.copy_sockets().map_err(failed)?;
    let log = match log {
        // A worker's own standard output is a pipe to this process.
        LogTarget::Stdout => std::io::stdout().as_fd().try_clone_to_owned().ok(),
        LogTarget::Nothing | LogTarget::File(_) => None,
    };
    Ok(PublicListeners { sockets, redirects, log })
}

/// Returns how lines of the log look: of several workers they say which one it was.
fn log_format(asked: Format, workers: &Workers) -> Format {
    match asked {
        // Of one, the number would always be the same.
        Format::Common if workers.count > 1 => Format::CommonOfWorkers,
        asked => asked,
    }
}

/// How much memory of its own a worker may have, in a control group that may have so much; said where nobody has.
fn worker_memory_limit(workers: &Workers, limit: Option<u64>) -> Option<MemoryLimit> {
    let group = match (workers.max_memory, limit) {
        (MaxMemory::Bytes(bytes), _) => return Some(MemoryLimit::Each(bytes)),
        (MaxMemory::Any, _) | (MaxMemory::Share, None) => return None,
        // A share of one would be a limit that nobody has asked for.
        (MaxMemory::Share, Some(_)) if workers.count == 1 => return None,
        (MaxMemory::Share, Some(limit)) => limit,
    };
    let (megabytes, limit) = (group / 1_000_000, MemoryLimit::of_group(group));
    let several = workers.count + workers.spares + workers.surge;
    match limit.each(several) {
        Some(each) => log_line(&format!(
            "a worker that has {} MB of memory of its own is replaced: {several} of them have four fifths of the {megabytes} MB of \
             this control group (`--max-memory` is another limit, 0 none)",
            each / 1_000_000
        )),
        None => log_line(&format!(
            "the {megabytes} MB of this control group are little for {several} Rs: none is replaced for its memory without `--max-memory`"
        )),
    }
    Some(limit)
}

/// What clients come to, and who is counts of it.
struct SupervisorFrontend {
    listeners: Listeners,
    /// The start-up screen, with colour if the terminal has it.
    screen: String,
    opens_browser: bool,
    admin: AdminListener,
    manager: ServiceManager,
    /// What the service manager has been counts.
    state: Cell<(Phase, WorkerCounts)>,
    /// The app's own message, where it has not started.
    failure: RefCell<Option<String>>,
}

/// What the service manager has been counts of the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct WorkerCounts {
    ready: usize,
    failures: usize,
}

/// So many failures of workers within a minute are counts.
const REPORTED_FAILURES: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting,
    Serving,
    Reloading,
    Stopping,
}

impl SupervisorFrontend {
    fn set_phase(&self, phase: Phase) {
        self.state.set((phase, self.state.get().1));
    }

    fn status(&self) -> String {
        format!("Serving on {}", self.listeners.addresses)
    }
}

/// Returns what a service manager shows: what the server does, and what is wrong with its workers.
fn status_line(doing: String, counts: WorkerCounts, workers: usize) -> String {
    let mut parts = vec![doing];
    if workers > 1 || counts.ready == 0 {
        parts.push(format!("{} of {workers} workers ready", counts.ready));
    }
    if counts.failures > 0 {
        parts.push(format!("workers have failed {} times within a minute", counts.failures));
    }
    parts.join(", ")
}

impl Frontend for SupervisorFrontend {
    fn ready(&self) {
        print_lines(&self.screen);
        if self.opens_browser {
            browser::open(self.listeners.url.as_deref());
        }
        self.state.set((Phase::Serving, WorkerCounts { ready: 1, failures: 0 }));
        self.manager.ready(&self.status());
    }

    fn drain(&self) {
        self.set_phase(Phase::Stopping);
        self.manager.stopping("Finishing what is in hand");
        self.listeners.drain();
    }

    fn set_accepting(&self, is_on: bool) {
        self.listeners.set_accepting(is_on);
    }

    fn connections(&self) -> usize {
        self.listeners.connections()
    }

    fn log_lines_lost(&self) -> u64 {
        output::lines_lost()
    }

    fn turns_every(&self) -> Duration {
        // WorkerCounts when three quarters of this are over, so a turn at half of it is never the one that comes too late.
        self.manager.watchdog_interval().map_or(Duration::MAX, |time| time / 2)
    }

    fn hear(&self, news: SupervisorEvent<'_>) {
        match news {
            SupervisorEvent::Leaving => {
                self.set_phase(Phase::Stopping);
                self.manager.stopping("Waiting until nothing more is sent here");
            }
            // What is served goes on.
            SupervisorEvent::Started(folder) => {
                if let Err(error) = self.admin.listen_in(folder) {
                    log_line(&format!("`rookery status` will not find this server: {error}"));
                }
            }
            // The thread of the connections has answered before, and this is that of the workers.
            SupervisorEvent::Turned { ready, workers, failures } => {
                self.manager.ping_watchdog();
                let now = WorkerCounts {
                    ready,
                    failures: if failures < REPORTED_FAILURES { 0 } else { failures },
                };
                let (phase, counts) = self.state.get();
                if counts != now {
                    self.state.set((phase, now));
                    let doing = match phase {
                        Phase::Serving => self.status(),
                        Phase::Starting if now.failures > 0 => "Starting".to_owned(),
                        Phase::Starting | Phase::Reloading | Phase::Stopping => return,
                    };
                    self.manager.status(&status_line(doing, now, workers));
                }
            }
            SupervisorEvent::Failed(message) => {
                *self.failure.borrow_mut() = Some(message.to_owned())
            }
            // Before it serves, a manager waits for that and for no end of a reload.
            SupervisorEvent::Reloading
                if matches!(self.state.get().0, Phase::Serving | Phase::Reloading) =>
            {
                self.set_phase(Phase::Reloading);
                self.manager.reloading("Replacing workers");
            }
            SupervisorEvent::Reloaded if self.state.get().0 == Phase::Reloading => {
                self.set_phase(Phase::Serving);
                self.manager.ready(&self.status());
            }
            SupervisorEvent::Reloading | SupervisorEvent::Reloaded => {}
        }
    }
}

/// Has workers replaced when a file of the app has changed.
fn start_file_watcher(
    reload: Arc<Reload>,
    requests: UnboundedSender<SupervisorCommand>,
) -> Result<(), Failure> {
    let mut watcher = FileWatcher::new(&reload.target.folder);
    let watching =
        std::thread::Builder::new().name("rookery-changes".to_owned()).spawn(move || {
            loop {
                log_line(&format!("`{}` has changed", watcher.wait_for_change().display()));
                if requests.send(reload.request()).is_err() {
                    return;
                }
            }
        });
    watching
        .map(drop)
        .map_err(|error| Failure::Unavailable(format!("A thread cannot be started: {error}.")))
}

/// SIGUSR2, and a SIGHUP sent by a process, replace all workers and read settings and certificates
/// again; SIGUSR1 reopens the log's file; SIGTTIN and SIGTTOU change how many workers there are; any
/// other signal ends it. Ctrl-C at a prompt is for R.
fn forward_signals(
    signals: &Signals,
    reload: &Reload,
    log: Option<&Reopener>,
    terminal: Option<&PromptWatcher>,
    requests: &UnboundedSender<SupervisorCommand>,
) {
    let (mut stops, mut asked_to_stop) = (StopCounter::new(), 0);
    while let Some(signal) = signals.recv() {
        if signal.is_ctrl_c() && terminal.is_some_and(PromptWatcher::is_prompting) {
            continue;
        }
        if signal.is_log_reopen() {
            if let Some(log) = log {
                log.reopen();
            }
        }
        let asked = if signal.is_log_reopen() {
            SupervisorCommand::ReopenLog
        } else if signal.is_worker_increase() {
            SupervisorCommand::More
        } else if signal.is_worker_decrease() {
            SupervisorCommand::Fewer
        } else if signal.is_reload() || signal.is_worker_restart() {
            if asked_to_stop > 0 {
                continue;
            }
            reload.request()
        } else {
            let times = stops.record(signal);
            if std::mem::replace(&mut asked_to_stop, times) == times {
                continue;
            }
            if times > 1 {
                // A third finds this counts.
                let _ = SECOND_STOP.set(signal);
            }
            SupervisorCommand::Stop
        };
        if requests.send(asked).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_says_what_is_wrong_with_workers() {
        let line = |ready, failures, workers| {
            status_line("Serving on /s".to_owned(), WorkerCounts { ready, failures }, workers)
        };
        assert_eq!(line(1, 0, 1), "Serving on /s");
        assert_eq!(line(2, 0, 2), "Serving on /s, 2 of 2 workers ready");
        assert_eq!(
            line(0, 7, 1),
            "Serving on /s, 0 of 1 workers ready, workers have failed 7 times within a minute"
        );
    }
}
