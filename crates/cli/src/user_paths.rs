//! Resolves paths that the user gave. A path may begin with `~`, because shells do not expand the
//! `~` in an argument such as `--log=~/access.log`. A path may also be relative to the folder in
//! which the program was started.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rookery_settings::server_yml::relative_to;

/// Replaces a leading `~` in a path by the user's home folder.
pub(crate) fn expand_tilde(path: &Path) -> PathBuf {
    relative_to(path, Path::new(""))
}

/// Returns an absolute path, with a leading `~` expanded. The file need not exist.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    let path = expand_tilde(path);
    let path = start_folder().map_or(path.clone(), |folder| folder.join(&path));
    std::path::absolute(&path).unwrap_or(path)
}

/// Returns the folder in which the program was started, as the shell names it in `PWD`. That path
/// may contain a symbolic link such as `/srv/app/current`, which leads to another folder after a
/// deployment. Returns the path without links if `PWD` names another folder, and `None` if the
/// folder did not exist any more at the start.
fn start_folder() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let folder = std::env::current_dir().ok()?;
        let named = std::env::var_os("PWD").map(PathBuf::from);
        let is_it = |path: &PathBuf| {
            path.is_absolute() && fs::canonicalize(path).is_ok_and(|path| path == folder)
        };
        Some(named.filter(is_it).unwrap_or(folder))
    };
    FOLDER.get_or_init(find).as_deref()
}

/// Returns the folder part of a path without accessing the file system. The result is `.` if the
/// path has no folder part.
pub(crate) fn parent_folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => path,
    }
}

/// Returns true if this user may write to an existing file, or may create files in an existing
/// folder. On Windows, checks only that a file is not marked as read-only.
pub(crate) fn is_writable(path: &Path) -> bool {
    #[cfg(unix)]
    return allows(path, libc::W_OK);
    #[cfg(windows)]
    std::fs::metadata(path).is_ok_and(|found| found.is_dir() || !found.permissions().readonly())
}

/// Returns true if this user may execute a file. On Windows, the name of a file decides this, so
/// every file counts.
pub(crate) fn is_executable(path: &Path) -> bool {
    #[cfg(unix)]
    return allows(path, libc::X_OK);
    #[cfg(windows)]
    path.is_file()
}

#[cfg(unix)]
fn allows(path: &Path, mode: libc::c_int) -> bool {
    let path = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
    let Ok(path) = std::ffi::CString::new(path) else { return false };
    // SAFETY: `path` is a valid C string for the length of the call.
    unsafe { libc::access(path.as_ptr(), mode) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_a_tilde_by_the_home_folder() {
        let home = PathBuf::from(std::env::var_os("HOME").expect("HOME is set"));
        assert_eq!(expand_tilde(Path::new("~")), home);
        assert_eq!(expand_tilde(Path::new("~/a/b")), home.join("a/b"));
        assert_eq!(expand_tilde(Path::new("~a")), Path::new("~a"));
        assert_eq!(expand_tilde(Path::new("a/~")), Path::new("a/~"));
        assert!(absolute(Path::new("a")).is_absolute());
    }

    #[test]
    fn parent_folder_does_not_access_the_file_system() {
        for (path, folder) in
            [("a", "."), ("./a", "."), ("a/b", "a"), ("/a", "/"), ("/", "/"), ("a/b/", "a")]
        {
            assert_eq!(parent_folder(Path::new(path)), Path::new(folder), "{path}");
        }
    }
}
