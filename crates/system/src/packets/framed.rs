//! Unix sockets that send packets and preserve their boundaries, by stream sockets on which each
//! packet follows its length. macOS has no Unix sockets of the type `SOCK_SEQPACKET`.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::descriptor;

/// The maximum length of a packet in bytes. It limits the memory that a peer can make this process
/// allocate.
const MAX_PACKET: usize = 128 << 10;

/// The number of bytes that precede a packet: its length as 32 bits in little-endian order.
const LENGTH_BYTES: usize = 4;

/// The size in bytes that is requested for the buffers of a socket. A packet of the maximum length
/// then seldom waits in this process. macOS' default is 8 KiB.
const BUFFER_BYTES: usize = 2 * (LENGTH_BYTES + MAX_PACKET);

/// The maximum number of bytes that wait in this process until the socket accepts them.
const MAX_UNSENT: usize = 2 * (LENGTH_BYTES + MAX_PACKET);

/// The maximum number of bytes for which memory is kept after they were sent.
const KEPT_BYTES: usize = 4 << 10;

/// One end of a connected pair of sockets that preserve the boundaries of packets. No method
/// blocks.
#[derive(Debug)]
pub struct PacketSocket {
    socket: UnixStream,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The bytes that the socket has not accepted yet: the end of a packet, and whole packets. The
    /// next call of any method that sends or receives tries to send them.
    unsent: Vec<u8>,
    /// The length and the bytes of the next packet, as far as they have been received.
    received: Vec<u8>,
}

impl PacketSocket {
    /// Creates a connected pair of packet sockets. Both are closed when the process executes
    /// another program. The second one is returned as a descriptor, to be passed to another
    /// process.
    ///
    /// # Errors
    /// Returns the system's error if no more descriptors are available.
    pub fn pair() -> io::Result<(PacketSocket, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        for end in [&ours, &theirs] {
            end.set_nonblocking(true)?;
            descriptor::disable_broken_pipe_signal(end.as_fd());
            descriptor::request_buffers(end.as_fd(), BUFFER_BYTES);
        }
        Ok((PacketSocket::from_end(ours.into()), theirs.into()))
    }

    /// Wraps the descriptor of a packet socket that this process has inherited.
    pub fn from_end(end: OwnedFd) -> PacketSocket {
        PacketSocket { socket: end.into(), state: Mutex::default() }
    }

    /// Returns true if the descriptor may be an end of a pair of packet sockets, that is, a Unix
    /// stream socket that does not listen.
    pub fn is_end(fd: BorrowedFd<'_>) -> bool {
        // Once the peer is closed, macOS does not know the peer's family any more.
        descriptor::socket_family(fd) == Some(libc::AF_UNIX)
            && descriptor::socket_option(fd, libc::SO_TYPE) == Some(libc::SOCK_STREAM)
            && !descriptor::is_listening(fd)
    }

    /// Sends a packet without blocking. What the socket does not accept waits in this process, and
    /// is sent when the caller [flushes](Self::flush), sends or receives. If the peer is closed,
    /// the function returns an error instead of raising SIGPIPE.
    ///
    /// # Errors
    /// Returns `InvalidInput` for more than 128 KiB, `WouldBlock` if too many bytes already wait,
    /// `BrokenPipe` if the peer is closed, and otherwise the system's error.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        let len = u32::try_from(packet.len()).ok().filter(|_| packet.len() <= MAX_PACKET);
        let Some(len) = len else { return Err(io::ErrorKind::InvalidInput.into()) };
        let mut state = self.state();
        match self.send_unsent(&mut state) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        let frame_len = LENGTH_BYTES + packet.len();
        if state.unsent.len() + frame_len > MAX_UNSENT {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.unsent.extend_from_slice(&len.to_le_bytes());
        state.unsent.extend_from_slice(packet);
        match self.send_unsent(&mut state) {
            // Once the peer may have received the beginning of the packet, the packet cannot be
            // taken back. The next call reports the error.
            Err(error)
                if error.kind() != io::ErrorKind::WouldBlock && state.unsent.len() >= frame_len =>
            {
                let rest = state.unsent.len() - frame_len;
                state.unsent.truncate(rest);
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Returns true if bytes of packets wait in this process until the socket accepts them. The
    /// caller should then [flush](Self::flush) as soon as the descriptor is writable.
    pub fn has_unsent(&self) -> bool {
        !self.state().unsent.is_empty()
    }

    /// Sends the bytes that wait in this process.
    ///
    /// # Errors
    /// Returns `WouldBlock` if the socket does not accept everything, and otherwise the system's
    /// error.
    pub fn flush(&self) -> io::Result<()> {
        self.send_unsent(&mut self.state())
    }

    fn send_unsent(&self, state: &mut State) -> io::Result<()> {
        let mut sent = 0;
        let result = loop {
            if sent == state.unsent.len() {
                break Ok(());
            }
            match self.write(&state.unsent[sent..]) {
                Ok(len) => sent += len,
                Err(error) => break Err(error),
            }
        };
        state.unsent.drain(..sent);
        if state.unsent.is_empty() {
            state.unsent.shrink_to(KEPT_BYTES);
        }
        result
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match (&self.socket).write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => return written,
            }
        }
    }

    /// Receives a packet without blocking, and returns how many bytes were stored in `buffer`. If
    /// the packet is longer than `buffer`, its remaining bytes are lost. Returns 0 if the peer is
    /// closed.
    ///
    /// # Errors
    /// Returns `WouldBlock` if no whole packet has arrived, `InvalidData` if the peer announces a
    /// packet of more than 128 KiB, and otherwise the system's error.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.state();
        let is_end = !self.receive_whole(&mut state)?;
        let received = std::mem::take(&mut state.received);
        if is_end {
            return Ok(0);
        }
        let packet = &received[LENGTH_BYTES..];
        let len = packet.len().min(buffer.len());
        buffer[..len].copy_from_slice(&packet[..len]);
        Ok(len)
    }

    /// Copies the beginning of the next packet to `buffer`, and leaves the packet in the queue.
    /// Returns the length of the whole packet, which may exceed that of `buffer`.
    ///
    /// # Errors
    /// Returns the errors of [`receive`](Self::receive).
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.state();
        if !self.receive_whole(&mut state)? {
            return Ok(0);
        }
        let packet = &state.received[LENGTH_BYTES..];
        let len = packet.len().min(buffer.len());
        buffer[..len].copy_from_slice(&packet[..len]);
        Ok(packet.len())
    }

    /// Receives the bytes of the next packet until it is complete. Reads no byte of a later packet,
    /// so that the socket stays readable while there is one. Returns false at the end of the
    /// stream.
    fn receive_whole(&self, state: &mut State) -> io::Result<bool> {
        // If the peer is closed, what it has sent before can still be received.
        let _ = self.send_unsent(state);
        loop {
            let wanted = match state.received.first_chunk::<LENGTH_BYTES>() {
                None => LENGTH_BYTES,
                Some(length) => match usize::try_from(u32::from_le_bytes(*length)) {
                    Ok(len) if len <= MAX_PACKET => LENGTH_BYTES + len,
                    _ => return Err(io::ErrorKind::InvalidData.into()),
                },
            };
            let have = state.received.len();
            if have == wanted {
                return Ok(true);
            }
            state.received.resize(wanted, 0);
            let read = (&self.socket).read(&mut state.received[have..]);
            state.received.truncate(have + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Ok(false),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic leaves the value consistent, because no call between its changes panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    fn pair() -> (PacketSocket, PacketSocket) {
        let (ours, theirs) = PacketSocket::pair().unwrap();
        assert!(PacketSocket::is_end(theirs.as_fd()));
        (ours, PacketSocket::from_end(theirs))
    }

    /// Compares a pair of sockets with a queue, for random orders of calls and sizes of packets, of
    /// which some fill the socket's buffer.
    #[test]
    #[cfg_attr(miri, ignore = "sockets")]
    fn packets_arrive_whole_and_in_order_after_any_sequence_of_calls() {
        let mut state = 0x2545_F491_4F6C_DD1D_u64;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as usize % below
        };
        for _ in 0..30 {
            let (sender, receiver) = pair();
            let mut model: VecDeque<Vec<u8>> = VecDeque::new();
            let mut was_full = false;
            for number in 0..400_u32 {
                let largest = [16, 3000, MAX_PACKET][random(3)];
                let mut buffer = vec![0; [8, 17, MAX_PACKET][random(3)]];
                match random(5) {
                    0..=1 => {
                        let packet = vec![number as u8; 1 + random(largest)];
                        match sender.send(&packet) {
                            Ok(()) => model.push_back(packet),
                            Err(error) => {
                                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                                was_full = true;
                            }
                        }
                    }
                    2 => match (receiver.peek(&mut buffer), model.front()) {
                        (Ok(len), Some(packet)) => {
                            let seen = len.min(buffer.len());
                            assert_eq!((len, &buffer[..seen]), (packet.len(), &packet[..seen]));
                        }
                        // The end of the packet waits until its sender is called again.
                        (seen, packet) => assert!(seen.is_err(), "{packet:?}"),
                    },
                    // Each side sends the rest of its last packet when it receives.
                    3 => assert!(sender.receive(&mut buffer).is_err()),
                    _ => {
                        if let Ok(len) = receiver.receive(&mut buffer) {
                            let packet = model.pop_front().expect("it was sent");
                            assert_eq!(len, packet.len().min(buffer.len()));
                            assert_eq!(&buffer[..len], &packet[..len]);
                        }
                    }
                }
            }
            let mut room = vec![0; MAX_PACKET];
            while let Some(packet) = model.pop_front() {
                let len = loop {
                    let _ = sender.receive(&mut [0]);
                    match receiver.receive(&mut room) {
                        Ok(len) => break len,
                        Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                    }
                };
                assert!(room[..len] == packet);
            }
            let error = receiver.receive(&mut room).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{was_full}");
            drop(sender);
            assert_eq!(receiver.receive(&mut room).unwrap(), 0);
            assert_eq!(receiver.send(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "sockets")]
    fn small_packets_wait_behind_a_large_one_and_flushing_sends_them_when_there_is_room() {
        let (sender, receiver) = pair();
        descriptor::request_buffers(sender.as_fd(), 4096);
        descriptor::request_buffers(receiver.as_fd(), 4096);
        sender.send(&vec![1; 64 << 10]).unwrap();
        sender.send(b"ready").unwrap();
        assert!(sender.has_unsent());
        let mut room = vec![0; MAX_PACKET];
        let mut packets = Vec::new();
        while packets.len() < 2 {
            // Only the sender's readiness to write makes it continue.
            let mut poll = libc::pollfd {
                fd: std::os::fd::AsRawFd::as_raw_fd(&sender.as_fd()),
                events: libc::POLLOUT,
                revents: 0,
            };
            // SAFETY: `poll` is one valid entry.
            if sender.has_unsent() && unsafe { libc::poll(&raw mut poll, 1, 0) } == 1 {
                let _ = sender.flush();
            }
            match receiver.receive(&mut room) {
                Ok(len) => packets.push(room[..len].to_vec()),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        assert_eq!(packets, [vec![1; 64 << 10], b"ready".to_vec()]);
        assert!(!sender.has_unsent());
        assert!(sender.state().unsent.capacity() <= KEPT_BYTES);
    }

    #[test]
    #[cfg_attr(miri, ignore = "sockets")]
    fn the_bytes_that_wait_are_limited() {
        let (sender, _receiver) = pair();
        let refused = (0..100).find_map(|_| sender.send(&vec![0; MAX_PACKET]).err());
        assert_eq!(refused.unwrap().kind(), io::ErrorKind::WouldBlock);
        while sender.send(b"small").is_ok() {}
        let unsent = sender.state().unsent.len();
        assert!((MAX_UNSENT - 8..=MAX_UNSENT).contains(&unsent), "{unsent}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "sockets")]
    fn a_hostile_peer_can_neither_announce_a_huge_packet_nor_block_the_receiver() {
        let (ours, theirs) = pair();
        let mut room = [0; 8];
        (&theirs.socket).write_all(&[5, 0]).unwrap();
        assert_eq!(ours.peek(&mut room).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        (&theirs.socket).write_all(&[0, 0, b'a', b'b']).unwrap();
        assert_eq!(ours.receive(&mut room).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        (&theirs.socket).write_all(b"cde").unwrap();
        assert_eq!((ours.peek(&mut room).unwrap(), &room[..5]), (5, &b"abcde"[..]));
        assert_eq!(ours.receive(&mut room).unwrap(), 5);
        for len in [MAX_PACKET as u32 + 1, u32::MAX] {
            let (ours, theirs) = pair();
            (&theirs.socket).write_all(&len.to_le_bytes()).unwrap();
            assert_eq!(ours.peek(&mut room).unwrap_err().kind(), io::ErrorKind::InvalidData);
            assert_eq!(ours.receive(&mut room).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        // The peer has ended in the middle of a packet.
        let (ours, theirs) = pair();
        (&theirs.socket).write_all(&[5, 0, 0, 0, b'a']).unwrap();
        drop(theirs);
        assert_eq!(ours.receive(&mut room).unwrap(), 0);
        let too_long = ours.send(&vec![0; MAX_PACKET + 1]).unwrap_err();
        assert_eq!(too_long.kind(), io::ErrorKind::InvalidInput);
    }
}
