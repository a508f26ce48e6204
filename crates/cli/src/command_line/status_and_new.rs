//! The command-line arguments of `rookery status`, `rookery live` and `rookery new`.

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::{positionals, positionals_of, usage_error};
use crate::commands::live::LiveArgs;
use crate::commands::new_app::{Kind, NewArgs};
use crate::commands::status::StatusArgs;
use crate::failure::Failure;

pub(super) fn status(command: Command) -> Command {
    command
        .override_usage(
            "rookery status [<app>, process id, or address of --admin] [--json | --watch]",
        )
        .long_about(
            "Shows the state of servers and of their workers, also while R is busy. Without an \
             argument,\nit shows all servers of this user. An argument selects one server by the \
             path of its app,\nby its process id, or by the address or socket that was given as \
             --admin.",
        )
        .arg(positionals("which"))
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print one line of JSON for each server, for programs"),
        )
        .arg(
            Arg::new("watch")
                .long("watch")
                .action(ArgAction::SetTrue)
                .conflicts_with("json")
                .help("Show the status of one server, drawn again every second, until Ctrl-C"),
        )
}

/// Reads the arguments of `rookery status`.
///
/// # Errors
/// Fails if several servers are named.
pub(super) fn status_args(own: &ArgMatches) -> Result<StatusArgs, Failure> {
    let (is_json, is_watched) = (own.get_flag("json"), own.get_flag("watch"));
    match positionals_of(own, "which")[..] {
        [] => Ok(StatusArgs { which: None, is_json, is_watched }),
        [which] if !which.is_empty() => {
            Ok(StatusArgs { which: Some(which.clone()), is_json, is_watched })
        }
        _ => usage_error("`rookery status` accepts one app, process id or address."),
    }
}

pub(super) fn live(command: Command) -> Command {
    command
        .override_usage("rookery live [<app>, process id, or socket of --admin] [--no-open]")
        .long_about(
            "Opens the live page of a running server in a browser. The server is found as by \
             `rookery status`.\nIf the server has no `--admin` address with a port, the command \
             passes the page on from the\nserver's Unix socket until Ctrl-C.",
        )
        .arg(positionals("which"))
        .arg(
            Arg::new("no-open")
                .long("no-open")
                .action(ArgAction::SetTrue)
                .help("Print the address with its token, and open no browser"),
        )
}

/// Reads the arguments of `rookery live`.
///
/// # Errors
/// Fails if several servers are named.
pub(super) fn live_args(own: &ArgMatches) -> Result<LiveArgs, Failure> {
    let opens_browser = !own.get_flag("no-open");
    match positionals_of(own, "which")[..] {
        [] => Ok(LiveArgs { which: None, opens_browser }),
        [which] if !which.is_empty() => Ok(LiveArgs { which: Some(which.clone()), opens_browser }),
        _ => usage_error("`rookery live` accepts one app, process id or socket."),
    }
}

pub(super) fn new(command: Command) -> Command {
    command
        .override_usage("rookery new <shiny, api or site> <folder>")
        .long_about(
            "Writes a small app into a new or empty folder: a Shiny app, a plumber API, or a \
             static site.\nSettings belong in its _server.yml, which names a JSON schema, so that \
             editors can complete\nand check them.",
        )
        .arg(positionals("what"))
}

/// Reads the arguments of `rookery new`.
///
/// # Errors
/// Fails unless a kind of app and a folder are named.
pub(super) fn new_args(own: &ArgMatches) -> Result<NewArgs, Failure> {
    match positionals_of(own, "what")[..] {
        [kind, folder] if !folder.is_empty() => {
            let kind = Kind::parse(&kind.to_string_lossy()).map_err(Failure::CommandLine)?;
            Ok(NewArgs { kind, folder: folder.into() })
        }
        _ => usage_error("`rookery new` needs a kind of app (shiny, api or site) and a folder."),
    }
}
