//! A server's folder, for its admin socket, and for its workers' sockets and temporary files: of this user alone, and gone when the server is.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the folders' names begin with.
const PREFIX: &str = "rookery-workers-";

/// The file that says, by a lock on it, that a folder's supervisor lives.
const LOCK: &str = "lock";

/// How often the lock of the folder is tried, and the pause between two attempts.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// Bytes of a socket's path, with the zero behind it (`sockaddr_un`), and what is put behind the folder's.
const MOST_PATH: usize = 108;
const IN_FOLDER: usize = 40;

/// See the module.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// Locked while this lives.
    _lock: File,
    /// The folder itself, locked as well: systemd-tmpfiles leaves a folder alone that somebody has
    /// locked, with all that is in it, however old that is. None where it could not be had.
    _kept: Option<File>,
}

impl RunFolder {
    /// Makes one in `parent`, or in `/tmp` where the path would be too long for a socket's. Those of supervisors that were killed
    /// are removed.
    ///
    /// # Errors
    /// The system's.
    pub fn create(parent: &Path) -> io::Result<RunFolder> {
        let is_long = parent.as_os_str().len() + PREFIX.len() + IN_FOLDER > MOST_PATH;
        let parent = if is_long { Path::new("/tmp") } else { parent };
        remove_forsaken(parent);
        let pid = std::process::id();
        for at in 0.. {
            let path = parent.join(format!("{PREFIX}{pid}-{at}"));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    // Locked before it has the name by which it is looked for: else it would be taken for a forsaken one.
                    let making = path.join("making");
                    let lock = File::create_new(&making)?;
                    lock_file(&lock)?;
                    fs::rename(making, path.join(LOCK))?;
                    let kept = File::open(&path).ok().filter(is_kept_from_ageing);
                    return Ok(RunFolder { path, _lock: lock, _kept: kept });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && at < 1000 => {}
                Err(error) => return Err(error),
            }
        }
        unreachable!("the loop returns")
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the socket of a start is.
    pub fn socket(&self, slot: u32, epoch: u64) -> PathBuf {
        self.path.join(format!("{slot}.{epoch}"))
    }

    /// Makes the folder of a start's temporary files.
    ///
    /// # Errors
    /// The system's.
    pub fn temporary(&self, slot: u32, epoch: u64) -> io::Result<PathBuf> {
        let path = self.path.join(format!("tmp-{slot}.{epoch}"));
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(path)
    }
}

/// The name of the admin listener's socket in a run folder.
pub const ADMIN_SOCKET: &str = "admin";

/// The folders that supervisors of this user have in `parent`, each with its process id. Its supervisor may have gone.
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

/// Not through a link: it may be anybody's.
fn is_own_folder(path: &Path) -> bool {
    // SAFETY: asks only.
    let own = unsafe { libc::geteuid() };
    fs::symlink_metadata(path).is_ok_and(|folder| folder.is_dir() && folder.uid() == own)
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // What cannot be removed is removed by the next, as far as it can be.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn lock_file(file: &File) -> io::Result<()> {
    // SAFETY: an open descriptor. The lock ends with it, and so with the process.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// Locks a folder for as long as it is open, and returns whether that was possible:
/// systemd-tmpfiles may be looking at it.
fn is_kept_from_ageing(folder: &File) -> bool {
    for _ in 0..LOCK_TRIES {
        // SAFETY: an open descriptor.
        if unsafe { libc::flock(folder.as_raw_fd(), libc::LOCK_SH | libc::LOCK_NB) } == 0 {
            return true;
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    false
}

/// Removes folders of this user whose supervisor does not live any more.
fn remove_forsaken(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_one = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if is_one && is_own_folder(&path) {
            // One without the file is being made.
            let lock = File::open(path.join(LOCK));
            if lock.is_ok_and(|lock| lock_file(&lock).is_ok()) {
                let _ = fs::remove_dir_all(&path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn it_is_nobody_elses_and_goes_with_its_supervisor() {
        let parent = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(parent.path()).unwrap();
        assert_eq!(fs::metadata(&folder.path).unwrap().permissions().mode() & 0o777, 0o700);
        let temporary = folder.temporary(1, 2).unwrap();
        fs::write(temporary.join("left"), "behind").unwrap();
        let path = folder.path.clone();
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn what_cleans_folders_by_their_age_finds_it_locked_until_it_goes() {
        let parent = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(parent.path()).unwrap();
        // As systemd-tmpfiles does before it looks into a folder.
        let cleaner = File::open(folder.path()).unwrap();
        assert_eq!(lock_file(&cleaner).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(folder);
        lock_file(&cleaner).unwrap();
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
    fn a_long_path_is_not_used() {
        let parent = tempfile::tempdir().unwrap();
        let long = parent.path().join("x".repeat(100));
        fs::create_dir(&long).unwrap();
        let folder = RunFolder::create(&long).unwrap();
        assert!(folder.path.starts_with("/tmp"));
        assert!(folder.socket(u32::MAX, u64::MAX).as_os_str().len() < MOST_PATH);
    }
}
