//! The receiver of records.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::layout::{Mapping, Record, Side, WORDS};

/// The receiver of records from the other process. It belongs to one thread at a time.
#[derive(Debug)]
pub struct Receiver {
    mapping: Arc<Mapping>,
    /// The side that sends the records.
    sender: Side,
    /// The number of records that were taken. Only this receiver writes it.
    taken: Arc<AtomicUsize>,
}

/// The error that the other process has written something that the protocol does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the other process has written an invalid record")
    }
}

impl std::error::Error for Malformed {}

impl Receiver {
    pub(super) fn new(mapping: Arc<Mapping>, sender: Side) -> Receiver {
        Receiver { mapping, sender, taken: Arc::default() }
    }

    /// Takes the next record: copies its bytes to `out`, which is cleared first, returns the block
    /// to the sender, and returns the record's kind. Returns `None` if there is no record.
    ///
    /// # Errors
    /// Returns [`Malformed`] if the sender's word describes no record.
    pub fn take(&mut self, out: &mut Vec<u8>) -> Result<Option<u8>, Malformed> {
        let taken = self.taken.load(Relaxed);
        let direction = &self.mapping.shared().sent_by[self.sender as usize];
        let word = &direction.records.0[taken % WORDS];
        let value = word.load(Acquire);
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
        word.store(0, Release);
        // There are fewer blocks than words, so this word is free, or the sender has not obeyed.
        let returns = &direction.returns.0[taken % WORDS];
        returns.store(record.block as u64 + 1, Release);
        self.taken.store(taken.wrapping_add(1), Relaxed);
        Ok(Some(record.kind))
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
