//! The attributes of a file by which the server detects that the file has changed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The error of a file operation that was not performed because it might have to wait for a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WouldBlock;

/// The attributes of a file that show whether the file has changed. They change when the file is
/// written to, when another file is renamed over it, and when its times are set. Two changes within
/// one step of the system's clock may be missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileState {
    pub(crate) device: u64,
    pub(super) inode: u64,
    pub(crate) len: u64,
    pub(super) modified: Stamp,
    /// The time of the last change of the file's content or attributes (ctime), which programs
    /// cannot set.
    pub(super) changed: Stamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) seconds: i64,
    pub(super) nanos: u32,
}

/// The kind of a file: a regular file, a folder or another kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Regular,
    Directory,
    /// A file that is neither regular nor a folder: a FIFO, a socket or a device.
    #[cfg_attr(
        any(not(target_os = "linux"), feature = "portable"),
        expect(dead_code, reason = "only files that are read without blocking have a kind")
    )]
    Other,
}

impl FileState {
    /// Returns the attributes of a file that show whether it has changed. On Windows, these are its
    /// length and the time of its last modification, so the server does not cache files there.
    pub(crate) fn of(metadata: &std::fs::Metadata) -> FileState {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt as _;
            let stamp =
                |seconds, nanos| Stamp { seconds, nanos: u32::try_from(nanos).unwrap_or(0) };
            FileState {
                device: metadata.dev(),
                inode: metadata.ino(),
                len: metadata.len(),
                modified: stamp(metadata.mtime(), metadata.mtime_nsec()),
                changed: stamp(metadata.ctime(), metadata.ctime_nsec()),
            }
        }
        #[cfg(not(unix))]
        {
            let modified = Stamp::of(metadata.modified().unwrap_or(UNIX_EPOCH));
            FileState { device: 0, inode: 0, len: metadata.len(), modified, changed: modified }
        }
    }

    /// Returns the time at which the file's content was last modified, as the file system reports
    /// it.
    pub(crate) fn modified(&self) -> SystemTime {
        self.modified.time()
    }

    /// Returns true if, at the time `now`, the content and the attributes of the file have not
    /// changed for at least `time`.
    pub(crate) fn is_older_than(&self, time: Duration, now: SystemTime) -> bool {
        let is_old = |stamp: Stamp| now.duration_since(stamp.time()).is_ok_and(|age| age >= time);
        is_old(self.modified) && is_old(self.changed)
    }
}

impl Stamp {
    #[cfg(not(unix))]
    fn of(time: SystemTime) -> Stamp {
        let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Stamp { seconds: seconds(since), nanos: since.subsec_nanos() },
            // Whole seconds suffice for times before 1970.
            Err(before) => Stamp { seconds: -seconds(before.duration()), nanos: 0 },
        }
    }

    /// Converts the time stamp to a `SystemTime`. A time that cannot be represented becomes the
    /// start of 1970.
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

/// Returns true if an error of the system means that a path names no existing file.
///
/// This is also the case if a parent folder in the path is in fact a file, if a name is too long
/// for the file system, or if the file system accepts no such name.
pub(crate) fn is_missing(error: i32) -> bool {
    // httpuv responds to both with 500, so that apps with static files at `/` never get requests
    // with long paths (httpuv's issue 267).
    #[cfg(unix)]
    return matches!(error, libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG);
    // ERROR_FILE_NOT_FOUND, ERROR_PATH_NOT_FOUND, ERROR_INVALID_NAME, ERROR_BAD_PATHNAME,
    // ERROR_FILENAME_EXCED_RANGE, ERROR_DIRECTORY.
    #[cfg(windows)]
    matches!(error, 2 | 3 | 123 | 161 | 206 | 267)
}
