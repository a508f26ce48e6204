//! Finds the installed R package rookery, which the R processes load, and compares its version with
//! that of this program.
//!
//! The program in the package has the version of the package. A program that was installed by
//! itself, such as a Debian package or a wheel, asks R for the package, and may have another
//! version because each of the two is updated alone.

use std::cmp::Ordering;
use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use crate::failure::Failure;
use crate::process::start_thread;
use crate::stderr::log_line;

/// The version of this program.
const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The time within which R must say where the package is. R first runs the user's `.Rprofile`,
/// which may take long.
const MAX_QUERY_TIME: Duration = Duration::from_secs(60);

/// The maximum number of bytes that R may print, `.Rprofile` included.
const MAX_QUERY_OUTPUT: u64 = 1 << 20;

/// The text before the path in the output of [`QUERY`].
const MARK: &str = "rookery-package:";

/// The R code that prints the folder of the package.
const QUERY: &str =
    "cat('\\nrookery-package:', find.package('rookery', quiet = TRUE)[1], '\\n', sep = '')";

/// Returns the folder of the R package rookery: the one that contains this program, or else the one
/// that the R program `r` finds when it starts in `folder`, the folder of the app. The answer is
/// kept for later calls.
///
/// # Errors
/// Fails if the package is not installed.
pub(crate) fn find(r: Option<&Path>, folder: &Path) -> Result<PathBuf, Failure> {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    if let Some(package) = FOUND.get() {
        return Ok(package.clone());
    }
    let package = match around_program() {
        Some(package) => package,
        None => r.and_then(|r| ask(r, folder)).ok_or_else(|| missing(r.is_some()))?,
    };
    Ok(FOUND.get_or_init(|| package).clone())
}

/// Returns the folder of the R package that contains this program, if there is one. Resolves a
/// symbolic link if the program was started by one.
fn around_program() -> Option<PathBuf> {
    let program = std::env::current_exe().and_then(fs::canonicalize).ok()?;
    program
        .parent()
        .and_then(Path::parent)
        .filter(|package| is_package(package))
        .map(Path::to_owned)
}

/// Returns true if a folder contains an installed R package rookery.
fn is_package(folder: &Path) -> bool {
    folder.join("serve").join("cli.R").is_file()
}

/// Starts R and asks it for the folder of the package. Returns `None` if R does not find it, or
/// does not answer in time.
fn ask(r: &Path, folder: &Path) -> Option<PathBuf> {
    let mut child = Command::new(r)
        .args(["--no-echo", "--no-restore", "--no-save", "-e", QUERY])
        .current_dir(folder)
        // R CMD check sets `R_TESTS` for its own R process, in which other R processes would fail.
        .env("R_TESTS", "")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let answer = child.stdout.take().and_then(|output| await_answer(output, MAX_QUERY_TIME));
    // R is not needed any more. If it has exited, this has no effect.
    let _ = child.kill();
    let _ = child.wait();
    answer.filter(|package| is_package(package))
}

/// Reads the output of R until the line with the path has arrived, the output ends, or the time is
/// over. Does not wait for the end of the output, because processes that `.Rprofile` has started
/// may keep it open.
fn await_answer(output: impl Read + Send + 'static, limit: Duration) -> Option<PathBuf> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let read = move || {
        let lines = BufReader::new(output.take(MAX_QUERY_OUTPUT)).split(b'\n');
        let found = lines.map_while(Result::ok).find_map(|line| path_in(&line));
        // Sending fails if the time is over.
        let _ = sender.send(found);
    };
    start_thread("r-package", read).ok()?;
    receiver.recv_timeout(limit).ok().flatten()
}

/// Returns the path in a line of the output of R, if this is the line with the answer.
fn path_in(line: &[u8]) -> Option<PathBuf> {
    std::str::from_utf8(line.strip_prefix(MARK.as_bytes())?).ok().map(PathBuf::from)
}

fn missing(has_r: bool) -> Failure {
    let program = std::env::current_exe();
    let place = program.map(|program| format!(" ({})", program.display())).unwrap_or_default();
    let looked = if has_r { ", and R does not find that package" } else { "" };
    Failure::Unavailable(format!(
        "This program{place} is not part of an installed R package rookery{looked}: install the \
         package in R with install.packages(\"rookery\"). The package contains this program as \
         well, and rookery::install_cli() makes a link to it."
    ))
}

/// Returns the version of an installed R package, which its file `DESCRIPTION` contains.
pub(crate) fn version(package: &Path) -> Option<String> {
    let text = fs::read_to_string(package.join("DESCRIPTION")).ok()?;
    let version = text.lines().find_map(|line| line.strip_prefix("Version:"))?;
    Some(version.trim().to_owned())
}

/// Logs a warning with the remedy if this program and the R package have different versions. This
/// is no error: only a worker with another version of the protocol than its supervisor exits.
pub(crate) fn warn_if_versions_differ(package: &Path) {
    let version = version(package);
    if let Some(text) = version.and_then(|version| difference(OWN_VERSION, &version, package)) {
        log_line(&text);
    }
}

/// Returns the message about two versions, or `None` if they are the same.
fn difference(program: &str, package_version: &str, package: &Path) -> Option<String> {
    let remedy = match compare(program, package_version) {
        Ordering::Equal => return None,
        Ordering::Less => "Update this program",
        Ordering::Greater => "Update the R package with install.packages(\"rookery\")",
    };
    Some(format!(
        "This program is rookery {program}, and the R package in {} is rookery {package_version}. \
         They are tested together only if they have the same version. {remedy}, or use the \
         program of the package, {}.",
        package.display(),
        package.join("exec").join("rookery").display(),
    ))
}

/// Compares two versions number by number, as R does.
fn compare(one: &str, other: &str) -> Ordering {
    let numbers = |version: &str| -> Vec<u64> {
        version.split(['.', '-']).map(|number| number.parse().unwrap_or(0)).collect()
    };
    numbers(one).cmp(&numbers(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_version_of_a_package_from_its_description() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(version(folder.path()), None);
        fs::write(folder.path().join("DESCRIPTION"), "Package: rookery\nVersion: 1.2.3\n").unwrap();
        assert_eq!(version(folder.path()).as_deref(), Some("1.2.3"));
    }

    #[test]
    fn the_answer_of_r_is_a_line_of_its_own() {
        let answer = |output: &'static [u8]| await_answer(output, MAX_QUERY_TIME);
        let package = Some(PathBuf::from("/a b/rookery"));
        assert_eq!(answer(b"hello\nrookery-package:/a b/rookery\nmore"), package);
        assert_eq!(answer(b"about rookery-package:/x\n"), None);
        assert_eq!(answer(b""), None);
    }

    #[test]
    fn a_silent_r_is_given_up_after_the_limit() {
        let mut child = Command::new("sleep").arg("60").stdout(Stdio::piped()).spawn().unwrap();
        let output = child.stdout.take().unwrap();
        assert_eq!(await_answer(output, Duration::from_millis(20)), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn an_endless_output_of_r_is_given_up() {
        assert_eq!(await_answer(std::io::repeat(b'a'), MAX_QUERY_TIME), None);
    }

    #[test]
    fn the_message_about_two_versions_names_the_older_one() {
        let package = Path::new("/lib/rookery");
        assert_eq!(difference("0.10.0", "0.10.0", package), None);
        let text = difference("0.9.1", "0.10.0", package).unwrap();
        assert!(text.contains("Update this program, or"), "{text}");
        assert!(text.contains("/lib/rookery/exec/rookery"), "{text}");
        let text = difference("0.10.0", "0.9.1.9000", package).unwrap();
        assert!(text.contains("Update the R package with install.packages"), "{text}");
    }
}
