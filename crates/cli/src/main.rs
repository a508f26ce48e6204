//! `rookery`: serves an app, a document or a folder from a shell. What is R's is served by R processes,
//! which this program supervises (on Linux; elsewhere it becomes the only one); a folder with
//! `index.html` it serves by itself.
//!
//! It belongs to the R package of its name, lies in it (`exec/rookery`), and finds it by where it lies.

mod address;
mod admin;
// Compiled for tests on Linux as well, so that it does not rot.
#[cfg(any(not(target_os = "linux"), test))]
#[cfg_attr(target_os = "linux", allow(dead_code))]
mod alone;
mod arguments;
mod browser;
#[cfg(target_os = "linux")]
mod changes;
mod command_line;
mod failure;
#[cfg(target_os = "linux")]
mod init;
mod inspect;
mod log;
mod memory;
mod names;
mod new;
mod path;
mod port_holder;
mod ports;
mod r;
mod screen;
mod server_yml;
mod settings;
mod signals;
mod site;
mod status;
mod target;
#[cfg(target_os = "linux")]
mod terminal;
mod tls;
mod version;
mod worker_options;
#[cfg(target_os = "linux")]
mod workers;

use std::io::{self, Write as _};
use std::process::ExitCode;

use command_line::{Asked, Command, Serve};
use failure::{Failure, tell};
use rookery_server::output;
use rookery_settings::{Given, Settings, environment};
use settings::AskedTls;
use target::Target;

fn main() -> ExitCode {
    output::write_panics();
    let code = begin();
    output::flush();
    code
}

fn begin() -> ExitCode {
    #[cfg(target_os = "linux")]
    match init::be_first() {
        Ok(None) => {}
        Ok(Some(code)) => return code,
        Err(failure) => return failure.report(),
    }
    #[cfg(target_os = "linux")]
    signals::follow_parent();
    let done = command_line::read(std::env::args_os()).and_then(|asked| match asked {
        Asked::Print(text) => print(&text),
        Asked::Serve(command) => run(command),
        Asked::Config(command) => {
            let (serve, target) = settled(command)?;
            print(&inspect::config(&serve, &target))
        }
        Asked::Check(command) => {
            let (serve, target) = settled(command)?;
            let (address, _) = checked(&serve)?;
            print(&inspect::check(&serve, &target, &address)?)
        }
        Asked::New(app) => new::write(&app).and_then(|text| print(text.as_bytes())),
        Asked::Version => print(&version::describe()),
        Asked::Status(of) => status::tell(&of).and_then(|text| print(&text)),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Combines the settings of the command line, of R, of the environment and of the target's
/// `_server.yml`.
fn settings(command: Command, arguments: Vec<Given>, target: &Target) -> Result<Serve, Failure> {
    let Command { options, is_dev, .. } = command;
    let file = server_yml::read(target)?;
    let environment =
        environment::read(|name| std::env::var(name).ok(), |_| true).map_err(Failure::Serving)?;
    let (in_file, of_file) = file.map(|file| (file.given, file.notes)).unwrap_or_default();
    let given = options.given.into_iter().chain(arguments).chain(environment.given).chain(in_file);
    let serve = Serve::of(Settings::combine(given), is_dev)?;
    for note in options.notes.iter().chain(&environment.notes).chain(&of_file).chain(&serve.notes()) {
        tell(note);
    }
    Ok(serve)
}

/// Finds the target, and combines the settings for it.
fn settled(command: Command) -> Result<(Serve, Target), Failure> {
    let arguments = arguments::read().map_err(Failure::Serving)?;
    let target = Target::find(&command.target)?;
    Ok((settings(command, arguments, &target)?, target))
}

/// Checks the address and the files that settings name, and returns the address and the log.
fn checked(serve: &Serve) -> Result<(address::Address, log::LogTo), Failure> {
    let address = address::Address::of(&serve.host, serve.port)?;
    serve.settings.check()?;
    Ok((address, serve.log.settled()?))
}

/// Serves what the command asks for. What is wrong is said at once: R takes a while to start.
fn run(command: Command) -> Result<(), Failure> {
    let (serve, target) = settled(command)?;
    let serve = &serve;
    let (address, log) = checked(serve)?;
    let redirect_from = serve.tls.as_ref().and_then(AskedTls::redirect_from);
    let beside = redirect_from.map(|port| address.beside(port)).transpose()?;
    if target.is_site {
        if serve.admin.is_some() {
            return Err(Failure::CommandLine(
                "`--admin` tells of an app and its R, and a folder of files has none: leave it out, and probe a file."
                    .to_owned(),
            ));
        }
        return site::serve(&target, serve, &address, beside.as_ref(), &log);
    }
    serve_app(serve, &target, &address, beside.as_ref(), &log)
}

#[cfg(not(target_os = "linux"))]
use alone::serve as serve_app;
#[cfg(target_os = "linux")]
use workers::serve as serve_app;

/// A reader that has gone, as `head` has, is no failure.
fn print(text: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Serving(format!("Standard output cannot be written: {error}.")))
        }
        _ => Ok(()),
    }
}
