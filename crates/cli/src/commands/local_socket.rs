//! Connections to the admin listener of a server of this machine: over its Unix socket, or on
//! Windows over its named pipe.

use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

#[cfg(windows)]
use windows_sys::Win32::Storage::FileSystem::SECURITY_IDENTIFICATION;

/// Connects to a Unix socket. Reading fails after `timeout` without data.
#[cfg(unix)]
pub(super) fn connect(path: &Path, timeout: Duration) -> io::Result<impl Read + Write + use<>> {
    let stream = std::os::unix::net::UnixStream::connect(path)?;
    stream.set_read_timeout(Some(timeout))?;
    Ok(stream)
}

/// Connects to a named pipe. Windows has no time limit for reading from it, so `_timeout` has no
/// effect, but the admin listener itself limits the time of a connection. A foreign process that
/// listens at the name learns who this user is, but cannot act in the user's name.
#[cfg(windows)]
pub(super) fn connect(path: &Path, _timeout: Duration) -> io::Result<impl Read + Write + use<>> {
    use std::os::windows::fs::OpenOptionsExt as _;
    let mut options = std::fs::File::options();
    options.read(true).write(true).security_qos_flags(SECURITY_IDENTIFICATION).open(path)
}
