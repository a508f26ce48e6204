//! Unix sockets that send packets and preserve their boundaries, by sockets of the type
//! `SOCK_SEQPACKET`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send};

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
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = SocketType::SEQPACKET;
        let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
        Ok((PacketSocket(ours), theirs))
    }

    /// Wraps the descriptor of a packet socket that this process has inherited.
    pub fn from_end(end: OwnedFd) -> PacketSocket {
        PacketSocket(end)
    }

    /// Returns true if the descriptor may be an end of a pair of packet sockets, that is, a Unix
    /// socket for packets that is or was connected.
    pub fn is_end(fd: BorrowedFd<'_>) -> bool {
        descriptor::peer_family(fd) == Some(AddressFamily::UNIX)
            && descriptor::socket_type(fd) == Some((SocketType::SEQPACKET, false))
    }

    /// Sends a packet without blocking. If the peer is closed, the function returns an error
    /// instead of raising SIGPIPE.
    ///
    /// # Errors
    /// Returns `InvalidInput` if the system accepts no packet of this length, `WouldBlock` if the
    /// peer's buffer is full, `BrokenPipe` if the peer is closed, and otherwise the system's error.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match retry_on_intr(|| send(&self.0, packet, flags)) {
            Ok(_) => Ok(()),
            Err(Errno::MSGSIZE) => Err(io::ErrorKind::InvalidInput.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Receives a packet without blocking, and returns how many bytes were stored in `buffer`. If
    /// the packet is longer than `buffer`, its remaining bytes are lost. Returns 0 if the peer is
    /// closed.
    ///
    /// # Errors
    /// Returns the system's error: `WouldBlock` if no packet has arrived.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive_with(buffer, RecvFlags::DONTWAIT)
    }

    /// Copies the beginning of the next packet to `buffer`, and leaves the packet in the queue.
    /// Returns the length of the whole packet, which may exceed that of `buffer`.
    ///
    /// # Errors
    /// Returns the system's error: `WouldBlock` if no packet has arrived.
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive_with(buffer, RecvFlags::DONTWAIT | RecvFlags::PEEK | RecvFlags::TRUNC)
    }

    fn receive_with(&self, buffer: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
        let (_, len) = retry_on_intr(|| recv(&self.0, &mut *buffer, flags))?;
        Ok(len)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
