//! Serves a static site (a folder with an `index.html`) in this process, without R.

use std::iter;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
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
use crate::listen::service_sockets::{RequestedListeners, ServiceSockets};
use crate::process::signals::{ReceivedSignal, Signals, StopCounter, request_stop};
use crate::serve::access_log::{Log, LogTarget};
use crate::serve::development::{Development, watch_site};
use crate::serve::tls;
use crate::serve::tracing;
use crate::settings::serve_settings::ServeSettings;
use crate::settings::server::ServerSettings;
use crate::stderr::{log_line, print_lines};
use crate::terminal::browser::{self, Opening};
use crate::terminal::shortcuts::{self, Shortcut};
use crate::terminal::startup_screen::{StartupScreen, is_coloured};

/// The maximum time for which unfinished responses may continue after the first signal to stop. It
/// is less than 10 s, because `docker stop` kills the process after 10 s.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(8500);
/// The interval at which the stopping program checks whether all responses are finished.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The interval at which the running program checks whether a thread has failed.
const FAILURE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

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
    let requested = RequestedListeners::of(serve, address, redirect_address, target.is_site);
    // SAFETY: this function is called only once, and no other code uses the descriptors that the
    // variables of the service manager name.
    #[cfg(unix)]
    let given = unsafe { ServiceSockets::take(requested) }?;
    #[cfg(windows)]
    let given = ServiceSockets::default();
    let opened = tls::load(&serve.all)?;
    let tls = opened.as_ref().map(|opened| opened.tls.clone());
    let site = Arc::new(Site {
        files: StaticFiles::new(),
        target: Mutex::new(target.clone()),
        is_dev: serve.all.is_dev(),
    });
    site.publish(target)?;
    let settings = ServerSettings::of(&serve.all)?;
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
    let listener_config = ListenerConfig {
        files: site.files.clone(),
        tls: tls.clone(),
        spool,
        proxies: settings.proxies,
        proxy_protocol: settings.proxy_protocol,
        error_pages: settings.error_pages,
        notice: Notice(log_line),
        page_script: dev.as_ref().map(Development::script),
        hosts: dev.as_ref().and_then(Development::hosts),
        ..ListenerConfig::default()
    };
    let listeners = Listeners::open(&server, requested, &given, listener_config, &serve.all)?;
    let development = opened.as_ref().and_then(|opened| opened.development.clone());
    let reloads = dev.is_some();
    let has_shortcuts = dev.is_some() && shortcuts::are_available();
    let screen = StartupScreen {
        development,
        reloads,
        has_shortcuts,
        ..StartupScreen::of(target, &listeners)
    };
    print_lines(&screen.text(None, is_coloured()));
    browser::open(listeners.url.as_deref(), Opening::of(&serve.all));
    if let Some(dev) = dev {
        let (site, live) = (Arc::clone(&site), Arc::clone(&dev.live));
        watch_site(target, &serve.all, Arc::clone(&live), move || site.follow_link())?;
        if has_shortcuts {
            let url = listeners.url.clone();
            let on_shortcut = move |shortcut| match shortcut {
                Shortcut::Restart => live.on_page_changed(),
                Shortcut::Open => browser::open(url.as_deref(), Opening::Requested),
                Shortcut::Quit => request_stop(),
                Shortcut::Help => {}
            };
            shortcuts::listen(|| false, on_shortcut)?;
        }
    }
    let renewer = tls::start_renewer(opened.as_ref())?;
    let manager = ServiceManager::from_environment();
    manager.ready(&format!("Serving on {}", listeners.addresses));
    let mut stops = StopCounter::new();
    if let Some(signal) = run_until_stopped(
        &signals,
        &site,
        tls.as_ref(),
        log.as_ref().map(Log::reopener).as_ref(),
        &listeners,
        &manager,
    )? {
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

/// The files of the site.
struct Site {
    files: StaticFiles,
    /// The folder that is served.
    target: Mutex<Target>,
    is_dev: bool,
}

impl Site {
    /// Serves the files of the folder `target` from now on.
    fn publish(&self, target: &Target) -> Result<(), Failure> {
        self.files
            .replace(static_paths(&target.path, self.is_dev))
            .map_err(|error| Failure::Unavailable(format!("{error}.")))
    }

    /// Serves the folder to which the path of the site leads now, because a deployment may have
    /// changed a symbolic link. Logs that folder. The previous folder stays if there is no site any
    /// more.
    fn resolve_again(&self) {
        let mut target = self.target.lock().unwrap_or_else(PoisonError::into_inner);
        if !target.is_linked() {
            return;
        }
        match target.resolve_again().and_then(|now| self.publish(&now).map(|()| now)) {
            Ok(now) => {
                log_line(&format!("the site is served from {}", now.show(&now.path)));
                *target = now;
            }
            Err(failure) => log_line(&format!("the reload is refused: {}", failure.message())),
        }
    }

    /// Serves another folder if the path of the site leads to one now.
    fn follow_link(&self) {
        let has_moved = self.target.lock().unwrap_or_else(PoisonError::into_inner).has_moved();
        if has_moved {
            self.resolve_again();
        }
    }

    /// Carries out a reload: resolves the path of the site and reads the certificates again. No
    /// other setting of a site can change while the server runs.
    fn reload(&self, tls: Option<&Tls>) {
        self.resolve_again();
        match tls {
            Some(tls) => tls::reload(tls),
            None => log_line("reloaded: the files of a site are read for each request"),
        }
    }
}

/// Returns the static paths of a site: its folder, and in development mode without the URL path
/// that belongs to this mode.
fn static_paths(folder: &Path, is_dev: bool) -> impl Iterator<Item = (String, StaticPath)> {
    let site = Overrides { site: Some(true), ..Overrides::default() };
    let folder = StaticPath { path: folder.to_owned(), overrides: site };
    let own = is_dev.then(|| {
        let overrides = Overrides { exclude: Some(true), ..Overrides::default() };
        ("/__rookery__".to_owned(), StaticPath { overrides, ..StaticPath::default() })
    });
    iter::once(("/".to_owned(), folder)).chain(own)
}

/// Waits for the signal that stops the server, and fails if a thread fails. Meanwhile, SIGHUP
/// makes the server reload the site, and SIGUSR1 makes it open the log file again.
fn run_until_stopped(
    signals: &Signals,
    site: &Site,
    tls: Option<&Tls>,
    log: Option<&Reopener>,
    listeners: &Listeners,
    manager: &ServiceManager,
) -> Result<Option<ReceivedSignal>, Failure> {
    loop {
        if let Some(failure) = listeners.take_thread_failure() {
            return Err(Failure::Thread(format!("The server cannot continue: {failure}.")));
        }
        let mut pause = FAILURE_CHECK_INTERVAL;
        if let Some(time) = manager.watchdog_interval() {
            // The I/O thread responds to `connections`, so its hang stops the pings.
            listeners.connections();
            manager.ping_watchdog();
            pause = pause.min((time / 2).max(CHECK_INTERVAL));
        }
        let Some(signal) = signals.recv_timeout(pause) else { continue };
        if signal.is_log_reopen() {
            if let Some(log) = log {
                log.reopen();
            }
        } else if signal.is_reload() {
            manager.reloading("Reloading the site");
            site.reload(tls);
            manager.ready(&format!("Serving on {}", listeners.addresses));
        } else if !signal.is_for_workers_only() {
            return Ok(Some(signal));
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
    listeners.drain(Duration::ZERO);
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
