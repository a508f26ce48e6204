//! The control channel: the socket over which a supervisor and a worker exchange messages.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rookery_system::linux::packets::PacketSocket;

use crate::error_report::{ErrorReport, MAX_ERROR_REPORT_SIZE};
use crate::message::{ANNOUNCEMENT, ERROR_REPORT, MESSAGE_BYTES, Message};

/// One end of the control channel, over which a supervisor and a worker exchange
/// [messages](Message), one in each packet. No method blocks. Callers poll the descriptor, which
/// also becomes readable when the other end is closed.
///
/// A process that R forks inherits a copy of the worker's end. The copy is closed before R code
/// runs in that process, but until then it keeps the channel open. A supervisor should therefore
/// not wait for the end of the channel alone, but also for the exit of the worker process (with a
/// pidfd).
#[derive(Debug)]
pub struct ControlChannel(PacketSocket);

/// The maximum length in bytes of an announcement (a worker's list of its static paths), which is
/// enough for a few hundred paths.
pub const MAX_ANNOUNCEMENT_SIZE: usize = 64 << 10;

/// The result of [`ControlChannel::receive`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// A message from the other side of the control channel.
    Message(Message),
    /// An announcement (a worker's list of its static paths), as its number and at most
    /// [`MAX_ANNOUNCEMENT_SIZE`] bytes. This crate does not interpret the bytes.
    Announcement(u64, Vec<u8>),
    /// A worker's report of an error in R.
    Error(ErrorReport),
    /// A packet that is none of these. Later packets may be valid.
    Malformed,
    /// No packet has arrived on the control channel since the last call.
    Nothing,
    /// The end of the control channel. The other side has closed it, so no more packets will
    /// arrive.
    End,
}

impl ControlChannel {
    /// Creates a control channel and returns the supervisor's end and the worker's end. Pass the
    /// worker's end on to the worker in a [`WorkerEnvironment`](crate::WorkerEnvironment).
    ///
    /// # Errors
    /// Returns the system's error if the socket pair cannot be created.
    pub fn pair() -> io::Result<(ControlChannel, OwnedFd)> {
        let (ours, theirs) = PacketSocket::pair()?;
        Ok((ControlChannel(ours), theirs))
    }

    /// Wraps the descriptor of the worker's end of a control channel, which the worker inherited.
    ///
    /// # Errors
    /// Returns [`InvalidData`](io::ErrorKind::InvalidData) if the descriptor is not an end of a
    /// control channel.
    pub fn attach(end: OwnedFd) -> io::Result<ControlChannel> {
        if ControlChannel::is_end(end.as_fd()) {
            return Ok(ControlChannel(PacketSocket::from_end(end)));
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the descriptor is not an end of a control channel",
        ))
    }

    /// Returns true if the descriptor may be an end of a control channel, that is, a Unix socket
    /// that is or was connected. A socket that is no longer connected is accepted because the
    /// supervisor may already have closed the other end.
    pub(crate) fn is_end(fd: BorrowedFd<'_>) -> bool {
        PacketSocket::is_end(fd)
    }

    /// Sends a message over the control channel without blocking.
    ///
    /// # Errors
    /// - [`WouldBlock`](io::ErrorKind::WouldBlock) if the other side has left hundreds of messages
    ///   unread.
    /// - [`BrokenPipe`](io::ErrorKind::BrokenPipe) if the other end is closed.
    pub fn send(&self, message: Message) -> io::Result<()> {
        self.0.send(&message.encode())
    }

    /// Sends an announcement (a worker's list of its static paths) to the supervisor without
    /// blocking. The supervisor acknowledges the announcement with a [`Message::Applied`] of the
    /// same number.
    ///
    /// # Errors
    /// Returns [`InvalidInput`](io::ErrorKind::InvalidInput) for more than
    /// [`MAX_ANNOUNCEMENT_SIZE`] bytes or for more than the system accepts in one packet, and the
    /// errors of [`send`](Self::send).
    pub fn announce(&self, number: u64, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > MAX_ANNOUNCEMENT_SIZE {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.0.send(&[&ANNOUNCEMENT[..], &number.to_le_bytes(), bytes].concat())
    }

    /// Sends the report of an error in R to the supervisor without blocking.
    ///
    /// # Errors
    /// Returns the errors of [`send`](Self::send).
    pub fn report_error(&self, report: &ErrorReport) -> io::Result<()> {
        self.0.send(&[&ERROR_REPORT[..], &report.encode()].concat())
    }

    /// Receives the next packet from the control channel, or returns [`Received::Nothing`] if none
    /// has arrived. Never blocks.
    pub fn receive(&self) -> Received {
        // One byte more than a message has, so that a longer packet is recognized.
        let mut room = [0; MESSAGE_BYTES + 1];
        match self.0.peek(&mut room) {
            Ok(len) if len > MESSAGE_BYTES && room.starts_with(&ANNOUNCEMENT) => {
                self.receive_announcement(len)
            }
            Ok(len) if room.starts_with(&ERROR_REPORT) => self.receive_error(len),
            Ok(_) => self.receive_message(room),
            Err(error) => Received::of_error(&error),
        }
    }

    /// Receives the next packet of the control channel, which is an error report. `len` is the
    /// length of the packet in bytes.
    fn receive_error(&self, len: usize) -> Received {
        let most = ERROR_REPORT.len() + MAX_ERROR_REPORT_SIZE;
        let mut room = vec![0; len.min(most)];
        match self.0.receive(&mut room) {
            Ok(came) if len <= most => {
                let bytes = room[..came].get(ERROR_REPORT.len()..).unwrap_or_default();
                Received::Error(ErrorReport::decode(bytes))
            }
            Ok(_) => Received::Malformed,
            Err(error) => Received::of_error(&error),
        }
    }

    fn receive_message(&self, mut room: [u8; MESSAGE_BYTES + 1]) -> Received {
        match self.0.receive(&mut room) {
            // A packet without bytes looks the same as the end, but neither side sends such
            // packets.
            Ok(0) => Received::End,
            Ok(len) if room[..len].starts_with(&ANNOUNCEMENT) => {
                Received::of_announcement(&room[..len])
            }
            Ok(len) => Message::decode(&room[..len]).map_or(Received::Malformed, Received::Message),
            Err(error) => Received::of_error(&error),
        }
    }

    /// Receives the next packet of the control channel, which is an announcement (a worker's list
    /// of its static paths). `len` is the length of the packet in bytes.
    fn receive_announcement(&self, len: usize) -> Received {
        let most = ANNOUNCEMENT.len() + size_of::<u64>() + MAX_ANNOUNCEMENT_SIZE;
        let mut room = vec![0; len.min(most)];
        match self.0.receive(&mut room) {
            Ok(came) if len <= most => Received::of_announcement(&room[..came]),
            Ok(_) => Received::Malformed,
            Err(error) => Received::of_error(&error),
        }
    }
}

impl Received {
    /// Decodes a packet of the control channel that begins with the marker of an announcement.
    fn of_announcement(packet: &[u8]) -> Received {
        let split = packet.get(ANNOUNCEMENT.len()..).and_then(<[u8]>::split_first_chunk);
        split.map_or(Received::Malformed, |(number, bytes)| {
            Received::Announcement(u64::from_le_bytes(*number), bytes.to_vec())
        })
    }

    fn of_error(error: &io::Error) -> Received {
        match error.kind() {
            io::ErrorKind::WouldBlock => Received::Nothing,
            // The other side has exited with unread messages in its buffer (ECONNRESET), or the
            // descriptor is no longer an end of a channel.
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
        self.0.as_fd().as_raw_fd()
    }
}
