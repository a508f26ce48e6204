//! The sources of settings: the command line, the arguments of the R function `serve()`, the
//! environment and `_server.yml`. This module also combines their values.

use rookery_settings::{Settings, environment};

use crate::app_detection::Target;
use crate::command_line::ServeArgs;
use crate::failure::Failure;
use crate::serve::access_log::LogTarget;
use crate::settings::r_arguments::{self, RArguments};
use crate::settings::serve_settings::ServeSettings;
use crate::settings::server_yml;

/// The sources of settings that stay the same while the server runs: the command line and the
/// arguments of R's `serve()`. A reload reads only the environment and `_server.yml` again.
#[derive(Debug)]
pub(crate) struct Sources {
    args: ServeArgs,
    arguments: RArguments,
}

/// The settings combined from all sources, and the warnings about them, which the caller has to
/// log.
#[derive(Debug)]
pub(crate) struct LoadedSettings {
    pub(crate) serve: ServeSettings,
    pub(crate) notes: Vec<String>,
}

impl Sources {
    /// Reads the arguments of R's `serve()`, and finds the app, document or folder to serve.
    ///
    /// # Errors
    /// Fails if an argument is wrong or the target does not exist.
    pub(crate) fn new(args: ServeArgs) -> Result<(Sources, Target), Failure> {
        let arguments = r_arguments::read().map_err(Failure::Unavailable)?;
        let target = Target::find(&args.target)?;
        Ok((Sources { args, arguments }, target))
    }

    /// Returns the arguments of R's `serve()` for the function that runs the app.
    pub(crate) fn for_app(&self) -> Option<&str> {
        self.arguments.for_app.as_deref()
    }

    /// Reads the environment and the app's `_server.yml`, and combines their settings with those of
    /// the command line and of R's `serve()`.
    ///
    /// # Errors
    /// Fails if a setting is wrong, or if settings conflict.
    pub(crate) fn read(&self, target: &Target) -> Result<LoadedSettings, Failure> {
        let file = server_yml::read(target)?;
        let environment =
            environment::read(|name| std::env::var_os(name)).map_err(Failure::Unavailable)?;
        let (in_file, of_file) = file.map(|file| (file.given, file.note)).unwrap_or_default();
        let own = self.args.given.iter().chain(&self.arguments.given).cloned();
        let settings = Settings::combine(own.chain(environment.given).chain(in_file));
        let settings = if self.args.is_dev { settings.with_dev_defaults() } else { settings };
        let mut serve = ServeSettings::of(settings)?;
        serve.is_verbose = self.args.is_verbose;
        if self.arguments.is_log_read {
            serve.log = LogTarget::Session;
        }
        let notes = environment.notes.into_iter().chain(of_file);
        let names: Vec<String> =
            std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
        let unknown = environment::unknown_variables(&names);
        let notes = notes.chain(serve.notes(target.is_site)).chain(unknown).collect();
        Ok(LoadedSettings { serve, notes })
    }
}
