//! The sender of records: it owns the blocks of a slab.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rookery_system::linux::content_file;
use rookery_system::linux::descriptor_channel::DescriptorChannel;

use super::layout::{BLOCKS, CLASSES, MAX_RECORD_LEN, Mapping, Place, Record, Side, WORDS, place};
use super::receiver::Malformed;

/// The sender of records to the other process. It belongs to one thread at a time.
#[derive(Debug)]
pub struct Sender {
    mapping: Arc<Mapping>,
    side: Side,
    channel: Arc<DescriptorChannel>,
    /// The number of packets that were sent through the channel.
    packets: u64,
    /// The number of records that were sent.
    sent: usize,
    /// The number of blocks that were returned.
    returned: usize,
    /// The free blocks of each class. The block that was returned last is used first, because it is
    /// most likely in the processor's cache.
    free: [Vec<u16>; CLASSES.len()],
    /// Whether the receiver has each block. A receiver that returns another block violates the
    /// protocol.
    is_lent: Box<[bool; BLOCKS]>,
}

/// The reason why a record was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// The receiver has not returned enough blocks, or not received enough descriptors. The record
    /// can be sent later.
    Full,
    /// The other process has returned a block that was not in use.
    Malformed,
    /// The system has refused a file or a descriptor.
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
            returned: 0,
            free,
            is_lent: Box::new([false; BLOCKS]),
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

    /// Returns the number of records that were sent.
    pub fn sent(&self) -> usize {
        self.sent
    }

    /// Returns true if the receiver has not taken the record with this number, counted from 1.
    pub fn is_unread(&self, number: usize) -> bool {
        let words = &self.mapping.sent_by(self.side).records.0;
        let is_recent = number > 0 && self.sent - number < WORDS;
        is_recent && words[(number - 1) % WORDS].load(Relaxed) != 0
    }

    /// Sends a record, and a copy of a descriptor with it. The receiver is not woken: see
    /// [`SleepWord::wake_sleeper`](super::SleepWord::wake_sleeper). A record that is longer than
    /// [`MAX_RECORD_LEN`] crosses in a file.
    ///
    /// # Errors
    /// Returns the reason if the record was not sent.
    ///
    /// # Panics
    /// Panics if `kind` is 0.
    pub fn send(
        &mut self,
        kind: u8,
        bytes: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), SendError> {
        assert!(kind != 0, "0 means that a word is free");
        if bytes.len() <= MAX_RECORD_LEN && descriptor.is_none() {
            return self.publish(kind, bytes, (false, false));
        }
        self.send_descriptors(kind, bytes, descriptor)
    }

    #[cold]
    fn send_descriptors(
        &mut self,
        kind: u8,
        bytes: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), SendError> {
        // The receiver would take a packet whose record is not sent for that of the next record.
        if !self.ensure_free_block()? {
            return Err(SendError::Full);
        }
        let content = if bytes.len() > MAX_RECORD_LEN {
            Some(content_file::create([bytes]).map_err(|_| SendError::System)?)
        } else {
            None
        };
        let both: Vec<_> = content.iter().map(|file| file.as_fd()).chain(descriptor).collect();
        match self.channel.send(self.packets, &both) {
            Ok(()) => self.packets += 1,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(SendError::Full);
            }
            Err(_) => return Err(SendError::System),
        }
        let len = (bytes.len() as u64).to_le_bytes();
        let bytes = if content.is_some() { &len } else { bytes };
        self.publish(kind, bytes, (content.is_some(), descriptor.is_some()))
    }

    /// Copies a record into a block, and passes the block to the receiver.
    fn publish(
        &mut self,
        kind: u8,
        bytes: &[u8],
        (is_long, has_descriptor): (bool, bool),
    ) -> Result<(), SendError> {
        let (block, place) = self.take_block(bytes.len())?;
        // SAFETY: the block has at least the length of `bytes`. Nothing else accesses the block,
        // because the receiver has returned it or has never had it; if a hostile process writes to
        // it nevertheless, that process receives other bytes. `bytes` is not in the mapping.
        unsafe { self.mapping.sent_by(self.side).slab.0.write(place, bytes) };
        let record = Record { kind, is_long, has_descriptor, block, len: bytes.len() };
        let words = &self.mapping.sent_by(self.side).records.0;
        let word = &words[self.sent % WORDS];
        if word.load(Relaxed) != 0 {
            // There are fewer blocks than words, so the receiver has returned a block without
            // clearing the word of its record.
            return Err(SendError::Malformed);
        }
        word.store(record.word(), Release);
        self.sent += 1;
        Ok(())
    }

    /// Returns true if a block of the largest class is free, into which every record fits.
    fn ensure_free_block(&mut self) -> Result<bool, Malformed> {
        self.take_returns()?;
        Ok(!self.free[CLASSES.len() - 1].is_empty())
    }

    fn take_block(&mut self, len: usize) -> Result<(usize, Place), SendError> {
        let fits = |class: &usize| CLASSES[*class].size >= len;
        let smallest = (0..CLASSES.len()).find(fits).expect("the caller has checked the length");
        if self.free[smallest].is_empty() {
            self.take_returns()?;
        }
        // A small record may use a larger block.
        let block = self.free[smallest..].iter_mut().find_map(Vec::pop).ok_or(SendError::Full)?;
        let block = usize::from(block);
        self.is_lent[block] = true;
        let place = place(block).expect("a free block exists");
        Ok((block, place))
    }

    /// Takes back all blocks that the receiver has returned.
    fn take_returns(&mut self) -> Result<(), Malformed> {
        let words = &self.mapping.sent_by(self.side).returns.0;
        // A hostile process could write words as fast as this loop clears them.
        for _ in 0..WORDS {
            let word = &words[self.returned % WORDS];
            // The word is the number of the block, plus one.
            let value = word.load(Acquire);
            if value == 0 {
                break;
            }
            word.store(0, Release);
            self.returned += 1;
            let block = usize::try_from(value - 1).map_err(|_| Malformed)?;
            let place = place(block).ok_or(Malformed)?;
            if !std::mem::replace(&mut self.is_lent[block], false) {
                return Err(Malformed);
            }
            self.free[place.class].push(block as u16);
        }
        Ok(())
    }
}
