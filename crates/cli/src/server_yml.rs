//! A `_server.yml` whose engine is rookery, before several workers: what it says is the server's in front of them. YAML is R's to read, so
//! an R is asked, once and only where such a file speaks of them; it answers in words of the command line, which are then read as those of
//! a person who has written them in front of the others.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::command_line::{self, Asked, Serve};
use crate::failure::Failure;
use crate::r;
use crate::target::Target;

/// The file, as R finds it in a folder, whose case does not matter.
const NAMES: [&str; 2] = ["_server.yml", "_server.yaml"];

/// Bytes of it that are looked at: whoever has more has `workers:` at the end of something else.
const BYTES: u64 = 1 << 20;

/// What is asked for by `words`, of which `serve` was made, and by the file of the target.
///
/// # Errors
/// What is wrong with the file, or with both together.
pub(crate) fn merged(words: &[OsString], serve: Serve, target: &Target) -> Result<Serve, Failure> {
    let Some(file) = file_of(target) else { return Ok(serve) };
    // For one R it is R's alone.
    if !may_speak_of_workers(&file, serve.workers.is_some()) {
        return Ok(serve);
    }
    let found = r::words_of(target, &file)?;
    if found.is_empty() {
        return Ok(serve);
    }
    let Some((program, others)) = words.split_first() else { return Ok(serve) };
    let alone = found.iter().cloned().chain(["serve".into(), "--".into(), target.path.clone().into()]);
    read(program, alone).map_err(|failure| of_file(failure, &file))?;
    let both = read(program, found.iter().chain(others).cloned())?;
    Ok(if both.workers.is_some() || both.needs_workers.is_some() { both } else { serve })
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

/// Whether there may be something in it for a server in front of workers: R says whether there is.
fn may_speak_of_workers(file: &Path, has_workers: bool) -> bool {
    let mut text = String::new();
    let read = File::open(file).and_then(|file| file.take(BYTES).read_to_string(&mut text));
    let says = |word: &str| text.contains(word);
    // What is not text R will not read either, and says so.
    read.is_ok() && says("rookery") && says("options") && (has_workers || says("workers") || says("reload"))
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
    fn a_file_is_looked_for_as_r_does_and_only_read_when_it_may_matter() {
        let folder = tempfile::tempdir().unwrap();
        let target = |path: PathBuf| Target { folder: path.clone(), path, is_site: false };
        assert!(file_of(&target(folder.path().into())).is_none());
        let file = folder.path().join("_Server.yml");
        for (text, with, without) in [
            ("engine: rookery\napp: a.R\n", false, false),
            ("engine: rookery\napp: a.R\noptions:\n  max_age: 1h\n", true, false),
            ("engine: rookery\napp: a.R\noptions:\n  workers: 2\n", true, true),
            ("engine: plumber2\noptions:\n  workers: 2\n", false, false),
        ] {
            std::fs::write(&file, text).unwrap();
            let found = file_of(&target(folder.path().into())).unwrap();
            assert_eq!(found, file);
            assert_eq!(file_of(&target(file.clone())), Some(found.clone()));
            assert_eq!(
                (may_speak_of_workers(&found, true), may_speak_of_workers(&found, false)),
                (with, without)
            );
        }
        assert!(file_of(&target(folder.path().join("app.R"))).is_none());
    }
}
