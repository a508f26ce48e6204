//! Binding the sockets of listeners.

use std::fs::Metadata;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use tokio::net::UnixSocket;

use crate::accept::BACKLOG;

/// Binds a TCP address and listens.
pub(crate) fn tcp(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = TcpListener::bind(address)?;
    socket.set_nonblocking(true)?;
    listen(&socket)?;
    let local = socket.local_addr()?;
    Ok((socket, local))
}

/// Binds a Unix socket and listens; a socket file that nobody listens on is replaced. With a `mask` the file never
/// has more permissions than `0777 & !mask`, from its first moment on, whatever the process's umask is.
pub(crate) fn unix(path: &Path, mask: Option<u32>) -> io::Result<(UnixListener, SocketFile)> {
    remove_stale(path)?;
    let socket = UnixSocket::new_stream()?;
    if let Some(mask) = mask {
        // The mode of the socket is that of the file that binding makes, less the umask (Linux). The umask itself is the
        // whole process's: to set it would race with other threads.
        // SAFETY: an open descriptor. Where this does nothing, nobody connects before `listen` either.
        unsafe { libc::fchmod(socket.as_raw_fd(), mode(mask)) };
    }
    socket.bind(path)?;
    // SAFETY: the descriptor was given up by the socket, open and owned by nobody else.
    let socket = UnixListener::from(unsafe { OwnedFd::from_raw_fd(socket.into_raw_fd()) });
    let file = SocketFile::of(path)?;
    if let Some(mask) = mask {
        let wanted = mode(mask);
        if file.found.permissions().mode() & 0o777 != wanted {
            // A umask that is stricter than what was asked for.
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(wanted))?;
        }
    }
    listen(&socket)?;
    Ok((socket, file))
}

fn mode(mask: u32) -> libc::mode_t {
    0o777 & !mask
}

/// The file of a bound Unix socket.
#[derive(Debug)]
pub(crate) struct SocketFile {
    /// Absolute, for the working directory changes.
    path: PathBuf,
    found: Metadata,
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<SocketFile> {
        let found = std::fs::symlink_metadata(path)?;
        Ok(SocketFile { path: std::path::absolute(path)?, found })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file, unless it is somebody else's by now. To be called while the socket is open: its file's number
    /// is not given to another as long.
    pub(crate) fn remove(&self) {
        let is_ours = |found: &Metadata| (found.dev(), found.ino()) == (self.found.dev(), self.found.ino());
        if std::fs::symlink_metadata(&self.path).is_ok_and(|found| is_ours(&found)) {
            // Somebody may have removed it since.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Removes a socket file that nobody listens on; a busy one is left, and binding then fails.
fn remove_stale(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Listens, with a longer queue than the standard library asks for.
fn listen(socket: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: an open, bound socket.
    if unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}
