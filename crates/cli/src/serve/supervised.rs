//! Serves an app in R processes (workers). This process accepts the connections and supervises the
//! workers.

use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use rookery_server::{ListenerConfig, Notice, Server, SpoolFolder};
use rookery_settings::Value;
use rookery_status::{AdminAddress, ServerInfo};
use rookery_supervisor::{
    BackendRegistry, Exit, Outcome, SupervisorStatus, open_files, pool, supervise,
};
use tokio::sync::mpsc::unbounded_channel;

use crate::app_detection::Target;
use crate::failure::Failure;
use crate::listen::address::Address;
use crate::listen::listeners::Listeners;
use crate::listen::service_sockets::{RequestedListeners, ServiceSockets};
use crate::process::signals::Signals;
use crate::serve::access_log::{Log, LogTarget};
use crate::serve::development::Development;
use crate::serve::reload::Reload;
use crate::serve::supervisor_commands::{
    listen_for_shortcuts, second_stop, send_commands, watch_files,
};
use crate::serve::supervisor_config::{ConfigBuilder, log_format, pool_limits};
use crate::serve::supervisor_frontend::{Announcement, SupervisorFrontend, perform, start_admin};
use crate::serve::tls::{self, TlsSetup};
use crate::serve::tracing;
use crate::serve::{r_command, r_package};
use crate::settings::serve_settings::ServeSettings;
use crate::settings::server::ServerSettings;
use crate::settings::sources::{LoadedSettings, Sources};
use crate::stderr::log_line;
use crate::terminal::browser::Opening;
use crate::terminal::r_prompt::PromptWatcher;
use crate::terminal::shortcuts;
use crate::terminal::startup_screen::{StartupScreen, live_page};

/// Serves the app until a signal stops the server.
///
/// # Errors
/// Fails if the address is not available, if a file that a setting names cannot be used, or if no
/// worker becomes ready.
pub(crate) fn serve(
    sources: Sources,
    loaded: &LoadedSettings,
    target: &Target,
    address: &Address,
    redirect_address: Option<&Address>,
    log_target: &LogTarget,
) -> Result<(), Failure> {
    let serve = &loaded.serve;
    let signals = Signals::start()?;
    let requested = RequestedListeners::of(serve, address, redirect_address, target.is_site);
    // SAFETY: this function is called only once, and no other code uses the descriptors that the
    // variables of the service manager name.
    let given = unsafe { ServiceSockets::take(requested) }?;
    // Fails here rather than in each worker if R is not installed.
    r_command::worker_command(serve, target, address, None)?;
    let (_, package) = r_command::find_r_and_package(&target.folder)?;
    r_package::warn_if_versions_differ(&package);
    let files = open_files();
    let tls_setup = tls::load(&serve.all)?;
    let tls = tls_setup.as_ref().map(|setup| setup.tls.clone());
    let settings = ServerSettings::of(&serve.all)?;
    let limits = pool_limits(serve, &settings.config, target, address);
    let registry = Arc::new(BackendRegistry::default());
    let development = Development::of(serve, address)?;
    let application = pool(Arc::clone(&registry), limits);
    let application = match &development {
        Some(development) => development.application(application),
        None => application,
    };
    let server = Server::with_application(settings.config.clone(), application);
    let tracer = tracing::start(target);
    if let Some(tracer) = &tracer {
        server.set_tracer(Some(tracer.share()));
        registry.set_tracer(tracer.share());
    }
    let log = log_target.open(log_format(serve), &tracing::app_name(target))?;
    server.set_access_log(log.as_ref().map(Log::access_log));
    let listener_config = ListenerConfig {
        // The static paths that all workers of the app share.
        files: registry.files(),
        tls: tls.clone(),
        page_script: development.as_ref().map(Development::script),
        hosts: development.as_ref().and_then(Development::hosts),
        ..listener_config(serve, settings)
    };
    let listeners = Listeners::open(&server, requested, &given, listener_config, &serve.all)?;
    let mut status = SupervisorStatus::new(
        Arc::clone(&registry),
        ServerInfo {
            target: target.given.display().to_string(),
            address: listeners.addresses.clone(),
        },
    );
    status.tls.clone_from(&tls);
    status.rejections = Some(Arc::clone(server.reports()));
    status.acme_failures = tls_setup.as_ref().and_then(TlsSetup::acme_failures);
    status.perform = Some(perform);
    let status = Arc::new(status);
    let admin = start_admin(&status, serve.admin.as_ref(), &given.admin)?;
    let errors_url = development.as_ref().and_then(|it| it.url(listeners.url.as_deref()));
    let screen = StartupScreen {
        workers: Some(serve.workers),
        development: tls_setup.as_ref().and_then(|setup| setup.development.clone()),
        admin: shown_admin(given.shown_admin(requested), admin.local_addr()),
        live_page: admin.page_url().map(|url| live_page(url, io::stderr().is_terminal())),
        reloads: serve.all.flag("reload"),
        errors: errors_url.clone(),
        has_shortcuts: development.is_some() && shortcuts::are_available(),
        ..StartupScreen::of(target, &listeners)
    };
    let has_shortcuts = screen.has_shortcuts;
    let start = Announcement { screen, opening: Opening::of(&serve.all), development };
    let live = start.development.as_ref().map(|development| Arc::clone(&development.live));
    let limits = listeners.limits_control();
    let frontend = SupervisorFrontend::new(listeners, start, admin);
    let renewer = tls::start_renewer(tls_setup.as_ref())?;
    let (requests, receiver) = unbounded_channel();
    let reopener = log.as_ref().map(Log::reopener);
    let terminal = if serve.is_interactive { PromptWatcher::start() } else { None };
    let builder = ConfigBuilder {
        address: address.clone(),
        files,
        for_app: sources.for_app().map(Arc::from),
    };
    let config = builder.build(serve, target.clone());
    let reload = Arc::new(Reload {
        sources,
        target: Mutex::new(target.clone()),
        start: serve.clone(),
        builder,
        tls,
        limits,
        notes: Mutex::new(loaded.notes.clone()),
    });
    if serve.all.flag("reload") {
        watch_files(target, Arc::clone(&reload), live.clone(), requests.clone())?;
    }
    if let Some(live) = live.filter(|_| has_shortcuts) {
        let (reload, terminal) = (Arc::clone(&reload), terminal.clone());
        listen_for_shortcuts(reload, live, errors_url, terminal, requests.clone())?;
    }
    send_commands(signals, reload, reopener, terminal.clone(), requests)?;
    let outcome = supervise(config, registry, receiver, &frontend);
    drop(renewer);
    if let Some(terminal) = terminal {
        terminal.restore();
    }
    let failure = frontend.take_failure();
    if second_stop().is_none() {
        frontend.stop();
    }
    if let Some(tracer) = tracer {
        tracer.end(|| second_stop().is_some());
    }
    server.set_access_log(None);
    if let Some(log) = log {
        log.close();
    }
    if let Some(signal) = second_stop() {
        signal.terminate_process();
    }
    match outcome {
        Ok(outcome) => result_of(outcome, failure),
        Err(error) => Err(Failure::Unavailable(format!("Workers cannot be started: {error}."))),
    }
}

/// Returns the part of the configuration of the listeners that depends on settings only.
fn listener_config(serve: &ServeSettings, settings: ServerSettings) -> ListenerConfig {
    ListenerConfig {
        // The workers' app may respond to the head of a request, before the body has arrived.
        sees_heads: true,
        spool: Arc::new(SpoolFolder::new(settings.spool_folder, log_line)),
        sends_request_id: serve
            .all
            .given("request_id_header")
            .is_none_or(|given| given.value != Value::Flag(false)),
        sends_timing: serve.all.flag("server_timing"),
        proxies: settings.proxies,
        proxy_protocol: settings.proxy_protocol,
        error_pages: settings.error_pages,
        notice: Notice(log_line),
        ..ListenerConfig::default()
    }
}

/// Returns the address of the admin listener to show, with the port that the system has chosen if
/// the requested port was 0. `local` is the address over TCP on which the admin listener listens.
fn shown_admin(shown: Option<AdminAddress>, local: Option<SocketAddr>) -> Option<AdminAddress> {
    match (shown, local) {
        (Some(AdminAddress::Tcp(_)), Some(local)) => Some(AdminAddress::Tcp(local)),
        (shown, _) => shown,
    }
}

/// Returns the result of the program after the supervisor has ended. `failure` is the app's error
/// message from the last failed start of a worker, and the number of failed starts.
fn result_of(outcome: Outcome, failure: Option<(String, u32)>) -> Result<(), Failure> {
    match outcome {
        Outcome::Stopped | Outcome::Ended(Exit::Status(0)) => Ok(()),
        Outcome::Ended(Exit::Status(status)) => {
            Err(Failure::WorkerExited(u8::try_from(status).unwrap_or(1)))
        }
        Outcome::Ended(Exit::Signal(number)) => {
            Err(Failure::WorkerExited(u8::try_from(128 + number).unwrap_or(1)))
        }
        Outcome::NeverReady => {
            let (reason, starts) = failure.map_or((None, 1), |(text, starts)| (Some(text), starts));
            Err(Failure::NeverReady { reason, starts })
        }
        Outcome::CrashLoop => Err(Failure::CrashLoop),
        Outcome::ThreadFailed => {
            Err(Failure::Thread("A thread of this program has failed (see above).".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shown_admin_address_has_the_port_that_the_system_has_chosen() {
        let tcp = |text: &str| Some(AdminAddress::Tcp(text.parse().unwrap()));
        let unix = Some(AdminAddress::Unix("/run/admin".into()));
        let local = Some("127.0.0.1:40123".parse().unwrap());
        assert_eq!(shown_admin(tcp("127.0.0.1:0"), local), tcp("127.0.0.1:40123"));
        assert_eq!(shown_admin(unix.clone(), None), unix);
        // The admin listener may be reachable only over the socket in the run folder.
        assert_eq!(shown_admin(None, None), None);
    }
}
