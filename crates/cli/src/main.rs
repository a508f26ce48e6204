//! `rookery`: serves an app, a document or a folder from a shell. What is R's is served by an R, which this program becomes; a
//! folder with `index.html` it serves by itself.
//!
//! It belongs to the R package of its name, lies in it (`exec/rookery`), and finds it by where it lies.

mod address;
mod admin;
#[cfg(target_os = "linux")]
mod changes;
mod command_line;
#[cfg(target_os = "linux")]
mod failure;
#[cfg(target_os = "linux")]
mod init;
mod limits;
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

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use command_line::{Asked, Serve};
use failure::Failure;
use rookery_server::output;
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
    let words: Vec<_> = std::env::args_os().collect();
    let done = command_line::read(words.iter().cloned()).and_then(|asked| match asked {
        Asked::Print(text) => print(&text),
        Asked::Serve(serve) => run(*serve, &words),
        Asked::Status(of) => status::tell(&of).and_then(|text| print(&text)),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(serve: Serve, words: &[OsString]) -> Result<(), Failure> {
    // What is wrong is said here, and at once: an R takes a while to start.
    address::Address::of(&serve.host, serve.port)?;
    serve.settings.check()?;
    let target = Target::find(&serve.target)?;
    let serve = &server_yml::merged(words, serve, &target)?;
    let address = address::Address::of(&serve.host, serve.port)?;
    serve.settings.check()?;
    if let Some(name) = serve.needs_workers {
        return Err(Failure::CommandLine(format!("`--{name}` needs `--workers`, with 2 or more.")));
    }
    let log = serve.log.settled()?;
    let redirect_from = serve.tls.as_ref().and_then(settings::AskedTls::redirect_from);
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
