//! Serves an app on systems without workers, which only Linux has: one R process listens itself,
//! and this program starts it again when it fails. A reload ends the R process before the next one
//! starts.

use std::net::{Ipv4Addr, Ipv6Addr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rookery_settings::key_value_lines::Lines;
use rookery_settings::{GivenValue, Group, Places, Settings};
use rookery_status::AdminAddress;
use rookery_system::restart_backoff::RestartBackoff;

use crate::app_detection::Target;
use crate::commands::check;
use crate::failure::Failure;
use crate::listen::address::Address;
use crate::process::owned_child::OwnedChild;
#[cfg(unix)]
use crate::process::session;
use crate::process::signals::{ReceivedSignal, Signals};
use crate::serve::access_log::LogTarget;
use crate::serve::r_command::{
    add_log, app_lines, find_r_and_package, pass_settings, path_bytes, private_lines, r_command,
};
use crate::serve::r_package;
use crate::serve::tls;
use crate::settings::passed_to_r::pass_https;
use crate::settings::serve_settings::ServeSettings;
use crate::settings::server::Https;
use crate::settings::sources::{LoadedSettings, Sources};
use crate::stderr::log_line;
use crate::terminal::browser::{self, Opening};

/// The interval at which the program checks whether the R process has ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The time within which the R process has to end on request. After that, it is killed.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// The time after a refused reload within which the end of the R process counts as caused by the
/// reload's Ctrl-Break, which the console passes to R as well. R ends within 10 s.
const REFUSED_RELOAD_TIME: Duration = Duration::from_secs(15);

/// Serves an app with one R process until a signal stops the server or the app ends it.
///
/// # Errors
/// Fails if a setting needs the supervisor, if the address or a certificate is not available, if R
/// is not found, or if the first R process fails before it listens.
pub(crate) fn serve(
    sources: &Sources,
    loaded: &LoadedSettings,
    target: &Target,
    address: &Address,
    redirect_address: Option<&Address>,
    log: &LogTarget,
) -> Result<(), Failure> {
    check_settings(&loaded.serve)?;
    let (_, package) = find_r_and_package(&target.folder)?;
    r_package::warn_if_versions_differ(&package);
    address.check_free()?;
    redirect_address.map_or(Ok(()), Address::check_free)?;
    let signals = Signals::start()?;
    let for_app = sources.for_app();
    let first = Start::new(&loaded.serve, target, address.with_free_port(None)?, log, for_app)?;
    let opens_browser = loaded.serve.all.flag("open");
    let mut server = SingleProcess { start: first, has_listened: false, opens_browser };
    let read_settings = |current: &Address| read_new_settings(sources, target, current);
    server.run(|time| signals.recv_timeout(time), read_settings, is_listening)
}

/// Returns true if a server listens on the address. Connects to the address, because binding to it
/// could make R's own attempt fail.
fn is_listening(address: &Address) -> bool {
    let Address::Tcp { socket, .. } = address else { return true };
    let mut socket = *socket;
    if socket.ip().is_unspecified() {
        socket.set_ip(if socket.is_ipv4() {
            Ipv4Addr::LOCALHOST.into()
        } else {
            Ipv6Addr::LOCALHOST.into()
        });
    }
    TcpStream::connect_timeout(&socket, CHECK_INTERVAL).is_ok()
}

/// Checks that the settings can be applied without the supervisor.
fn check_settings(serve: &ServeSettings) -> Result<(), Failure> {
    if serve.all.is_dev() {
        return Err(Failure::Unavailable(
            "`rookery dev` needs Linux, except for static sites: use `rookery serve`, and reload the \
             app by Ctrl-Break on Windows or the signal HUP elsewhere."
                .to_owned(),
        ));
    }
    if let Some(given) = serve.all.all().find(|given| needs_supervisor(given)) {
        return Err(Failure::Unavailable(format!(
            "{} needs Linux: leave it out, and one R process serves the app.",
            given.name()
        )));
    }
    tls::check(&serve.all)
}

/// Returns true if a setting has a value other than its default, which only a supervisor applies.
fn needs_supervisor(given: &GivenValue) -> bool {
    let row = given.setting;
    let is_of_workers = row.group == Group::Workers && !row.places.has(Places::OPTION);
    (is_of_workers || ["error_pages", "interactive", "reload"].contains(&row.name))
        && row.name != "restart"
        && Some(&given.value) != Settings::default().value(row.name).as_ref()
}

/// Returns how R is started with the settings of the environment and of `_server.yml` as they are
/// now, and in the folder to which the path of the app leads now. `current` is the address at which
/// R has listened until now.
fn read_new_settings(
    sources: &Sources,
    target: &Target,
    current: &Address,
) -> Result<Start, Failure> {
    let target = &target.resolve_again()?;
    let LoadedSettings { serve, notes } = sources.read(target)?;
    for note in &notes {
        log_line(note);
    }
    check_settings(&serve)?;
    let (address, log) = check::address_and_log(&serve, target)?;
    let address = address.with_free_port(Some(current))?;
    Start::new(&serve, target, address, &log, sources.for_app())
}

/// The settings with which the R process is started.
#[derive(Debug)]
struct Start {
    command: Command,
    settings: Lines,
    /// The settings that R reads from a file: those for HTTPS, which may contain keys, and the
    /// arguments for the app.
    private: Lines,
    /// The address at which the process listens.
    address: Address,
    /// The URL of the server, or `None` for a Unix socket.
    url: Option<String>,
    /// Whether a process that has failed is started again.
    restarts: bool,
}

impl Start {
    /// Creates the command for R. The address has the port at which R listens, not 0, because this
    /// program has to find out whether R listens.
    fn new(
        serve: &ServeSettings,
        target: &Target,
        address: Address,
        log: &LogTarget,
        for_app: Option<&str>,
    ) -> Result<Start, Failure> {
        let mut command = r_command(target)?;
        command.stdin(Stdio::null());
        #[cfg(unix)]
        if matches!(log, LogTarget::Session) {
            session::let_inherit_pipe(&mut command);
        }
        let settings = settings_for_r(serve, target, &address, log);
        let mut private = private_lines(for_app);
        pass_https(&serve.all, &mut private);
        let scheme = if Https::of(&serve.all).is_some() { "https" } else { "http" };
        let domain = serve.all.list("domain").into_iter().next();
        let url_of = |port| address.url(Some(port), scheme, domain.as_deref()).to_string();
        let (url, restarts) =
            (address.port().map(url_of), serve.all.text("restart").is_none_or(|it| it != "never"));
        Ok(Start { command, settings, private, address, url, restarts })
    }

    /// Starts the process.
    ///
    /// # Errors
    /// Fails if the settings cannot be passed to R, or if R cannot be started.
    fn start(&mut self) -> Result<OwnedChild, Failure> {
        pass_settings(&mut self.command, self.settings.clone(), self.private.clone())?;
        OwnedChild::start(&mut self.command).map_err(|error| {
            let program = self.command.get_program().to_string_lossy();
            Failure::Unavailable(format!("R could not be started ({program}): {error}."))
        })
    }
}

/// The reason for which an R process has ended or must be ended.
#[derive(Debug)]
enum End {
    /// The process has exited with this status.
    Exited(i32),
    /// The process has exited because of a reload that was refused.
    RefusedReload,
    /// A reload was requested. The next process is started with these settings.
    Reload(Box<Start>),
    Stop,
}

/// The only R process of a server, which is started again when it fails.
#[derive(Debug)]
struct SingleProcess {
    start: Start,
    /// Whether a process has listened on the address.
    has_listened: bool,
    /// Whether to open the app in a browser once a process listens.
    opens_browser: bool,
}

impl SingleProcess {
    /// Runs the process, and starts it again when it fails, until a signal requests the server to
    /// stop or the process exits with status 0.
    ///
    /// `next_signal` waits for a signal for at most the given time, `read_settings` returns how R
    /// is started after a reload, and `is_listening` returns true if a server listens on the
    /// address.
    fn run(
        &mut self,
        next_signal: impl Fn(Duration) -> Option<ReceivedSignal>,
        read_settings: impl Fn(&Address) -> Result<Start, Failure>,
        is_listening: impl Fn(&Address) -> bool,
    ) -> Result<(), Failure> {
        let mut backoff = RestartBackoff::default();
        for epoch in 1.. {
            let started = Instant::now();
            // The path of the app may lead to another folder since this one was deleted.
            if self.start.command.get_current_dir().is_some_and(|folder| !folder.exists()) {
                self.start = read_settings(&self.start.address)?;
            }
            let mut child = self.start.start()?;
            let status = match self.wait(&mut child, &next_signal, &read_settings, &is_listening) {
                End::Exited(0) => return Ok(()),
                End::Exited(status) => status,
                End::RefusedReload => {
                    log_line("R has ended on Ctrl-Break: it starts again with the old settings");
                    continue;
                }
                End::Stop => {
                    end_process(&mut child, &next_signal, true);
                    return Ok(());
                }
                End::Reload(start) => {
                    log_line("reloading: R ends, and starts again");
                    if end_process(&mut child, &next_signal, false) {
                        return Ok(());
                    }
                    self.start = *start;
                    continue;
                }
            };
            // The processes that R has started end with it, because they may use the port.
            drop(child);
            if !self.has_listened {
                return Err(Failure::NeverReady { reason: None, starts: 1 });
            }
            if !self.start.restarts {
                return Err(Failure::WorkerExited(u8::try_from(status).unwrap_or(1)));
            }
            let pause = backoff.on_exit(started.elapsed(), false, Instant::now(), epoch);
            log_line(&format!(
                "R ended with status {status}: it starts again in {} ms",
                pause.time.as_millis()
            ));
            if self.pause(pause.time, &next_signal, &read_settings) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Waits until the process ends or a signal requests its end. A mistake in the settings cancels
    /// a reload.
    fn wait(
        &mut self,
        child: &mut OwnedChild,
        next_signal: &impl Fn(Duration) -> Option<ReceivedSignal>,
        read_settings: &impl Fn(&Address) -> Result<Start, Failure>,
        is_listening: &impl Fn(&Address) -> bool,
    ) -> End {
        let mut refused: Option<Instant> = None;
        // Whether the process listened at the last check.
        let mut listened = false;
        loop {
            let status = match child.exit_status() {
                Ok(None) => None,
                Ok(Some(status)) => Some(status.code().unwrap_or(1)),
                // The process cannot be waited for, so it counts as failed.
                Err(_) => Some(1),
            };
            if status.is_none() && (!self.has_listened || self.opens_browser) {
                let listens = is_listening(&self.start.address);
                // R also listens for a moment before it reads the app.
                if listens && listened && std::mem::take(&mut self.opens_browser) {
                    browser::open(self.start.url.as_deref(), Opening::Requested);
                }
                listened = listens;
                self.has_listened |= listens;
            }
            // Signals are read after the exit as well, because the exit may have the same cause as
            // a signal that arrives now.
            match next_signal(CHECK_INTERVAL) {
                Some(signal) if signal.is_stop() => return End::Stop,
                Some(signal) if signal.is_reload() => match read_settings(&self.start.address) {
                    Ok(start) => return End::Reload(Box::new(start)),
                    Err(failure) => {
                        log_refused_reload(&failure);
                        refused = Some(Instant::now());
                    }
                },
                _ => {}
            }
            match status {
                Some(_) if refused.is_some_and(|at| at.elapsed() < REFUSED_RELOAD_TIME) => {
                    return End::RefusedReload;
                }
                Some(status) => return End::Exited(status),
                None => {}
            }
        }
    }

    /// Waits before the next start. A reload reads the settings again and ends the pause, unless
    /// there is a mistake in the settings. Returns true if a signal requests the server to stop.
    fn pause(
        &mut self,
        time: Duration,
        next_signal: &impl Fn(Duration) -> Option<ReceivedSignal>,
        read_settings: &impl Fn(&Address) -> Result<Start, Failure>,
    ) -> bool {
        let began = Instant::now();
        while let Some(rest) = time.checked_sub(began.elapsed()) {
            match next_signal(rest) {
                Some(signal) if signal.is_stop() => return true,
                Some(signal) if signal.is_reload() => match read_settings(&self.start.address) {
                    Ok(start) => {
                        self.start = start;
                        return false;
                    }
                    Err(failure) => log_refused_reload(&failure),
                },
                _ => {}
            }
        }
        false
    }
}

fn log_refused_reload(failure: &Failure) {
    log_line(&format!("not reloaded: {}", failure.message()));
}

/// Requests the process to end, and waits until it has. Kills the process after [`END_TIMEOUT`], or
/// at the second request to stop the server. `is_stopping` is true if the first request has arrived
/// before. Returns true if a request has arrived by now.
fn end_process(
    child: &mut OwnedChild,
    next_signal: &impl Fn(Duration) -> Option<ReceivedSignal>,
    mut is_stopping: bool,
) -> bool {
    child.request_end();
    let deadline = Instant::now() + END_TIMEOUT;
    while matches!(child.exit_status(), Ok(None)) && Instant::now() < deadline {
        if next_signal(CHECK_INTERVAL).is_some_and(ReceivedSignal::is_stop) {
            if is_stopping {
                break;
            }
            is_stopping = true;
        }
    }
    child.kill();
    is_stopping
}

fn settings_for_r(
    serve: &ServeSettings,
    target: &Target,
    address: &Address,
    log: &LogTarget,
) -> Lines {
    let mut lines = app_lines(serve, target, address);
    add_log(serve, log, &mut lines);
    match &serve.admin {
        Some(AdminAddress::Tcp(address)) => lines.line("admin", address.to_string().as_bytes()),
        Some(AdminAddress::Unix(path)) => {
            lines.line("admin", &[b"unix:", path_bytes(path)].concat());
        }
        None => {}
    }
    lines
}

#[cfg(test)]
mod tests;
