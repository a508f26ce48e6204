//! Finds and reads the file `_server.yml` of the app to serve.

use std::path::PathBuf;

use rookery_settings::escaped;
use rookery_settings::server_yml::{self, ServerFile};

use crate::app_detection::Target;
use crate::failure::Failure;

/// The file names that are accepted for `_server.yml`, in any mixture of upper and lower case.
pub(crate) const NAMES: [&str; 2] = ["_server.yml", "_server.yaml"];

/// Reads the file `_server.yml` of the app, which may be beside the file of the app. Returns `None`
/// if there is no such file, or if the file is meant for a server other than Rookery. The settings
/// of a file whose `app:` is another app do not apply, and a note says so.
///
/// # Errors
/// Fails if the file contains a mistake, or if its `app:` does not exist.
pub(crate) fn read(target: &Target) -> Result<Option<ServerFile>, Failure> {
    let Some(path) = file_of(target) else { return Ok(None) };
    let bytes = server_yml::bytes(&path).map_err(|error| {
        Failure::Unavailable(format!("`{}` cannot be read: {error}.", path.display()))
    })?;
    let wrong = |message| Failure::Unavailable(format!("In `{}`, {message}", path.display()));
    let Some(file) =
        server_yml::read(&bytes, &path).map_err(|problem| wrong(problem.to_string()))?
    else {
        // A file beside the app may be for something else.
        if !is_file_of_app(target) {
            server_yml::engine(&bytes).map_err(|problem| wrong(problem.to_string()))?;
        }
        return Ok(None);
    };
    if is_file_of_app(target)
        && std::fs::canonicalize(&file.app).map_or(true, |app| app != target.path)
    {
        let note = format!(
            "`{}` has no effect: its `app:` is not `{}`",
            path.display(),
            target.path.file_name().unwrap_or_default().to_string_lossy()
        );
        return Ok(Some(ServerFile { app: file.app, given: Vec::new(), note: Some(note) }));
    }
    if !file.app.exists() {
        let app = escaped(&file.app.display().to_string());
        return Err(wrong(format!("`app:` names `{app}`, which does not exist.")));
    }
    Ok(Some(file))
}

/// Returns true if the target is the file of an app, and neither a folder nor a `_server.yml`.
fn is_file_of_app(target: &Target) -> bool {
    let name = target.path.file_name().unwrap_or_default();
    !target.path.is_dir() && !NAMES.iter().any(|own| name.eq_ignore_ascii_case(own))
}

fn file_of(target: &Target) -> Option<PathBuf> {
    if !target.path.is_dir() && !is_file_of_app(target) {
        return Some(target.path.clone());
    }
    let entries = std::fs::read_dir(&target.folder).ok()?.flatten();
    entries
        .map(|entry| entry.path())
        .find(|path| path.file_name().is_some_and(|name| name.eq_ignore_ascii_case(NAMES[0])))
}

#[cfg(test)]
mod tests {
    use rookery_settings::yaml::MAX_FILE_SIZE;

    use super::*;
    use crate::failure::message_of;

    #[test]
    fn finds_the_file_like_r_and_reads_it_for_this_engine_only() {
        let folder = tempfile::tempdir().unwrap();
        let target = |path: PathBuf| Target {
            given: path.clone(),
            folder: path.clone(),
            path,
            is_site: false,
        };
        assert!(file_of(&target(folder.path().into())).is_none());
        std::fs::write(folder.path().join("a.R"), "1").unwrap();
        let path = folder.path().join("_Server.yml");
        for (text, is_ours) in [
            ("engine: rookery\napp: a.R\n", true),
            ("engine: other\napp: a.R\n", false),
            ("engine: plumber2\noptions:\n  workers: 2\n", false),
        ] {
            std::fs::write(&path, text).unwrap();
            for target in [target(folder.path().into()), target(path.clone())] {
                assert_eq!(read(&target).unwrap().is_some(), is_ours, "{text}");
            }
        }
    }

    #[test]
    fn applies_to_the_file_of_the_app_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let folder = std::fs::canonicalize(folder.path()).unwrap();
        for name in ["a.R", "b.R"] {
            std::fs::write(folder.join(name), "1").unwrap();
        }
        std::fs::write(
            folder.join("_server.yml"),
            "engine: rookery\napp: ./a.R\noptions:\n  port: 1\n",
        )
        .unwrap();
        let read = |name: &str| read(&Target::find(&folder.join(name)).unwrap()).unwrap().unwrap();
        let file = read("a.R");
        assert!(file.given.len() == 1 && file.note.is_none());
        let file = read("b.R");
        assert_eq!(file.given.len(), 0);
        let note =
            format!("`{}/_server.yml` has no effect: its `app:` is not `b.R`", folder.display());
        assert_eq!(file.note, Some(note));
    }

    #[test]
    fn reports_mistakes_with_file_and_position() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("_server.yml");
        let target = Target {
            given: path.clone(),
            folder: folder.path().into(),
            path: path.clone(),
            is_site: false,
        };
        let message = |text: &[u8]| {
            std::fs::write(&path, text).unwrap();
            message_of(read(&target)).replace(&format!("{}/", folder.path().display()), "")
        };
        assert_eq!(
            message(b"engine: rookery\napp: a.R\noptions:\n  prot: 1\n"),
            "In `_server.yml`, line 4, column 3: `prot:` is not a setting under `options:`. Did \
             you mean `port:`?"
        );
        assert_eq!(
            message(b""),
            "In `_server.yml`, line 1, column 1: there is no `engine:` that names an R package, \
             such as `rookery`."
        );
        assert_eq!(
            message(b"engine: rookery\napp: no.R\n"),
            "In `_server.yml`, `app:` names `no.R`, which does not exist."
        );
        assert_eq!(
            message(b"engine: rookery\napp: a\xFF.R\n"),
            "In `_server.yml`, line 2, column 7: the file is not valid UTF-8: save it in UTF-8."
        );
        let long = format!("engine: rookery\n# {}", "x".repeat(MAX_FILE_SIZE));
        assert!(message(long.as_bytes()).contains("more than 64 KiB"));
    }
}
