//! The report about reloads, for status reports and for the front end.

use rookery_status::Reload;

use crate::supervise::{Frontend, SupervisorEvent};

/// The report about the current or last reload, whose changes are also sent to the front end.
pub(in crate::supervise) struct ReloadReport<'a> {
    frontend: &'a dyn Frontend,
    reload: Reload,
}

impl<'a> ReloadReport<'a> {
    /// Creates a report that contains no reload yet. `frontend` receives the events of later
    /// reloads.
    pub(in crate::supervise) fn new(frontend: &'a dyn Frontend) -> ReloadReport<'a> {
        ReloadReport { frontend, reload: Reload::default() }
    }

    /// Returns the report about the current or last reload.
    pub(in crate::supervise) fn reload(&self) -> &Reload {
        &self.reload
    }

    /// Reports the beginning of a reload.
    pub(in crate::supervise) fn begin(&mut self) {
        self.reload.is_running = true;
        self.frontend.on_event(SupervisorEvent::Reloading);
    }

    /// Reports the end of the reload in progress, with the error if it has failed. Does nothing if
    /// no reload is in progress.
    pub(in crate::supervise) fn end(&mut self, error: Option<String>) {
        let reload = &mut self.reload;
        if !std::mem::take(&mut reload.is_running) {
            return;
        }
        *if error.is_some() { &mut reload.failed } else { &mut reload.succeeded } += 1;
        reload.last_error = error;
        self.frontend.on_event(SupervisorEvent::Reloaded);
    }

    /// Counts a refused reload as one that has failed at once for this `reason`, and reports it to
    /// the front end. A reload that is already in progress continues.
    pub(in crate::supervise) fn refuse(&mut self, reason: String) {
        let is_running = self.reload.is_running;
        self.begin();
        self.end(Some(reason));
        self.reload.is_running = is_running;
        if is_running {
            self.frontend.on_event(SupervisorEvent::Reloading);
        }
    }
}
