//! Connections between processes of one machine: over Unix sockets, or over named pipes on Windows.
//! Both have the same functions, by the same names.

#[cfg(windows)]
mod named_pipe;
#[cfg(windows)]
mod pipe_permissions;
#[cfg(windows)]
mod pipe_stream;
#[cfg(unix)]
mod socket_file;
#[cfg(unix)]
mod unix_stream;

#[cfg(windows)]
pub(crate) use self::named_pipe::{AcceptedLocal, LocalListener, SocketFile, bind, path_of};
#[cfg(windows)]
pub(crate) use self::pipe_stream::PipeStream as LocalStream;
#[cfg(unix)]
pub(crate) use self::socket_file::{SocketFile, bind};
#[cfg(unix)]
pub(crate) use self::unix_stream::UnixStream as LocalStream;

#[cfg(unix)]
pub(crate) use self::unix::{AcceptedLocal, LocalListener};

#[cfg(unix)]
mod unix {
    use std::io::{self, Write as _};
    use std::os::fd::{AsFd as _, OwnedFd};
    use std::os::unix::net::UnixStream as StdUnixStream;
    use std::path::PathBuf;

    pub(crate) use std::os::unix::net::UnixListener as LocalListener;

    use rookery_system::descriptor::disable_broken_pipe_signal;
    use rookery_system::fork::CloseInChild;

    use super::LocalStream;
    use crate::net::descriptor::{close_in_child, leave_low_numbers};

    /// A connection to a Unix socket that a listener has accepted and that is not served yet.
    #[derive(Debug)]
    pub(crate) struct AcceptedLocal(pub(crate) StdUnixStream);

    impl AcceptedLocal {
        /// Registers the connection with the async runtime. The returned guard must be dropped
        /// before the stream.
        pub(crate) fn into_stream(self) -> io::Result<(LocalStream, CloseInChild)> {
            self.0.set_nonblocking(true)?;
            disable_broken_pipe_signal(self.0.as_fd());
            let socket = StdUnixStream::from(leave_low_numbers(OwnedFd::from(self.0)));
            let close_in_child = close_in_child(&socket);
            Ok((LocalStream::new(socket)?, close_in_child))
        }

        /// Writes `response` without waiting, and closes the connection.
        pub(crate) fn reject(mut self, response: &[u8]) -> io::Result<()> {
            self.0.set_nonblocking(true)?;
            disable_broken_pipe_signal(self.0.as_fd());
            self.0.write_all(response)
        }
    }

    /// Returns the path of a listening Unix socket, or `None` for a socket with an abstract name.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn path_of(listener: &LocalListener) -> io::Result<Option<PathBuf>> {
        Ok(listener.local_addr()?.as_pathname().map(PathBuf::from))
    }
}
#[cfg(unix)]
pub(crate) use self::unix::path_of;
