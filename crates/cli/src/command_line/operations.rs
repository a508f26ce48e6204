//! What is for those who look after a server: `--admin`, and `rookery status`.

use std::time::Duration;

use clap::builder::OsStringValueParser;
use clap::{Arg, ArgMatches, Command};
use rookery_status::AdminAt;

use super::given::{Given, flag, text, wrong};
use crate::admin;
use crate::failure::Failure;
use crate::limits::time;
use crate::status::StatusOf;

pub(super) fn options() -> Vec<Arg> {
    vec![
        text(
            "shutdown-delay",
            "time",
            "how long it serves on when it is to end, and is not ready any more: 5s",
        ),
        text(
            "admin",
            "address",
            "status, metrics and probes for who looks after it: 127.0.0.1:9100, unix:/path",
        ),
    ]
}

/// # Errors
/// When it is none.
pub(super) fn admin(given: &Given<'_>) -> Result<Option<AdminAt>, Failure> {
    given.text("admin").map(admin::address).transpose()
}

/// # Errors
/// When it is no time.
pub(super) fn shutdown_delay(given: &Given<'_>) -> Result<Duration, Failure> {
    match given.text("shutdown-delay") {
        None => Ok(Duration::ZERO),
        Some(text) => match time(text) {
            Some(time) => Ok(time),
            None => wrong(format!("`--shutdown-delay` must be a time, such as 5s, not `{text}`.")),
        },
    }
}

pub(super) fn status(command: Command) -> Command {
    command
        .override_usage("rookery status [<app>, process id, or address of --admin] [--json]")
        .long_about(
            "Tells what a server does, and each of its R processes, also while R is busy: of all servers of this\n\
             user, or of the one that serves this app, has this process id, or has its --admin at this address or socket.",
        )
        .arg(Arg::new("which").num_args(0..).value_parser(OsStringValueParser::new()).hide(true))
        .arg(flag("json", "for programs: one line of JSON for each server"))
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
