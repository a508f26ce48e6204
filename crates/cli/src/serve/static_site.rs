//! Serves a static site (a folder with an `index.html`) in this process, without R.

use std::iter;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rookery_server::access_log::Reopener;
use rookery_server::static_files::{Overrides, StaticFiles, StaticPath};
use rookery_server::tls::Tls;
use rookery_server::{ListenerConfig, Notice, Server, SpoolFolder};
use rookery_systemd::ServiceManager;

use crate::app_detection::Target;
use crate::failure::Failure;
use crate::listen::address::Address;
use crate::listen::listeners::Listeners;
use crate::process::signals::{ReceivedSignal, Signals, StopCounter};
use crate::serve::access_log::{Log, LogTarget};
use crate::serve::development::{Development, watch_site};
use crate::serve::tls::{self, TlsSetup};
use crate::serve::tracing;
use crate::settings::serve_settings::ServeSettings;
use crate::stderr::{log_line, print_lines};
use crate::terminal::browser;
use crate::terminal::startup_screen::{StartupScreen, is_coloured};

/// The maximum time for which unfinished responses may continue after the first signal to stop. It
/// is less than 10 s, because `docker stop` kills the process after 10 s.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(8500);
/// The interval at which the stopping program checks whether all responses are finished.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Serves the static site until a signal stops the server.
///
/// # Errors
/// Fails if the address is not available, or if a file that a setting names cannot be used.
pub(crate) fn serve(
    target: &Target,
    serve: &ServeSettings,
    address: &Address,
    redirect_address: Option<&Address>,
    log: &LogTarget,
) -> Result<(), Failure> {
    let signals = Signals::start()?;
    let opened = tls::load(&serve.settings)?;
    let tls = opened.as_ref().map(|opened| opened.tls.clone());
    let files = StaticFiles::new();
    let folder = StaticPath { path: target.path.clone(), ..StaticPath::default() };
    let overrides = Overrides { exclude: Some(true), ..Overrides::default() };
    let excluded = StaticPath { overrides, ..StaticPath::default() };
    let own = serve.is_dev.then(|| ("/__rookery__".to_owned(), excluded));
    files
        .set(iter::once(("/".to_owned(), folder)).chain(own))
        .map_err(|error| Failure::Unavailable(format!("{error}.")))?;
    let settings = serve.settings.server_settings()?;
    let dev = Development::of(serve, address)?;
    let server = match &dev {
        Some(dev) => {
            let application = dev.application(Server::static_files_application());
            Server::with_application(settings.config, application)
        }
        None => Server::for_static_files(settings.config),
    };
    let tracer = tracing::start(target);
    if let Some(tracer) = &tracer {
        server.set_tracer(Some(tracer.share()));
    }
    let log = log.open(serve.format, &tracing::app_name(target))?;
    server.set_access_log(log.as_ref().map(Log::access_log));
    let spool = Arc::new(SpoolFolder::new(settings.spool_folder, log_line));
    let site = ListenerConfig {
        files,
        tls: tls.clone(),
        spool,
        proxies: settings.proxies,
        proxy_protocol: settings.proxy_protocol,
        notice: Notice(log_line),
        page_script: dev.as_ref().map(Development::script),
        ..ListenerConfig::default()
    };
    #[cfg(unix)]
    crate::listen::orphaned_worker::wait_for_orphaned_workers(
        std::iter::once(address).chain(redirect_address),
        &signals,
    );
    let listeners = Listeners::open(&server, address, redirect_address, site, &serve.settings)?;
    let development = opened.as_ref().and_then(|opened| opened.development.as_ref());
    let reloads = dev.is_some();
    let screen = StartupScreen { development, reloads, ..StartupScreen::of(target, &listeners) };
    print_lines(&screen.text(is_coloured()));
    if serve.opens_browser {
        browser::open(listeners.url.as_deref());
    }
    if let Some(dev) = dev {
        watch_site(&target.folder, dev.live)?;
    }
    let renewer = opened.as_ref().map_or(Ok(None), TlsSetup::start_renewer)?;
    let manager = ServiceManager::from_environment();
    manager.ready(&format!("Serving on {}", listeners.addresses));
    let mut stops = StopCounter::new();
    if let Some(signal) = run_until_stopped(
        &signals,
        tls.as_ref(),
        log.as_ref().map(Log::reopener).as_ref(),
        &listeners,
        &manager,
    ) {
        stops.record(signal);
    }
    drop(renewer);
    manager.stopping("Finishing the responses in progress");
    drain(&listeners, &signals, &mut stops, &manager);
    listeners.stop();
    if let Some(tracer) = tracer {
        tracer.end(|| {
            end_at_second_stop(&signals, &mut stops, Duration::ZERO);
            false
        });
    }
    server.set_access_log(None);
    if let Some(log) = log {
        log.close();
    }
    Ok(())
}

/// Waits for the signal that stops the server. Meanwhile, SIGHUP makes the server read the
/// certificates again, and SIGUSR1 makes it open the log file again.
fn run_until_stopped(
    signals: &Signals,
    tls: Option<&Tls>,
    log: Option<&Reopener>,
    listeners: &Listeners,
    manager: &ServiceManager,
) -> Option<ReceivedSignal> {
    loop {
        // The I/O thread responds to `connections`, so its hang stops the pings of the watchdog.
        let signal = match manager.watchdog_interval() {
            None => signals.recv(),
            Some(time) => {
                listeners.connections();
                manager.ping_watchdog();
                match signals.recv_timeout((time / 2).max(CHECK_INTERVAL)) {
                    None => continue,
                    signal => signal,
                }
            }
        };
        match (signal, tls) {
            (Some(signal), _) if signal.is_log_reopen() => {
                if let Some(log) = log {
                    log.reopen();
                }
            }
            (Some(signal), _) if signal.is_for_workers_only() => {}
            (Some(signal), None) if signal.is_ignored_reload() => {}
            (Some(signal), Some(tls)) if signal.is_reload() => {
                manager.reloading("Reading the certificates again");
                tls::reload(tls);
                manager.ready(&format!("Serving on {}", listeners.addresses));
            }
            (signal, _) => return signal,
        }
    }
}

/// Waits until all responses are finished or the time limit has passed. A second signal to stop
/// terminates the process.
fn drain(
    listeners: &Listeners,
    signals: &Signals,
    stops: &mut StopCounter,
    manager: &ServiceManager,
) {
    listeners.drain();
    let until = Instant::now() + DRAIN_TIMEOUT;
    while listeners.connections() > 0 && Instant::now() < until {
        manager.ping_watchdog();
        end_at_second_stop(signals, stops, CHECK_INTERVAL);
    }
}

/// Waits for a signal for at most `time`. A second signal to stop terminates the process.
fn end_at_second_stop(signals: &Signals, stops: &mut StopCounter, time: Duration) {
    if let Some(signal) = signals.recv_timeout(time).filter(|signal| signal.is_stop()) {
        if stops.record(signal) > 1 {
            signal.terminate_process();
        }
    }
}
