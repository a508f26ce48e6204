//! Connects the supervisor with the listeners, the start-up screen and the service manager.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use rookery_development::StartFailure;
use rookery_server::{InheritedSockets, output};
use rookery_status::{Action, AdminAddress, AdminHandler, AdminListener};
use rookery_supervisor::{Frontend, SupervisorEvent, SupervisorStatus};
use rookery_systemd::ServiceManager;

use crate::failure::Failure;
use crate::listen::listeners::Listeners;
use crate::process::signals::raise;
use crate::serve::development::Development;
use crate::stderr::{log_line, print_lines};
use crate::terminal::browser::{self, Opening};
use crate::terminal::startup_screen::{StartupScreen, is_coloured};

/// The listeners for clients and for the admin address. The supervisor notifies this object when
/// the state of the server changes, and this object notifies the service manager.
pub(crate) struct SupervisorFrontend {
    listeners: Listeners,
    start: Announcement,
    /// Whether the start of the server has been announced.
    is_announced: Cell<bool>,
    admin: AdminListener,
    manager: ServiceManager,
    /// The state of the server that was last reported to the service manager.
    state: Cell<(Phase, WorkerCounts)>,
    /// The app's own error message from the last failed start of a worker, and the number of failed
    /// starts.
    failure: RefCell<Option<(String, u32)>>,
}

/// The announcement of the server, which is made once the server can be used.
pub(crate) struct Announcement {
    pub(crate) screen: StartupScreen,
    pub(crate) opening: Opening,
    /// The open pages of an app that is being developed.
    pub(crate) development: Option<Development>,
}

/// The numbers of ready workers and of failures that were last reported to the service manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct WorkerCounts {
    ready: usize,
    failures: usize,
}

/// The smallest number of worker failures within a minute that is reported to the service manager.
const REPORTED_FAILURES: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting,
    Serving,
    Reloading,
    Stopping,
}

impl SupervisorFrontend {
    /// Creates the front end from its listeners.
    pub(crate) fn new(
        listeners: Listeners,
        start: Announcement,
        admin: AdminListener,
    ) -> SupervisorFrontend {
        SupervisorFrontend {
            listeners,
            start,
            is_announced: Cell::new(false),
            admin,
            manager: ServiceManager::from_environment(),
            state: Cell::new((Phase::Starting, WorkerCounts::default())),
            failure: RefCell::default(),
        }
    }

    /// Removes and returns the app's own error message from the last failed start of a worker, and
    /// the number of failed starts.
    pub(crate) fn take_failure(&self) -> Option<(String, u32)> {
        self.failure.take()
    }

    /// Closes the listeners for clients and for the admin address.
    pub(crate) fn stop(self) {
        self.listeners.stop();
    }

    /// Prints the start-up screen and opens the browser, at the first call. `app` is the kind of
    /// app that R has announced.
    fn announce(&self, app: Option<&str>) {
        if self.is_announced.replace(true) {
            return;
        }
        print_lines(&self.start.screen.text(app, is_coloured()));
        let url = self.listeners.url.as_deref();
        let with_token = self.start.development.as_ref().and_then(|it| it.url(url));
        browser::open(with_token.as_deref().or(url), self.start.opening);
    }

    fn set_phase(&self, phase: Phase) {
        self.state.set((phase, self.state.get().1));
    }

    fn status(&self) -> String {
        format!("Serving on {}", self.listeners.addresses)
    }
}

/// Starts the admin listener, which serves status, metrics and the live page. The listener accepts
/// connections on the sockets `given` of the service manager, or else at the address `at`.
///
/// # Errors
/// Fails if the admin address or a socket is not available.
pub(crate) fn start_admin(
    status: &Arc<SupervisorStatus>,
    at: Option<&AdminAddress>,
    given: &InheritedSockets,
) -> Result<AdminListener, Failure> {
    let handler = AdminHandler::new(Arc::clone(status) as _)
        .map_err(|error| Failure::Unavailable(format!("There is no access token: {error}.")))?;
    let at = at.filter(|_| given.is_empty());
    let mut admin =
        AdminListener::start(handler, at).map_err(|error| Failure::Address(error.to_string()))?;
    if !given.is_empty() {
        admin.listen_inherited(given).map_err(|error| {
            Failure::Address(format!("The sockets of the service manager cannot be used: {error}."))
        })?;
    }
    Ok(admin)
}

/// Performs an action of the live page by sending this process the signal that stands for it.
pub(crate) fn perform(action: Action) {
    raise(match action {
        Action::Reload => libc::SIGUSR2,
        Action::AddWorker => libc::SIGTTIN,
        Action::RemoveWorker => libc::SIGTTOU,
    });
}

/// Returns the line of text that the service manager shows as the status of the server. `doing`
/// says what the server is doing, and `workers` is the total number of workers.
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
    fn on_ready(&self, app: Option<&str>) {
        self.announce(app);
        self.state.set((Phase::Serving, WorkerCounts { ready: 1, failures: 0 }));
        self.manager.ready(&self.status());
    }

    fn drain(&self, close_over: Duration) {
        self.set_phase(Phase::Stopping);
        self.manager.stopping("Finishing the requests in progress");
        self.listeners.drain(close_over);
    }

    fn cut(&self) {
        self.listeners.cut();
    }

    fn connections(&self) -> usize {
        self.listeners.connections()
    }

    fn log_lines_lost(&self) -> u64 {
        output::lines_lost()
    }

    fn take_thread_failure(&self) -> Option<String> {
        self.listeners.take_thread_failure().or_else(|| {
            let reason = self.admin.take_failure()?;
            Some(format!("the thread of the admin listener has failed: {reason}"))
        })
    }

    fn heartbeat_interval(&self) -> Duration {
        // A ping is due after three quarters of the interval, so with half of it no ping is late.
        self.manager.watchdog_interval().map_or(Duration::MAX, |time| time / 2)
    }

    fn on_event(&self, event: SupervisorEvent<'_>) {
        match event {
            SupervisorEvent::Leaving => {
                self.set_phase(Phase::Stopping);
                self.manager.stopping("Waiting for load balancers (--shutdown-delay)");
            }
            // The app can be served without the admin socket.
            SupervisorEvent::Started(folder) => {
                if let Err(error) = self.admin.listen_in(folder) {
                    log_line(&format!("`rookery status` will not find this server: {error}"));
                }
            }
            // This event comes from the supervisor's thread, after the I/O thread has responded. So
            // a hang of either thread stops the pings.
            SupervisorEvent::Heartbeat { ready, workers, failures } => {
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
            SupervisorEvent::Failed { message, starts } => {
                *self.failure.borrow_mut() = Some((message.to_owned(), starts));
            }
            SupervisorEvent::AppReady => {
                if let Some(development) = &self.start.development {
                    if development.live.on_ready() {
                        log_line("the error above is fixed: the app runs");
                    }
                }
            }
            SupervisorEvent::StartFailed { exit, report } => {
                if let Some(development) = &self.start.development {
                    development.live.on_start_failed(match report {
                        Some(report) => StartFailure {
                            text: report.text.clone(),
                            page: Some(report.page.clone()),
                        },
                        None => StartFailure {
                            text: format!(
                                "The R process {exit} before the app was ready. The terminal may \
                                 show more."
                            ),
                            page: None,
                        },
                    });
                    // The browser shows the error.
                    self.announce(None);
                }
            }
            SupervisorEvent::SessionError(report) => {
                if let Some(development) = &self.start.development {
                    development.live.on_session_error(report);
                }
            }
            // A service manager that waits for READY=1 does not accept RELOADING=1.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_line_reports_failing_workers() {
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
