//! The properties by which two versions of a file are told apart.

use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The error of an operation that would have to wait, or that cannot be tried without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WouldBlock;

/// The identity, length and times of a file, by which two versions of its content are told apart.
/// The state changes when a program writes to the file, renames another file over it, or sets its
/// times, unless two changes happen within one step of the file system's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileState {
    pub(crate) device: u64,
    pub(super) inode: u64,
    pub(crate) len: u64,
    pub(super) modified: Stamp,
    /// The time of the last change of content or metadata (ctime), which programs cannot set.
    pub(super) changed: Stamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) seconds: i64,
    pub(super) nanos: u32,
}

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Regular,
    Directory,
    /// A FIFO, a socket or a device.
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

    /// Returns the time of modification.
    pub(crate) fn modified(&self) -> SystemTime {
        self.modified.time()
    }

    /// Returns true if neither content nor metadata have changed for `time`.
    pub(crate) fn is_older_than(&self, time: Duration, now: SystemTime) -> bool {
        let is_old = |stamp: Stamp| now.duration_since(stamp.time()).is_ok_and(|age| age >= time);
        is_old(self.modified) && is_old(self.changed)
    }
}

impl Stamp {
    /// Returns the time, or 1970 if `SystemTime` cannot represent it.
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

/// Returns true if an error of the system means that there is no file at a path. This includes a
/// file where a directory should be, and a name that is too long for the file system. httpuv
/// responds to those with 500 even with `fallthrough`, so that an app with static files at `/`
/// never receives requests with long paths (httpuv issue 267).
pub(crate) fn is_missing(error: i32) -> bool {
    matches!(error, libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG)
}
