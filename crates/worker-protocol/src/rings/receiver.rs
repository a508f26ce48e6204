//! The receiver of records.

use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use rookery_system::file;
use rookery_system::linux::content_file;
use rookery_system::linux::descriptor_channel::{self, DescriptorChannel, Descriptors};

use super::layout::{Mapping, Record, Side, WORDS};
use super::sync::{AtomicU64, AtomicUsize};

/// The receiver of records from the other process. It belongs to one thread at a time.
#[derive(Debug)]
pub struct Receiver {
    mapping: Arc<Mapping>,
    /// The side that sends the records.
    sender: Side,
    channel: Arc<DescriptorChannel>,
    /// The number of packets that were received through the channel.
    packets: u64,
    /// The number of records that were taken. Only this receiver changes the number.
    taken: Arc<AtomicUsize>,
    /// The time since which this process has lacked the descriptors to take the next record.
    lacking_since: Option<Instant>,
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

/// The maximum length in bytes of a record to the front end. Only a response body may be longer,
/// because a long body is a file beside its record.
pub const MAX_LONG_RECORD: usize = 256 << 20;

/// The descriptors of a record, if they have arrived and can be opened.
enum Beside {
    Opened(Descriptors),
    /// This process can open no more descriptors, and the record does without its own.
    Lost,
    /// This process can open no more descriptors, and the record waits.
    Waiting,
}

/// The maximum time for which a record waits because the worker that receives it cannot open the
/// record's descriptors. A long record to the front end waits without a limit: if clients have used
/// up the descriptors of the front end, an error that ends the worker would not help.
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
        let (packets, taken, lacking_since) = (0, Arc::new(AtomicUsize::new(0)), None);
        Receiver { mapping, sender, channel, packets, taken, lacking_since }
    }

    /// Takes the next record: copies its bytes to `out`, which is cleared first, and returns the
    /// block to the sender. Returns `None` if there is no record, or if this process
    /// [lacks](Self::lacks_descriptors) the descriptors for the record. A record to the front end
    /// with a descriptor does not wait for it, because all later records would wait as well.
    ///
    /// # Errors
    /// Returns [`Malformed`] if the sender's word describes no record, if the record's descriptors
    /// have not arrived, or if this process is a worker that has lacked descriptors for ten
    /// seconds.
    pub fn take(&mut self, out: &mut Vec<u8>) -> Result<Option<Arrived>, Malformed> {
        let taken = self.taken.load(Relaxed);
        let value = self.next_word().load(Acquire);
        if value == 0 {
            return Ok(None);
        }
        let (record, place) = Record::of_word(value).ok_or(Malformed)?;
        let (mut beside, mut is_descriptor_lost) = ([None, None], false);
        if record.is_long || record.has_descriptor {
            match self.receive_descriptors(&record)? {
                Beside::Opened(descriptors) => beside = descriptors,
                Beside::Lost => is_descriptor_lost = true,
                Beside::Waiting => return Ok(None),
            }
        }
        let direction = self.mapping.sent_by(self.sender);
        out.clear();
        // SAFETY: the block has at least this length, as checked by `of_word`. The sender does not
        // write to the block until it is returned below; what a hostile process writes meanwhile is
        // copied or not, and the copy is checked by the caller.
        unsafe { direction.slab.0.read(place, record.len, out) };
        self.next_word().store(0, Release);
        // There are fewer blocks than words, so only a sender that violates the protocol can have
        // left a value in this word.
        direction.returns.0[taken % WORDS].store(record.block as u64 + 1, Release);
        self.taken.store(taken.wrapping_add(1), Relaxed);
        let [content, descriptor] = beside;
        if let Some(content) = content {
            self.read_content(content, out)?;
        }
        Ok(Some(Arrived { kind: record.kind, descriptor, is_descriptor_lost }))
    }

    /// Receives the descriptors of a record: that of the content of a long record, and the one that
    /// was sent with the record.
    #[cold]
    fn receive_descriptors(&mut self, record: &Record) -> Result<Beside, Malformed> {
        let (number, [first, second]) = match self.channel.receive() {
            Ok(packet) => packet,
            Err(error)
                if descriptor_channel::is_shortage(&error)
                    && self.sender == Side::Worker
                    && !record.is_long =>
            {
                if !self.channel.discard().is_ok_and(|number| number == self.packets) {
                    return Err(Malformed);
                }
                self.packets += 1;
                return Ok(Beside::Lost);
            }
            Err(error) if descriptor_channel::is_shortage(&error) => {
                let since = *self.lacking_since.get_or_insert_with(Instant::now);
                let may_wait = self.sender == Side::Worker || since.elapsed() < MAX_SHORTAGE;
                return if may_wait { Ok(Beside::Waiting) } else { Err(Malformed) };
            }
            Err(_) => return Err(Malformed),
        };
        self.lacking_since = None;
        let is_two = record.is_long && record.has_descriptor;
        if number != self.packets || second.is_some() != is_two {
            return Err(Malformed);
        }
        self.packets += 1;
        Ok(Beside::Opened(if record.is_long { [first, second] } else { [None, first] }))
    }

    /// Replaces the length in `out` by the content of a long record.
    #[cold]
    fn read_content(&self, content: OwnedFd, out: &mut Vec<u8>) -> Result<(), Malformed> {
        let len = out.first_chunk().copied().map(u64::from_le_bytes).ok_or(Malformed)?;
        // A worker trusts the front end, whose limits are settings.
        let max = if self.sender == Side::Worker { MAX_LONG_RECORD } else { usize::MAX };
        let len = usize::try_from(len).ok().filter(|len| *len <= max).ok_or(Malformed)?;
        // Any other file could make this thread wait.
        let content = Some(File::from(content))
            .filter(|content| content_file::is_content_file(content.as_fd()))
            .ok_or(Malformed)?;
        let has_all = content.metadata().is_ok_and(|metadata| metadata.len() >= len as u64);
        if !has_all {
            return Err(Malformed);
        }
        // Zeroed memory of this size comes from the system without being written.
        *out = vec![0; len];
        file::read_exact_at(&content, out, 0).map_err(|_| Malformed)
    }

    /// Returns the number of records that were taken.
    pub fn taken(&self) -> usize {
        self.taken.load(Relaxed)
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

    /// Returns true if a record has arrived that can be taken.
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
    /// Returns true if a record has arrived that the [`Receiver`] has not taken.
    pub fn has_any(&self) -> bool {
        let words = &self.mapping.sent_by(self.sender).records.0;
        words[self.taken.load(Relaxed) % WORDS].load(Acquire) != 0
    }
}
