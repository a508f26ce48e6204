//! A pair of sockets by which two processes pass descriptors to each other, in numbered packets
//! with one descriptor each.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg,
};

/// The maximum number of descriptors that the system passes in one packet (`SCM_MAX_FD`). A packet
/// that arrives with fewer descriptors in a buffer with this capacity therefore says that this
/// process can open no more.
const SYSTEM_LIMIT: usize = 253;

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

    /// Sends a packet with a descriptor, which stays open in this process.
    ///
    /// # Errors
    /// Returns `WouldBlock` if the peer has not received enough earlier packets, and otherwise the
    /// system's error.
    pub fn send(&self, number: u64, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let bytes = number.to_le_bytes();
        let descriptors = [descriptor];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let has_space = control.push(SendAncillaryMessage::ScmRights(&descriptors));
        debug_assert!(has_space);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match retry_on_intr(|| sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, flags)) {
            Ok(_) => Ok(()),
            // The queue of the socket, or of all passed descriptors of this user, is full.
            Err(Errno::NOBUFS | Errno::TOOMANYREFS) => Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Receives a packet, and returns its number and its descriptor, which is closed when the
    /// process executes another program.
    ///
    /// # Errors
    /// Returns `WouldBlock` if no packet has arrived, `InvalidData` if the packet is not one that
    /// [`send`](Self::send) sends, and otherwise the system's error. The packet is lost, and all
    /// its descriptors are closed.
    ///
    /// If this process can open no more descriptors, returns an error for which [`is_shortage`]
    /// returns true. The packet is then kept and can be received later.
    pub fn receive(&self) -> io::Result<(u64, OwnedFd)> {
        // If this process cannot open the descriptors of a packet, the packet would arrive without
        // descriptors, and these would be lost. So the packet is first read with `MSG_PEEK`, which
        // opens the descriptors as well, and only then removed.
        let packet = self.peek();
        let is_invalid = |error: &io::Error| error.kind() == io::ErrorKind::InvalidData;
        if packet.as_ref().err().is_none_or(is_invalid) {
            // The call has no buffer for descriptors, so the system closes those of the packet.
            let _ = recv(&self.0, &mut [0_u8; 1], RecvFlags::DONTWAIT);
        }
        packet
    }

    /// Removes the next packet without opening its descriptor, which the system closes. Returns the
    /// number of the packet.
    ///
    /// # Errors
    /// Returns `WouldBlock` if no packet has arrived, `InvalidData` if the packet is not one that
    /// [`send`](Self::send) sends, and otherwise the system's error.
    pub fn discard(&self) -> io::Result<u64> {
        let mut bytes = [0; 9];
        let (len, _) = retry_on_intr(|| recv(&self.0, &mut bytes, RecvFlags::DONTWAIT))?;
        let number = bytes.first_chunk().copied().map(u64::from_le_bytes);
        number.filter(|_| len == 8).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Opens the descriptor of the next packet, which stays in the queue.
    fn peek(&self) -> io::Result<(u64, OwnedFd)> {
        let mut bytes = [0; 9];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(SYSTEM_LIMIT))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT | RecvFlags::PEEK;
        let message = retry_on_intr(|| {
            recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)
        })?;
        // Everything is owned before anything is checked, so that a refused packet is closed.
        let mut received = Vec::new();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = part {
                received.extend(descriptors);
            }
        }
        let (len, count) = (message.bytes, received.len());
        let is_valid = len == 8 && count == 1;
        let is_whole = !message.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC);
        // The control buffer has capacity for all descriptors that the system passes.
        if message.flags.contains(ReturnFlags::CTRUNC) && len == 8 && count == 0 {
            return Err(Errno::MFILE.into());
        }
        let number = bytes.first_chunk().copied().map(u64::from_le_bytes);
        let number = number.filter(|_| is_whole && is_valid);
        number.zip(received.pop()).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// Returns true if an error says that this process, or the system, can open no more descriptors.
pub fn is_shortage(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

impl AsFd for DescriptorChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
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

    fn text(descriptor: OwnedFd) -> String {
        let mut text = String::new();
        File::from(descriptor).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn descriptors_arrive_in_order_with_the_number_of_their_packet() {
        let (ours, theirs) = pair();
        ours.send(7, file("a").as_fd()).unwrap();
        ours.send(8, file("b").as_fd()).unwrap();
        let (number, descriptor) = theirs.receive().unwrap();
        let flags = rustix::io::fcntl_getfd(&descriptor).unwrap();
        assert_eq!(flags, rustix::io::FdFlags::CLOEXEC);
        assert_eq!((number, text(descriptor)), (7, "a".to_owned()));
        let (number, descriptor) = theirs.receive().unwrap();
        assert_eq!((number, text(descriptor)), (8, "b".to_owned()));
        assert_eq!(theirs.receive().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_discarded_packet_is_gone_and_its_descriptors_are_closed() {
        let (ours, theirs) = pair();
        let (mut kept, passed) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.send(7, passed.as_fd()).unwrap();
        ours.send(8, file("b").as_fd()).unwrap();
        drop(passed);
        assert_eq!(theirs.discard().unwrap(), 7);
        assert_eq!(kept.read(&mut [0]).unwrap(), 0, "the other end is closed");
        assert_eq!(theirs.receive().unwrap().0, 8);
        assert_eq!(theirs.discard().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_full_channel_refuses_packets_until_some_are_received() {
        let (ours, theirs) = pair();
        let file = file("x");
        let error = (0..).find_map(|number| ours.send(number, file.as_fd()).err()).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        while theirs.receive().is_ok() {}
        ours.send(0, file.as_fd()).unwrap();
    }

    #[test]
    fn packets_of_another_form_are_refused_and_their_descriptors_closed() {
        let (ours, theirs) = pair();
        let socket = std::os::unix::net::UnixDatagram::from(ours.0.try_clone().unwrap());
        for bytes in [&b""[..], b"short", b"long enough to be truncated", b"8 bytes!"] {
            socket.send(bytes).unwrap();
            assert_eq!(theirs.receive().unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let two = [socket.as_fd(), socket.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&two)));
        sendmsg(&ours.0, &[IoSlice::new(&[0; 8])], &mut control, SendFlags::empty()).unwrap();
        assert_eq!(theirs.receive().unwrap_err().kind(), io::ErrorKind::InvalidData);
        ours.send(1, file("a").as_fd()).unwrap();
        assert_eq!(theirs.receive().unwrap().0, 1);
        drop((ours, socket));
        assert!(theirs.receive().is_err());
    }
}
