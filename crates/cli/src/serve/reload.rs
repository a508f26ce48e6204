//! The reload of a running server, which reads the settings again. A mistake in the settings
//! cancels the reload. Otherwise the changed settings apply to new workers. The log names the
//! changed settings that need a restart of the server.

use std::sync::{Mutex, PoisonError};

use rookery_server::LimitsControl;
use rookery_server::tls::Tls;
use rookery_settings::{Applies, Group, Setting};
use rookery_supervisor::SupervisorCommand;

use crate::app_detection::Target;
use crate::commands::check;
use crate::failure::Failure;
use crate::listen::address::Address;
use crate::serve::supervisor_config::ConfigBuilder;
use crate::serve::tls;
use crate::settings::serve_settings::ServeSettings;
use crate::settings::server::{Https, ServerSettings};
use crate::settings::sources::{LoadedSettings, Sources};
use crate::stderr::log_line;

/// The settings of the running server, and the sources from which a reload reads them again.
pub(crate) struct Reload {
    pub(crate) sources: Sources,
    /// The app, document or folder that the workers of the current generation serve.
    pub(crate) target: Mutex<Target>,
    /// The settings that the server was started with.
    pub(crate) start: ServeSettings,
    pub(crate) builder: ConfigBuilder,
    pub(crate) tls: Option<Tls>,
    /// The limits on clients, which a reload changes in the front end.
    pub(crate) limits: LimitsControl,
    /// The warnings about settings that have already been logged. A reload does not repeat them.
    pub(crate) notes: Mutex<Vec<String>>,
}

impl Reload {
    /// Reads and checks the settings again, and applies the HTTPS settings and the limits. Returns
    /// the command that makes the supervisor apply all other settings. If a setting is wrong,
    /// returns the command that makes the supervisor report the error.
    pub(crate) fn request(&self) -> SupervisorCommand {
        match self.read() {
            Ok((serve, target)) => {
                SupervisorCommand::Change(Box::new(self.builder.build(&serve, target)))
            }
            Err(failure) => SupervisorCommand::RefuseReload(failure.message()),
        }
    }

    /// Returns true if the path that the user gave leads to another folder or file than at the
    /// last reload.
    pub(crate) fn has_moved(&self) -> bool {
        self.target.lock().unwrap_or_else(PoisonError::into_inner).has_moved()
    }

    fn read(&self) -> Result<(ServeSettings, Target), Failure> {
        let mut current = self.target.lock().unwrap_or_else(PoisonError::into_inner);
        let target = current.resolve_again()?;
        let LoadedSettings { serve, notes } = self.sources.read(&target)?;
        let (_, address) = check::check_settings(&serve, &target)?;
        self.check_addresses(&serve, &address)?;
        let is_kept = |row: &Setting| needs_restart(row, &self.start, &serve);
        let (settings, differ) = serve.all.clone().with_values_kept(&self.start.all, is_kept);
        let serve = ServeSettings::of(settings).map_err(|failure| {
            let with =
                "In combination with settings that need a restart and therefore keep their values:";
            Failure::Unavailable(format!("{with} {}", failure.message()))
        })?;
        if let Some(tls) = &self.tls {
            tls::apply(tls, &serve.all)?;
        }
        self.limits.set(ServerSettings::of(&serve.all)?.config.limits);
        self.report(notes, &differ);
        if target.is_linked() {
            log_line(&format!("the new workers serve {}", target.show(&target.path)));
        }
        current.clone_from(&target);
        Ok((serve, target))
    }

    /// Checks the server's addresses in the new settings if they have changed. A changed address
    /// takes effect at the next start of the server, and a wrong one would make that start fail.
    fn check_addresses(&self, serve: &ServeSettings, address: &Address) -> Result<(), Failure> {
        if (&serve.host, serve.port) != (&self.start.host, self.start.port) {
            check::check_address(address)?;
        }
        if let Some(admin) = serve.admin.as_ref().filter(|at| self.start.admin.as_ref() != Some(at))
        {
            check::check_admin(admin)?;
        }
        Ok(())
    }

    /// Logs those warnings in `notes` that are new, and the names of the settings in `differ`,
    /// which have changed but need a restart of the server.
    fn report(&self, notes: Vec<String>, differ: &[&Setting]) {
        let mut before = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.iter().filter(|note| !before.contains(note)).for_each(|note| log_line(note));
        *before = notes;
        if !differ.is_empty() {
            let names: Vec<String> = differ.iter().map(|row| format!("`{}`", row.path())).collect();
            log_line(&format!(
                "these settings have changed, but keep their old values until the server is \
                 restarted: {}",
                names.join(", ")
            ));
        }
    }
}

/// Returns true if a change of the setting `row` takes effect only after a restart of the server.
/// `start` contains the settings with which the server was started, and `now` those that the reload
/// has read.
fn needs_restart(row: &Setting, start: &ServeSettings, now: &ServeSettings) -> bool {
    // A terminal is shared with a single worker.
    let is_bound_to_terminal = row.name == "workers" && start.is_interactive;
    is_bound_to_terminal
        || (row.group == Group::Https && !(has_files(start) && has_files(now)))
        || row.applies == Applies::AtRestart
}

/// Returns true if the HTTPS certificates come from files, which a reload reads again.
fn has_files(serve: &ServeSettings) -> bool {
    Https::of(&serve.all) == Some(Https::Files)
}
