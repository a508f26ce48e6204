//! `rookery serve`: what it serves, and where.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Arg;
use rookery_server::access_log::Format;
use rookery_status::AdminAt;

use super::given::{Given, flag, path, text, wrong};
use super::{https, operations, server, shiny, workers};
use crate::address::Address;
use crate::failure::Failure;
use crate::log::LogTo;
use crate::settings::{self, AskedTls, Settings};
use crate::worker_options::Workers;

/// `rookery serve`, as it was given: paths may be relative.
#[derive(Debug, Clone)]
pub(crate) struct Serve {
    pub(crate) target: PathBuf,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Whether the port was asked for.
    pub(crate) has_port: bool,
    pub(crate) tls: Option<AskedTls>,
    pub(crate) settings: Settings,
    pub(crate) workers: Workers,
    /// Where it answers those who look after it, besides the socket in its own folder.
    pub(crate) admin: Option<AdminAt>,
    /// Whether pages may lie in those of other sites.
    pub(crate) is_embedded: bool,
    /// How long it serves on after a signal has asked it to end, and says that it is not ready.
    pub(crate) shutdown_delay: Duration,
    pub(crate) log: LogTo,
    pub(crate) format: Format,
}

/// Where browsers look for HTTPS.
const HTTPS: u16 = 443;

/// All options, in the order of the help.
pub(super) fn options() -> Vec<Arg> {
    let [listening, logging] = [listening(), logging()].map(Vec::into_iter);
    let between = https::options().into_iter().chain(server::options());
    listening
        .chain(between)
        .chain(logging)
        .chain(shiny::options())
        .chain(workers::options())
        .chain(operations::options())
        .collect()
}

fn listening() -> Vec<Arg> {
    vec![
        text(
            "host",
            "address",
            "127.0.0.1 or localhost (the default), 0.0.0.0 or :: (all), unix:/path/of/a/socket",
        )
        .default_value("127.0.0.1")
        .hide_default_value(true),
        text("port", "port", "8000 is the default; 0 lets the system choose")
            .default_value("8000")
            .hide_default_value(true),
    ]
}

fn logging() -> Vec<Arg> {
    vec![
        path("log", "file", "where access-log lines go: - is stdout, the default")
            .default_value("-")
            .hide_default_value(true)
            .overrides_with("no-log"),
        flag("no-log", "no access log").overrides_with("log"),
        text(
            "log-format",
            "format",
            "common (the default) or json; of several workers they say which one it was",
        )
        .default_value("common")
        .hide_default_value(true),
    ]
}

/// What the words behind `serve` ask for.
///
/// # Errors
/// What is wrong with them.
pub(super) fn read(given: &Given<'_>, is_dev: bool) -> Result<Serve, Failure> {
    let targets: Vec<&OsString> = given.own.get_many("target").unwrap_or_default().collect();
    let [target] = targets[..] else {
        let what = if targets.is_empty() {
            "nothing was given".to_owned()
        } else {
            format!("not {} of them", targets.len())
        };
        return wrong(format!("`rookery serve` takes one folder or file; {what}."));
    };
    let tls = https::read(given)?;
    // A name that everybody knows is served where everybody looks.
    let is_public = tls.as_ref().is_some_and(|tls| tls.domain().is_some());
    let host = match given.text("host") {
        Some(host) if !is_public || given.is_given("host") => host,
        _ => Address::everywhere(),
    };
    let port = match given.text("port").unwrap_or_default() {
        _ if is_public && !given.is_given("port") => HTTPS,
        port => match settings::number(port).and_then(|port| port.try_into().ok()) {
            Some(port) => port,
            None => return wrong(format!("`--port` must be a number from 0 to 65535, not `{port}`.")),
        },
    };
    let format = given.choice("log-format", [("common", Format::Common), ("json", Format::Json)])?;
    let log = match given.path("log")? {
        _ if given.is_last("no-log", "log") => LogTo::Nothing,
        Some(path) if path.as_os_str() != "-" => LogTo::File(path.into()),
        _ => LogTo::Stdout,
    };
    let workers = Workers::of(|name| given.text(name), |name| given.flag(name), is_dev)?;
    Ok(Serve {
        target: target.into(),
        host: host.to_owned(),
        port,
        has_port: given.is_given("port"),
        tls,
        admin: operations::admin(given)?,
        is_embedded: given.flag("embed"),
        shutdown_delay: operations::shutdown_delay(given)?,
        workers,
        settings: server::read(given)?,
        log,
        format: format.unwrap_or(Format::Common),
    })
}
