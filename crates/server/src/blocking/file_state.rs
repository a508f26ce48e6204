//! The attributes of a file that show whether it has changed.

use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The error of an operation that would have to wait, or that cannot be tried without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WouldBlock;

/// The attributes of a file that change with its content. Writing to the file, renaming another
/// file over it and setting its times all change the state, unless two changes take place within
/// one step of the system's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileState {
    pub(crate) device: u64,
    pub(super) inode: u64,
    pub(crate) len: u64,
    pub(super) modified: Stamp,
    /// The time of the last change of any attribute, which programs cannot set.
    pub(super) changed: Stamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) seconds: i64,
    pub(super) nanos: u32,
}

/// The kind of a file.
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

    /// Returns the time at which the content was last modified, as the file system reports it.
    pub(crate) fn modified(&self) -> SystemTime {
        self.modified.time()
    }

    /// Returns true if neither the content nor the attributes have changed for `time`.
    pub(crate) fn is_older_than(&self, time: Duration, now: SystemTime) -> bool {
        let is_old = |stamp: Stamp| now.duration_since(stamp.time()).is_ok_and(|age| age >= time);
        is_old(self.modified) && is_old(self.changed)
    }
}

impl Stamp {
    /// Converts the time stamp. A time that cannot be represented becomes 1970.
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

/// Returns true if an error means that a path names no file.
///
/// This includes a file in the place of a directory, and names that are too long for the file
/// system. httpuv responds to these with 500 and never passes such requests on to the application,
/// so that apps with static files at `/` never get long paths (httpuv's issue 267).
pub(crate) fn is_missing(error: i32) -> bool {
    matches!(error, libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG)
}
