//! Paths as they are given: with `~`, which a shell leaves in `--log=~/access.log`, or relative to where this program was
//! started.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// With the user's folder in place of a leading `~`.
pub(crate) fn expand_tilde(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(rest), Some(home)) if rest.as_os_str().is_empty() => home.into(),
        (Ok(rest), Some(home)) => Path::new(&home).join(rest),
        _ => path.into(),
    }
}

/// The same wherever the process goes: expanded, and absolute. The file need not be there.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    let path = expand_tilde(path);
    std::path::absolute(&path).unwrap_or(path)
}

/// The folder that a path is in, by its text: `.` for a name alone.
pub(crate) fn parent_folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => path,
    }
}

/// Whether this user may write a file that is there, or make one in a folder.
pub(crate) fn is_writable(path: &Path) -> bool {
    allows(path, libc::W_OK)
}

/// Whether this user may run a file.
pub(crate) fn is_executable(path: &Path) -> bool {
    allows(path, libc::X_OK)
}

fn allows(path: &Path, mode: libc::c_int) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: a C string for the length of the call.
    unsafe { libc::access(path.as_ptr(), mode) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tilde_is_the_users_folder() {
        let home = PathBuf::from(std::env::var_os("HOME").expect("HOME is set"));
        assert_eq!(expand_tilde(Path::new("~")), home);
        assert_eq!(expand_tilde(Path::new("~/a/b")), home.join("a/b"));
        assert_eq!(expand_tilde(Path::new("~a")), Path::new("~a"));
        assert_eq!(expand_tilde(Path::new("a/~")), Path::new("a/~"));
        assert!(absolute(Path::new("a")).is_absolute());
    }

    #[test]
    fn the_folder_of_a_path_is_of_its_text() {
        for (path, folder) in
            [("a", "."), ("./a", "."), ("a/b", "a"), ("/a", "/"), ("/", "/"), ("a/b/", "a")]
        {
            assert_eq!(parent_folder(Path::new(path)), Path::new(folder), "{path}");
        }
    }
}
