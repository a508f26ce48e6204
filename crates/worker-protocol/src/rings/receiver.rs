//! The receiver of records.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use rookery_system::linux::descriptor_channel::{self, DescriptorChannel};

use super::layout::{IS_WITHDRAWN, Lane, MAX_RECORD_LEN, Mapping, Place, Record, Side, WORDS};
use super::sync::{AtomicU64, AtomicUsize};

/// The maximum number of parts that are taken at once. It is the number of the largest blocks, so
/// that a sender which fills blocks as fast as they are returned does not keep the receiver.
const MAX_PARTS: usize = 16;

/// The receiver of records from the other process. It belongs to one thread at a time.
#[derive(Debug)]
pub struct Receiver {
    mapping: Arc<Mapping>,
    /// The side that sends the records.
    sender: Side,
    channel: Arc<DescriptorChannel>,
    /// The number of packets that were received through the channel.
    packets: u64,
    /// The number of blocks that were taken. Only this receiver changes the number.
    taken: Arc<AtomicUsize>,
    /// The record of each lane of which the first parts have arrived.
    partial: [Option<Partial>; Lane::COUNT],
    /// The time since which this process has lacked a descriptor to take the next record.
    lacking_since: Option<Instant>,
}

/// A record of which the first parts have arrived.
#[derive(Debug)]
struct Partial {
    kind: u8,
    bytes: Vec<u8>,
    /// The number of bytes that have not arrived.
    rest: usize,
    descriptor: Option<OwnedFd>,
    is_descriptor_lost: bool,
}

/// A record that was taken from the ring.
#[derive(Debug)]
pub struct Arrived {
    /// The kind of the record.
    pub kind: u8,
    /// The descriptor that was sent with the record.
    pub descriptor: Option<OwnedFd>,
    /// True if a descriptor was sent with the record, and this process could not open it.
    pub is_descriptor_lost: bool,
}

/// The error that the other process has written something that the protocol does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// The descriptor of a record, if it has arrived and can be opened.
enum Beside {
    Opened(OwnedFd),
    /// This process can open no more descriptors, and the record does without its own.
    Lost,
    /// This process can open no more descriptors, and the record waits.
    Waiting,
}

/// The maximum time for which a record waits because the worker that receives it cannot open the
/// record's descriptor.
const MAX_SHORTAGE: Duration = Duration::from_secs(10);

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
        let taken = Arc::new(AtomicUsize::new(0));
        let (packets, partial, lacking_since) = (0, [None, None], None);
        Receiver { mapping, sender, channel, packets, taken, partial, lacking_since }
    }

    /// Takes the next complete record: copies its bytes to `out`, which is cleared first, and
    /// returns the block to the sender. Takes at most as many parts of records as the sender has
    /// large blocks, and skips records that the sender has withdrawn. Returns `None` if there is no
    /// complete record, or if this process [lacks](Self::lacks_descriptors) the descriptor of a
    /// record. A record to the front end does not wait for its descriptor, because all later
    /// records would wait as well.
    ///
    /// # Errors
    /// Returns [`Malformed`] if the sender's word describes no record, if a part does not continue
    /// the record of its lane, if the descriptor of a record has not arrived, or if this process is
    /// a worker that has lacked descriptors for ten seconds.
    pub fn take(&mut self, out: &mut Vec<u8>) -> Result<Option<Arrived>, Malformed> {
        for _ in 0..MAX_PARTS {
            let value = self.next_word().load(Acquire);
            if value == 0 {
                break;
            }
            let (record, place) = Record::of_word(value).ok_or(Malformed)?;
            let is_whole = record.rest <= MAX_RECORD_LEN && !record.has_descriptor;
            if is_whole && self.partial[record.lane as usize].is_none() {
                out.clear();
                if !self.take_block(record, place, out) {
                    continue;
                }
                let (descriptor, is_descriptor_lost) = (None, false);
                return Ok(Some(Arrived { kind: record.kind, descriptor, is_descriptor_lost }));
            }
            let taken = self.take_part(record, place, out)?;
            if taken.is_some() || self.lacks_descriptors() {
                return Ok(taken);
            }
        }
        Ok(None)
    }

    /// Takes a part of a record, or a record with a descriptor. Returns the record if it is
    /// complete.
    #[cold]
    fn take_part(
        &mut self,
        record: Record,
        place: Place,
        out: &mut Vec<u8>,
    ) -> Result<Option<Arrived>, Malformed> {
        let lane = record.lane as usize;
        let mut partial = match self.partial[lane].take() {
            Some(partial) => {
                let continues = partial.kind == record.kind && partial.rest == record.rest;
                Some(partial).filter(|_| continues && !record.has_descriptor).ok_or(Malformed)?
            }
            None => {
                let (mut descriptor, mut is_descriptor_lost) = (None, false);
                if record.has_descriptor {
                    match self.receive_descriptor()? {
                        Beside::Opened(opened) => descriptor = Some(opened),
                        Beside::Lost => is_descriptor_lost = true,
                        Beside::Waiting => return Ok(None),
                    }
                }
                // A record in one part is copied to memory that the caller reuses.
                let mut bytes = Vec::new();
                if record.rest <= MAX_RECORD_LEN {
                    bytes = std::mem::take(out);
                    bytes.clear();
                }
                // A worker can announce more than there is memory, which must not end this process.
                bytes.try_reserve_exact(record.rest).map_err(|_| Malformed)?;
                let (kind, rest) = (record.kind, record.rest);
                Partial { kind, bytes, rest, descriptor, is_descriptor_lost }
            }
        };
        self.take_block(record, place, &mut partial.bytes);
        partial.rest -= record.len();
        if partial.rest > 0 {
            self.partial[lane] = Some(partial);
            return Ok(None);
        }
        let Partial { kind, bytes, descriptor, is_descriptor_lost, .. } = partial;
        *out = bytes;
        Ok(Some(Arrived { kind, descriptor, is_descriptor_lost }))
    }

    /// Appends the bytes of a block to `out`, and returns the block to the sender. Returns false if
    /// the sender has withdrawn the record.
    fn take_block(&mut self, record: Record, place: Place, out: &mut Vec<u8>) -> bool {
        let taken = self.taken.load(Relaxed);
        let direction = self.mapping.sent_by(self.sender);
        // SAFETY: the block has at least this length, as checked by `of_word`. The sender does not
        // write to the block until it is returned below; what a hostile process writes meanwhile is
        // copied or not, and the copy is checked by the caller.
        unsafe { direction.slab.0.read(place, record.len(), out) };
        let word = self.next_word().swap(0, AcqRel);
        // There are fewer blocks than words, so only a sender that violates the protocol can have
        // left a value in this word.
        direction.returns.0[taken % WORDS].store(record.block as u64 + 1, Release);
        self.taken.store(taken.wrapping_add(1), Relaxed);
        word & IS_WITHDRAWN == 0
    }

    /// Receives the descriptor of a record.
    fn receive_descriptor(&mut self) -> Result<Beside, Malformed> {
        let (number, descriptor) = match self.channel.receive() {
            Ok(packet) => packet,
            Err(error) if !descriptor_channel::is_shortage(&error) => return Err(Malformed),
            Err(_) if self.sender == Side::Worker => {
                if !self.channel.discard().is_ok_and(|number| number == self.packets) {
                    return Err(Malformed);
                }
                self.packets += 1;
                return Ok(Beside::Lost);
            }
            Err(_) => {
                let since = *self.lacking_since.get_or_insert_with(Instant::now);
                let may_wait = since.elapsed() < MAX_SHORTAGE;
                return if may_wait { Ok(Beside::Waiting) } else { Err(Malformed) };
            }
        };
        self.lacking_since = None;
        if number != self.packets {
            return Err(Malformed);
        }
        self.packets += 1;
        Ok(Beside::Opened(descriptor))
    }

    /// Returns the number of blocks that were taken.
    pub fn taken(&self) -> usize {
        self.taken.load(Relaxed)
    }

    /// Returns the number of bytes that are held for records of which only the first parts have
    /// arrived. A record counts with its total length.
    pub fn incomplete_bytes(&self) -> usize {
        self.partial.iter().flatten().map(|partial| partial.bytes.len() + partial.rest).sum()
    }

    /// Drops the records of which only the first parts have arrived, because nothing more will
    /// arrive.
    pub fn end(&mut self) {
        self.partial = [None, None];
    }

    /// Returns true if the next record waits because this process can open no more descriptors.
    pub fn lacks_descriptors(&self) -> bool {
        self.lacking_since.is_some()
    }

    /// Returns a view by which any thread of this process can see whether a record has arrived.
    pub fn arrivals(&self) -> Arrivals {
        Arrivals {
            mapping: Arc::clone(&self.mapping),
            sender: self.sender,
            taken: Arc::clone(&self.taken),
        }
    }

    /// Returns true if a record, or a part of one, has arrived that can be taken.
    pub fn has_any(&self) -> bool {
        if self.lacks_descriptors() {
            return false;
        }
        self.next_word().load(Acquire) != 0
    }

    fn next_word(&self) -> &AtomicU64 {
        &self.mapping.sent_by(self.sender).records.0[self.taken.load(Relaxed) % WORDS]
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
    /// Returns true if a record, or a part of one, has arrived that the [`Receiver`] has not taken.
    pub fn has_any(&self) -> bool {
        let words = &self.mapping.sent_by(self.sender).records.0;
        words[self.taken.load(Relaxed) % WORDS].load(Acquire) != 0
    }
}
