//! The control channel.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rookery_system::{descriptor, packets};

use crate::message::{ANNOUNCEMENT, MESSAGE_BYTES, Message};

/// Whether the process at the other end of a connection is of this process's user, or the administrator's: nobody else passes
/// requests on to a worker.
pub fn is_trusted_peer(connection: BorrowedFd<'_>) -> bool {
    // SAFETY: it takes nothing and never fails.
    let own = unsafe { libc::geteuid() };
    descriptor::peer_user(connection).is_some_and(|peer| may_pass_on(peer, own))
}

fn may_pass_on(peer: libc::uid_t, own: libc::uid_t) -> bool {
    peer == own || peer == 0
}

/// One end of the channel between a supervisor and a worker: [messages](Message), one a packet. It does not wait: whoever has
/// it looks whether it is readable, which an end whose other is gone is, too.
///
/// A process that R forks has a copy of the worker's end. It is closed there before R's code runs, but the supervisor
/// should rather wait for the process (a pidfd) than for the end of the channel alone.
#[derive(Debug)]
pub struct ControlChannel(OwnedFd);

/// The maximum length of an announcement in bytes: enough for a few hundred static paths. A
/// socket's buffer holds three of them.
pub const MAX_ANNOUNCEMENT_SIZE: usize = 64 << 10;

/// What came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// A message.
    Message(Message),
    /// An announcement of a worker with its number, as bytes that this crate does not interpret:
    /// at most [`MAX_ANNOUNCEMENT_SIZE`].
    Announcement(u64, Vec<u8>),
    /// A packet that is none. The next may be one.
    Malformed,
    /// Nothing, for now.
    Nothing,
    /// The other side has gone, and nothing comes any more.
    End,
}

impl ControlChannel {
    /// A channel: the supervisor's end, and the worker's, to be [handed over](crate::WorkerEnvironment).
    ///
    /// # Errors
    /// The system's.
    pub fn pair() -> io::Result<(ControlChannel, OwnedFd)> {
        let (ours, theirs) = packets::packet_pair()?;
        Ok((ControlChannel(ours), theirs))
    }

    /// The end that a worker was given.
    ///
    /// # Errors
    /// [`InvalidData`](io::ErrorKind::InvalidData) for a descriptor of something else.
    pub fn attach(end: OwnedFd) -> io::Result<ControlChannel> {
        if ControlChannel::is_end(end.as_fd()) {
            return Ok(ControlChannel(end));
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "it is no end of a control channel"))
    }

    /// Whether a descriptor is one, of a Unix socket for packets that is connected, or was: a supervisor may have gone already.
    pub(crate) fn is_end(fd: BorrowedFd<'_>) -> bool {
        descriptor::peer_family(fd) == Some(libc::AF_UNIX)
            && descriptor::socket_option(fd, libc::SO_TYPE) == Some(libc::SOCK_SEQPACKET)
            && descriptor::socket_option(fd, libc::SO_ACCEPTCONN) == Some(0)
    }

    /// Sends a message, or says at once why not.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) when the other side has left hundreds unread; [`BrokenPipe`](io::ErrorKind::BrokenPipe)
    /// when it has gone.
    pub fn send(&self, message: Message) -> io::Result<()> {
        packets::send(self.0.as_fd(), &message.encode())
    }

    /// Sends an announcement, or returns at once with the reason why not. The supervisor answers
    /// with [`Message::Applied`] of the same number.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for more than [`MAX_ANNOUNCEMENT_SIZE`] bytes, or for more than the
    /// system takes; and as [`send`](Self::send) has them.
    pub fn announce(&self, number: u64, bytes: &[u8]) -> io::Result<()> {
        let too_long = || io::Error::from(io::ErrorKind::InvalidInput);
        if bytes.len() > MAX_ANNOUNCEMENT_SIZE {
            return Err(too_long());
        }
        match packets::send(
            self.0.as_fd(),
            &[&ANNOUNCEMENT[..], &number.to_le_bytes(), bytes].concat(),
        ) {
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => Err(too_long()),
            sent => sent,
        }
    }

    /// The next thing that came, without waiting for it.
    pub fn receive(&self) -> Received {
        // One more than a message has, to see one that is longer.
        let mut room = [0; MESSAGE_BYTES + 1];
        match packets::peek(self.0.as_fd(), &mut room) {
            Ok(len) if len > MESSAGE_BYTES && room.starts_with(&ANNOUNCEMENT) => {
                self.receive_announcement(len)
            }
            Ok(_) => self.receive_message(room),
            Err(error) => Received::of_error(&error),
        }
    }

    fn receive_message(&self, mut room: [u8; MESSAGE_BYTES + 1]) -> Received {
        match packets::receive(self.0.as_fd(), &mut room) {
            // A packet of no bytes looks the same; nobody sends one.
            Ok(0) => Received::End,
            Ok(len) if room[..len].starts_with(&ANNOUNCEMENT) => {
                Received::of_announcement(&room[..len])
            }
            Ok(len) => Message::decode(&room[..len]).map_or(Received::Malformed, Received::Message),
            Err(error) => Received::of_error(&error),
        }
    }

    /// Receives a packet that was seen to be an announcement of this length.
    fn receive_announcement(&self, len: usize) -> Received {
        let most = ANNOUNCEMENT.len() + size_of::<u64>() + MAX_ANNOUNCEMENT_SIZE;
        let mut room = vec![0; len.min(most)];
        match packets::receive(self.0.as_fd(), &mut room) {
            Ok(came) if len <= most => Received::of_announcement(&room[..came]),
            Ok(_) => Received::Malformed,
            Err(error) => Received::of_error(&error),
        }
    }
}

impl Received {
    /// Reads a packet that begins as an announcement does.
    fn of_announcement(packet: &[u8]) -> Received {
        let split = packet.get(ANNOUNCEMENT.len()..).and_then(<[u8]>::split_first_chunk);
        split.map_or(Received::Malformed, |(number, bytes)| {
            Received::Announcement(u64::from_le_bytes(*number), bytes.to_vec())
        })
    }

    fn of_error(error: &io::Error) -> Received {
        match error.kind() {
            io::ErrorKind::WouldBlock => Received::Nothing,
            // It has ended with bytes of ours unread (ECONNRESET), or is none of ours any more.
            _ => Received::End,
        }
    }
}

impl AsFd for ControlChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for ControlChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_user_and_the_administrator_may_pass_requests_on() {
        for (peer, own, expected) in [
            (0, 0, true),
            (7, 7, true),
            (0, 7, true),
            (7, 0, false),
            (7, 8, false),
            (u32::MAX, 7, false),
        ] {
            assert_eq!(may_pass_on(peer, own), expected, "{peer} to {own}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    #[cfg_attr(miri, ignore = "sockets")]
    fn our_own_other_end_is_ours_and_what_is_no_unix_socket_is_not() {
        let (end, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(is_trusted_peer(end.as_fd()));
        assert!(!is_trusted_peer(std::fs::File::open("/dev/null").unwrap().as_fd()));
    }
}
