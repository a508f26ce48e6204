//! The command-line arguments of `rookery profile`.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};
use rookery_status::DEFAULT_PROFILE_SECONDS;

use super::{positionals, positionals_of, usage_error};
use crate::commands::profile::{ProfileArgs, parse_seconds};
use crate::failure::Failure;

pub(super) fn command(command: Command) -> Command {
    command
        .override_usage(
            "rookery profile [<app>, process id, or address of --admin] [--seconds <n>] [--worker \
             <n>] [--output <file>]",
        )
        .long_about(
            "Records for some seconds what the R code of a running server spends its processor \
             time on,\nand writes a file in the format of Rprof(), which summaryRprof() and \
             profvis read. The names\nof the routes are the outermost functions of each handler. \
             It also prints a summary. The\nserver is found as by `rookery status`. Ctrl-C ends \
             the profile early and writes what there is.",
        )
        .arg(positionals("which"))
        .arg(
            Arg::new("seconds")
                .long("seconds")
                .value_name("n")
                .help("Number of seconds to record, from 1 to 300 (default: 10)"),
        )
        .arg(
            Arg::new("worker")
                .long("worker")
                .value_name("n")
                .help("Profile only the worker with this number (default: all)"),
        )
        .arg(
            Arg::new("output")
                .long("output")
                .value_name("file")
                .value_parser(value_parser!(PathBuf))
                .help("Write this file (default: rookery-profile.out, or a new name like it)"),
        )
}

/// Reads the arguments of `rookery profile`.
///
/// # Errors
/// Fails if a value is wrong, or if several servers are named.
pub(super) fn read(own: &ArgMatches) -> Result<ProfileArgs, Failure> {
    let seconds = own
        .get_one::<String>("seconds")
        .map_or(Ok(DEFAULT_PROFILE_SECONDS), |value| parse_seconds(value));
    let seconds = seconds.map_err(Failure::CommandLine)?;
    let worker = match own.get_one::<String>("worker").map(|value| value.parse()) {
        None => None,
        Some(Ok(worker)) => Some(worker),
        Some(Err(_)) => {
            return usage_error("`--worker` must be the number of a worker, such as 0.");
        }
    };
    let which = match positionals_of(own, "which")[..] {
        [] => None,
        [which] if !which.is_empty() => Some(which.clone()),
        _ => return usage_error("`rookery profile` accepts one app, process id or address."),
    };
    Ok(ProfileArgs { which, seconds, worker, output: own.get_one("output").cloned() })
}
