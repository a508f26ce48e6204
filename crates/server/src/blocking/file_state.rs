//! The attributes of a file by which the server detects that the file has changed.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The error of a file operation that was not performed because it might have to wait for a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WouldBlock;

/// The attributes of a file that show whether the file has changed. They change when the file is
/// written to, when another file is renamed over it, and when its times are set. Two changes within
/// one step of the system's clock may be missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileState {
    pub(crate) device: u64,
    /// The number of the file within its file system. On Windows, the time of the file's creation.
    pub(super) inode: u64,
    pub(crate) len: u64,
    pub(super) modified: Stamp,
    /// The time of the last change of the file's content or attributes (ctime), which programs
    /// cannot set.
    pub(super) changed: Stamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
    /// length and the times of its creation and last modification, so the server does not cache
    /// files there.
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
            let created = metadata.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            let inode = created.map_or(0, |at| u64::try_from(at.as_nanos()).unwrap_or(0));
            FileState { device: 0, inode, len: metadata.len(), modified, changed: modified }
        }
    }

    /// Returns the time at which the file's content was last modified, as the file system reports
    /// it. Returns `None` for a time that is meaningless.
    pub(crate) fn modified(&self) -> Option<SystemTime> {
        self.modified.is_meaningful().then(|| self.modified.time())
    }

    /// Returns the time of the last change of the file's content or attributes, which is the later
    /// of its two times. Programs can set the time of the last modification to a constant, but not
    /// the time of the last change. Returns `None` if both times are meaningless.
    pub(crate) fn changed(&self) -> Option<SystemTime> {
        let is_later = (self.changed.seconds, self.changed.nanos)
            > (self.modified.seconds, self.modified.nanos);
        let last = if is_later { self.changed } else { self.modified };
        last.is_meaningful().then(|| last.time())
    }

    /// Returns true if both times of the file are meaningful, so that every change of its content
    /// has changed one of them.
    pub(crate) fn has_meaningful_times(&self) -> bool {
        self.modified.is_meaningful() && self.changed.is_meaningful()
    }

    /// Returns true if the file system records when files change, so that a file with the same
    /// attributes has the same content.
    pub(crate) fn has_meaningful_change(&self) -> bool {
        self.changed.is_meaningful()
    }

    /// Returns a number that differs between files, and between versions of a file, if one of the
    /// attributes differs. It does not reveal the attributes.
    pub(crate) fn fingerprint(&self) -> u64 {
        // The keys of this hasher are constants, so the processes of a server agree on the number.
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// Returns true if, at the time `now`, the content and the attributes of the file have not
    /// changed for at least `time`.
    pub(crate) fn is_older_than(&self, time: Duration, now: SystemTime) -> bool {
        let is_old = |stamp: Stamp| now.duration_since(stamp.time()).is_ok_and(|age| age >= time);
        is_old(self.modified) && is_old(self.changed)
    }
}

/// The earliest time that is meaningful as a file's time, 1990-01-01, in seconds since 1970. Build
/// systems and archives give files constant times before it: 0 (Bazel, Flatpak), 1 (Nix, Guix),
/// 1980 (zip), 1984 and 1985 (JavaScript packages).
const FIRST_MEANINGFUL: i64 = 631_152_000;

impl Stamp {
    fn is_meaningful(self) -> bool {
        self.seconds >= FIRST_MEANINGFUL
    }

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
/// This is also the case if a parent folder in the path is in fact a file, if symbolic links form a
/// loop, if a name is too long for the file system, or if the file system accepts no such name.
pub(crate) fn is_missing(error: i32) -> bool {
    // httpuv responds with 500 to all these errors except ENOENT, so apps with static files at `/`
    // never get requests with long paths (httpuv's issue 267).
    #[cfg(unix)]
    return matches!(error, libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG | libc::ELOOP);
    // ERROR_FILE_NOT_FOUND, ERROR_PATH_NOT_FOUND, ERROR_INVALID_NAME, ERROR_BAD_PATHNAME,
    // ERROR_FILENAME_EXCED_RANGE, ERROR_DIRECTORY, ERROR_CANT_RESOLVE_FILENAME.
    #[cfg(windows)]
    matches!(error, 2 | 3 | 123 | 161 | 206 | 267 | 1921)
}

#[cfg(test)]
impl FileState {
    /// Creates the attributes of a file with these times, in seconds since 1970.
    pub(crate) fn with_times(modified: i64, changed: i64) -> FileState {
        let stamp = |seconds| Stamp { seconds, nanos: 0 };
        let (modified, changed) = (stamp(modified), stamp(changed));
        FileState { device: 1, inode: 2, len: 3, modified, changed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000;

    #[test]
    fn the_fingerprint_of_a_file_depends_on_each_attribute() {
        let state = FileState::with_times(NOW, NOW);
        let others = [
            FileState { device: 9, ..state },
            FileState { inode: 9, ..state },
            FileState { len: 9, ..state },
            FileState { modified: Stamp { seconds: NOW, nanos: 9 }, ..state },
            FileState { changed: Stamp { seconds: NOW, nanos: 9 }, ..state },
        ];
        assert_eq!(state.fingerprint(), FileState::with_times(NOW, NOW).fingerprint());
        for other in others {
            assert_ne!(state.fingerprint(), other.fingerprint(), "{other:?}");
        }
    }

    #[test]
    fn a_time_before_1990_is_meaningless() {
        let at = |seconds: i64| UNIX_EPOCH + Duration::from_secs(seconds.unsigned_abs());
        let now = Some(at(NOW));
        for constant in [i64::MIN, -1, 0, 1, 315_532_800, 499_162_500, FIRST_MEANINGFUL - 1] {
            let state = FileState::with_times(constant, NOW);
            assert_eq!((state.modified(), state.changed()), (None, now), "{constant}");
            assert!(!state.has_meaningful_times() && state.has_meaningful_change());
            // Some file systems do not record changes.
            let state = FileState::with_times(NOW, constant);
            assert_eq!((state.modified(), state.changed()), (now, now), "{constant}");
            assert!(!state.has_meaningful_times() && !state.has_meaningful_change());
            let state = FileState::with_times(constant, constant);
            assert_eq!((state.modified(), state.changed()), (None, None), "{constant}");
        }
        assert!(FileState::with_times(FIRST_MEANINGFUL, NOW).has_meaningful_times());
    }
}
