//! Where the bodies lie that do not stay in memory: the folder, what has to stay free on its file system, and what is
//! said when it cannot take a body.

use std::fmt;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::config::Limits;

/// A folder is complained about at most this often: a peer that goes on uploading must not fill the log.
const NOTICE_INTERVAL: Duration = Duration::from_secs(10);

/// The folder of spooled bodies, made up once by whoever starts a listener: later changes of `TMPDIR` do not move it.
pub struct SpoolFolder {
    path: PathBuf,
    notice: fn(&str),
    last_notice: Mutex<Option<Instant>>,
}

impl SpoolFolder {
    /// `notice` is called with one line when the folder cannot take a body, on a thread that may be blocked and at most
    /// every ten seconds.
    pub fn new(path: impl Into<PathBuf>, notice: fn(&str)) -> SpoolFolder {
        SpoolFolder { path: path.into(), notice, last_notice: Mutex::new(None) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A new file without a name.
    pub(crate) fn create_file(&self) -> io::Result<File> {
        tempfile::tempfile_in(&self.path)
    }

    /// Says why a body could not be spooled.
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
            "an upload was refused with status 507: the folder of spooled bodies, {}, cannot take it: {error}",
            self.path.display()
        ));
    }
}

/// The folder of the environment (`TMPDIR`, or `/tmp`) as it is now, without a voice.
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

/// What must stay free on a file system.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DiskReserve {
    bytes: u64,
    share: u64,
}

impl DiskReserve {
    pub(crate) fn of(limits: &Limits) -> DiskReserve {
        DiskReserve { bytes: limits.disk_reserve, share: limits.disk_share }
    }

    /// The bytes of it on a file system of `total` bytes: a fixed number would refuse every upload on a small one.
    fn on(self, total: u64) -> u64 {
        self.bytes.min(total / self.share.max(1))
    }

    /// # Errors
    /// `StorageFull` when `wanted` bytes more on the file system of `file` would leave less than the reserve.
    pub(crate) fn check(self, file: &File, wanted: u64) -> io::Result<()> {
        let space = DiskSpace::of(file)?;
        let reserve = self.on(space.total);
        if space.free < reserve.saturating_add(wanted) {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!("{} of {} bytes are free, and {reserve} stay so", space.free, space.total),
            ));
        }
        Ok(())
    }
}

/// The bytes of a file system, and those that an ordinary user may still write.
struct DiskSpace {
    total: u64,
    free: u64,
}

impl DiskSpace {
    fn of(file: &File) -> io::Result<DiskSpace> {
        let mut stat = MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: the descriptor is open and `stat` has room for the answer.
        if unsafe { libc::fstatvfs(file.as_raw_fd(), stat.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fstatvfs succeeded and filled it.
        let stat = unsafe { stat.assume_init() };
        Ok(DiskSpace {
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
            free: stat.f_bavail.saturating_mul(stat.f_frsize),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn the_reserve_is_the_smaller_of_a_gibibyte_and_a_tenth() {
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
    fn a_folder_is_not_complained_about_with_every_upload() {
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
