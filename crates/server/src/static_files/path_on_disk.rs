//! Paths on disk as bytes: in the system's encoding on Unix, and in UTF-8 on Windows.

pub(super) mod name_rules;
pub(super) mod protected_path;

use std::ffi::OsStr;
use std::path::{MAIN_SEPARATOR, Path, is_separator};

use smallvec::SmallVec;

/// The path of a file on disk. A path of up to 256 bytes, as most are, is stored without an
/// allocation.
pub(crate) type FilePath = SmallVec<[u8; 256]>;

/// Converts bytes to a path of this system. On Windows, bytes that are not UTF-8 become an empty
/// path, which names no file.
pub(super) fn as_path(bytes: &[u8]) -> &Path {
    Path::new(as_name(bytes).unwrap_or_default())
}

/// Converts bytes to text of this system. Returns `None` on Windows if the bytes are not UTF-8.
#[cfg_attr(unix, expect(clippy::unnecessary_wraps, reason = "not all bytes are text on Windows"))]
pub(super) fn as_name(bytes: &[u8]) -> Option<&OsStr> {
    #[cfg(unix)]
    return Some(std::os::unix::ffi::OsStrExt::from_bytes(bytes));
    #[cfg(not(unix))]
    std::str::from_utf8(bytes).ok().map(OsStr::new)
}

/// Appends a separator to the path of a folder, unless it ends with one.
pub(super) fn end_folder(folder: &mut FilePath) {
    if !folder.last().is_some_and(|last| is_separator(char::from(*last))) {
        folder.push(MAIN_SEPARATOR as u8);
    }
}

/// Appends a relative path, whose segments are separated by `/`, to the path `root` of a folder.
/// Safer than `PathBuf::join`, which would discard `root` if `rest` ever began with `/`.
pub(super) fn join(root: &Path, rest: &[u8]) -> FilePath {
    let mut bytes = FilePath::from_slice(root.as_os_str().as_encoded_bytes());
    if !rest.is_empty() {
        end_folder(&mut bytes);
        let start = bytes.len();
        bytes.extend_from_slice(rest);
        // Windows accepts `/` as well, but not in paths that begin with `\\?\`.
        if MAIN_SEPARATOR != '/' {
            for byte in bytes[start..].iter_mut().filter(|byte| **byte == b'/') {
                *byte = MAIN_SEPARATOR as u8;
            }
        }
    }
    bytes
}
