//! The folder for temporary files with request bodies that are too large for memory. This module
//! also checks how much disk space must stay free, and reports failures.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rookery_system::disk::DiskSpace;

use crate::config::Limits;

/// The minimum time between two notices about a failed spool file, so that repeated uploads cannot
/// fill the log.
const NOTICE_INTERVAL: Duration = Duration::from_secs(10);

/// The folder for temporary files with large request bodies. Its path is determined when the
/// listener starts, so later changes of `TMPDIR` have no effect.
pub struct SpoolFolder {
    path: PathBuf,
    notice: fn(&str),
    last_notice: Mutex<Option<Instant>>,
}

impl SpoolFolder {
    /// Creates a spool folder at the given path. When a request body cannot be written to the
    /// folder, `notice` is called with a line of text, at most every ten seconds. It is called on a
    /// thread that may block.
    pub fn new(path: impl Into<PathBuf>, notice: fn(&str)) -> SpoolFolder {
        SpoolFolder { path: path.into(), notice, last_notice: Mutex::new(None) }
    }

    /// Returns the path of the folder for large request bodies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a temporary file without a name in the folder.
    pub(crate) fn create_file(&self) -> io::Result<File> {
        tempfile::tempfile_in(&self.path)
    }

    /// Sends a notice that says why a request body could not be written to the folder.
    pub(crate) fn report_failure(&self, error: &io::Error) {
        let now = Instant::now();
        let mut last_notice = self.last_notice.lock().unwrap_or_else(PoisonError::into_inner);
        if last_notice.is_some_and(|last_notice| now.duration_since(last_notice) < NOTICE_INTERVAL)
        {
            return;
        }
        *last_notice = Some(now);
        drop(last_notice);
        (self.notice)(&format!(
            "an upload was rejected with status 507 because the spool folder {} \
             cannot store it: {error}",
            self.path.display()
        ));
    }
}

/// Creates a spool folder in the temporary folder of the system (`TMPDIR`, or `/tmp`). Failures are
/// not reported.
impl Default for SpoolFolder {
    fn default() -> SpoolFolder {
        SpoolFolder::new(std::env::temp_dir(), |_| ())
    }
}

impl fmt::Debug for SpoolFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpoolFolder").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The amount of disk space that must stay free when request bodies are written to disk: a number
/// of bytes, but at most a fraction of the disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DiskReserve {
    bytes: u64,
    share: u64,
}

impl DiskReserve {
    pub(crate) fn of(limits: &Limits) -> DiskReserve {
        DiskReserve { bytes: limits.disk_reserve, share: limits.disk_share }
    }

    /// Returns how many bytes must stay free on a file system of `total` bytes. This is at most a
    /// fraction of `total`, because otherwise a small file system might never accept an upload.
    fn on(self, total: u64) -> u64 {
        self.bytes.min(total / self.share.max(1))
    }

    /// Checks that `wanted` more bytes may be written to the file system of `file`, which is in
    /// `folder`.
    ///
    /// # Errors
    /// Fails with `StorageFull` if writing the bytes would leave less free disk space than must
    /// stay free.
    pub(crate) fn check(self, file: &File, folder: &Path, wanted: u64) -> io::Result<()> {
        let space = DiskSpace::of(file, folder)?;
        let reserve = self.on(space.total);
        if space.free < reserve.saturating_add(wanted) {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!(
                    "{} of {} bytes are free, and {reserve} must stay free",
                    space.free, space.total
                ),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn disk_reserve_is_at_most_a_gibibyte_and_a_tenth() {
        let reserve = DiskReserve::of(&Limits::default());
        for (total, kept) in [
            (0, 0),
            (9, 0),
            (64 << 20, (64 << 20) / 10),
            (10 << 30, 1 << 30),
            ((10 << 30) - 10, (1 << 30) - 1),
            (1 << 40, 1 << 30),
            (u64::MAX, 1 << 30),
        ] {
            assert_eq!(reserve.on(total), kept, "{total}");
        }
        assert_eq!(DiskReserve { bytes: 7, share: 0 }.on(100), 7);
    }

    #[test]
    fn failure_notices_are_rate_limited() {
        static NOTICES: AtomicUsize = AtomicUsize::new(0);
        let folder = SpoolFolder::new("/nowhere/at/all", |line| {
            assert!(line.contains("/nowhere/at/all") && line.contains("507"), "{line}");
            NOTICES.fetch_add(1, Ordering::Relaxed);
        });
        for _ in 0..3 {
            folder.report_failure(&folder.create_file().unwrap_err());
        }
        assert_eq!(NOTICES.load(Ordering::Relaxed), 1);
    }
}
