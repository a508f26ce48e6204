//! A folder with `index.html`, served by this process: no R is needed, nor started.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rookery_server::access_log::Reopener;
use rookery_server::static_files::{StaticFiles, StaticPath};
use rookery_server::tls::Tls;
use rookery_server::{ListenerConfig, Notice, Server, SpoolFolder};
use rookery_systemd::ServiceManager;

use crate::app_detection::Target;
use crate::command_line::Serve;
use crate::failure::{Failure, say, tell};
use crate::listen::address::Address;
use crate::listen::listeners::Ports;
use crate::process::signals::{Caught, Signals, Stops};
use crate::serve::access_log::{Log, LogTo};
use crate::serve::tls::{self, Opened};
use crate::terminal::browser;
use crate::terminal::startup_screen::{Screen, is_coloured};

/// How long replies that are being sent are waited for after the first signal: `docker stop` kills after 10 s, and stopping
/// takes one of them.
const DRAIN_TIME: Duration = Duration::from_millis(8500);
/// How often it is looked whether they have been sent.
const LOOK_TIME: Duration = Duration::from_millis(20);

/// Serves until a signal ends it.
///
/// # Errors
/// When the address cannot be had, or a file that was named not be used.
pub(crate) fn serve(
    target: &Target,
    asked: &Serve,
    address: &Address,
    beside: Option<&Address>,
    log: &LogTo,
) -> Result<(), Failure> {
    let signals = Signals::watch().map_err(|error| {
        Failure::Serving(format!("The thread that waits for signals cannot be started: {error}."))
    })?;
    let opened = tls::open(&asked.settings)?;
    let tls = opened.as_ref().map(|opened| opened.tls.clone());
    let files = StaticFiles::new();
    let folder = StaticPath { path: target.path.clone(), ..StaticPath::default() };
    files.set([("/".to_owned(), folder)]).map_err(|error| Failure::Serving(format!("{error}.")))?;
    let settings = asked.settings.of_server()?;
    let server = Server::for_static_files(settings.config);
    let log = log.open(asked.format)?;
    server.set_access_log(log.as_ref().map(Log::access_log));
    let spool = Arc::new(SpoolFolder::new(settings.spool_folder, tell));
    let site = ListenerConfig {
        files,
        tls: tls.clone(),
        spool,
        proxies: settings.proxies,
        proxy_protocol: settings.proxy_protocol,
        notice: Notice(tell),
        ..ListenerConfig::default()
    };
    #[cfg(target_os = "linux")]
    crate::listen::orphaned_worker::wait(std::iter::once(address).chain(beside), &signals);
    let ports = Ports::listen(&server, address, beside, site, &asked.settings)?;
    let development = opened.as_ref().and_then(|opened| opened.development.as_ref());
    let screen = Screen { development, ..Screen::of(target, &ports) };
    say(&screen.text(is_coloured()));
    if asked.opens_browser {
        browser::open(ports.url.as_deref());
    }
    let renewer = opened.as_ref().map_or(Ok(None), Opened::start_renewer)?;
    let manager = ServiceManager::from_environment();
    manager.ready(&format!("Serving on {}", ports.shown));
    let mut stops = Stops::new();
    if let Some(caught) =
        wait(&signals, tls.as_ref(), log.as_ref().map(Log::reopener).as_ref(), &ports, &manager)
    {
        stops.count(caught);
    }
    drop(renewer);
    manager.stopping("Finishing what is being sent");
    drain(&ports, &signals, &mut stops, &manager);
    ports.stop();
    server.set_access_log(None);
    if let Some(log) = log {
        log.close();
    }
    Ok(())
}

/// Waits for the signal that ends it. A SIGHUP that was sent to a server of HTTPS has certificates read anew, SIGUSR1 the log's file
/// opened anew.
fn wait(
    signals: &Signals,
    tls: Option<&Tls>,
    log: Option<&Reopener>,
    ports: &Ports,
    manager: &ServiceManager,
) -> Option<Caught> {
    loop {
        // The thread that serves has answered before the manager is told that it is alive.
        let caught = match manager.watchdog_interval() {
            None => signals.next(),
            Some(time) => {
                ports.connections();
                manager.ping_watchdog();
                match signals.next_within((time / 2).max(LOOK_TIME)) {
                    None => continue,
                    caught => caught,
                }
            }
        };
        match (caught, tls) {
            (Some(caught), _) if caught.asks_for_logs() => {
                if let Some(log) = log {
                    log.reopen();
                }
            }
            (Some(caught), _) if caught.asks_for_nothing_here() => {}
            (Some(caught), None) if caught.asks_for_reload_only() => {}
            (Some(caught), Some(tls)) if caught.asks_for_reload() => {
                manager.reloading("Reading certificates");
                tls::reload(tls);
                manager.ready(&format!("Serving on {}", ports.shown));
            }
            (caught, _) => return caught,
        }
    }
}

/// Waits until what is being sent has been sent, or time is up. A second signal ends the process.
fn drain(ports: &Ports, signals: &Signals, stops: &mut Stops, manager: &ServiceManager) {
    ports.drain();
    let until = Instant::now() + DRAIN_TIME;
    while ports.connections() > 0 && Instant::now() < until {
        manager.ping_watchdog();
        if let Some(caught) = signals.next_within(LOOK_TIME).filter(|caught| caught.ends()) {
            if stops.count(caught) > 1 {
                caught.die();
            }
        }
    }
}
