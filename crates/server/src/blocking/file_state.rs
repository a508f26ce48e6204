//! What tells the states of a file apart.

use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// It would have to wait, or cannot be asked without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WouldBlock;

/// What tells two contents of a path apart: whatever writes to a file, renames another over it or sets its times changes this,
/// two changes within the clock's step apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileState {
    pub(crate) device: u64,
    pub(super) inode: u64,
    pub(crate) len: u64,
    pub(super) modified: Stamp,
    /// When anything about it was changed, which nobody can set.
    pub(super) changed: Stamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) seconds: i64,
    pub(super) nanos: u32,
}

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Regular,
    Directory,
    /// A FIFO, a socket, a device.
    Other,
}

impl FileState {
    pub(crate) fn of(metadata: &std::fs::Metadata) -> FileState {
        let stamp = |seconds, nanos| Stamp { seconds, nanos: u32::try_from(nanos).unwrap_or(0) };
        FileState {
            device: metadata.dev(),
            inode: metadata.ino(),
            len: metadata.len(),
            modified: stamp(metadata.mtime(), metadata.mtime_nsec()),
            changed: stamp(metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// When its content was changed last, as far as it says.
    pub(crate) fn modified(&self) -> SystemTime {
        self.modified.time()
    }

    /// Whether nothing about it has changed for `time`.
    pub(crate) fn is_older_than(&self, time: Duration, now: SystemTime) -> bool {
        let is_old = |stamp: Stamp| now.duration_since(stamp.time()).is_ok_and(|age| age >= time);
        is_old(self.modified) && is_old(self.changed)
    }
}

impl Stamp {
    /// 1970 for what no clock can say.
    fn time(self) -> SystemTime {
        let seconds = Duration::from_secs(self.seconds.unsigned_abs());
        let whole = match self.seconds {
            0.. => UNIX_EPOCH.checked_add(seconds),
            _ => UNIX_EPOCH.checked_sub(seconds),
        };
        whole
            .and_then(|whole| whole.checked_add(Duration::from_nanos(u64::from(self.nanos))))
            .unwrap_or(UNIX_EPOCH)
    }
}

/// Whether a path cannot name a file. A file where a directory should be and a name too long for the file system are so
/// as well: httpuv answers them with 500 and never lets them fall through, which keeps long paths from an app that has
/// static files at `/` (its issue 267).
pub(crate) fn is_missing(error: i32) -> bool {
    matches!(error, libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG)
}
