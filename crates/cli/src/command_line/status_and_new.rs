//! Commands besides those that serve: `rookery status` and `rookery new`.

use clap::builder::OsStringValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::wrong;
use crate::commands::new_app::{Kind, NewApp};
use crate::commands::status::StatusOf;
use crate::failure::Failure;

pub(super) fn status(command: Command) -> Command {
    command
        .override_usage("rookery status [<app>, process id, or address of --admin] [--json]")
        .long_about(
            "Tells what a server does, and each of its R processes, also while R is busy: of all servers of this\n\
             user, or of the one that serves this app, has this process id, or has its --admin at this address or socket.",
        )
        .arg(Arg::new("which").num_args(0..).value_parser(OsStringValueParser::new()).hide(true))
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("for programs: one line of JSON for each server"),
        )
}

/// # Errors
/// When several are named.
pub(super) fn status_of(own: &ArgMatches) -> Result<StatusOf, Failure> {
    let which: Vec<&std::ffi::OsString> = own.get_many("which").unwrap_or_default().collect();
    match which[..] {
        [] => Ok(StatusOf { which: None, is_json: own.get_flag("json") }),
        [which] if !which.is_empty() => {
            Ok(StatusOf { which: Some(which.clone()), is_json: own.get_flag("json") })
        }
        _ => wrong("`rookery status` takes one app, process id or address."),
    }
}

pub(super) fn new(command: Command) -> Command {
    command
        .override_usage("rookery new <shiny, api or site> <folder>")
        .long_about(
            "Writes a small app into a new or empty folder: a Shiny app, a plumber API, or a site of files. Its\n\
             _server.yml is the place for settings, and names a schema by which editors complete and check it.",
        )
        .arg(Arg::new("what").num_args(0..).value_parser(OsStringValueParser::new()).hide(true))
}

/// # Errors
/// Fails unless a kind of app and a folder are named.
pub(super) fn new_app(own: &ArgMatches) -> Result<NewApp, Failure> {
    let what: Vec<&std::ffi::OsString> = own.get_many("what").unwrap_or_default().collect();
    match what[..] {
        [kind, folder] if !folder.is_empty() => {
            let kind = Kind::parse(&kind.to_string_lossy()).map_err(Failure::CommandLine)?;
            Ok(NewApp { kind, folder: folder.into() })
        }
        _ => wrong("`rookery new` takes a kind of app (shiny, api or site) and a folder."),
    }
}
