//! The outbox: the sender of records, with the records that the receiver does not accept yet.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use super::layout::{Lane, MAX_RECORD_LEN};
use super::sender::{SendError, Sender, SentPart};

/// The maximum number of bytes of memory that are kept for the next record, when one was written or
/// read.
pub const MAX_KEPT_RECORD: usize = 256 << 10;

/// The number of bytes that a waiting record needs in addition to its content.
const OVERHEAD: usize = 80;

/// The outbox of one end of rings: the sender of records, with the records that the receiver does
/// not accept yet. [`flush`](Self::flush) sends the records of each lane in order. Each waiting
/// record keeps a value of the type `K`, which is dropped once the record has been sent.
#[derive(Debug)]
pub struct Outbox<K = ()> {
    sender: Sender,
    waiting: [VecDeque<WaitingRecord<K>>; Lane::COUNT],
    /// The number of bytes that the waiting records of each lane occupy.
    waiting_bytes: [usize; Lane::COUNT],
    /// The memory of the record that is being written.
    buffer: Vec<u8>,
}

/// A record, or the rest of one, that the receiver does not accept yet.
#[derive(Debug)]
pub struct WaitingRecord<K = ()> {
    /// The kind of the record.
    pub kind: u8,
    /// The content of the record, or what has not been sent of it before the record had to wait.
    pub bytes: Vec<u8>,
    /// The number of these bytes that have been sent since then.
    sent: usize,
    descriptor: Option<OwnedFd>,
    _kept: K,
}

impl<K> WaitingRecord<K> {
    fn size(&self) -> usize {
        self.bytes.len() + OVERHEAD
    }
}

/// What a record has beside the bytes that its sender writes.
#[derive(Debug, Default)]
pub struct Beside<'a> {
    /// The descriptor of which a copy crosses with the record.
    pub descriptor: Option<BorrowedFd<'a>>,
    /// The last bytes of the record. They are not copied into memory of this process, unless they
    /// have to wait.
    pub tail: &'a [u8],
}

impl<K> Outbox<K> {
    /// Creates an outbox without waiting records.
    pub fn new(sender: Sender) -> Outbox<K> {
        Outbox { sender, waiting: Default::default(), waiting_bytes: [0; 2], buffer: Vec::new() }
    }

    /// Returns the sender of the records.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Returns the last part of the record of a lane that was just sent. The part cannot be
    /// withdrawn if the record waits until the receiver accepts the rest of it.
    pub fn last(&self, lane: Lane) -> SentPart {
        let part = self.sender.last();
        if self.waiting(lane) == 0 { part } else { part.fixed() }
    }

    /// Withdraws a record that was sent ([`Sender::withdraw`]).
    pub fn withdraw(&mut self, part: SentPart, out: &mut Vec<u8>) -> Option<u8> {
        self.sender.withdraw(part, out)
    }

    /// Returns true if a record of a lane that has `len` bytes, at most [`MAX_RECORD_LEN`], would
    /// not have to wait. A receiver that has violated the protocol is found when it is sent.
    pub fn find_block(&mut self, lane: Lane, len: usize) -> bool {
        self.waiting(lane) == 0 && self.sender.find_block(lane, len).unwrap_or(true)
    }

    /// Returns the number of records of a lane that wait until the receiver accepts them.
    pub fn waiting(&self, lane: Lane) -> usize {
        self.waiting[lane as usize].len()
    }

    /// Returns the number of records of all lanes that wait.
    pub fn all_waiting(&self) -> usize {
        self.waiting.iter().map(VecDeque::len).sum()
    }

    /// Returns true if records of any lane wait.
    pub fn has_waiting(&self) -> bool {
        self.all_waiting() > 0
    }

    /// Returns the number of bytes that the waiting records of a lane occupy.
    pub fn waiting_bytes(&self, lane: Lane) -> usize {
        self.waiting_bytes[lane as usize]
    }

    /// Sends a record: the bytes that `write` writes into an empty vector, and then the tail.
    /// `write` returns the kind of the record, or `None` if the record must not be sent. If the
    /// receiver has not returned enough blocks for a record in parts, `wait` is called with the
    /// number of bytes that have been sent, and waits for more blocks or returns false. The rest of
    /// the record then waits in this outbox, together with the value that `keep` makes from the
    /// number of waiting bytes.
    ///
    /// # Errors
    /// Returns [`SendError::System`] if the record must not be sent, is too long, or has a
    /// descriptor that the system cannot copy, and [`SendError::Malformed`] if the receiver has
    /// violated the protocol. The record is then neither sent nor waiting.
    pub fn send(
        &mut self,
        lane: Lane,
        beside: Beside<'_>,
        write: impl FnOnce(&mut Vec<u8>) -> Option<u8>,
        wait: impl FnMut(usize) -> bool,
        keep: impl FnOnce(usize) -> K,
    ) -> Result<(), SendError> {
        let mut bytes = std::mem::take(&mut self.buffer);
        bytes.clear();
        let result = match write(&mut bytes) {
            Some(kind) => self.send_bytes((lane, kind), &bytes, beside, wait, keep),
            None => Err(SendError::System),
        };
        if bytes.capacity() <= MAX_KEPT_RECORD {
            self.buffer = bytes;
        }
        result
    }

    fn send_bytes(
        &mut self,
        (lane, kind): (Lane, u8),
        bytes: &[u8],
        Beside { descriptor, tail }: Beside<'_>,
        mut wait: impl FnMut(usize) -> bool,
        keep: impl FnOnce(usize) -> K,
    ) -> Result<(), SendError> {
        let mut sent = 0;
        let is_long = bytes.len() + tail.len() > MAX_RECORD_LEN;
        if self.waiting[lane as usize].is_empty() {
            loop {
                match self.sender.send_parts((lane, kind), [bytes, tail], descriptor, &mut sent) {
                    Err(SendError::Full) if is_long && wait(sent) => {}
                    Err(SendError::Full) => break,
                    result => return result,
                }
            }
        }
        let descriptor = descriptor.filter(|_| sent == 0);
        let descriptor = descriptor.map(|it| it.try_clone_to_owned()).transpose();
        let descriptor = descriptor.map_err(|_| SendError::System)?;
        let first = bytes.get(sent..).unwrap_or_default();
        let second = &tail[sent.saturating_sub(bytes.len())..];
        let bytes = [first, second].concat();
        let kept = keep(bytes.len() + OVERHEAD);
        let record = WaitingRecord { kind, bytes, sent: 0, descriptor, _kept: kept };
        self.waiting_bytes[lane as usize] += record.size();
        self.waiting[lane as usize].push_back(record);
        Ok(())
    }

    /// Sends waiting records until the receiver accepts no more.
    ///
    /// # Errors
    /// Returns [`SendError::System`] if the system does not accept the descriptor of the first
    /// waiting record of [`Lane::Requests`], and [`SendError::Malformed`] if the receiver has
    /// violated the protocol.
    pub fn flush(&mut self) -> Result<(), SendError> {
        for lane in [Lane::Messages, Lane::Requests] {
            while let Some(record) = self.waiting[lane as usize].front_mut() {
                let WaitingRecord { kind, bytes, sent, descriptor, .. } = record;
                let descriptor = descriptor.as_ref().map(|it| it.as_fd());
                match self.sender.send_parts((lane, *kind), [bytes, b""], descriptor, sent) {
                    Ok(()) => drop(self.take_first(lane)),
                    Err(SendError::Full) => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Removes and returns the first waiting record of a lane.
    fn take_first(&mut self, lane: Lane) -> Option<WaitingRecord<K>> {
        let record = self.waiting[lane as usize].pop_front()?;
        self.waiting_bytes[lane as usize] -= record.size();
        Some(record)
    }

    /// Removes and returns the first waiting record of [`Lane::Requests`], whose descriptor the
    /// system does not accept.
    pub fn take_refused(&mut self) -> Option<WaitingRecord<K>> {
        self.take_first(Lane::Requests)
    }

    /// Removes all waiting records.
    pub fn clear(&mut self) {
        (self.waiting, self.waiting_bytes) = Default::default();
    }
}
