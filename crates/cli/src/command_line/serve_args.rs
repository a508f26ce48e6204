//! The arguments of the commands that take a target to serve or check, such as `rookery serve`.

use std::path::PathBuf;

use clap::ArgMatches;

use super::options::Options;
use super::{positionals_of, usage_error};
use crate::failure::Failure;

/// The arguments of `rookery serve` and of similar commands: the path of what to serve, and the
/// options.
#[derive(Debug)]
pub(crate) struct ServeArgs {
    pub(crate) target: PathBuf,
    pub(crate) options: Options,
}

impl ServeArgs {
    /// Reads from the command line which app, document or folder to serve, and the options.
    ///
    /// # Errors
    /// Fails unless the command line names exactly one app, document or folder.
    pub(super) fn read(
        name: &str,
        own: &ArgMatches,
        mut options: Options,
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
        options.is_dev = name == "dev";
        Ok(ServeArgs { target: target.into(), options })
    }
}
