//! The sender of records: it owns the blocks of a slab.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use rookery_system::linux::descriptor_channel::DescriptorChannel;

use super::layout::{
    BLOCKS, CLASSES, IS_WITHDRAWN, Lane, MAX_LONG_RECORD, MAX_RECORD_LEN, Mapping, Place, Record,
    Side, WORDS, place,
};
use super::receiver::Malformed;
use super::sync::AtomicU64;

/// The sender of records to the other process. It belongs to one thread at a time.
#[derive(Debug)]
pub struct Sender {
    mapping: Arc<Mapping>,
    side: Side,
    channel: Arc<DescriptorChannel>,
    /// The number of packets that were sent through the channel.
    packets: u64,
    /// The number of words that were sent: one for each part of a record.
    sent: usize,
    /// The word of the last part, or 0 if that part cannot be withdrawn.
    last: u64,
    /// The number of blocks that were returned.
    returned: usize,
    /// The free blocks of each class. The block that was returned last is used first, because it is
    /// most likely in the processor's cache.
    free: [Vec<u16>; CLASSES.len()],
    /// The lane for which the receiver has each block. A receiver that returns a block which it
    /// does not have violates the protocol.
    lent: Box<[Option<Lane>; BLOCKS]>,
    /// The number of blocks of each class that the receiver has for [`Lane::Messages`].
    of_messages: [usize; CLASSES.len()],
}

/// A part of a record that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentPart {
    /// The number of the part, counted from 1.
    pub number: usize,
    /// The word that describes the part, or 0 if the part cannot be withdrawn.
    word: u64,
}

impl SentPart {
    /// Returns true if the part can be withdrawn while the receiver has not taken it.
    pub fn is_withdrawable(self) -> bool {
        self.word != 0
    }

    /// Returns the same part as one that cannot be withdrawn.
    pub(super) fn fixed(self) -> SentPart {
        SentPart { word: 0, ..self }
    }
}

/// The index of the largest class of blocks.
const LARGEST: usize = CLASSES.len() - 1;

/// The number of the largest blocks that records do not use which fit into smaller ones, so that
/// long records always make progress.
pub(super) const RESERVED: usize = CLASSES[LARGEST].count / 8;

/// The reason why a record was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// The receiver has not returned enough blocks, or not received enough descriptors. The record,
    /// or the rest of it, can be sent later.
    Full,
    /// The other process has returned a block that was not in use.
    Malformed,
    /// The system has refused a descriptor, or the record is too long.
    System,
}

impl From<Malformed> for SendError {
    fn from(_: Malformed) -> SendError {
        SendError::Malformed
    }
}

impl Sender {
    pub(super) fn new(
        mapping: Arc<Mapping>,
        channel: Arc<DescriptorChannel>,
        side: Side,
    ) -> Sender {
        let mut free = [const { Vec::new() }; CLASSES.len()];
        let mut first = 0;
        for (class, free) in CLASSES.into_iter().zip(&mut free) {
            *free = (first..first + class.count).rev().map(|block| block as u16).collect();
            first += class.count;
        }
        Sender {
            mapping,
            side,
            channel,
            packets: 0,
            sent: 0,
            last: 0,
            returned: 0,
            free,
            lent: Box::new([None; BLOCKS]),
            of_messages: [0; CLASSES.len()],
        }
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn channel(&self) -> &DescriptorChannel {
        &self.channel
    }

    /// Returns the number of parts of records that were sent. A short record has one part.
    pub fn sent(&self) -> usize {
        self.sent
    }

    /// Returns the part that was sent last. It can be withdrawn if it is a whole record without a
    /// descriptor.
    pub fn last(&self) -> SentPart {
        SentPart { number: self.sent, word: self.last }
    }

    /// Returns true if the receiver has not taken the part with this number, counted from 1.
    pub fn is_unread(&self, number: usize) -> bool {
        self.unread_word(number).is_some_and(|word| word.load(Relaxed) != 0)
    }

    /// Returns the word of the part with this number, unless a later part has replaced the word.
    fn unread_word(&self, number: usize) -> Option<&AtomicU64> {
        let words = &self.mapping.sent_by(self.side).records.0;
        let is_recent = number > 0 && self.sent - number < WORDS;
        is_recent.then(|| &words[(number - 1) % WORDS])
    }

    /// Withdraws a record that the receiver has not taken. Appends the bytes of the record to
    /// `out`, and returns its kind. The receiver then skips the record, and returns its block as
    /// usual.
    /// Returns `None` if the receiver has taken the record, and for a record in several parts or
    /// with a descriptor, which cannot be withdrawn.
    pub fn withdraw(&mut self, part: SentPart, out: &mut Vec<u8>) -> Option<u8> {
        let (record, place) = Record::of_word(part.word)?;
        let word = self.unread_word(part.number)?;
        word.compare_exchange(part.word, part.word | IS_WITHDRAWN, AcqRel, Relaxed).ok()?;
        let slab = &self.mapping.sent_by(self.side).slab.0;
        // SAFETY: the block has this length, because it was sent with the record. Only this sender
        // writes to the block, except for a hostile process.
        unsafe { slab.read(place, record.len(), out) };
        Some(record.kind)
    }

    /// Sends a record of [`Lane::Requests`] that fits into one block. The receiver is not woken:
    /// see [`SleepWord::wake_sleeper`](super::SleepWord::wake_sleeper).
    ///
    /// # Errors
    /// Returns the reason if the record was not sent.
    ///
    /// # Panics
    /// Panics if `kind` is 0, or if the record is longer than [`MAX_RECORD_LEN`].
    pub fn send(
        &mut self,
        kind: u8,
        bytes: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), SendError> {
        assert!(bytes.len() <= MAX_RECORD_LEN, "a longer record may be sent in part");
        self.send_parts((Lane::Requests, kind), [bytes, b""], descriptor, &mut 0)
    }

    /// Sends a record, whose bytes are those of both slices together, in one or several parts. A
    /// copy of `descriptor` crosses with the first part. `sent` is the number of bytes that earlier
    /// calls have sent, and is increased by those that this call sends. Between these calls, no
    /// other record of the lane may be sent. The receiver is not woken: see
    /// [`SleepWord::wake_sleeper`](super::SleepWord::wake_sleeper).
    ///
    /// # Errors
    /// Returns the reason if the record, or the rest of it, was not sent.
    ///
    /// # Panics
    /// Panics if `kind` is 0.
    pub fn send_parts(
        &mut self,
        (lane, kind): (Lane, u8),
        [first, second]: [&[u8]; 2],
        descriptor: Option<BorrowedFd<'_>>,
        sent: &mut usize,
    ) -> Result<(), SendError> {
        assert!(kind != 0, "0 means that a word is free");
        let total = first.len() + second.len();
        if total > MAX_LONG_RECORD {
            return Err(SendError::System);
        }
        loop {
            let rest = total - *sent;
            let len = rest.min(MAX_RECORD_LEN);
            let (block, place) = self.take_block(lane, len)?;
            let descriptor = descriptor.filter(|_| *sent == 0);
            if let Some(descriptor) = descriptor {
                // The receiver would take a packet whose record is not sent for that of the next
                // record, so the block comes first.
                if let Err(error) = self.send_descriptor(descriptor) {
                    self.take_back(block, place);
                    return Err(error);
                }
            }
            let head = first.get(*sent..).unwrap_or_default();
            let head = &head[..head.len().min(len)];
            let from = sent.saturating_sub(first.len());
            let tail = &second[from..from + len - head.len()];
            let slab = &self.mapping.sent_by(self.side).slab.0;
            // SAFETY: the block has at least the length of both slices. Nothing else accesses the
            // block, because the receiver has returned it or has never had it; if a hostile process
            // writes to it nevertheless, that process receives other bytes. The slices are not in
            // the mapping.
            unsafe {
                slab.write(place, 0, head);
                if !tail.is_empty() {
                    slab.write(place, head.len(), tail);
                }
            }
            let has_descriptor = descriptor.is_some();
            let word = self.publish(Record { kind, lane, has_descriptor, block, rest })?;
            self.last = if len == total && !has_descriptor { word } else { 0 };
            *sent += len;
            if *sent == total {
                return Ok(());
            }
        }
    }

    #[cold]
    fn send_descriptor(&mut self, descriptor: BorrowedFd<'_>) -> Result<(), SendError> {
        match self.channel.send(self.packets, descriptor) {
            Ok(()) => {
                self.packets += 1;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(SendError::Full),
            Err(_) => Err(SendError::System),
        }
    }

    /// Passes a block that contains a record, or a part of one, to the receiver. Returns the word
    /// that describes the block.
    fn publish(&mut self, record: Record) -> Result<u64, SendError> {
        let words = &self.mapping.sent_by(self.side).records.0;
        let word = &words[self.sent % WORDS];
        if word.load(Relaxed) != 0 {
            // There are fewer blocks than words, so the receiver has returned a block without
            // clearing the word of its record.
            return Err(SendError::Malformed);
        }
        let value = record.word();
        word.store(value, Release);
        self.sent += 1;
        Ok(value)
    }

    /// Takes a free block for `len` bytes of a record. A small record may use a larger block.
    fn take_block(&mut self, lane: Lane, len: usize) -> Result<(usize, Place), SendError> {
        let class = self.class_for(lane, len)?.ok_or(SendError::Full)?;
        let block = usize::from(self.free[class].pop().expect("`may_use` has found one"));
        self.lent[block] = Some(lane);
        self.of_messages[class] += lane as usize;
        let place = place(block).expect("a free block exists");
        Ok((block, place))
    }

    /// Returns true if there is a free block for a record of a lane that has `len` bytes, at most
    /// [`MAX_RECORD_LEN`].
    ///
    /// # Errors
    /// Returns [`Malformed`] if the receiver has violated the protocol.
    pub fn find_block(&mut self, lane: Lane, len: usize) -> Result<bool, Malformed> {
        Ok(self.class_for(lane, len)?.is_some())
    }

    /// Returns the class of the free block that a record of `len` bytes uses.
    fn class_for(&mut self, lane: Lane, len: usize) -> Result<Option<usize>, Malformed> {
        let fits = |class: &usize| CLASSES[*class].size >= len;
        let smallest = (0..CLASSES.len()).find(fits).expect("the caller has checked the length");
        if self.may_use(lane, smallest, smallest) {
            return Ok(Some(smallest));
        }
        self.take_returns()?;
        let usable = |class: &usize| self.may_use(lane, *class, smallest);
        Ok((smallest..CLASSES.len()).find(usable))
    }

    /// Returns true if a record of this lane, for which the class `smallest` is large enough, may
    /// use a block of a class now. Messages use at most half of each class, so that requests and
    /// responses never wait for them.
    fn may_use(&self, lane: Lane, class: usize, smallest: usize) -> bool {
        let reserved = if class == LARGEST && smallest < LARGEST { RESERVED } else { 0 };
        self.free[class].len() > reserved
            && (lane == Lane::Requests
                || self.of_messages[class] < CLASSES[class].count.div_ceil(2))
    }

    /// Frees a block that the receiver has returned, or has not got.
    fn take_back(&mut self, block: usize, place: Place) {
        if let Some(lane) = self.lent[block].take() {
            self.of_messages[place.class] -= lane as usize;
            self.free[place.class].push(block as u16);
        }
    }

    /// Takes back all blocks that the receiver has returned.
    fn take_returns(&mut self) -> Result<(), Malformed> {
        // A hostile process could write words as fast as this loop clears them.
        for _ in 0..WORDS {
            let word = &self.mapping.sent_by(self.side).returns.0[self.returned % WORDS];
            // The word is the number of the block, plus one.
            let value = word.load(Acquire);
            if value == 0 {
                break;
            }
            word.store(0, Release);
            self.returned += 1;
            let block = usize::try_from(value - 1).map_err(|_| Malformed)?;
            let place = place(block).ok_or(Malformed)?;
            if self.lent[block].is_none() {
                return Err(Malformed);
            }
            self.take_back(block, place);
        }
        Ok(())
    }
}
