//! Becoming the R that serves: this process's id, its signals and its exit status are then the app's own.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rookery_acme::Challenge;
use rookery_server::output;
use rookery_server::tls::Hsts;
use rookery_status::AdminAt;

use crate::address::Address;
use crate::command_line::Serve;
use crate::failure::Failure;
use crate::log::LogTo;
use crate::path::{is_executable, settle};
use crate::settings::{AskedAcme, AskedTls, TlsFiles};
use crate::signals;
use crate::target::Target;
use crate::tls;

/// What R reads the rest from (`cli_read()` in cli.R). Not arguments: an app may look at those.
const HANDED_OVER: &str = "ROOKERY_CLI";

/// Where programs are looked for when there is no PATH.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Replaces this process by R. Returns only when that failed, with the reason.
pub(crate) fn become_r(serve: &Serve, target: &Target, address: &Address, log: &LogTo) -> Failure {
    let mut command = match command(target, handed_over(serve, target, address, log)) {
        Ok(command) => command,
        Err(failure) => return failure,
    };
    if signals::is_ignored(libc::SIGINT) {
        // R handles it all the same: blocked, it does not come.
        signals::block(&[libc::SIGINT]);
    }
    output::flush();
    let error = command.exec();
    let program = command.get_program().to_string_lossy();
    Failure::Serving(format!("R could not be started ({program}): {error}."))
}

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
    match public {
        None => serve.settings.hand_over_to_worker(&mut field),
        Some(_) => {
            serve.settings.hand_over(&mut field);
            match &serve.tls {
                Some(AskedTls::Development) => {
                    if let Some(file) = tls::development_file() {
                        let files = TlsFiles { pairs: vec![(file.clone(), file)], ..TlsFiles::default() };
                        hand_over_tls(&files, &mut field);
                    }
                }
                Some(AskedTls::Files(files)) => hand_over_tls(files, &mut field),
                None => {}
            }
        }
    }
    if let Some(time) = serve.workers.as_ref().and_then(|workers| workers.request_timeout) {
        // For `--interrupt-requests`, which is R's to do.
        text.field("limit", format!("request_time={}s", time.as_secs_f64()).as_bytes());
    }
    hand_over_log(serve, public.unwrap_or(&LogTo::Nothing), &mut |name, value| text.field(name, value));
    let mut command = command(target, OsString::from_vec(text.0))?;
    if public.is_none() {
        // The header comes from the client's side.
        command.env_remove("ROOKERY_PROXY_PROTOCOL");
    }
    // What a service manager says, it says to the supervisor.
    for name in rookery_service::NAMES {
        command.env_remove(name);
    }
    // Of this process, and not of the programs that the app starts.
    command.env_remove(signals::PARENT);
    Ok(command)
}

/// What a `_server.yml` says, in words of the command line: R reads it.
///
/// # Errors
/// When it is wrong, or there is no R.
pub(crate) fn words_of(target: &Target, file: &Path) -> Result<Vec<OsString>, Failure> {
    /// In front of what is meant for us: an `.Rprofile` may write as well.
    const WORD: &[u8] = b"rookery-word ";
    const WRONG: &[u8] = b"rookery-wrong ";
    let mut text = Fields::default();
    text.field("settings", file.as_os_str().as_bytes());
    let mut command = command(target, OsString::from_vec(text.0))?;
    command.stdin(std::process::Stdio::null()).stderr(std::process::Stdio::inherit());
    // It is not what the service manager hears.
    for name in rookery_service::NAMES {
        command.env_remove(name);
    }
    let output = command.output().map_err(|error| {
        let program = command.get_program().to_string_lossy().into_owned();
        Failure::Serving(format!("R could not be started ({program}): {error}."))
    })?;
    let lines = || output.stdout.split(|byte| *byte == b'\n');
    if let Some(wrong) = lines().find_map(|line| line.strip_prefix(WRONG)) {
        return Err(Failure::Serving(String::from_utf8_lossy(&plain(wrong)).into_owned()));
    }
    if !output.status.success() {
        return Err(Failure::Serving(format!("R could not read `{}`: see above.", file.display())));
    }
    Ok(lines()
        .filter_map(|line| line.strip_prefix(WORD))
        .map(|word| OsString::from_vec(plain(word)))
        .collect())
}

/// What [`Fields::field`] was given.
fn plain(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, behind)) = rest.split_first() {
        let (byte, behind) = match (byte, behind) {
            (b'%', [b'2', b'5', behind @ ..]) => (b'%', behind),
            (b'%', [b'0', b'A', behind @ ..]) => (b'\n', behind),
            _ => (byte, behind),
        };
        plain.push(byte);
        rest = behind;
    }
    plain
}

/// The R that runs what is handed over.
fn command(target: &Target, handed_over: OsString) -> Result<Command, Failure> {
    let package = package()?;
    let mut file = OsString::from("--file=");
    file.push(package.join("serve").join("cli.R"));
    let Some(program) = find_r(std::env::var_os("PATH").as_deref()) else {
        return Err(Failure::Serving(
            "R was not found: install it (https://cran.r-project.org), or put the folder of `R` on PATH."
                .to_owned(),
        ));
    };
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
fn package() -> Result<PathBuf, Failure> {
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

fn hand_over_tls(files: &TlsFiles, field: &mut impl FnMut(&str, &[u8])) {
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

fn hand_over_acme(acme: &AskedAcme, field: &mut impl FnMut(&str, &[u8])) {
    for domain in &acme.domains {
        field("acme_domain", domain.as_bytes());
    }
    for email in &acme.emails {
        field("acme_email", email.as_bytes());
    }
    // It has been looked at.
    field("acme_agree_tos", if acme.agrees { b"TRUE" } else { b"FALSE" });
    let challenge = acme.challenge.map(Challenge::name);
    for (name, text) in [
        ("acme_directory", acme.directory.as_deref()),
        ("acme_profile", acme.profile.as_deref()),
        ("acme_challenge", challenge),
    ] {
        if let Some(text) = text {
            field(name, text.as_bytes());
        }
    }
    for (name, path) in [("acme_ca", &acme.ca), ("acme_dir", &acme.folder)] {
        if let Some(path) = path {
            field(name, settle(path).as_os_str().as_bytes());
        }
    }
}

/// What R is told: `name=value` in lines, with `%` and line ends of values written as URLs do.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn field(&mut self, name: &str, value: &[u8]) {
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

    fn address(&mut self, address: &Address) {
        match address {
            Address::Tcp { host, socket } => {
                self.field("host", host.as_bytes());
                self.field("port", socket.port().to_string().as_bytes());
            }
            Address::Unix(path) => self.field("socket", path.as_os_str().as_bytes()),
        }
    }
}

fn hand_over_log(serve: &Serve, log: &LogTo, field: &mut impl FnMut(&str, &[u8])) {
    match log {
        LogTo::Stdout => field("log", b"stdout"),
        LogTo::Nothing => field("log", b"nothing"),
        LogTo::File(path) => {
            field("log", b"file");
            field("log_file", path.as_os_str().as_bytes());
        }
    }
    field("log_format", serve.format_name().as_bytes());
}

fn handed_over(serve: &Serve, target: &Target, address: &Address, log: &LogTo) -> OsString {
    let mut text = Fields::default();
    text.field("target", target.path.as_os_str().as_bytes());
    text.address(address);
    let mut field = |name: &str, value: &[u8]| text.field(name, value);
    match &serve.tls {
        Some(AskedTls::Development) => field("tls", b"dev"),
        Some(AskedTls::Files(files)) => {
            hand_over_tls(files, &mut field);
            if let Some(acme) = &files.acme {
                hand_over_acme(acme, &mut field);
            }
            if let Some(port) = files.redirect_from {
                field("tls_redirect_from", port.to_string().as_bytes());
            }
        }
        None => {}
    }
    serve.settings.hand_over(&mut field);
    hand_over_log(serve, log, &mut field);
    match &serve.admin {
        Some(AdminAt::Tcp(address)) => field("admin", address.to_string().as_bytes()),
        Some(AdminAt::Unix(path)) => field("admin", &[b"unix:", path.as_os_str().as_bytes()].concat()),
        None => {}
    }
    if signals::is_ignored(libc::SIGINT) {
        field("interrupt", b"ignored");
    }
    OsString::from_vec(text.0)
}
