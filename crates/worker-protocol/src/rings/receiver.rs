//! The receiver of records.

use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rookery_system::descriptor_channel::{DescriptorChannel, Descriptors};
use rookery_system::{content_file, file};

use super::layout::{Mapping, Record, Side, WORDS};

/// The receiver of records from the other process. It belongs to one thread at a time.
#[derive(Debug)]
pub struct Receiver {
    mapping: Arc<Mapping>,
    /// The side that sends the records.
    sender: Side,
    channel: Arc<DescriptorChannel>,
    /// The number of packets that were received through the channel.
    packets: u64,
    /// The number of records that were taken. Only this receiver writes it.
    taken: Arc<AtomicUsize>,
}

/// A record that was taken from the ring.
#[derive(Debug)]
pub struct Arrived {
    /// The kind of the record.
    pub kind: u8,
    /// The descriptor that was sent with the record.
    pub descriptor: Option<OwnedFd>,
}

/// The error that the other process has written something that the protocol does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// The maximum length in bytes of a record. Longer content is sent as a file of its own.
pub const MAX_LONG_RECORD: usize = 256 << 20;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the other process has written an invalid record")
    }
}

impl std::error::Error for Malformed {}

impl Receiver {
    pub(super) fn new(
        mapping: Arc<Mapping>,
        channel: Arc<DescriptorChannel>,
        sender: Side,
    ) -> Receiver {
        Receiver { mapping, sender, channel, packets: 0, taken: Arc::default() }
    }

    /// Takes the next record: copies its bytes to `out`, which is cleared first, and returns the
    /// block to the sender. Returns `None` if there is no record.
    ///
    /// # Errors
    /// Returns [`Malformed`] if the sender's word describes no record, or if the record's
    /// descriptors have not arrived.
    pub fn take(&mut self, out: &mut Vec<u8>) -> Result<Option<Arrived>, Malformed> {
        let taken = self.taken.load(Relaxed);
        let direction = &self.mapping.shared().sent_by[self.sender as usize];
        let value = direction.records.0[taken % WORDS].load(Acquire);
        if value == 0 {
            return Ok(None);
        }
        let (record, place) = Record::of_word(value).ok_or(Malformed)?;
        out.clear();
        out.reserve(record.len);
        let start = self.mapping.block(self.sender, place);
        // SAFETY: the block has at least this length, as checked by `of_word`, and `out` has
        // capacity for it, of which all bytes are written. The sender does not write to the block
        // until it is returned below; what a hostile process writes meanwhile is copied or not, and
        // the copy is checked by the caller.
        unsafe {
            start.copy_to_nonoverlapping(out.as_mut_ptr(), record.len);
            out.set_len(record.len);
        }
        let mut arrived = Arrived { kind: record.kind, descriptor: None };
        // Before the block is returned, because the sender may then close its descriptors.
        if record.is_long || record.has_descriptor {
            arrived.descriptor = self.take_descriptors(&record, out)?;
        }
        let direction = &self.mapping.shared().sent_by[self.sender as usize];
        direction.records.0[taken % WORDS].store(0, Release);
        // There are fewer blocks than words, so this word is free, or the sender has not obeyed.
        let returns = &direction.returns.0[taken % WORDS];
        returns.store(record.block as u64 + 1, Release);
        self.taken.store(taken.wrapping_add(1), Relaxed);
        Ok(Some(arrived))
    }

    /// Receives the descriptors of a record. Replaces the length in `out` by the content of a long
    /// record, and returns the descriptor that was sent with the record.
    #[cold]
    fn take_descriptors(
        &mut self,
        record: &Record,
        out: &mut Vec<u8>,
    ) -> Result<Option<OwnedFd>, Malformed> {
        let (number, [first, second]): (u64, Descriptors) =
            self.channel.receive().map_err(|_| Malformed)?;
        let is_two = record.is_long && record.has_descriptor;
        if number != self.packets || second.is_some() != is_two {
            return Err(Malformed);
        }
        self.packets += 1;
        let (content, descriptor) = if record.is_long { (first, second) } else { (None, first) };
        if let Some(content) = content {
            let len = out.first_chunk().copied().map(u64::from_le_bytes).ok_or(Malformed)?;
            let len = usize::try_from(len).ok().filter(|len| *len <= MAX_LONG_RECORD);
            let len = len.ok_or(Malformed)?;
            // Any other file could make this thread wait.
            let content = Some(File::from(content))
                .filter(|content| content_file::is_one(content.as_fd()))
                .ok_or(Malformed)?;
            let has_all = content.metadata().is_ok_and(|metadata| metadata.len() >= len as u64);
            if !has_all {
                return Err(Malformed);
            }
            // Zeroed memory of this size comes from the system without being written.
            *out = vec![0; len];
            // Where files are not sealed, a hostile process may truncate the file now.
            file::read_exact_at(&content, out, 0).map_err(|_| Malformed)?;
        }
        Ok(descriptor)
    }

    /// Returns a view by which any thread of this process can see whether a record has arrived.
    pub fn arrivals(&self) -> Arrivals {
        Arrivals {
            mapping: Arc::clone(&self.mapping),
            sender: self.sender,
            taken: Arc::clone(&self.taken),
        }
    }

    /// Returns true if a record has arrived.
    pub fn has_any(&self) -> bool {
        let words = &self.mapping.shared().sent_by[self.sender as usize].records.0;
        words[self.taken.load(Relaxed) % WORDS].load(Acquire) != 0
    }
}

/// A view by which any thread of this process can see whether a record has arrived.
#[derive(Debug, Clone)]
pub struct Arrivals {
    mapping: Arc<Mapping>,
    sender: Side,
    taken: Arc<AtomicUsize>,
}

impl Arrivals {
    /// Returns true if a record has arrived that the [`Receiver`] has not taken.
    pub fn has_any(&self) -> bool {
        let words = &self.mapping.shared().sent_by[self.sender as usize].records.0;
        words[self.taken.load(Relaxed) % WORDS].load(Acquire) != 0
    }
}
