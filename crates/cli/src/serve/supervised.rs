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
use crate::command_line::Serve;
use crate::failure::{Failure, say, tell};
use crate::listen::address::Address;
use crate::listen::listeners::Ports;
use crate::listen::orphaned_worker;
use crate::process::signals::{Caught, Signals, Stops};
use crate::serve::access_log::{Log, LogTo};
use crate::serve::file_watcher::Changes;
use crate::serve::r_command;
use crate::serve::reload::Reload;
use crate::serve::tls::{self, Opened};
use crate::settings::sources::{Read, Sources};
use crate::settings::workers::{self, MaxMemory, Workers};
use crate::terminal::browser;
use crate::terminal::r_prompt::Terminal;
use crate::terminal::startup_screen::{Screen, is_coloured};

/// The second signal to end: the process ends by it.
static SECOND: OnceLock<Caught> = OnceLock::new();

/// Serves until a signal ends it.
///
/// # Errors
/// When the address cannot be had, a file that was named not be used, or no worker becomes ready.
pub(crate) fn serve(
    sources: Sources,
    read: &Read,
    target: &Target,
    address: &Address,
    beside: Option<&Address>,
    log: &LogTo,
) -> Result<(), Failure> {
    let asked = &read.serve;
    let workers = &asked.workers;
    let signals = Signals::watch().map_err(|error| {
        Failure::Serving(format!("The thread that waits for signals cannot be started: {error}."))
    })?;
    // Looked for once, and said at once when it is not there.
    r_command::worker(asked, target, address, None)?;
    let files = open_files();
    let opened = tls::open(&asked.settings)?;
    let tls = opened.as_ref().map(|opened| opened.tls.clone());
    let settings = asked.settings.of_server()?;
    let config = settings.config;
    let limits = pool_limits(workers, asked, &config, target, address);
    let roster = Arc::new(BackendRegistry::default());
    let server = Server::with_application(config, pool(Arc::clone(&roster), limits));
    let log_to = log;
    let log = log_to.open(format_of(asked.format, workers))?;
    server.set_access_log(log.as_ref().map(Log::access_log));
    let site = ListenerConfig {
        // The app's static paths that are the same in all workers.
        files: roster.files(),
        // Where the app of the workers does.
        sees_heads: true,
        tls: tls.clone(),
        spool: Arc::new(SpoolFolder::new(settings.spool_folder, tell)),
        sends_request_id: asked.settings.tells_request_id(),
        proxies: settings.proxies,
        proxy_protocol: settings.proxy_protocol,
        notice: Notice(tell),
        ..ListenerConfig::default()
    };
    orphaned_worker::wait(std::iter::once(address).chain(beside), &signals);
    let ports = Ports::listen(&server, address, beside, site, &asked.settings)?;
    let public = if asked.may_accept() { Some(public(&ports, log_to)?) } else { None };
    let status = SupervisorStatus::new(
        Arc::clone(&roster),
        ServerInfo { target: target.path.display().to_string(), address: ports.shown.clone() },
        readiness(workers),
    );
    let status = Arc::new(status);
    let screen = Screen {
        workers: Some(workers.count),
        development: opened.as_ref().and_then(|opened| opened.development.as_ref()),
        admin: asked.admin.as_ref(),
        reloads: workers.reload,
        ..Screen::of(target, &ports)
    };
    let door = Door {
        screen: screen.text(is_coloured()),
        opens_browser: asked.opens_browser,
        ports,
        admin: AdminListener::start(
            AdminHandler::new(Arc::clone(&status) as _),
            asked.admin.as_ref(),
        )
        .map_err(|error| Failure::Address(error.to_string()))?,
        manager: ServiceManager::from_environment(),
        state: Cell::new((Phase::Starting, Told::default())),
        failure: RefCell::default(),
    };
    let renewer = opened.as_ref().map_or(Ok(None), Opened::start_renewer)?;
    let (ask, asks) = unbounded_channel();
    let reopens = log.as_ref().map(Log::reopener);
    let terminal = if workers.is_interactive { Terminal::watch() } else { None };
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
        watch(Arc::clone(&reload), ask.clone())?;
    }
    let pass_on = std::thread::Builder::new().name("rookery-asked".to_owned());
    pass_on
        .spawn({
            let terminal = terminal.clone();
            move || pass_signals_on(&signals, &reload, reopens.as_ref(), terminal.as_ref(), &ask)
        })
        .map_err(|error| Failure::Serving(format!("A thread cannot be started: {error}.")))?;
    let outcome = supervise(plan, roster, asks, &door);
    drop(renewer);
    if let Some(terminal) = terminal {
        terminal.restore();
    }
    if SECOND.get().is_none() {
        door.ports.stop();
    }
    server.set_access_log(None);
    if let Some(log) = log {
        log.close();
    }
    if let Some(caught) = SECOND.get() {
        caught.die();
    }
    match outcome {
        Ok(outcome) => result_of(outcome, door.failure.take()),
        Err(error) => Err(Failure::Serving(format!("Workers cannot be started: {error}."))),
    }
}

/// Returns what the program ends with. `failure` is the message of the last failed start.
fn result_of(outcome: Outcome, failure: Option<String>) -> Result<(), Failure> {
    match outcome {
        Outcome::Stopped | Outcome::Ended(Exit::Status(0)) => Ok(()),
        Outcome::Ended(Exit::Status(status)) => {
            Err(Failure::Ended(u8::try_from(status).unwrap_or(1)))
        }
        Outcome::Ended(Exit::Signal(number)) => {
            Err(Failure::Ended(u8::try_from(128 + number).unwrap_or(1)))
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
    asked: &Serve,
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
    log: LogTo,
    files: Option<libc::rlimit>,
}

impl Planner {
    /// Returns the plan of the supervisor for these settings.
    pub(crate) fn plan(&self, asked: &Serve, public: Option<PublicListeners>) -> SupervisorConfig {
        let workers = &asked.workers;
        let (of_worker, target) = (asked.clone(), self.target.clone());
        let (address, log) = (self.address.clone(), self.log.clone());
        SupervisorConfig {
            workers: workers.count,
            spares: workers.spares,
            surges: workers.surge > 0,
            warmup: workers.warmup.clone(),
            command: Box::new(move |is_public| {
                r_command::worker(&of_worker, &target, &address, is_public.then_some(&log))
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
                memory: most_memory(workers, memory_limit()),
            },
            tell,
        }
    }
}

/// The listeners that clients connect to, for workers to accept on.
fn public(ports: &Ports, log: &LogTo) -> Result<PublicListeners, Failure> {
    let failed =
        |error| Failure::Serving(format!("The listeners cannot be handed to a worker: {error}."));
    let (sockets, redirects) = ports.copies().map_err(failed)?;
    let log = match log {
        // A worker's own standard output is a pipe to this process.
        LogTo::Stdout => std::io::stdout().as_fd().try_clone_to_owned().ok(),
        LogTo::Nothing | LogTo::File(_) => None,
    };
    Ok(PublicListeners { sockets, redirects, log })
}

/// Returns how lines of the log look: of several workers they say which one it was.
fn format_of(asked: Format, workers: &Workers) -> Format {
    match asked {
        // Of one, the number would always be the same.
        Format::Common if workers.count > 1 => Format::CommonOfWorkers,
        asked => asked,
    }
}

/// How much memory of its own a worker may have, in a control group that may have so much; said where nobody has.
fn most_memory(workers: &Workers, limit: Option<u64>) -> Option<MemoryLimit> {
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
        Some(each) => tell(&format!(
            "a worker that has {} MB of memory of its own is replaced: {several} of them have four fifths of the {megabytes} MB of \
             this control group (`--max-memory` is another limit, 0 none)",
            each / 1_000_000
        )),
        None => tell(&format!(
            "the {megabytes} MB of this control group are little for {several} Rs: none is replaced for its memory without `--max-memory`"
        )),
    }
    Some(limit)
}

/// What clients come to, and who is told of it.
struct Door {
    ports: Ports,
    /// The start-up screen, with colour if the terminal has it.
    screen: String,
    opens_browser: bool,
    admin: AdminListener,
    manager: ServiceManager,
    /// What the service manager has been told.
    state: Cell<(Phase, Told)>,
    /// The app's own message, where it has not started.
    failure: RefCell<Option<String>>,
}

/// What the service manager has been told of the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Told {
    ready: usize,
    failures: usize,
}

/// So many failures of workers within a minute are told.
const STORM: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting,
    Serving,
    Reloading,
    Stopping,
}

impl Door {
    fn is(&self, phase: Phase) {
        self.state.set((phase, self.state.get().1));
    }

    fn status(&self) -> String {
        format!("Serving on {}", self.ports.shown)
    }
}

/// Returns what a service manager shows: what the server does, and what is wrong with its workers.
fn status_line(doing: String, told: Told, workers: usize) -> String {
    let mut parts = vec![doing];
    if workers > 1 || told.ready == 0 {
        parts.push(format!("{} of {workers} workers ready", told.ready));
    }
    if told.failures > 0 {
        parts.push(format!("workers have failed {} times within a minute", told.failures));
    }
    parts.join(", ")
}

impl Frontend for Door {
    fn ready(&self) {
        say(&self.screen);
        if self.opens_browser {
            browser::open(self.ports.url.as_deref());
        }
        self.state.set((Phase::Serving, Told { ready: 1, failures: 0 }));
        self.manager.ready(&self.status());
    }

    fn drain(&self) {
        self.is(Phase::Stopping);
        self.manager.stopping("Finishing what is in hand");
        self.ports.drain();
    }

    fn set_accepting(&self, is_on: bool) {
        self.ports.set_accepting(is_on);
    }

    fn connections(&self) -> usize {
        self.ports.connections()
    }

    fn log_lines_lost(&self) -> u64 {
        output::lines_lost()
    }

    fn turns_every(&self) -> Duration {
        // Told when three quarters of this are over, so a turn at half of it is never the one that comes too late.
        self.manager.watchdog_interval().map_or(Duration::MAX, |time| time / 2)
    }

    fn hear(&self, news: SupervisorEvent<'_>) {
        match news {
            SupervisorEvent::Leaving => {
                self.is(Phase::Stopping);
                self.manager.stopping("Waiting until nothing more is sent here");
            }
            // What is served goes on.
            SupervisorEvent::Started(folder) => {
                if let Err(error) = self.admin.listen_in(folder) {
                    tell(&format!("`rookery status` will not find this server: {error}"));
                }
            }
            // The thread of the connections has answered before, and this is that of the workers.
            SupervisorEvent::Turned { ready, workers, failures } => {
                self.manager.ping_watchdog();
                let now = Told { ready, failures: if failures < STORM { 0 } else { failures } };
                let (phase, told) = self.state.get();
                if told != now {
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
                self.is(Phase::Reloading);
                self.manager.reloading("Replacing workers");
            }
            SupervisorEvent::Reloaded if self.state.get().0 == Phase::Reloading => {
                self.is(Phase::Serving);
                self.manager.ready(&self.status());
            }
            SupervisorEvent::Reloading | SupervisorEvent::Reloaded => {}
        }
    }
}

/// Has workers replaced when a file of the app has changed.
fn watch(reload: Arc<Reload>, ask: UnboundedSender<SupervisorCommand>) -> Result<(), Failure> {
    let mut changes = Changes::of(&reload.target.folder);
    let watching =
        std::thread::Builder::new().name("rookery-changes".to_owned()).spawn(move || {
            loop {
                tell(&format!("`{}` has changed", changes.next().display()));
                if ask.send(reload.request()).is_err() {
                    return;
                }
            }
        });
    watching
        .map(drop)
        .map_err(|error| Failure::Serving(format!("A thread cannot be started: {error}.")))
}

/// SIGUSR2, and a SIGHUP sent by a process, replace all workers and read settings and certificates
/// again; SIGUSR1 reopens the log's file; SIGTTIN and SIGTTOU change how many workers there are; any
/// other signal ends it. Ctrl-C at a prompt is for R.
fn pass_signals_on(
    signals: &Signals,
    reload: &Reload,
    log: Option<&Reopener>,
    terminal: Option<&Terminal>,
    ask: &UnboundedSender<SupervisorCommand>,
) {
    let (mut stops, mut asked_to_stop) = (Stops::new(), 0);
    while let Some(caught) = signals.next() {
        if caught.is_of_terminal() && terminal.is_some_and(Terminal::is_prompting) {
            continue;
        }
        if caught.asks_for_logs() {
            if let Some(log) = log {
                log.reopen();
            }
        }
        let asked = if caught.asks_for_logs() {
            SupervisorCommand::ReopenLog
        } else if caught.asks_for_more() {
            SupervisorCommand::More
        } else if caught.asks_for_fewer() {
            SupervisorCommand::Fewer
        } else if caught.asks_for_reload() || caught.asks_for_restart() {
            if asked_to_stop > 0 {
                continue;
            }
            reload.request()
        } else {
            let times = stops.count(caught);
            if std::mem::replace(&mut asked_to_stop, times) == times {
                continue;
            }
            if times > 1 {
                // A third finds this told.
                let _ = SECOND.set(caught);
            }
            SupervisorCommand::Stop
        };
        if ask.send(asked).is_err() {
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
            status_line("Serving on /s".to_owned(), Told { ready, failures }, workers)
        };
        assert_eq!(line(1, 0, 1), "Serving on /s");
        assert_eq!(line(2, 0, 2), "Serving on /s, 2 of 2 workers ready");
        assert_eq!(
            line(0, 7, 1),
            "Serving on /s, 0 of 1 workers ready, workers have failed 7 times within a minute"
        );
    }
}
