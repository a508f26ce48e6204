//! The file of a Unix socket: the functions that create it with given permissions and remove it.

use std::fs::Metadata;
use std::io;
use std::os::fd::{FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, connect};
use tokio::net::UnixSocket;

use crate::net::descriptor::listen;

/// Binds a Unix socket to a path and listens on it. An existing socket file is replaced if no
/// process listens on it. If `mask` is given, the new file has at most the permissions `0777 &
/// !mask` from its creation on, whatever the umask of the process is.
pub(crate) fn bind(path: &Path, mask: Option<u32>) -> io::Result<(UnixListener, SocketFile)> {
    remove_stale(path)?;
    let socket = UnixSocket::new_stream()?;
    if let Some(mask) = mask {
        // On Linux, the file gets the mode of the socket, less the umask. The umask itself cannot
        // be set here, because it belongs to the whole process and other threads could create files
        // meanwhile.
        // On systems where the call has no effect, no client can connect before `listen` either.
        let _ = fchmod(&socket, Mode::from_raw_mode(mode(mask) as _));
    }
    socket.bind(path)?;
    // SAFETY: the socket has given up the descriptor, which is open and has no other owner.
    let socket = UnixListener::from(unsafe { OwnedFd::from_raw_fd(socket.into_raw_fd()) });
    let file = SocketFile::of(path)?;
    if let Some(mask) = mask {
        let wanted = mode(mask);
        if file.metadata.permissions().mode() & 0o777 != wanted {
            // The umask of the process is stricter than `mask`.
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(wanted))?;
        }
    }
    listen(&socket)?;
    Ok((socket, file))
}

fn mode(mask: u32) -> u32 {
    0o777 & !mask
}

/// The file of a bound Unix socket.
#[derive(Debug)]
pub(crate) struct SocketFile {
    /// The absolute path of the socket file. It is absolute because the working directory may
    /// change.
    path: PathBuf,
    metadata: Metadata,
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<SocketFile> {
        let metadata = std::fs::symlink_metadata(path)?;
        Ok(SocketFile { path: std::path::absolute(path)?, metadata })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the socket file, unless another file has taken its place.
    pub(crate) fn remove(&self) {
        // The system reuses inode numbers, so the creation time is compared as well, if the file
        // system has one.
        let identity =
            |metadata: &Metadata| (metadata.dev(), metadata.ino(), metadata.created().ok());
        let is_unchanged = |metadata: &Metadata| identity(metadata) == identity(&self.metadata);
        if std::fs::symlink_metadata(&self.path).is_ok_and(|metadata| is_unchanged(&metadata)) {
            // The file may have been removed meanwhile.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Removes the file at `path` if it is a socket file on which no process listens. Any other file is
/// kept, so that binding to the path fails.
fn remove_stale(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() && has_no_listener(path)? => {
            std::fs::remove_file(path)
        }
        _ => Ok(()),
    }
}

/// Returns true if no process listens on a socket file. Does not block, even if a process listens
/// but does not accept connections.
fn has_no_listener(path: &Path) -> io::Result<bool> {
    let socket = UnixSocket::new_stream()?;
    let Ok(address) = SocketAddrUnix::new(path) else {
        // Binding reports the error.
        return Ok(false);
    };
    Ok(connect(&socket, &address) == Err(Errno::CONNREFUSED))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn binding_does_not_wait_for_a_server_whose_queue_is_full() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let stuck = UnixListener::bind(&path).unwrap();
        // One connection may wait to be accepted.
        rustix::net::listen(&stuck, 0).unwrap();
        let _waiting_client = UnixStream::connect(&path).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let other_path = path.clone();
        std::thread::spawn(move || sender.send(bind(&other_path, None).map(|_| ())));
        let refused = receiver.recv_timeout(std::time::Duration::from_secs(20)).expect("an answer");
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(path.exists());
        // The server has ended, so the file has no listening process.
        drop(stuck);
        bind(&path, None).unwrap();
    }

    #[test]
    fn keeps_a_file_of_another_server_with_the_same_inode_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        for _ in 0..20 {
            let (own_socket, file) = bind(&path, None).unwrap();
            // The I/O thread has ended, and another program has removed the file.
            drop(own_socket);
            std::fs::remove_file(&path).unwrap();
            let (_other_socket, other) = bind(&path, None).unwrap();
            file.remove();
            assert!(path.exists(), "removed another server's file");
            other.remove();
            assert!(!path.exists());
        }
    }
}
