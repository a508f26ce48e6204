//! Builds the command that starts an R process, and passes settings to that process.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rookery_server::access_log::Format;
use rookery_settings::environment;
use rookery_settings::key_value_lines::Lines;
use rookery_system::random::unpredictable;

use crate::app_detection::Target;
use crate::failure::Failure;
use crate::listen::address::Address;
use crate::process::session;
use crate::serve::access_log::LogTarget;
#[cfg(all(target_os = "linux", not(feature = "portable")))]
use crate::serve::development;
use crate::serve::r_package;
use crate::serve::tracing::service_name;
use crate::settings::passed_to_r::pass_to_r;
use crate::settings::serve_settings::ServeSettings;
use crate::user_paths::is_executable;

/// The environment variable from which the R process reads its settings (`cli_read()` in cli.R).
/// The settings are not command-line arguments, because the app may read the command line itself.
const SETTINGS_VARIABLE: &str = "ROOKERY_INTERNAL_SETTINGS";

/// The folders in which the program looks for R if the environment has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Returns the command that starts a worker (an R process under the supervisor).
///
/// The supervisor accepts connections and writes the access log. The worker gets the settings that
/// are options of R, for the app to read, and for further servers that the app starts. `for_app`
/// has the arguments of R's `serve()` for the function that runs the app.
///
/// # Errors
/// Fails if R or the R package is not found, or if the arguments for the app cannot be passed on.
#[cfg(all(target_os = "linux", not(feature = "portable")))]
pub(crate) fn worker_command(
    serve: &ServeSettings,
    target: &Target,
    address: &Address,
    for_app: Option<&str>,
) -> Result<Command, Failure> {
    let mut lines = app_lines(serve, target, address);
    add_log(serve, &LogTarget::Nothing, &mut lines);
    if serve.all.is_dev() {
        lines.line("dev", b"true");
        let editor = serve.all.text("editor");
        if let Some(url) = development::editor_url(editor.as_deref()) {
            lines.line("editor", url.as_bytes());
        }
    }
    let mut command = r_command(target)?;
    pass_settings(&mut command, lines, private_lines(for_app))?;
    if serve.is_interactive {
        make_interactive(&mut command, target)?;
    }
    // Only the supervisor communicates with the service manager.
    for name in rookery_systemd::VARIABLES {
        command.env_remove(name);
    }
    Ok(command)
}

/// Changes the command so that R runs interactively, with a prompt. R then reads its commands from
/// the terminal, so the server is started by an R profile, which first runs the user's own profile.
#[cfg(all(target_os = "linux", not(feature = "portable")))]
fn make_interactive(command: &mut Command, target: &Target) -> Result<(), Failure> {
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
    let (_, package) = find_r_and_package(&target.folder)?;
    interactive.env("R_PROFILE_USER", package.join("serve").join("interactive.R"));
    *command = interactive;
    Ok(())
}

/// Finds the R program, and the folder of the R package rookery, for an app in `folder`.
///
/// # Errors
/// Fails if one of them is not found.
pub(crate) fn find_r_and_package(folder: &Path) -> Result<(PathBuf, PathBuf), Failure> {
    let r = find_r_program();
    let package = r_package::find(r.as_deref(), folder)?;
    match r {
        Some(program) => Ok((program, package)),
        None => Err(Failure::Unavailable(
            "R was not found: install it (https://cran.r-project.org), or add the folder of `R` \
             to PATH."
                .to_owned(),
        )),
    }
}

/// Returns the path of the R program, or `None` if no folder in `PATH` contains it.
pub(crate) fn find_r_program() -> Option<PathBuf> {
    find_r(std::env::var_os("PATH").as_deref())
}

/// Returns the command that starts an R process, to which [`pass_settings`] passes settings.
pub(crate) fn r_command(target: &Target) -> Result<Command, Failure> {
    let (program, package) = find_r_and_package(&target.folder)?;
    let mut file = OsString::from("--file=");
    file.push(package.join("serve").join("cli.R"));
    let mut command = Command::new(program);
    command
        .args(["--no-echo", "--no-restore", "--no-save"])
        .arg(file)
        .current_dir(&target.folder)
        // R CMD check sets `R_TESTS` for its own R process, in which other R processes would fail.
        .env("R_TESTS", "");
    if std::env::var_os("OTEL_SERVICE_NAME").is_none_or(|name| name.is_empty()) {
        command.env("OTEL_SERVICE_NAME", service_name(target));
    }
    // These variables are meant for this program, which has read them.
    command.env_remove(session::PARENT_VARIABLE);
    for name in environment::program_variables() {
        command.env_remove(name);
    }
    Ok(command)
}

/// Returns the absolute path of the first R program in the folders of `path`, the value of `PATH`,
/// and then in the folders in which R is usually installed. The path is absolute because R is
/// started in another folder, that of the app.
fn find_r(path: Option<&OsStr>) -> Option<PathBuf> {
    let usual = usual_folders();
    std::env::split_paths(path.unwrap_or(OsStr::new(DEFAULT_PATH)))
        .chain(usual)
        .filter(|folder| !folder.as_os_str().is_empty())
        .flat_map(|folder| PROGRAMS.iter().map(move |program| folder.join(program)))
        .filter_map(|program| std::path::absolute(program).ok())
        .find(|program| program.is_file() && is_executable(program))
}

/// The names of R's program in a folder of programs, best first. Windows' `R.exe` only starts
/// `Rterm.exe`, which is in a subfolder.
const PROGRAMS: &[&str] =
    if cfg!(windows) { &["x64/Rterm.exe", "Rterm.exe", "R.exe"] } else { &["R"] };

/// Returns folders outside of `PATH` in which R's program is usually installed. On Windows, these
/// are the folder that `R_HOME` names and the folders of all versions in `Program Files`, the
/// newest first.
fn usual_folders() -> Vec<PathBuf> {
    if !cfg!(windows) {
        return Vec::new();
    }
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let mut versions: Vec<PathBuf> = variable("ProgramFiles")
        .and_then(|programs| std::fs::read_dir(programs.join("R")).ok())
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    versions.sort_by_key(|folder| std::cmp::Reverse(version_of(folder)));
    variable("R_HOME").into_iter().chain(versions).map(|home| home.join("bin")).collect()
}

/// Returns the numbers in the name of a folder such as `R-4.5.1`.
fn version_of(folder: &Path) -> Vec<u32> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    name.split(|it: char| !it.is_ascii_digit()).filter_map(|it| it.parse().ok()).collect()
}

/// Returns the settings that an R process gets in a file: the arguments of R's `serve()` for the
/// function that runs the app.
pub(crate) fn private_lines(for_app: Option<&str>) -> Lines {
    let mut lines = Lines::default();
    if let Some(for_app) = for_app {
        lines.line("for_app", for_app.as_bytes());
    }
    lines
}

/// Passes settings to the next R process that `command` starts. The process reads `private` from a
/// new file that only this user can read, and deletes the file, because the processes of the app
/// inherit the environment. Must be called before each start.
///
/// # Errors
/// Fails if the file cannot be written.
pub(crate) fn pass_settings(
    command: &mut Command,
    mut settings: Lines,
    private: Lines,
) -> Result<(), Failure> {
    if !private.is_empty() {
        let path = std::env::temp_dir().join(format!("rookery-{:016x}", unpredictable()));
        let mut options = File::options();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let written =
            options.open(&path).and_then(|mut file| file.write_all(&private.into_bytes()));
        written.map_err(|error| {
            let path = path.display();
            Failure::Unavailable(format!("Settings for R cannot be written to `{path}`: {error}."))
        })?;
        settings.line("private", path_bytes(&path));
    }
    command.env(SETTINGS_VARIABLE, os_string(settings.into_bytes()));
    Ok(())
}

/// Adds the destination and the format of the access log to the settings for the R process.
pub(crate) fn add_log(serve: &ServeSettings, log: &LogTarget, lines: &mut Lines) {
    if matches!(log, LogTarget::Session) {
        // R inherits the pipe to the session.
        lines.line("log", b"file");
        lines.line("log_file", format!("/dev/fd/{}", session::PIPE).as_bytes());
        return lines.line("log_format", b"fields");
    }
    match log {
        LogTarget::Stdout => lines.line("log", b"stdout"),
        LogTarget::Nothing | LogTarget::Session => lines.line("log", b"nothing"),
        LogTarget::File(path) => {
            lines.line("log", b"file");
            lines.line("log_file", path_bytes(path));
        }
    }
    let format: &[u8] = match serve.format {
        Format::Common | Format::CommonOfWorkers | Format::Fields => b"common",
        Format::Combined => b"combined",
        Format::Json => b"json",
        Format::Terminal { .. } => b"terminal",
    };
    lines.line("log_format", format);
}

/// Returns the bytes of a path as R reads them: in UTF-8 on Windows, and unchanged elsewhere.
pub(crate) fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

/// Converts the bytes of a path ([`path_bytes`]) or of a text to a value of an environment
/// variable.
fn os_string(bytes: Vec<u8>) -> OsString {
    #[cfg(unix)]
    return std::os::unix::ffi::OsStringExt::from_vec(bytes);
    #[cfg(windows)]
    String::from_utf8_lossy(&bytes).into_owned().into()
}

/// Returns the settings with which an R process reads the app: what to serve, at which address, and
/// the settings that R also accepts as options.
pub(crate) fn app_lines(serve: &ServeSettings, target: &Target, address: &Address) -> Lines {
    let mut lines = Lines::default();
    lines.line("target", path_bytes(&target.path));
    match address {
        Address::Tcp { host, socket } => {
            lines.line("host", host.as_bytes());
            lines.line("port", socket.port().to_string().as_bytes());
        }
        Address::Unix(path) => lines.line("socket", path_bytes(path)),
    }
    pass_to_r(&serve.all, &mut lines);
    if serve.is_verbose {
        lines.line("verbose", b"true");
    }
    lines
}
