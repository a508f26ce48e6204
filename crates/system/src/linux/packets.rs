//! Unix sockets that send packets and preserve their boundaries, by sockets of the type
//! `SOCK_SEQPACKET`.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use crate::descriptor;

/// One end of a connected pair of sockets that preserve the boundaries of packets. No method
/// blocks.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Creates a connected pair of packet sockets. Both are closed when the process executes
    /// another program. The second one is returned as a descriptor, to be passed to another
    /// process.
    ///
    /// # Errors
    /// Returns the system's error if no more descriptors are available.
    pub fn pair() -> io::Result<(PacketSocket, OwnedFd)> {
        let mut ends = [-1; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: `ends` is valid for writes of two descriptors.
        crate::checked(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) })?;
        // SAFETY: the call has just created both descriptors, so nothing else owns them.
        let [ours, theirs] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        Ok((PacketSocket(ours), theirs))
    }

    /// Wraps the descriptor of a packet socket that this process has inherited.
    pub fn from_end(end: OwnedFd) -> PacketSocket {
        PacketSocket(end)
    }

    /// Returns true if the descriptor may be an end of a pair of packet sockets, that is, a Unix
    /// socket for packets that is or was connected.
    pub fn is_end(fd: BorrowedFd<'_>) -> bool {
        descriptor::peer_family(fd) == Some(libc::AF_UNIX)
            && descriptor::socket_option(fd, libc::SO_TYPE) == Some(libc::SOCK_SEQPACKET)
            && descriptor::socket_option(fd, libc::SO_ACCEPTCONN) == Some(0)
    }

    /// Sends a packet without blocking. If the peer is closed, the function returns an error
    /// instead of raising SIGPIPE.
    ///
    /// # Errors
    /// Returns `InvalidInput` if the system accepts no packet of this length, `WouldBlock` if the
    /// peer's buffer is full, `BrokenPipe` if the peer is closed, and otherwise the system's error.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        loop {
            // SAFETY: `packet` is valid for reads of its length.
            let sent = unsafe {
                libc::send(self.0.as_raw_fd(), packet.as_ptr().cast(), packet.len(), flags)
            };
            if sent >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() == Some(libc::EMSGSIZE) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Receives a packet without blocking, and returns how many bytes were stored in `buffer`. If
    /// the packet is longer than `buffer`, its remaining bytes are lost. Returns 0 if the peer is
    /// closed.
    ///
    /// # Errors
    /// Returns the system's error: `WouldBlock` if no packet has arrived.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive_with(buffer, libc::MSG_DONTWAIT)
    }

    /// Copies the beginning of the next packet to `buffer`, and leaves the packet in the queue.
    /// Returns the length of the whole packet, which may exceed that of `buffer`.
    ///
    /// # Errors
    /// Returns the system's error: `WouldBlock` if no packet has arrived.
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive_with(buffer, libc::MSG_DONTWAIT | libc::MSG_PEEK | libc::MSG_TRUNC)
    }

    fn receive_with(&self, buffer: &mut [u8], flags: libc::c_int) -> io::Result<usize> {
        loop {
            let (start, len) = (buffer.as_mut_ptr().cast(), buffer.len());
            // SAFETY: `buffer` is valid for writes of its length.
            let received = unsafe { libc::recv(self.0.as_raw_fd(), start, len, flags) };
            match usize::try_from(received) {
                Ok(len) => return Ok(len),
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
