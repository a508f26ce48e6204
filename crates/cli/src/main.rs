//! `rookery`: serves an app, a document or a folder from a shell. What is R's is served by an R, which this program becomes; a
//! folder with `index.html` it serves by itself.
//!
//! It belongs to the R package of its name, lies in it (`exec/rookery`), and finds it by where it lies.

mod address;
mod admin;
mod arguments;
#[cfg(target_os = "linux")]
mod changes;
mod command_line;
#[cfg(target_os = "linux")]
mod failure;
#[cfg(target_os = "linux")]
mod init;
mod inspect;
mod log;
mod memory;
mod names;
mod path;
mod port_holder;
mod ports;
mod r;
mod server_yml;
mod settings;
mod signals;
mod site;
mod status;
mod target;
mod tls;
mod worker_options;
#[cfg(target_os = "linux")]
mod workers;

use std::io::{self, Write as _};
use std::process::ExitCode;

use command_line::{Asked, Options, Serve};
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
        Asked::Status(of) => status::tell(&of).and_then(|text| print(&text)),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Combines the settings of the command line, of R, of the environment and of the target's
/// `_server.yml`.
fn settings(options: Options, arguments: Vec<Given>, target: &Target) -> Result<Serve, Failure> {
    let file = server_yml::read(target)?;
    let environment =
        environment::read(|name| std::env::var(name).ok(), |_| true).map_err(Failure::Serving)?;
    let (in_file, of_file) = file.map(|file| (file.given, file.notes)).unwrap_or_default();
    let given = options.given.into_iter().chain(arguments).chain(environment.given).chain(in_file);
    let serve = Serve::of(Settings::combine(given))?;
    for note in options.notes.iter().chain(&environment.notes).chain(&of_file).chain(&serve.notes()) {
        tell(note);
    }
    Ok(serve)
}

/// Finds the target, and combines the settings for it.
fn settled(command: command_line::Command) -> Result<(Serve, Target), Failure> {
    let arguments = arguments::read().map_err(Failure::Serving)?;
    let target = Target::find(&command.target)?;
    Ok((settings(command.options, arguments, &target)?, target))
}

/// Checks the address and the files that settings name, and returns the address and the log.
fn checked(serve: &Serve) -> Result<(address::Address, log::LogTo), Failure> {
    let address = address::Address::of(&serve.host, serve.port)?;
    serve.settings.check()?;
    Ok((address, serve.log.settled()?))
}

/// Serves what the command asks for. What is wrong is said at once: R takes a while to start.
fn run(command: command_line::Command) -> Result<(), Failure> {
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
    if let Some(workers) = &serve.workers {
        return serve_with_workers(workers, serve, &target, &address, beside.as_ref(), &log);
    }
    tls::check(serve.tls.as_ref())?;
    // Sockets of a service manager are R's to take: it is this process.
    if !rookery_service::Activation::is_there() {
        address.probe()?;
    }
    beside.as_ref().map_or(Ok(()), address::Address::probe)?;
    Err(r::become_r(serve, &target, &address, &log))
}

#[cfg(target_os = "linux")]
use workers::serve as serve_with_workers;

#[cfg(not(target_os = "linux"))]
fn serve_with_workers(
    _: &worker_options::Workers,
    _: &Serve,
    _: &Target,
    _: &address::Address,
    _: Option<&address::Address>,
    _: &log::LogTo,
) -> Result<(), Failure> {
    Err(Failure::Serving("`--workers` needs Linux: leave it out, and one R serves.".to_owned()))
}

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
