//! The commands that start R processes, and what they are told.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use rookery_server::access_log::Format;
#[cfg(target_os = "linux")]
use rookery_settings::Value;
use rookery_settings::environment;
use rookery_settings::lines::Lines;

use crate::app_detection::Target;
use crate::command_line::Serve;
use crate::failure::Failure;
use crate::listen::address::Address;
use crate::process::signals;
use crate::serve::access_log::LogTo;
use crate::serve::tls;
#[cfg(target_os = "linux")]
use crate::settings::combined::Https;
use crate::settings::r_arguments;
use crate::user_paths::is_executable;

/// What R reads the rest from (`cli_read()` in cli.R). Not arguments: an app may look at those.
const HANDED_OVER: &str = "ROOKERY_INTERNAL_SETTINGS";

/// Where programs are looked for when there is no PATH.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The R of a worker. It listens where its supervisor has it listen, whatever the address; what is between the client and the supervisor,
/// and the log, are the supervisor's. One that may accept connections itself has them as well; `public` is where its log goes.
///
/// # Errors
/// When there is no R, or no package.
#[cfg(target_os = "linux")]
pub(crate) fn worker(
    serve: &Serve,
    target: &Target,
    address: &Address,
    public: Option<&LogTo>,
) -> Result<Command, Failure> {
    let mut lines = place(target, address);
    if public.is_some() || serve.workers.is_single() {
        serve.settings.hand_over(&mut lines);
    } else {
        serve.settings.hand_over_to_worker(&mut lines);
    }
    match serve.settings.https().filter(|_| public.is_some()) {
        Some(Https::Development) => {
            if let Some(file) = tls::development_file() {
                lines.value("tls:", "tls_cert", &Value::Path(file));
            }
        }
        // The supervisor listens there.
        Some(_) => serve.settings.hand_over_https(&mut lines, |row| row.name != "redirect_from"),
        None => {}
    }
    hand_over_log(serve, public.unwrap_or(&LogTo::Nothing), &mut lines);
    let mut command = command(target, lines)?;
    if serve.workers.is_interactive {
        at_prompts(&mut command, target)?;
    }
    // What a service manager says, it says to the supervisor.
    for name in rookery_systemd::VARIABLES {
        command.env_remove(name);
    }
    // Of this process, and not of the programs that the app starts.
    command.env_remove(signals::PARENT);
    Ok(command)
}

/// Has R be one that prompts. It reads commands from the terminal then, so a profile has it serve, and
/// runs the user's profile first.
#[cfg(target_os = "linux")]
fn at_prompts(command: &mut Command, target: &Target) -> Result<(), Failure> {
    let mut interactive = Command::new(command.get_program());
    interactive
        .args(["--interactive", "--quiet", "--no-restore", "--no-save"])
        .current_dir(&target.folder);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => interactive.env(name, value),
            None => interactive.env_remove(name),
        };
    }
    if let Some(profile) = std::env::var_os("R_PROFILE_USER") {
        interactive.env("ROOKERY_INTERNAL_PROFILE_USER", profile);
    }
    interactive.env("R_PROFILE_USER", package()?.join("serve").join("interactive.R"));
    *command = interactive;
    Ok(())
}

/// Finds R and the package.
///
/// # Errors
/// Fails when one of them is not there.
pub(crate) fn find() -> Result<(PathBuf, PathBuf), Failure> {
    let package = package()?;
    match program() {
        Some(program) => Ok((program, package)),
        None => Err(Failure::Serving(
            "R was not found: install it (https://cran.r-project.org), or put the folder of `R` on PATH."
                .to_owned(),
        )),
    }
}

/// Returns the R that workers run.
pub(crate) fn program() -> Option<PathBuf> {
    find_r(std::env::var_os("PATH").as_deref())
}

/// The R that runs what is handed over.
pub(crate) fn command(target: &Target, handed_over: Lines) -> Result<Command, Failure> {
    let (program, package) = find()?;
    let mut file = OsString::from("--file=");
    file.push(package.join("serve").join("cli.R"));
    let mut command = Command::new(program);
    command
        .args(["--no-echo", "--no-restore", "--no-save"])
        .arg(file)
        .current_dir(&target.folder)
        .env(HANDED_OVER, OsString::from_vec(handed_over.into_bytes()))
        // Set by R CMD check for its own R, and not to be had by others.
        .env("R_TESTS", "");
    if let Some(libraries) = libraries(&package) {
        command.env("R_LIBS", libraries);
    }
    // They are for this program, which has read them.
    command.env_remove(r_arguments::variable());
    for name in environment::program_variables() {
        command.env_remove(name);
    }
    Ok(command)
}

/// The first `R` on PATH. Looked for here, and from the folder in which the command was given: the app's folder, in which R is
/// started, must not have its own `R` run by a PATH that is empty or has `.` in it.
fn find_r(path: Option<&OsStr>) -> Option<PathBuf> {
    std::env::split_paths(path.unwrap_or(OsStr::new(USUAL_PATH)))
        .filter(|folder| !folder.as_os_str().is_empty())
        .filter_map(|folder| std::path::absolute(folder.join("R")).ok())
        .find(|program| program.is_file() && is_executable(program))
}

/// The folder of the R package that this program belongs to, through a link from PATH as well.
pub(crate) fn package() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe().and_then(std::fs::canonicalize);
    let package = program.as_deref().ok().and_then(Path::parent).and_then(Path::parent);
    match package.filter(|package| package.join("serve").join("cli.R").is_file()) {
        Some(package) => Ok(package.into()),
        None => Err(Failure::Serving(format!(
            "What R is to run is not beside this program{}: it works where the R package rookery has been installed, and \
             rookery::install_cli() makes a link to it there.",
            program.map(|program| format!(" ({})", program.display())).unwrap_or_default()
        ))),
    }
}

/// The library with the httpuv that is rookery's in front, before an `.Rprofile` has its say. Where it is not in its place,
/// R looks further (`compat_library()`).
fn libraries(package: &Path) -> Option<OsString> {
    let compat = package.join("compat");
    if !compat.join("httpuv").join("DESCRIPTION").is_file() {
        return None;
    }
    let mut libraries = compat.into_os_string();
    if let Some(others) = std::env::var_os("R_LIBS").filter(|others| !others.is_empty()) {
        libraries.push(":");
        libraries.push(others);
    }
    Some(libraries)
}

/// Hands over where the access log goes, and its format.
pub(crate) fn hand_over_log(serve: &Serve, log: &LogTo, lines: &mut Lines) {
    match log {
        LogTo::Stdout => lines.line("log", b"stdout"),
        LogTo::Nothing => lines.line("log", b"nothing"),
        LogTo::File(path) => {
            lines.line("log", b"file");
            lines.line("log_file", path.as_os_str().as_bytes());
        }
    }
    lines.line("log_format", if serve.format == Format::Json { b"json" } else { b"common" });
}

/// Returns what R is told of what it serves, and where.
pub(crate) fn place(target: &Target, address: &Address) -> Lines {
    let mut lines = Lines::default();
    lines.line("target", target.path.as_os_str().as_bytes());
    match address {
        Address::Tcp { host, socket } => {
            lines.line("host", host.as_bytes());
            lines.line("port", socket.port().to_string().as_bytes());
        }
        Address::Unix(path) => lines.line("socket", path.as_os_str().as_bytes()),
    }
    lines
}
