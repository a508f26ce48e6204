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
#[cfg(target_os = "linux")]
mod changes;
mod command_line;
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
#[cfg(target_os = "linux")]
mod terminal;
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
