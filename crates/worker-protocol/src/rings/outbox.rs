//! The outbox: the sender of records, with the records that the receiver does not accept yet.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use super::sender::{SendError, Sender};

/// The maximum number of bytes of memory that are kept for the next record, when one was written or
/// read.
pub const MAX_KEPT_RECORD: usize = 256 << 10;

/// The number of bytes that a waiting record needs in addition to its content.
const OVERHEAD: usize = 80;

/// The outbox of one end of rings: the sender of records, with the records that the receiver does
/// not accept yet. They are sent in order by [`flush`](Self::flush).
#[derive(Debug)]
pub struct Outbox {
    sender: Sender,
    waiting: VecDeque<WaitingRecord>,
    /// The number of bytes that `waiting` occupies.
    waiting_bytes: usize,
    /// The memory of the record that is being written.
    buffer: Vec<u8>,
}

/// A record that the receiver does not accept yet.
#[derive(Debug)]
pub struct WaitingRecord {
    /// The kind of the record.
    pub kind: u8,
    /// The content of the record.
    pub bytes: Vec<u8>,
    descriptor: Option<OwnedFd>,
}

impl WaitingRecord {
    fn size(&self) -> usize {
        self.bytes.len() + OVERHEAD
    }
}

impl Outbox {
    /// Creates an outbox without waiting records.
    pub fn new(sender: Sender) -> Outbox {
        Outbox { sender, waiting: VecDeque::new(), waiting_bytes: 0, buffer: Vec::new() }
    }

    /// Returns the sender of the records.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Returns the number of records that wait until the receiver accepts them.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of bytes that the waiting records occupy.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Sends the record that `write` writes into an empty vector. `write` returns the kind of the
    /// record, or `None` if the record must not be sent. A copy of `descriptor` crosses with the
    /// record. The record waits if the receiver does not accept it yet, or if the record is so long
    /// that it needs a file and the system provides none.
    ///
    /// # Errors
    /// Returns [`SendError::System`] if the record must not be sent or the system cannot copy
    /// `descriptor`, and [`SendError::Malformed`] if the receiver has violated the protocol. The
    /// record is then neither sent nor waiting.
    pub fn send(
        &mut self,
        descriptor: Option<BorrowedFd<'_>>,
        write: impl FnOnce(&mut Vec<u8>) -> Option<u8>,
    ) -> Result<(), SendError> {
        let mut bytes = std::mem::take(&mut self.buffer);
        bytes.clear();
        let sent = match write(&mut bytes) {
            Some(kind) => self.send_bytes(kind, &bytes, descriptor),
            None => Err(SendError::System),
        };
        if bytes.capacity() <= MAX_KEPT_RECORD {
            self.buffer = bytes;
        }
        sent
    }

    fn send_bytes(
        &mut self,
        kind: u8,
        bytes: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), SendError> {
        if self.waiting.is_empty() {
            match self.sender.send(kind, bytes, descriptor) {
                Err(SendError::Full) => {}
                Err(SendError::System) if descriptor.is_none() => {}
                sent => return sent,
            }
        }
        let copy = descriptor.map(|it| it.try_clone_to_owned()).transpose();
        let descriptor = copy.map_err(|_| SendError::System)?;
        let record = WaitingRecord { kind, bytes: bytes.to_owned(), descriptor };
        self.waiting_bytes += record.size();
        self.waiting.push_back(record);
        Ok(())
    }

    /// Sends waiting records until the receiver accepts no more.
    ///
    /// # Errors
    /// Returns [`SendError::System`] if the system provides no descriptor for the first waiting
    /// record, and [`SendError::Malformed`] if the receiver has violated the protocol.
    pub fn flush(&mut self) -> Result<(), SendError> {
        while let Some(record) = self.waiting.front() {
            let descriptor = record.descriptor.as_ref().map(|it| it.as_fd());
            match self.sender.send(record.kind, &record.bytes, descriptor) {
                Ok(()) => drop(self.take_first()),
                Err(SendError::Full) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes and returns the first waiting record.
    fn take_first(&mut self) -> Option<WaitingRecord> {
        let record = self.waiting.pop_front()?;
        self.waiting_bytes -= record.size();
        Some(record)
    }

    /// Replaces the first waiting record by the one that `replace` returns, which consists of a
    /// kind and a content, or removes the record if `replace` returns `None`.
    pub fn replace_first(&mut self, replace: impl FnOnce(&WaitingRecord) -> Option<(u8, Vec<u8>)>) {
        let Some(record) = self.take_first() else { return };
        if let Some((kind, bytes)) = replace(&record) {
            let record = WaitingRecord { kind, bytes, descriptor: None };
            self.waiting_bytes += record.size();
            self.waiting.push_front(record);
        }
    }

    /// Removes all waiting records.
    pub fn clear(&mut self) {
        self.waiting = VecDeque::new();
        self.waiting_bytes = 0;
    }
}
