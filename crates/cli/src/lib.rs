//! The command-line program `rookery`, which serves an app, a document or a folder.
//!
//! - A folder with an `index.html` is served by this program itself, without R.
//! - On Linux, an R app is served by one or more R processes, which this program supervises.
//! - On other systems, a single R process listens itself, and this program restarts it when it
//!   fails.
//!
//! This crate is a library with three users. `main.rs` is the program as a single file. In the R
//! package rookery, the program is a launcher (`r/src/launcher.c`) that calls [`run`] in the
//! package's shared library. An R session that serves an app itself uses [`embedded`].

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test may panic"))]

mod app_detection;
mod command_line;
mod commands;
pub mod embedded;
mod failure;
mod listen;
mod process;
mod serve;
mod settings;
mod stderr;
mod terminal;
mod user_paths;

use std::ffi::OsString;
use std::io::{self, Write as _};

use command_line::{CommandLine, ServeArgs};
use failure::Failure;
use rookery_server::access_log::Format;
use rookery_server::output;
use stderr::{log_line, output_deadline};

use app_detection::Target;
use commands::{check, config, live, new_app, profile, status, version, watch};
#[cfg(target_os = "linux")]
pub use process::allocator::shorten_purge_delay;
#[cfg(target_os = "linux")]
use process::pid1;
#[cfg(unix)]
use process::signals;
#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
use serve::single_process;
use serve::static_site;
#[cfg(all(target_os = "linux", not(feature = "portable")))]
use serve::supervised;
use settings::sources::{LoadedSettings, Sources};

/// Runs the program with a command line, whose first word is the name of the program. Returns the
/// exit status of the process. Must be called once, before the process has other threads.
pub fn run(words: impl IntoIterator<Item = OsString>) -> u8 {
    output::write_panics();
    #[cfg(target_os = "linux")]
    shorten_purge_delay();
    let status = begin(words);
    output::flush_until(output_deadline());
    status
}

fn begin(words: impl IntoIterator<Item = OsString>) -> u8 {
    #[cfg(target_os = "linux")]
    match pid1::run_as_pid1() {
        Ok(None) => {}
        Ok(Some(status)) => return status,
        Err(failure) => return failure.report(),
    }
    #[cfg(unix)]
    signals::stop_with_parent();
    let done = command_line::read(words).and_then(|parsed| match parsed {
        CommandLine::Print(text) => print(&text),
        CommandLine::Serve(args) => serve(args),
        CommandLine::Config(args) => {
            let (_, target, serve) = load_settings(args, false)?;
            check::check_effects(&serve.serve, &target)?;
            print(&config::config(&serve.serve, &target))
        }
        CommandLine::Check { args, loads } => {
            let (_, target, read) = load_settings(args, false)?;
            print(&check::check(&read.serve, &target, loads)?)
        }
        CommandLine::New(args) => new_app::write(&args).and_then(|text| print(text.as_bytes())),
        CommandLine::Version => print(&version::describe()),
        CommandLine::Status(args) if args.watch => watch::watch(&args),
        CommandLine::Live(args) => live::open(&args),
        CommandLine::Profile(args) => profile::take(&args).and_then(|text| print(&text)),
        CommandLine::Status(args) => status::query(&args).and_then(|text| print(&text)),
    });
    match done {
        Ok(()) => 0,
        Err(failure) => failure.report(),
    }
}

/// Finds the app, document or folder to serve, reads its settings, and logs the warnings about the
/// settings.
fn load_settings(
    args: ServeArgs,
    is_serving: bool,
) -> Result<(Sources, Target, LoadedSettings), Failure> {
    let (sources, target) = Sources::new(args)?;
    let read = sources.read(&target)?;
    output::set_json(is_serving && read.serve.format == Format::Json);
    read.notes.iter().for_each(|note| log_line(note));
    Ok((sources, target, read))
}

/// Runs the server until it stops. First checks everything that can be checked without R, because R
/// is slow to start.
fn serve(args: ServeArgs) -> Result<(), Failure> {
    let (sources, target, read) = load_settings(args, true)?;
    let serve = &read.serve;
    let (mut address, log) = check::address_and_log(serve, &target)?;
    let may_change_port = serve.all.is_dev() && !serve.all.is_given("port");
    if may_change_port && !rookery_systemd::Activation::has_sockets() {
        let (free, message) = address.or_next_port();
        address = free;
        if let Some(message) = &message {
            log_line(message);
        }
    }
    let redirect_address =
        serve.all.whole("redirect_from").map(|port| address.with_port(port)).transpose()?;
    if target.is_site {
        return static_site::serve(&target, serve, &address, redirect_address.as_ref(), &log);
    }
    #[cfg(all(target_os = "linux", not(feature = "portable")))]
    return supervised::serve(sources, &read, &target, &address, redirect_address.as_ref(), &log);
    #[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
    single_process::serve(&sources, &read, &target, &address, redirect_address.as_ref(), &log)
}

/// Writes text to standard output. Does not fail if the reader, such as `head`, has closed the
/// pipe.
fn print(text: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Unavailable(format!("Standard output cannot be written: {error}.")))
        }
        _ => Ok(()),
    }
}
