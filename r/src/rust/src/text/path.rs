//! Paths in the form in which C passes them: bytes in R's native encoding, which is UTF-8 on
//! Windows.

use std::borrow::Cow;
use std::path::Path;

/// Returns the path that these bytes name. On Windows, bytes that are not UTF-8 are replaced, so
/// that no file has the resulting name.
pub(crate) fn path_of(bytes: &[u8]) -> Cow<'_, Path> {
    #[cfg(unix)]
    return Cow::Borrowed(Path::new(
        <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(bytes),
    ));
    #[cfg(windows)]
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) => Cow::Borrowed(Path::new(text)),
        Cow::Owned(text) => Cow::Owned(text.into()),
    }
}

/// Returns the bytes of a path as R reads them.
pub(crate) fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}
