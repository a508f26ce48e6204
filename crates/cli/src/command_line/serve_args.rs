//! The arguments of the commands that take a target to serve or check, such as `rookery serve`.

use std::path::PathBuf;

use clap::ArgMatches;

use super::options::Options;
use super::{positionals_of, usage_error};
use crate::failure::Failure;

/// The arguments of a command that takes a target, such as `rookery serve`.
#[derive(Debug)]
pub(crate) struct ServeArgs {
    pub(crate) target: PathBuf,
    pub(crate) options: Options,
    /// Whether the command is `dev`, which reloads the app when a file changes.
    pub(crate) is_dev: bool,
}

impl ServeArgs {
    /// Reads the target and the options from the command line.
    ///
    /// # Errors
    /// Fails unless exactly one target is given.
    pub(super) fn read(
        name: &str,
        own: &ArgMatches,
        options: Options,
    ) -> Result<ServeArgs, Failure> {
        let targets = positionals_of(own, "target");
        let [target] = targets[..] else {
            let what = if targets.is_empty() {
                "none was given".to_owned()
            } else {
                format!("{} were given", targets.len())
            };
            return usage_error(format!("`rookery {name}` needs one folder or file, but {what}."));
        };
        Ok(ServeArgs { target: target.into(), options, is_dev: name == "dev" })
    }
}
