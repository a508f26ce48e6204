//! The run folder of a server, which contains its admin socket and the temporary files of its
//! workers. Only the server's user has access. The folder is removed when the server ends.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rookery_system::file;
#[cfg(any(windows, test))]
use rookery_system::random::unpredictable;

/// The beginning of the name of every run folder.
const PREFIX: &str = "rookery-workers-";

/// The name of the lock file in a run folder. While the file is locked, the folder's supervisor is
/// running.
const LOCK: &str = "lock";

/// The maximum number of attempts to lock a run folder or its lock file.
const LOCK_TRIES: u32 = 20;
/// The pause between two attempts to lock a run folder.
#[cfg(unix)]
const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// The pause between two attempts to lock the lock file of a supervisor that was killed.
const ORPHAN_PAUSE: Duration = Duration::from_millis(25);

/// The maximum length of the path of a Unix socket, including its terminating zero (`sockaddr_un`).
/// macOS and the BSDs have 104 bytes for it.
const MOST_PATH: usize =
    if cfg!(any(target_os = "linux", target_os = "android")) { 108 } else { 104 };
/// The maximum number of bytes at the end of a socket's path that vary: the end of the run folder's
/// name, and the name of the socket. Few enough for the user's temporary folder on macOS, whose
/// path has 49 bytes.
const IN_FOLDER: usize = 36;

/// The run folder of a server, with its admin socket and temporary files. The folder is removed
/// when this value is dropped.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// The lock file of the run folder. The file is locked while this value exists.
    lock: Option<File>,
    /// The open and locked run folder; `None` if the folder could not be locked. The lock prevents
    /// systemd-tmpfiles from removing old files in the folder.
    _kept: Option<File>,
}

impl RunFolder {
    /// Creates a run folder in `parent`, or in `/tmp` if the paths of sockets in `parent` would be
    /// too long. Also removes the run folders of supervisors that were killed.
    ///
    /// # Errors
    /// Fails if the folder or its lock file cannot be created. The message of the error names
    /// `parent`.
    pub fn create(parent: &Path) -> io::Result<RunFolder> {
        let parent = if cfg!(unix) && is_long(parent) { Path::new("/tmp") } else { parent };
        RunFolder::create_in(parent).map_err(|error| {
            let parent = parent.display();
            let text = format!(
                "the temporary folder {parent} cannot be used ({error}): name another one in the \
                 environment variable TMPDIR"
            );
            io::Error::new(error.kind(), text)
        })
    }

    fn create_in(parent: &Path) -> io::Result<RunFolder> {
        remove_forsaken(parent);
        let pid = std::process::id();
        for at in 0.. {
            let path = parent.join(format!("{PREFIX}{pid}-{at}"));
            match file::private_folder(&mut fs::DirBuilder::new()).create(&path) {
                Ok(()) => {
                    // The file is locked before it gets the name `LOCK`. Otherwise another server
                    // could find it unlocked and remove the folder.
                    let making = path.join("making");
                    let lock = File::create_new(&making)?;
                    if !file::try_lock(&lock)? {
                        return Err(io::ErrorKind::WouldBlock.into());
                    }
                    #[cfg(windows)]
                    write_pipe_suffix(&path)?;
                    fs::rename(making, path.join(LOCK))?;
                    let kept = keep_from_ageing(&path);
                    return Ok(RunFolder { path, lock: Some(lock), _kept: kept });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && at < 1000 => {}
                Err(error) => return Err(error),
            }
        }
        unreachable!("the loop returns")
    }

    /// Returns the path of the run folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the folder for a worker's temporary files. `slot` is the worker's numbered place,
    /// and `epoch` the number of its start. Each start therefore gets a folder of its own.
    ///
    /// # Errors
    /// Fails if the folder cannot be created. The message of the error names it.
    pub fn temporary(&self, slot: u32, epoch: u64) -> io::Result<PathBuf> {
        let path = self.path.join(format!("tmp-{slot}.{epoch}"));
        match file::private_folder(&mut fs::DirBuilder::new()).create(&path) {
            Ok(()) => Ok(path),
            Err(error) => {
                let text =
                    format!("the temporary folder {} cannot be created: {error}", path.display());
                Err(io::Error::new(error.kind(), text))
            }
        }
    }
}

/// Returns true if the paths of sockets in a run folder in `parent` could be too long.
fn is_long(parent: &Path) -> bool {
    // `parent` is followed by a separator, and the path by a zero.
    parent.as_os_str().len() + 1 + PREFIX.len() + IN_FOLDER + 1 > MOST_PATH
}

/// The name of the admin listener's socket in a run folder.
pub const ADMIN_SOCKET: &str = "admin";

/// Returns the path of the admin listener's Unix socket in a run folder, or on Windows the name of
/// its named pipe.
pub fn admin_socket(folder: &Path) -> PathBuf {
    #[cfg(windows)]
    return pipe_name(folder);
    #[cfg(not(windows))]
    folder.join(ADMIN_SOCKET)
}

/// The name of the file in a run folder that has the end of the name of the admin listener's named
/// pipe.
#[cfg(any(windows, test))]
const PIPE_SUFFIX: &str = "pipe";

/// Writes the end of the name of the admin listener's named pipe to a run folder. All users can
/// create pipes, so one who could guess the name would create the pipe first.
#[cfg(any(windows, test))]
fn write_pipe_suffix(folder: &Path) -> io::Result<()> {
    fs::write(folder.join(PIPE_SUFFIX), format!("{:016x}", unpredictable()))
}

/// Returns the name of the admin listener's named pipe. It contains the name of the run folder and
/// what [`write_pipe_suffix`] has written.
#[cfg(any(windows, test))]
fn pipe_name(folder: &Path) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    // Without the file there is no pipe of this name, so that connecting fails.
    let suffix = fs::read_to_string(folder.join(PIPE_SUFFIX)).unwrap_or_default();
    PathBuf::from(format!(r"\\.\pipe\{name}-{ADMIN_SOCKET}-{suffix}"))
}

/// Returns this user's run folders in `parent`, each with the process id of its supervisor, which
/// may have ended.
pub fn run_folders(parent: &Path) -> Vec<(u32, PathBuf)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
        if let Some(pid) = pid.filter(|_| is_own_folder(&entry.path())) {
            found.push((pid, entry.path()));
        }
    }
    found
}

/// Returns true if a path is a folder that belongs to this user. Returns false for a symbolic link,
/// because it may lead to a folder of another user.
fn is_own_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|folder| folder.is_dir() && is_own(&folder))
}

#[cfg(unix)]
fn is_own(file: &fs::Metadata) -> bool {
    std::os::unix::fs::MetadataExt::uid(file) == rustix::process::geteuid().as_raw()
}

/// Returns true, because each user has a folder of their own for temporary files.
#[cfg(not(unix))]
fn is_own(_: &fs::Metadata) -> bool {
    true
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // Windows removes a file when it is closed.
        self.lock = None;
        // If this fails, the next server removes what is left, as far as it can.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Opens and locks a run folder, so that systemd-tmpfiles does not remove old files from it until
/// the returned file is closed. Tries several times, because systemd-tmpfiles itself may lock the
/// folder for a moment. Returns `None` if the folder could not be locked.
#[cfg(unix)]
fn keep_from_ageing(folder: &Path) -> Option<File> {
    let operation = rustix::fs::FlockOperation::NonBlockingLockShared;
    let folder = File::open(folder).ok()?;
    lock_with_retries(folder, LOCK_PAUSE, |folder| rustix::fs::flock(folder, operation).is_ok())
}

/// Returns the file once `lock` has locked it. Calls `lock` up to [`LOCK_TRIES`] times, with a pause
/// after each failure. Returns `None` if all attempts have failed.
fn lock_with_retries(file: File, pause: Duration, lock: impl Fn(&File) -> bool) -> Option<File> {
    for _ in 0..LOCK_TRIES {
        if lock(&file) {
            return Some(file);
        }
        std::thread::sleep(pause);
    }
    None
}

/// Returns `None`, because only Unix systems remove old files in this way.
#[cfg(not(unix))]
fn keep_from_ageing(_: &Path) -> Option<File> {
    None
}

/// Removes the run folders of this user whose supervisor has ended.
fn remove_forsaken(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_one = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if is_one && is_own_folder(&path) {
            // A folder without a lock file is being created by another server.
            let lock = File::open(path.join(LOCK));
            if lock.is_ok_and(|lock| matches!(file::try_lock(&lock), Ok(true))) {
                let _ = fs::remove_dir_all(&path);
            }
        }
    }
}

/// Removes the temporary files of a worker whose supervisor was killed, and also the run folder if
/// it has no files of other workers. `temporary` is the worker's own folder, as
/// [`RunFolder::temporary`] has created it. While the supervisor is running, removes nothing.
pub fn remove_orphaned(temporary: &Path) {
    let Some(folder) = temporary.parent() else { return };
    let is_one = folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
    if !is_one || !is_own_folder(folder) {
        return;
    }
    // The lock is held until the end, so that of two workers that exit together one is the last.
    let Some(_lock) = lock_of_orphan(folder) else { return };
    let _ = fs::remove_dir_all(temporary);
    let has_folders = |entries: fs::ReadDir| entries.flatten().any(|entry| entry.path().is_dir());
    // The last of the workers removes the rest.
    if fs::read_dir(folder).is_ok_and(|entries| !has_folders(entries)) {
        let _ = fs::remove_dir_all(folder);
    }
}

/// Returns the locked lock file of a run folder whose supervisor has ended. Tries several times,
/// because another worker may hold the lock for a moment, and a supervisor that was killed holds it
/// until its last thread has ended. Returns `None` if the lock is still held after that.
fn lock_of_orphan(folder: &Path) -> Option<File> {
    let lock = File::open(folder.join(LOCK)).ok()?;
    lock_with_retries(lock, ORPHAN_PAUSE, |lock| matches!(file::try_lock(lock), Ok(true)))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test may panic")]
mod tests {
    use super::*;

    // Workers exist on Linux only. Windows keeps a file that is locked.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_last_worker_of_a_killed_supervisor_removes_the_run_folder() {
        let parent = tempfile::tempdir().unwrap();
        let mut folder = RunFolder::create(parent.path()).unwrap();
        let workers = [0, 1].map(|slot| folder.temporary(slot, 1).unwrap());
        fs::write(folder.path().join(ADMIN_SOCKET), "").unwrap();
        remove_orphaned(&workers[0]);
        assert!(workers[0].exists(), "the supervisor is running");
        // The lock ends with the process.
        folder.lock = None;
        let path = folder.path.clone();
        remove_orphaned(&workers[0]);
        assert!(!workers[0].exists() && workers[1].exists());
        // Another worker, which exits at the same time, holds the lock.
        let lock = File::open(path.join(LOCK)).unwrap();
        assert!(matches!(file::try_lock(&lock), Ok(true)));
        let other = std::thread::spawn(move || {
            std::thread::sleep(2 * ORPHAN_PAUSE);
            drop(lock);
        });
        remove_orphaned(&workers[1]);
        assert!(!path.exists());
        other.join().unwrap();
        // Folders that are no run folders are left alone.
        let other = parent.path().join("other");
        fs::create_dir_all(other.join("tmp")).unwrap();
        fs::write(other.join(LOCK), "").unwrap();
        remove_orphaned(&other.join("tmp"));
        assert!(other.join("tmp").exists());
    }

    #[test]
    fn it_is_nobody_elses_and_goes_with_its_supervisor() {
        let parent = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(parent.path()).unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(fs::metadata(&folder.path).unwrap().permissions().mode() & 0o777, 0o700);
        }
        let temporary = folder.temporary(1, 2).unwrap();
        fs::write(temporary.join("left"), "behind").unwrap();
        let path = folder.path.clone();
        drop(folder);
        assert!(!path.exists());
    }

    #[cfg(unix)]
    #[test]
    fn what_cleans_folders_by_their_age_finds_it_locked_until_it_goes() {
        let parent = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(parent.path()).unwrap();
        // systemd-tmpfiles locks a folder in the same way before it looks into it.
        let cleaner = File::open(folder.path()).unwrap();
        assert!(!file::try_lock(&cleaner).unwrap());
        drop(folder);
        assert!(file::try_lock(&cleaner).unwrap());
    }

    #[test]
    fn one_that_was_left_behind_is_removed_and_no_other() {
        let parent = tempfile::tempdir().unwrap();
        let living = RunFolder::create(parent.path()).unwrap();
        let other = parent.path().join(format!("{PREFIX}made-just-now"));
        let foreign = parent.path().join("rookery-other");
        let forsaken = parent.path().join(format!("{PREFIX}0-0"));
        for folder in [&other, &foreign, &forsaken] {
            fs::create_dir(folder).unwrap();
        }
        for folder in [&foreign, &forsaken] {
            fs::write(folder.join(LOCK), "").unwrap();
        }
        let next = RunFolder::create(parent.path()).unwrap();
        assert!(!forsaken.exists() && other.exists() && foreign.exists());
        assert!(living.path.exists() && next.path.exists() && living.path != next.path);
    }

    #[test]
    fn the_name_of_a_pipe_contains_what_only_the_folder_tells() {
        let parent = tempfile::tempdir().unwrap();
        let [one, other] = ["a", "b"].map(|name| parent.path().join(name).join("rookery-1-0"));
        for folder in [&one, &other] {
            fs::create_dir_all(folder).unwrap();
            write_pipe_suffix(folder).unwrap();
        }
        let name = pipe_name(&one).into_os_string().into_string().unwrap();
        let suffix = name.strip_prefix(r"\\.\pipe\rookery-1-0-admin-").unwrap();
        assert_eq!(suffix.len(), 16);
        assert_eq!(pipe_name(&one), PathBuf::from(&name));
        assert_ne!(pipe_name(&one), pipe_name(&other));
    }

    #[test]
    fn a_folder_that_cannot_be_created_is_named() {
        let parent = tempfile::tempdir().unwrap();
        let missing = parent.path().join("missing");
        let error = RunFolder::create(&missing).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains(&missing.display().to_string()), "{error}");
        let folder = RunFolder::create(parent.path()).unwrap();
        let path = folder.temporary(1, 2).unwrap();
        let error = folder.temporary(1, 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_long_path_is_not_used() {
        let parent = tempfile::tempdir().unwrap();
        let long = parent.path().join("x".repeat(100));
        fs::create_dir(&long).unwrap();
        let folder = RunFolder::create(&long).unwrap();
        assert!(folder.path.starts_with("/tmp"));
        assert!(admin_socket(folder.path()).as_os_str().len() < MOST_PATH);
        // The temporary folder of a user of macOS.
        assert!(!is_long(Path::new("/var/folders/zz/zyxvpxvq6csfxvn_n0000000000000/T/")));
    }

    #[cfg(unix)]
    #[test]
    fn a_socket_can_be_bound_in_the_longest_folder_that_is_used() {
        let parent = tempfile::tempdir_in("/tmp").unwrap();
        let len = MOST_PATH - 1 - IN_FOLDER - PREFIX.len() - 2 - parent.path().as_os_str().len();
        let longest = parent.path().join("x".repeat(len));
        assert!(!is_long(&longest) && is_long(&parent.path().join("x".repeat(len + 1))));
        // A process id, a number, a slot and a start whose digits take all the space there is.
        let folder = longest.join(format!("{PREFIX}4194304-999"));
        fs::create_dir_all(&folder).unwrap();
        let socket = folder.join(format!("{}.{}", 9999, 10_u64.pow(18)));
        assert_eq!(socket.as_os_str().len() + 1, MOST_PATH);
        std::os::unix::net::UnixListener::bind(&socket).unwrap();
    }
}
