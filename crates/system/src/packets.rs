//! Unix sockets that send packets and preserve their boundaries (`SOCK_SEQPACKET`).

use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::FromRawFd as _;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

/// Creates a connected pair of non-blocking packet sockets. Both sockets are closed when the
/// process executes another program.
///
/// # Errors
/// Returns the system's error if no more descriptors are available; `Unsupported` outside Linux.
pub fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    #[cfg(target_os = "linux")]
    {
        let mut ends = [-1; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: `ends` is valid for writes of two descriptors.
        crate::checked(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) })?;
        // SAFETY: the call has just created both descriptors, so nothing else owns them.
        Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
    }
    #[cfg(not(target_os = "linux"))]
    crate::unsupported()
}

/// Sends a packet over a packet socket without blocking. If the peer is closed, the function
/// returns an error instead of raising SIGPIPE.
///
/// # Errors
/// Returns the system's error: `WouldBlock` if the peer's buffer is full, `BrokenPipe` if the peer
/// is closed.
pub fn send(fd: BorrowedFd<'_>, packet: &[u8]) -> io::Result<()> {
    let flags = libc::MSG_DONTWAIT | NO_SIGNAL;
    loop {
        // SAFETY: `packet` is valid for reads of its length.
        let sent =
            unsafe { libc::send(fd.as_raw_fd(), packet.as_ptr().cast(), packet.len(), flags) };
        if sent >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(target_os = "linux")]
const NO_SIGNAL: libc::c_int = libc::MSG_NOSIGNAL;
#[cfg(not(target_os = "linux"))]
const NO_SIGNAL: libc::c_int = 0;

/// Receives a packet from a packet socket without blocking, and returns how many bytes were stored
/// in `buffer`. If the packet is longer than `buffer`, its remaining bytes are lost.
///
/// # Errors
/// Returns the system's error: `WouldBlock` if no packet has arrived.
pub fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    receive_with(fd, buffer, libc::MSG_DONTWAIT)
}

/// Copies the beginning of the next packet of a packet socket to `buffer`, and leaves the packet in
/// the queue. Returns the length of the whole packet, which may exceed that of `buffer`.
///
/// # Errors
/// Returns the system's error: `WouldBlock` if no packet has arrived.
pub fn peek(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    receive_with(fd, buffer, libc::MSG_DONTWAIT | libc::MSG_PEEK | libc::MSG_TRUNC)
}

fn receive_with(fd: BorrowedFd<'_>, buffer: &mut [u8], flags: libc::c_int) -> io::Result<usize> {
    loop {
        // SAFETY: `buffer` is valid for writes of its length.
        let received =
            unsafe { libc::recv(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), flags) };
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
