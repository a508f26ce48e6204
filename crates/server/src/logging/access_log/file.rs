//! The file of an access log. It can be opened again by its path after log rotation has renamed it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A log file to which lines are appended. Several processes may append to the same file, because
/// the system does not mix the data of separate writes.
#[derive(Debug)]
pub struct LogFile {
    file: File,
    path: PathBuf,
    reopens: Arc<AtomicBool>,
    notice: fn(&str),
}

/// A handle by which any thread can request that a log file is opened again, for example after log
/// rotation has renamed it.
#[derive(Debug, Clone, Default)]
pub struct Reopener(Arc<AtomicBool>);

impl Reopener {
    /// Requests that the log file is opened again by its path. This happens before the next lines
    /// are written.
    pub fn reopen(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl LogFile {
    /// Opens a log file, and creates it if necessary. If reopening it fails later, `notice` is
    /// called with an error message, and lines are still written to the old file.
    ///
    /// # Errors
    /// Fails if the file cannot be opened.
    pub fn open(path: &Path, notice: fn(&str)) -> io::Result<LogFile> {
        Ok(LogFile { file: open(path)?, path: path.to_owned(), reopens: Arc::default(), notice })
    }

    /// Returns a handle by which any thread can have the log file opened again.
    pub fn reopener(&self) -> Reopener {
        Reopener(Arc::clone(&self.reopens))
    }
}

impl Write for LogFile {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        if self.reopens.swap(false, Ordering::AcqRel) {
            match open(&self.path) {
                Ok(file) => self.file = file,
                Err(error) => (self.notice)(&format!(
                    "the access log `{}` cannot be reopened: {error}",
                    self.path.display()
                )),
            }
        }
        self.file.write(lines)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_to_the_renamed_file_until_the_log_is_reopened() {
        let folder = tempfile::tempdir().unwrap();
        let (path, renamed) = (folder.path().join("log"), folder.path().join("log.1"));
        let mut log = LogFile::open(&path, |_| ()).unwrap();
        log.write_all(b"a\n").unwrap();
        std::fs::rename(&path, &renamed).unwrap();
        log.write_all(b"b\n").unwrap();
        log.reopener().reopen();
        log.write_all(b"c\n").unwrap();
        assert_eq!(std::fs::read(&renamed).unwrap(), b"a\nb\n");
        assert_eq!(std::fs::read(&path).unwrap(), b"c\n");
    }
}
