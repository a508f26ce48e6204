//! Checks and opens the destination of the access log, such as a file.

use std::path::PathBuf;
use std::sync::Arc;

use rookery_server::access_log::{AccessLog, Format, LogFile, Reopener};
use rookery_server::output;

use crate::failure::Failure;
use crate::process::session;
use crate::stderr::{log_line, output_deadline};
use crate::user_paths::{absolute, is_writable, parent_folder};

/// The destination of the access log, such as a file.
#[derive(Debug, Clone)]
pub(crate) enum LogTarget {
    Stdout,
    Nothing,
    /// The file to which the access log is appended.
    File(PathBuf),
    /// The R session that has started this program, whose `log` is a function.
    Session,
}

impl LogTarget {
    /// Returns the destination of the access log with an absolute path. Checks whether the file can
    /// be written, because otherwise an error would show only after the first request.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(crate) fn checked(&self) -> Result<LogTarget, Failure> {
        let LogTarget::File(given) = self else { return Ok(self.clone()) };
        let path = absolute(given);
        let folder = parent_folder(&path);
        if !folder.is_dir() {
            let folder = folder.display();
            return Err(Failure::Unavailable(format!(
                "The folder of the access log, `{folder}`, does not exist: create it, or choose \
                 another file."
            )));
        }
        if path.is_dir() || !is_writable(if path.exists() { &path } else { folder }) {
            return Err(Failure::Unavailable(format!(
                "The access log `{}` cannot be written: check its permissions, or choose another \
                 file.",
                path.display()
            )));
        }
        Ok(LogTarget::File(path))
    }

    /// Opens the access log of the app with this name. Returns `None` if the settings turn it off
    /// ([`Nothing`](LogTarget::Nothing)).
    ///
    /// # Errors
    /// Fails if the file cannot be opened.
    pub(crate) fn open(&self, format: Format, app: &str) -> Result<Option<Log>, Failure> {
        let mut reopener = Reopener::default();
        let log = match self {
            LogTarget::Nothing => return Ok(None),
            // Workers write to the same standard output.
            LogTarget::Stdout => {
                AccessLog::to(output::stdout().clone(), format.for_output(&std::io::stdout()))
            }
            LogTarget::Session => match session::writer() {
                Some(writer) => AccessLog::to(writer, Format::Fields),
                None => return Ok(None),
            },
            LogTarget::File(path) => {
                let opened = LogFile::open(path, log_line).and_then(|file| {
                    reopener = file.reopener();
                    AccessLog::written(file, format)
                });
                opened.map_err(|error| {
                    let path = path.display();
                    Failure::Unavailable(format!(
                        "The access log `{path}` cannot be opened: {error}."
                    ))
                })?
            }
        };
        Ok(Some(Log { log: Arc::new(log.with_app(app)), reopener }))
    }
}

/// An open access log, with the means to reopen its file for log rotation.
#[derive(Debug)]
pub(crate) struct Log {
    log: Arc<AccessLog>,
    reopener: Reopener,
}

impl Log {
    pub(crate) fn access_log(&self) -> Arc<AccessLog> {
        Arc::clone(&self.log)
    }

    pub(crate) fn reopener(&self) -> Reopener {
        self.reopener.clone()
    }

    /// Writes the access log's remaining lines before the program exits.
    pub(crate) fn close(&self) {
        self.log.close_until(output_deadline());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_the_log_file_before_serving() {
        let folder = tempfile::tempdir().unwrap();
        let checked_path = |path: PathBuf| {
            LogTarget::File(path).checked().map_err(|failure| format!("{failure:?}"))
        };
        let log = folder.path().join("access.log");
        assert!(matches!(checked_path(log.clone()), Ok(LogTarget::File(path)) if path == log));
        assert!(!log.exists());
        assert!(checked_path(folder.path().join("no/log")).unwrap_err().contains("does not exist"));
        assert!(checked_path(folder.path().into()).unwrap_err().contains("cannot be written"));
    }
}
