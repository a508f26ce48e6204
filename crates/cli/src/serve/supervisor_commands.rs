//! The commands that are sent to the supervisor when a signal arrives or a file of the app changes.

use std::sync::{Arc, OnceLock};

use rookery_development::{Change, LiveReload};
use rookery_server::access_log::Reopener;
use rookery_supervisor::SupervisorCommand;
use tokio::sync::mpsc::UnboundedSender;

use crate::app_detection::Target;
use crate::failure::Failure;
use crate::process::signals::{ReceivedSignal, Signals, StopCounter, request_stop};
use crate::process::start_essential_thread;
use crate::serve::development;
use crate::serve::reload::Reload;
use crate::terminal::browser::{self, Opening};
use crate::terminal::r_prompt::PromptWatcher;
use crate::terminal::shortcuts::{self, Shortcut};

/// The second signal to stop. The program ends by terminating itself with this signal.
static SECOND_STOP: OnceLock<ReceivedSignal> = OnceLock::new();

/// Returns the second signal to stop, if one has arrived.
pub(crate) fn second_stop() -> Option<ReceivedSignal> {
    SECOND_STOP.get().copied()
}

/// Starts the thread that requests a reload whenever a file of the app has changed. If the app is
/// being developed, `live` are its open pages. Changes of files that only browsers use then do not
/// cause a reload.
pub(crate) fn watch_files(
    target: &Target,
    reload: Arc<Reload>,
    live: Option<Arc<LiveReload>>,
    commands: UnboundedSender<SupervisorCommand>,
) -> Result<(), Failure> {
    let settings = reload.start.all.clone();
    let request = move |change| {
        let Some(live) = &live else { return Some(reload.request()) };
        match change {
            Change::Styles(names) => live.on_styles_changed(&names),
            Change::Page => live.on_page_changed(),
            Change::App { is_environment_kept } => {
                return Some(restart(&reload, live, is_environment_kept));
            }
        }
        None
    };
    development::watch(
        target,
        &settings,
        move |change| request(change).is_none_or(|command| commands.send(command).is_ok()),
        false,
    )
}

/// Returns the command that starts an app under development again, and makes its open pages `live`
/// show this. `is_environment_kept` says whether R itself starts as before.
fn restart(reload: &Reload, live: &LiveReload, is_environment_kept: bool) -> SupervisorCommand {
    // With the same settings and folder, a preloaded worker can be used.
    let command = if is_environment_kept && !reload.has_moved() {
        SupervisorCommand::Reload
    } else {
        reload.request()
    };
    if !matches!(command, SupervisorCommand::RefuseReload(_)) {
        live.on_restarting();
    }
    command
}

/// Starts the thread that carries out the shortcuts of `rookery dev`. `url` is the address that is
/// opened in a browser, and `terminal` shows whether R reads what is typed.
///
/// # Errors
/// Fails if the thread cannot be started.
pub(crate) fn listen_for_shortcuts(
    reload: Arc<Reload>,
    live: Arc<LiveReload>,
    url: Option<String>,
    terminal: Option<PromptWatcher>,
    commands: UnboundedSender<SupervisorCommand>,
) -> Result<(), Failure> {
    let is_for_r = move || terminal.as_ref().is_some_and(PromptWatcher::takes_lines);
    shortcuts::listen(is_for_r, move |shortcut| match shortcut {
        Shortcut::Restart => {
            // Fails if the server is stopping. No preloaded R process is used, so that everything
            // is loaded again.
            let _ = commands.send(restart(&reload, &live, false));
        }
        Shortcut::Open => browser::open(url.as_deref(), Opening::Requested),
        Shortcut::Quit => request_stop(),
        Shortcut::Help => {}
    })
}

/// Starts the thread that turns signals into commands for the supervisor.
///
/// # Errors
/// Fails if the thread cannot be started.
pub(crate) fn send_commands(
    signals: Signals,
    reload: Arc<Reload>,
    log: Option<Reopener>,
    terminal: Option<PromptWatcher>,
    commands: UnboundedSender<SupervisorCommand>,
) -> Result<(), Failure> {
    start_essential_thread("rookery-control", move || {
        forward_signals(&signals, &reload, log.as_ref(), terminal.as_ref(), &commands);
    })
}

/// Turns signals into commands for the supervisor until the supervisor stops.
///
/// SIGUSR2 requests a reload, and so does SIGHUP unless it comes from a closed terminal. SIGUSR1
/// opens the log file again. SIGTTIN and SIGTTOU change the number of workers. Other signals stop
/// the server, except Ctrl-C while R shows a prompt.
fn forward_signals(
    signals: &Signals,
    reload: &Reload,
    log: Option<&Reopener>,
    terminal: Option<&PromptWatcher>,
    commands: &UnboundedSender<SupervisorCommand>,
) {
    let (mut stops, mut asked_to_stop) = (StopCounter::new(), 0);
    while let Some(signal) = signals.recv() {
        if signal.is_ctrl_c() && terminal.is_some_and(PromptWatcher::is_prompting) {
            continue;
        }
        let command = if signal.is_log_reopen() {
            if let Some(log) = log {
                log.reopen();
            }
            continue;
        } else if signal.is_worker_increase() {
            SupervisorCommand::AddWorker
        } else if signal.is_worker_decrease() {
            SupervisorCommand::RemoveWorker
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
                // A third signal does not replace the second.
                let _ = SECOND_STOP.set(signal);
            }
            SupervisorCommand::Stop
        };
        if commands.send(command).is_err() {
            return;
        }
    }
}
