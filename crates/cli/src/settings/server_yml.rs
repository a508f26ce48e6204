//! Finds and reads the file `_server.yml` of the app to serve.

use std::path::{Path, PathBuf};

use rookery_settings::escaped;
use rookery_settings::server_yml::{self, ServerFile};

use crate::app_detection::Target;
use crate::failure::Failure;

/// The file names that are accepted for `_server.yml`, in any mixture of upper and lower case.
pub(crate) const NAMES: [&str; 2] = ["_server.yml", "_server.yaml"];

/// Reads the file `_server.yml` of the app. Returns `None` if there is no such file, or if the file
/// is meant for a server other than Rookery.
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
        return Ok(None);
    };
    if !file.app.exists() {
        let app = escaped(&file.app.display().to_string());
        return Err(wrong(format!("`app:` names `{app}`, which does not exist.")));
    }
    Ok(Some(file))
}

fn file_of(target: &Target) -> Option<PathBuf> {
    let is_one = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        NAMES.iter().any(|own| name.eq_ignore_ascii_case(own))
    };
    if !target.path.is_dir() {
        return Some(target.path.clone()).filter(|path| is_one(path));
    }
    let entries = std::fs::read_dir(&target.path).ok()?.flatten();
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
        let target = |path: PathBuf| Target { folder: path.clone(), path, is_site: false };
        assert!(file_of(&target(folder.path().into())).is_none());
        std::fs::write(folder.path().join("a.R"), "1").unwrap();
        let path = folder.path().join("_Server.yml");
        for (text, is_ours) in [
            ("engine: rookery\napp: a.R\n", true),
            ("engine: Rookery\napp: a.R\n", false),
            ("engine: plumber2\noptions:\n  workers: 2\n", false),
        ] {
            std::fs::write(&path, text).unwrap();
            for target in [target(folder.path().into()), target(path.clone())] {
                assert_eq!(read(&target).unwrap().is_some(), is_ours, "{text}");
            }
        }
        assert!(file_of(&target(folder.path().join("app.R"))).is_none());
    }

    #[test]
    fn reports_mistakes_with_file_and_position() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("_server.yml");
        let target = Target { folder: folder.path().into(), path: path.clone(), is_site: false };
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
            message(b"engine: rookery\napp: no.R\n"),
            "In `_server.yml`, `app:` names `no.R`, which does not exist."
        );
        assert_eq!(
            message(b"engine: rookery\napp: a\xFF.R\n"),
            "In `_server.yml`, line 2, column 7: the file is not valid UTF-8: save it in UTF-8."
        );
        let long = format!("engine: rookery\n# {}", "x".repeat(MAX_FILE_SIZE));
        assert!(message(long.as_bytes()).contains("more than 256 KiB"));
    }
}
