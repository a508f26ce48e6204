//! A pair of sockets by which two processes pass descriptors to each other, in numbered packets.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

/// The maximum number of descriptors in a packet.
pub const MAX_DESCRIPTORS: usize = 2;

/// The size in words of a control buffer, which has capacity for all descriptors that the system
/// passes in one packet, at most 253 (`SCM_MAX_FD`). A packet that arrives with fewer descriptors
/// therefore says that this process can open no more.
const CONTROL_WORDS: usize = 1024 / size_of::<u64>() + 8;

/// The descriptors of a packet, in the order in which they were sent.
pub type Descriptors = [Option<OwnedFd>; MAX_DESCRIPTORS];

/// One end of a connected pair of sockets that pass descriptors. No method blocks.
#[derive(Debug)]
pub struct DescriptorChannel(OwnedFd);

impl DescriptorChannel {
    /// Creates a connected pair. Both ends are closed when the process executes another program.
    ///
    /// # Errors
    /// Returns the system's error if no more descriptors are available.
    pub fn pair() -> io::Result<(DescriptorChannel, OwnedFd)> {
        let (ours, theirs) = std::os::unix::net::UnixDatagram::pair()?;
        for end in [&ours, &theirs] {
            end.set_nonblocking(true)?;
        }
        Ok((DescriptorChannel(ours.into()), theirs.into()))
    }

    /// Wraps the descriptor of an end that this process has inherited.
    pub fn from_end(end: OwnedFd) -> DescriptorChannel {
        DescriptorChannel(end)
    }

    /// Sends a packet with descriptors, which stay open in this process.
    ///
    /// # Errors
    /// Returns `WouldBlock` if the peer has not received enough earlier packets, and otherwise the
    /// system's error.
    ///
    /// # Panics
    /// Panics if there are more than [`MAX_DESCRIPTORS`] descriptors, or none.
    pub fn send(&self, number: u64, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        assert!((1..=MAX_DESCRIPTORS).contains(&descriptors.len()));
        let bytes = number.to_le_bytes();
        let mut part =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let mut control = [0_u64; CONTROL_WORDS];
        let mut message = message(&mut part, &mut control);
        let size = size_of_val(descriptors) as libc::c_uint;
        // SAFETY: the macro only computes a number.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(size) } as _;
        // SAFETY: the control buffer has capacity for a header and the descriptors.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size) as _;
            for (at, fd) in descriptors.iter().enumerate() {
                let bytes = fd.as_raw_fd().to_ne_bytes();
                let place = libc::CMSG_DATA(header).add(at * bytes.len());
                place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            }
        }
        loop {
            // SAFETY: the message and everything that it points to are valid for the call.
            let sent = unsafe {
                libc::sendmsg(
                    self.0.as_raw_fd(),
                    &raw const message,
                    libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
                )
            };
            if sent >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // The queue of the socket, or of all passed descriptors of this user, is full.
                Some(libc::ENOBUFS | libc::ETOOMANYREFS) => {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                _ => return Err(error),
            }
        }
    }

    /// Receives a packet, and returns its number and its descriptors. The descriptors are closed
    /// when the process executes another program.
    ///
    /// # Errors
    /// Returns `WouldBlock` if no packet has arrived, `InvalidData` if the packet is not one that
    /// [`send`](Self::send) sends, and otherwise the system's error. The packet is lost, and all
    /// its descriptors are closed.
    ///
    /// If this process can open no more descriptors, returns an error for which [`is_shortage`]
    /// returns true. The packet is then kept and can be received later.
    pub fn receive(&self) -> io::Result<(u64, Descriptors)> {
        // If this process cannot open the descriptors of a packet, the packet would arrive without
        // descriptors, and these would be lost. So the packet is first read with `MSG_PEEK`, which
        // opens the descriptors as well, and only then removed.
        let packet = self.peek();
        let is_invalid = |error: &io::Error| error.kind() == io::ErrorKind::InvalidData;
        if packet.as_ref().err().is_none_or(is_invalid) {
            let mut byte = 0_u8;
            let start = (&raw mut byte).cast();
            // SAFETY: the buffer has one byte. The call has no buffer for descriptors, so the
            // system closes those of the packet.
            unsafe { libc::recv(self.0.as_raw_fd(), start, 1, libc::MSG_DONTWAIT) };
        }
        packet
    }

    /// Opens the descriptors of the next packet, which stays in the queue.
    fn peek(&self) -> io::Result<(u64, Descriptors)> {
        let mut bytes = [0; 9];
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let mut control = [0_u64; CONTROL_WORDS];
        let mut message = message(&mut part, &mut control);
        let len = loop {
            // SAFETY: the message and everything that it points to are valid for the call.
            let len = unsafe {
                libc::recvmsg(
                    self.0.as_raw_fd(),
                    &raw mut message,
                    libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT | libc::MSG_PEEK,
                )
            };
            if let Ok(len) = usize::try_from(len) {
                break len;
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        };
        // Everything is owned before anything is checked, so that a refused packet is closed.
        let mut received = Vec::new();
        // SAFETY: the system has written the headers, and the new descriptors belong to no one.
        unsafe {
            let mut header = libc::CMSG_FIRSTHDR(&raw const message);
            while let Some(found) = header.as_ref() {
                if (found.cmsg_level, found.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                    let size = found.cmsg_len - libc::CMSG_LEN(0) as usize;
                    let mut bytes = [0; size_of::<RawFd>()];
                    for at in 0..size / bytes.len() {
                        let place = libc::CMSG_DATA(header).add(at * bytes.len());
                        place.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len());
                        received.push(OwnedFd::from_raw_fd(RawFd::from_ne_bytes(bytes)));
                    }
                }
                header = libc::CMSG_NXTHDR(&raw const message, header);
            }
        }
        let count = received.len();
        let is_valid = len == 8 && (1..=MAX_DESCRIPTORS).contains(&count);
        let is_whole = message.msg_flags & (libc::MSG_CTRUNC | libc::MSG_TRUNC) == 0;
        // The control buffer has capacity for all descriptors that the system passes.
        if message.msg_flags & libc::MSG_CTRUNC != 0 && len == 8 && count < MAX_DESCRIPTORS {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        let number = bytes.first_chunk().copied().map(u64::from_le_bytes);
        let Some(number) = number.filter(|_| is_whole && is_valid) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let mut received = received.into_iter();
        Ok((number, std::array::from_fn(|_| received.next())))
    }
}

/// Returns true if an error says that this process, or the system, can open no more descriptors.
pub fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

impl AsFd for DescriptorChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn message(part: &mut libc::iovec, control: &mut [u64; CONTROL_WORDS]) -> libc::msghdr {
    // SAFETY: a zeroed message is a valid empty message.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(control) as _;
    message
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Seek as _, Write as _};

    use super::*;

    fn pair() -> (DescriptorChannel, DescriptorChannel) {
        let (ours, theirs) = DescriptorChannel::pair().unwrap();
        (ours, DescriptorChannel::from_end(theirs))
    }

    fn file(text: &str) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.rewind().unwrap();
        file
    }

    fn text(descriptor: Option<OwnedFd>) -> String {
        let mut text = String::new();
        File::from(descriptor.unwrap()).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn descriptors_arrive_in_order_with_the_number_of_their_packet() {
        let (ours, theirs) = pair();
        ours.send(7, &[file("a").as_fd()]).unwrap();
        ours.send(8, &[file("b").as_fd(), file("c").as_fd()]).unwrap();
        let (number, [first, second]) = theirs.receive().unwrap();
        assert_eq!((number, text(first), second.is_none()), (7, "a".to_owned(), true));
        let (number, [first, second]) = theirs.receive().unwrap();
        // SAFETY: F_GETFD passes no memory.
        let flags = unsafe { libc::fcntl(first.as_ref().unwrap().as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags, libc::FD_CLOEXEC);
        assert_eq!((number, text(first), text(second)), (8, "b".to_owned(), "c".to_owned()));
        assert_eq!(theirs.receive().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_full_channel_refuses_packets_until_some_are_received() {
        let (ours, theirs) = pair();
        let file = file("x");
        let error = (0..).find_map(|number| ours.send(number, &[file.as_fd()]).err()).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        while theirs.receive().is_ok() {}
        ours.send(0, &[file.as_fd()]).unwrap();
    }

    #[test]
    fn packets_of_another_form_are_refused_and_their_descriptors_closed() {
        let (ours, theirs) = pair();
        let socket = std::os::unix::net::UnixDatagram::from(ours.0.try_clone().unwrap());
        for bytes in [&b""[..], b"short", b"long enough to be truncated", b"8 bytes!"] {
            socket.send(bytes).unwrap();
            assert_eq!(theirs.receive().unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        ours.send(1, &[file("a").as_fd()]).unwrap();
        assert_eq!(theirs.receive().unwrap().0, 1);
        drop((ours, socket));
        assert!(theirs.receive().is_err());
    }
}
