//! A `_server.yml` whose engine is rookery. YAML is R's to read, so an R process reads the file
//! once
//! and prints options of the command line, which are then read as if the user had written them
//! before their own.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::command_line::{self, Asked, Serve};
use crate::failure::{Failure, tell};
use crate::r;
use crate::target::Target;

/// The names that R looks for in a folder; their case does not matter.
const NAMES: [&str; 2] = ["_server.yml", "_server.yaml"];

/// The part of the file that is searched for the name of the engine, in bytes.
const BYTES: u64 = 1 << 20;

/// Merges the options in the target's `_server.yml` with `serve`, which was made of `words`. An
/// option of the command line takes
/// precedence over the same one of the file. The options of HTTPS count as one: certificates of the
/// command line replace all that the
/// file says about HTTPS.
///
/// # Errors
/// Fails when the file, or the file together with the command line, asks for something impossible.
pub(crate) fn merged(words: &[OsString], serve: Serve, target: &Target) -> Result<Serve, Failure> {
    let Some(file) = file_of(target) else { return Ok(serve) };
    if !may_be_ours(&file) {
        return Ok(serve);
    }
    let mut found = r::words_of(target, &file)?;
    if found.is_empty() {
        return Ok(serve);
    }
    let Some((program, others)) = words.split_first() else { return Ok(serve) };
    let alone = found.iter().cloned().chain(["serve".into(), "--".into(), target.path.clone().into()]);
    read(program, alone).map_err(|failure| of_file(failure, &file))?;
    if serve.tls.is_some() {
        found.retain(|word| !command_line::is_of_https(word.as_bytes()));
    }
    let mut both = read(program, found.iter().chain(others).cloned())?;
    if serve.has_port && both.host.starts_with("unix:") && !serve.host.starts_with("unix:") {
        tell(&format!(
            "`--port` has no effect: `host:` in `{}` is a Unix socket. Add `--host 127.0.0.1` to listen on the port",
            file.display()
        ));
    }
    if cfg!(not(target_os = "linux")) {
        // The R process that serves reads the file as well, and tells where each setting comes
        // from.
        both.settings = serve.settings;
    }
    Ok(both)
}

fn read(program: &OsString, words: impl Iterator<Item = OsString>) -> Result<Serve, Failure> {
    match command_line::read(std::iter::once(program.clone()).chain(words))? {
        Asked::Serve(serve) => Ok(*serve),
        Asked::Print(_) | Asked::Status(_) => {
            Err(Failure::CommandLine("Nothing is to be served.".to_owned()))
        }
    }
}

fn file_of(target: &Target) -> Option<PathBuf> {
    if !target.path.is_dir() {
        let name = target.path.file_name()?.to_str()?.to_lowercase();
        return NAMES.contains(&name.as_str()).then(|| target.path.clone());
    }
    let entries = std::fs::read_dir(&target.path).ok()?.flatten();
    entries
        .map(|entry| entry.path())
        .find(|path| path.file_name().is_some_and(|name| name.eq_ignore_ascii_case(NAMES[0])))
}

/// Returns false when the file cannot be for this engine, which saves the start of an R process.
fn may_be_ours(file: &Path) -> bool {
    let mut bytes = Vec::new();
    let read = File::open(file).and_then(|file| file.take(BYTES).read_to_end(&mut bytes));
    read.is_ok() && bytes.to_ascii_lowercase().windows(7).any(|word| word == b"rookery")
}

/// The same failure in the words of the file: `drain:`, not `--drain`.
fn of_file(failure: Failure, file: &Path) -> Failure {
    let Failure::CommandLine(message) = failure else { return failure };
    let mut text = String::new();
    let mut rest = message.as_str();
    while let Some((before, option)) = rest.split_once("`--") {
        let (name, after) = option.split_once('`').unwrap_or((option, ""));
        // A limit is named by itself.
        let name = name.strip_prefix("limit ").map_or_else(|| name.replace('-', "_"), str::to_owned);
        text = format!("{text}{before}`{name}:`");
        rest = after;
    }
    Failure::Serving(format!("In `{}`: {text}{rest}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_in_the_words_of_the_file() {
        for (message, expected) in [
            ("`--max-age` must be a time, not `x`.", "In `/f`: `max_age:` must be a time, not `x`."),
            ("`--limit body_bytes` must be x.", "In `/f`: `body_bytes:` must be x."),
            ("`--a` and `--b-c` exclude one another.", "In `/f`: `a:` and `b_c:` exclude one another."),
            ("Nothing is named.", "In `/f`: Nothing is named."),
        ] {
            let Failure::Serving(said) = of_file(Failure::CommandLine(message.to_owned()), Path::new("/f"))
            else {
                panic!("it is the file's")
            };
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn a_file_is_found_as_r_finds_it_and_read_only_when_it_may_be_ours() {
        let folder = tempfile::tempdir().unwrap();
        let target = |path: PathBuf| Target { folder: path.clone(), path, is_site: false };
        assert!(file_of(&target(folder.path().into())).is_none());
        let file = folder.path().join("_Server.yml");
        for (text, may_be) in [
            ("engine: rookery\napp: a.R\n", true),
            ("engine: Rookery\napp: a.R\n", true),
            ("engine: plumber2\noptions:\n  workers: 2\n", false),
        ] {
            std::fs::write(&file, text).unwrap();
            let found = file_of(&target(folder.path().into())).unwrap();
            assert_eq!(found, file);
            assert_eq!(file_of(&target(file.clone())), Some(found.clone()));
            assert_eq!(may_be_ours(&found), may_be);
        }
        assert!(file_of(&target(folder.path().join("app.R"))).is_none());
    }
}
