//! The commands that start R processes, and what they are told.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use rookery_server::access_log::Format;
use rookery_server::tls::Hsts;
use rookery_settings::environment;

use crate::address::Address;
use crate::arguments;
use crate::command_line::Serve;
use crate::failure::Failure;
use crate::log::LogTo;
use crate::path::{is_executable, settle};
#[cfg(target_os = "linux")]
use crate::settings::AskedTls;
use crate::settings::TlsFiles;
use crate::signals;
use crate::target::Target;
use crate::tls;

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
    let mut text = Fields::default();
    text.field("target", target.path.as_os_str().as_bytes());
    text.address(address);
    let mut field = |name: &str, value: &[u8]| text.field(name, value);
    if public.is_some() || serve.workers.is_single() {
        serve.settings.hand_over(&mut field);
    } else {
        serve.settings.hand_over_to_worker(&mut field);
    }
    match serve.tls.as_ref().filter(|_| public.is_some()) {
        Some(AskedTls::Development) => {
            if let Some(file) = tls::development_file() {
                let files = TlsFiles { pairs: vec![(file.clone(), file)], ..TlsFiles::default() };
                hand_over_tls(&files, &mut field);
            }
        }
        Some(AskedTls::Files(files)) => hand_over_tls(files, &mut field),
        None => {}
    }
    hand_over_log(serve, public.unwrap_or(&LogTo::Nothing), &mut |name, value| text.field(name, value));
    let mut command = command(target, OsString::from_vec(text.0))?;
    if serve.workers.is_interactive {
        at_prompts(&mut command, target)?;
    }
    // What a service manager says, it says to the supervisor.
    for name in rookery_service::NAMES {
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
    interactive.args(["--interactive", "--quiet", "--no-restore", "--no-save"]).current_dir(&target.folder);
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
pub(crate) fn command(target: &Target, handed_over: OsString) -> Result<Command, Failure> {
    let (program, package) = find()?;
    let mut file = OsString::from("--file=");
    file.push(package.join("serve").join("cli.R"));
    let mut command = Command::new(program);
    command
        .args(["--no-echo", "--no-restore", "--no-save"])
        .arg(file)
        .current_dir(&target.folder)
        .env(HANDED_OVER, handed_over)
        // Set by R CMD check for its own R, and not to be had by others.
        .env("R_TESTS", "");
    if let Some(libraries) = libraries(&package) {
        command.env("R_LIBS", libraries);
    }
    // They are for this program, which has read them.
    command.env_remove(arguments::variable());
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

/// Gives what a server needs to speak HTTPS with these certificates to `field`.
pub(crate) fn hand_over_tls(files: &TlsFiles, field: &mut impl FnMut(&str, &[u8])) {
    for (certificate, key) in &files.pairs {
        field("tls_cert", settle(certificate).as_os_str().as_bytes());
        field("tls_key", settle(key).as_os_str().as_bytes());
    }
    if let Some(signers) = &files.client_ca {
        field("tls_client_ca", settle(signers).as_os_str().as_bytes());
        field("tls_client_auth", files.client_auth.name().as_bytes());
    }
    field("tls_min_version", files.minimum_name().as_bytes());
    if files.only_http1 {
        field("tls_http2", b"FALSE");
    }
    if files.only_http1_websockets {
        field("tls_http2_websockets", b"FALSE");
    }
    if let Some(Hsts { max_age, include_subdomains, preload }) = files.hsts {
        let word = |is_on| if is_on { "TRUE" } else { "FALSE" };
        field("tls_hsts", format!("{max_age} {} {}", word(include_subdomains), word(preload)).as_bytes());
    }
}

/// Gives where the access log goes, and its format, to `field`.
pub(crate) fn hand_over_log(serve: &Serve, log: &LogTo, field: &mut impl FnMut(&str, &[u8])) {
    match log {
        LogTo::Stdout => field("log", b"stdout"),
        LogTo::Nothing => field("log", b"nothing"),
        LogTo::File(path) => {
            field("log", b"file");
            field("log_file", path.as_os_str().as_bytes());
        }
    }
    field("log_format", if serve.format == Format::Json { b"json" } else { b"common" });
}

/// What R is told: `name=value` in lines, with `%` and line ends of values written as URLs do.
#[derive(Default)]
pub(crate) struct Fields(pub(crate) Vec<u8>);

impl Fields {
    pub(crate) fn field(&mut self, name: &str, value: &[u8]) {
        let Fields(text) = self;
        text.extend_from_slice(name.as_bytes());
        text.push(b'=');
        for byte in value {
            match byte {
                b'%' => text.extend_from_slice(b"%25"),
                b'\n' => text.extend_from_slice(b"%0A"),
                other => text.push(*other),
            }
        }
        text.push(b'\n');
    }

    pub(crate) fn address(&mut self, address: &Address) {
        match address {
            Address::Tcp { host, socket } => {
                self.field("host", host.as_bytes());
                self.field("port", socket.port().to_string().as_bytes());
            }
            Address::Unix(path) => self.field("socket", path.as_os_str().as_bytes()),
        }
    }
}
