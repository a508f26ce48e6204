//! Where the access log goes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;

use rookery_server::access_log::{AccessLog, Format};

use crate::failure::Failure;
use crate::path::{folder_of, is_writable, settle};

/// Where the access log goes.
#[derive(Debug, Clone)]
pub(crate) enum LogTo {
    Stdout,
    Nothing,
    /// Appended to.
    File(PathBuf),
}

impl LogTo {
    /// With an absolute path, which can be written: said now, not at the first request.
    ///
    /// # Errors
    /// When it cannot.
    pub(crate) fn settled(&self) -> Result<LogTo, Failure> {
        let LogTo::File(asked) = self else { return Ok(self.clone()) };
        let path = settle(asked);
        let folder = folder_of(&path);
        if !folder.is_dir() {
            let folder = folder.display();
            return Err(Failure::Serving(format!(
                "The folder of the access log, `{folder}`, does not exist."
            )));
        }
        if path.is_dir() || !is_writable(if path.exists() { &path } else { folder }) {
            return Err(Failure::Serving(format!("The access log `{}` cannot be written.", path.display())));
        }
        Ok(LogTo::File(path))
    }

    /// Opens it; none for [`Nothing`](LogTo::Nothing).
    ///
    /// # Errors
    /// When it cannot be opened.
    pub(crate) fn open(&self, format: Format) -> Result<Option<Arc<AccessLog>>, Failure> {
        let opened = match self {
            LogTo::Nothing => return Ok(None),
            // A descriptor of the log's own.
            LogTo::Stdout => io::stdout().as_fd().try_clone_to_owned().map(File::from),
            LogTo::File(path) => OpenOptions::new().append(true).create(true).open(path),
        };
        match opened.and_then(|file| AccessLog::written(file, format)) {
            Ok(log) => Ok(Some(Arc::new(log))),
            Err(error) => {
                Err(Failure::Serving(format!("The access log{} cannot be opened: {error}.", self.name())))
            }
        }
    }

    fn name(&self) -> String {
        if let LogTo::File(path) = self { format!(" `{}`", path.display()) } else { String::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_log_goes_is_checked_before_serving() {
        let folder = tempfile::tempdir().unwrap();
        let settled = |path: PathBuf| LogTo::File(path).settled().map_err(|failure| format!("{failure:?}"));
        let there = folder.path().join("access.log");
        assert!(matches!(settled(there.clone()), Ok(LogTo::File(path)) if path == there));
        assert!(!there.exists());
        assert!(settled(folder.path().join("no/log")).unwrap_err().contains("does not exist"));
        assert!(settled(folder.path().into()).unwrap_err().contains("cannot be written"));
    }
}
