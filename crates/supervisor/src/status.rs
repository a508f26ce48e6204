//! The source of the status of a supervisor and its workers, from which the admin listener responds
//! to requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rookery_server::tls::Tls;
use rookery_server::{Rejection, RejectionReports};
use rookery_status::{
    Action, HANG_TIMEOUT, Lifecycle, MAX_SHOWN_SESSIONS, NotReady, ProfiledProcess, READY,
    RecentErrors, Report, ServerInfo, StatusSource,
};

use crate::backend_registry::BackendRegistry;
use crate::state::{ProcessState, SupervisorState};

/// The source of the status of a supervisor and its workers, which the admin listener serves.
#[derive(Debug)]
pub struct SupervisorStatus {
    registry: Arc<BackendRegistry>,
    about: ServerInfo,
    /// The TLS configuration of the server, if it serves HTTPS.
    pub tls: Option<Tls>,
    /// The rejections by the front end, if they are counted.
    pub rejections: Option<Arc<RejectionReports>>,
    /// The number of failed attempts to get a certificate, if it comes from an authority.
    pub acme_failures: Option<Arc<AtomicU64>>,
    /// The function that makes the supervisor perform an action, if there is one. It must not
    /// block.
    pub perform: Option<fn(Action)>,
}

impl SupervisorStatus {
    /// Creates the source of the status of a supervisor and of the workers in its registry.
    pub fn new(registry: Arc<BackendRegistry>, about: ServerInfo) -> SupervisorStatus {
        SupervisorStatus {
            registry,
            about,
            tls: None,
            rejections: None,
            acme_failures: None,
            perform: None,
        }
    }
}

impl StatusSource for SupervisorStatus {
    fn report(&self) -> Report {
        let (registry, state) = (&self.registry, self.registry.state.read());
        let report = Report {
            about: self.about.clone(),
            queue: registry.counters.queue.read(),
            workers: state.workers(),
            pool: Arc::clone(&registry.counters),
            certificates: self.tls.as_ref().map(Tls::certificates).unwrap_or_default(),
            acme_failures: self
                .acme_failures
                .as_ref()
                .map(|failures| failures.load(Ordering::Relaxed)),
            server: state.server.clone(),
            sessions: registry.sessions.read(MAX_SHOWN_SESSIONS),
            ..Report::default()
        };
        report.requests.add_all(&registry.counters.requests);
        report.routes.add_all(&registry.routes);
        if let Some(tracer) = registry.tracer() {
            report.requests.spans.set(tracer.counters().read());
        }
        report.requests.spans.add_all(&state.past_spans);
        for process in state.processes() {
            report.requests.spans.add_all(process.backend.scoreboard.spans());
        }
        if let Some(rejections) = &self.rejections {
            for (index, rejection) in Rejection::all().iter().enumerate() {
                report.rejections.add(index, rejections.count(*rejection));
            }
        }
        report
    }

    fn not_live(&self) -> Option<&'static str> {
        (self.registry.state.read().silence() >= HANG_TIMEOUT)
            .then_some("the supervisor's main loop does not respond")
    }

    fn not_ready(&self) -> Option<NotReady> {
        not_ready(&self.registry.state.read())
    }

    fn not_started(&self) -> Option<&'static str> {
        (self.registry.state.read().server.phase == Lifecycle::Starting)
            .then_some("no worker has been ready yet")
    }

    fn errors(&self) -> &RecentErrors {
        &self.registry.errors
    }

    fn actions(&self) -> &'static [Action] {
        if self.perform.is_some() { &Action::ALL } else { &[] }
    }

    fn profiled_processes(&self) -> Vec<ProfiledProcess> {
        let state = self.registry.state.read();
        let serving = state.processes().filter(|it| matches!(it.state, READY | "draining"));
        let profiled = |ProcessState { backend, .. }: &ProcessState| ProfiledProcess {
            key: backend.epoch,
            slot: backend.slot,
            pid: backend.pid,
            folder: backend.folder.clone(),
            scoreboard: Arc::clone(backend) as _,
        };
        serving.map(profiled).collect()
    }

    fn perform(&self, action: Action) {
        if let Some(perform) = self.perform {
            perform(action);
        }
    }
}

/// Returns the reason why the readiness probe fails, or `None` if it succeeds. A long queue is not
/// such a reason, because overload would otherwise take all machines out of service.
fn not_ready(report: &SupervisorState) -> Option<NotReady> {
    let because = |why: String| Some(NotReady { status: 503, why });
    match report.server.phase {
        Lifecycle::Draining | Lifecycle::Stopping => {
            because("the server is shutting down".to_owned())
        }
        _ if report.silence() >= HANG_TIMEOUT => {
            because("the supervisor's main loop does not respond".to_owned())
        }
        _ if report.ready() == 0 => because("no worker is ready".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn probes_say_where_the_supervisor_is() {
        let status = SupervisorStatus::new(Arc::default(), ServerInfo::default());
        let probes = || {
            let ready = status.not_ready().map(|not| not.status);
            (status.not_live().is_none(), status.not_started().is_none(), ready)
        };
        assert_eq!(probes(), (false, false, Some(503)));
        let told = &status.registry.state;
        told.change(|report| report.turned = Some(Instant::now()));
        assert_eq!(probes(), (true, false, Some(503)));
        told.change(|report| report.server.phase = Lifecycle::Serving);
        // All workers have ended. The supervisor is live and must not be restarted, but gets no
        // requests.
        assert_eq!(probes(), (true, true, Some(503)));
        told.change(|report| report.server.phase = Lifecycle::Draining);
        let why = "the server is shutting down".to_owned();
        assert_eq!(status.not_ready(), Some(NotReady { status: 503, why }));
        told.change(|report| report.turned = Instant::now().checked_sub(HANG_TIMEOUT));
        assert_eq!(probes(), (false, true, Some(503)));
    }
}
