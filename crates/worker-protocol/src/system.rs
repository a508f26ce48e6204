//! Calls of the system that the standard library has no names for.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

#[cfg(target_os = "linux")]
pub(crate) use linux::{check_sealed, close_on_exec_from, packet_pair, peer_user, sealed_memory};

/// What a call that says -1 gave.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Maps as many bytes as `T` has, for reading and writing, shared with whoever else does.
pub(crate) fn map<T>(memory: BorrowedFd<'_>) -> io::Result<NonNull<T>> {
    const { assert!(align_of::<T>() <= 4096, "aligned to a page") };
    // SAFETY: a new mapping, over nobody's memory.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<T>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            memory.as_raw_fd(),
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at zero"))
}

/// # Safety
/// - `mapping` is one of [`map`], and nobody refers to it.
pub(crate) unsafe fn unmap<T>(mapping: NonNull<T>) {
    // SAFETY: the caller's duty.
    unsafe { libc::munmap(mapping.as_ptr().cast(), size_of::<T>()) };
}

/// Sets whether a descriptor is closed in what the process becomes. Async-signal-safe.
pub(crate) fn set_close_on_exec(fd: BorrowedFd<'_>, closes: bool) -> io::Result<()> {
    let flags = if closes { libc::FD_CLOEXEC } else { 0 };
    // SAFETY: an open descriptor; FD_CLOEXEC is the only flag that there is.
    checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, flags) }).map(drop)
}

/// One option of a socket that is a number; `None` for what is no socket.
pub(crate) fn socket_option(fd: BorrowedFd<'_>, option: libc::c_int) -> Option<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: an int to write to, of the size said.
    let told = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw mut value).cast(),
            &raw mut size,
        )
    };
    (told == 0).then_some(value)
}

/// The family of a socket's own address, or with `of_peer` of its peer's; `None` for what is no socket, and has no peer.
pub(crate) fn family(fd: BorrowedFd<'_>, of_peer: bool) -> Option<libc::c_int> {
    // SAFETY: all zeros is an address.
    let mut address: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut size = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    let ask = if of_peer { libc::getpeername } else { libc::getsockname };
    // SAFETY: an address to write to, of the size said.
    let told = unsafe { ask(fd.as_raw_fd(), (&raw mut address).cast(), &raw mut size) };
    (told == 0).then_some(libc::c_int::from(address.ss_family))
}

/// The number by which the system knows the calling thread.
pub(crate) fn thread_id() -> u32 {
    #[cfg(target_os = "linux")]
    // SAFETY: it takes nothing and never fails.
    return u32::try_from(unsafe { libc::gettid() }).unwrap_or(0);
    #[cfg(not(target_os = "linux"))]
    0
}

/// Sends a packet without waiting, and without a signal where nobody is there to take it.
pub(crate) fn send(fd: BorrowedFd<'_>, packet: &[u8]) -> io::Result<()> {
    let flags = libc::MSG_DONTWAIT | NO_SIGNAL;
    loop {
        // SAFETY: as many bytes as said.
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

/// Receives a packet without waiting: how long it was, which may be more than there is room for. Descriptors that come with it are not
/// taken.
pub(crate) fn receive(fd: BorrowedFd<'_>, room: &mut [u8]) -> io::Result<usize> {
    receive_by(fd, room, libc::MSG_DONTWAIT)
}

/// Looks at the next packet, which stays where it is: how long all of it is.
pub(crate) fn peek(fd: BorrowedFd<'_>, room: &mut [u8]) -> io::Result<usize> {
    receive_by(fd, room, libc::MSG_DONTWAIT | libc::MSG_PEEK | libc::MSG_TRUNC)
}

fn receive_by(fd: BorrowedFd<'_>, room: &mut [u8], flags: libc::c_int) -> io::Result<usize> {
    loop {
        // SAFETY: room for as many bytes as said.
        let came =
            unsafe { libc::recv(fd.as_raw_fd(), room.as_mut_ptr().cast(), room.len(), flags) };
        match usize::try_from(came) {
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

#[cfg(target_os = "linux")]
mod linux {
    use std::os::fd::FromRawFd as _;

    use super::{AsRawFd as _, BorrowedFd, OwnedFd, checked, io};

    /// What may not be done to the memory: to cut it short would be a SIGBUS in whoever has it mapped.
    const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

    /// Memory by a descriptor, all zeros, whose size nobody can change.
    pub(crate) fn sealed_memory(size: usize) -> io::Result<OwnedFd> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: a name that ends in a zero.
        let fd = checked(unsafe { libc::memfd_create(c"rookery-scoreboard".as_ptr(), flags) })?;
        // SAFETY: just made, and owned by nobody else.
        let memory = unsafe { OwnedFd::from_raw_fd(fd) };
        let size = libc::off_t::try_from(size).map_err(io::Error::other)?;
        // SAFETY: an open descriptor. Its pages are there now: one that cannot be had later would be a SIGBUS as well.
        let refused = unsafe { libc::posix_fallocate(fd, 0, size) };
        if refused != 0 {
            return Err(io::Error::from_raw_os_error(refused));
        }
        // SAFETY: an open descriptor.
        checked(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) })?;
        Ok(memory)
    }

    /// Whether a descriptor is one of [`sealed_memory`], of this size.
    pub(crate) fn check_sealed(memory: BorrowedFd<'_>, size: usize) -> io::Result<()> {
        let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        // SAFETY: an open descriptor. What is no such memory has no seals.
        let seals = unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & SEALS != SEALS {
            return Err(wrong("it is no sealed memory"));
        }
        // SAFETY: all zeros is a stat.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: a stat to write to.
        checked(unsafe { libc::fstat(memory.as_raw_fd(), &raw mut stat) })?;
        if usize::try_from(stat.st_size) != Ok(size) {
            return Err(wrong("it is not of this size"));
        }
        Ok(())
    }

    /// Two ends of a channel for packets; both are closed in what the process becomes.
    pub(crate) fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
        let mut ends = [-1; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: room for two descriptors.
        checked(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) })?;
        // SAFETY: just made, and owned by nobody else.
        Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
    }

    /// Whose process has connected, or made, the other end of a Unix socket.
    pub(crate) fn peer_user(fd: BorrowedFd<'_>) -> Option<libc::uid_t> {
        let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut size = size_of::<libc::ucred>() as libc::socklen_t;
        let fd = fd.as_raw_fd();
        // SAFETY: credentials to write to, of the size said.
        let told = unsafe {
            libc::getsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut peer).cast(),
                &raw mut size,
            )
        };
        (told == 0).then_some(peer.uid)
    }

    /// Has all descriptors from `first` on closed in what the process becomes; nothing on a Linux before 5.11. Async-signal-safe.
    pub(crate) fn close_on_exec_from(first: libc::c_uint) {
        // SAFETY: no memory is passed, and nothing is closed now.
        unsafe {
            libc::syscall(
                libc::SYS_close_range,
                first,
                libc::c_uint::MAX,
                libc::c_uint::from(CLOSE_RANGE_CLOEXEC),
            );
        }
    }

    /// Of `linux/close_range.h`
    const CLOSE_RANGE_CLOEXEC: u8 = 4;
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use super::{BorrowedFd, OwnedFd, io};

    fn unsupported<T>() -> io::Result<T> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "workers need Linux: memory cannot be sealed here",
        ))
    }

    pub(crate) fn sealed_memory(_: usize) -> io::Result<OwnedFd> {
        unsupported()
    }

    pub(crate) fn check_sealed(_: BorrowedFd<'_>, _: usize) -> io::Result<()> {
        unsupported()
    }

    pub(crate) fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
        unsupported()
    }

    pub(crate) fn close_on_exec_from(_: libc::c_uint) {}

    pub(crate) fn peer_user(_: BorrowedFd<'_>) -> Option<libc::uid_t> {
        None
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::{
    check_sealed, close_on_exec_from, packet_pair, peer_user, sealed_memory,
};
