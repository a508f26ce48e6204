//! Rings: queues of records in memory that the supervisor's front end shares with one worker
//! process. Requests, responses and WebSocket messages cross the process boundary in them as plain
//! data.
//!
//! # Layout
//! Each start of a worker has one shared memory with two directions, *down* (to the worker) and
//! *up* (to the front end). A direction consists of:
//!
//! | part | written by | contents |
//! |---|---|---|
//! | slab | sender | blocks of three sizes, each with one record or a part of one |
//! | ring of records | sender: values, and the mark of a withdrawn record; receiver: zeros | one word for each block that was sent: kind, lane, block, length |
//! | ring of returns | receiver: values; sender: zeros | one word for each block that the sender may use again |
//! | sleep word | receiver; the sender only clears it | whether and how the receiver sleeps |
//!
//! A word of a ring is zero if it is free. Neither side reads a position from the shared memory:
//! the sender writes to its next word if that is zero, and the receiver takes its next word if that
//! is not zero and then clears it. So the other process cannot corrupt a position, and each record
//! moves one cache line between the processors: that of the word, and none of a shared position.
//!
//! Each word has a block of its own, and there are fewer blocks than words in a ring. A ring is
//! therefore never full before its slab is ([`SendError::Full`]).
//!
//! A record that is longer than the largest block crosses in parts, each of which has a word and a
//! block of its own. All parts except the last one fill the largest block. The word of a part says
//! how many bytes of the record are in this part and in later ones. A record that could use more
//! than half of all blocks would keep others waiting, so there are two lanes ([`Lane`]): records of
//! one lane may come between the parts of a record of the other lane, messages use at most half of
//! the blocks of each size, and some of the largest blocks are reserved for parts.
//!
//! A descriptor that belongs to a record crosses in a packet of a separate channel, which is sent
//! before the first part of the record. Packets are numbered, and the return of a record's block
//! acknowledges the packet of that record.
//!
//! A sender can withdraw a record that the receiver has not taken ([`Sender::withdraw`]), so that a
//! later record overtakes it: the sender marks the word, and the receiver drops what it has copied
//! from the block if the word that it clears has the mark.
//!
//! # Order of accesses
//! - A sender writes the block, and then the word with `Release`. The receiver reads the word with
//!   `Acquire`, and then the block. The same holds for returned blocks.
//! - A receiver that wants to sleep writes its sleep word, issues a `SeqCst` fence, and looks into
//!   the ring again. A sender writes the word of the ring, issues a `SeqCst` fence, and then reads
//!   the sleep word. One of the two sees what the other has written, so no wake-up is lost.
//!
//! # What a hostile worker can do
//! The worker maps all of the memory for writing. Therefore:
//! - The supervisor keeps its positions and its list of free blocks in its own memory, and relies
//!   on no value that it has itself written to the shared memory.
//! - The supervisor checks each word: the kind, the block, the length, and whether a returned block
//!   was in use. A wrong word is the error [`Malformed`], after which the worker should be ended.
//! - The supervisor copies a record and then reads the copy, because the worker could change the
//!   bytes of the block meanwhile.
//! - The supervisor never waits for the worker. A worker that does not return blocks gets no more
//!   records.
//!
//! The bytes of blocks are copied through raw pointers, and no reference to them is ever made.

#[cfg(all(test, not(loom)))]
mod kills;
pub(crate) mod layout;
#[cfg(all(test, loom))]
mod model;
mod outbox;
mod receiver;
mod sender;
mod sleep;
mod sync;
#[cfg(all(test, not(loom)))]
mod tests;
mod wakers;

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;

use rookery_system::descriptor;
use rookery_system::linux::descriptor_channel::DescriptorChannel;
use rookery_system::linux::shared_memory;

pub use self::layout::{Lane, MAX_LONG_RECORD, MAX_RECORD_LEN};
use self::layout::{Mapping, Side};
pub use self::outbox::{Beside, MAX_KEPT_RECORD, Outbox, WaitingRecord};
pub use self::receiver::{Arrivals, Arrived, Malformed, Receiver};
pub use self::sender::{SendError, Sender, SentPart};
pub use self::sleep::{Sleep, SleepWord};
pub use self::wakers::RingWakers;

/// One end of the rings between the front end and a worker.
#[derive(Debug)]
pub struct RingEnd {
    /// The sender of records to the other process.
    pub sender: Sender,
    /// The receiver of records from the other process.
    pub receiver: Receiver,
    /// The sleep word of this process.
    pub own_sleep: SleepWord,
    /// The sleep word of the other process.
    pub peer_sleep: SleepWord,
}

/// The handles of rings that a worker inherits.
#[derive(Debug)]
pub struct RingHandles {
    memory: OwnedFd,
    channel: OwnedFd,
    wakers: RingWakers,
}

impl RingEnd {
    fn new(mapping: Arc<Mapping>, channel: DescriptorChannel, side: Side) -> RingEnd {
        let channel = Arc::new(channel);
        RingEnd {
            sender: Sender::new(Arc::clone(&mapping), Arc::clone(&channel), side),
            receiver: Receiver::new(Arc::clone(&mapping), channel, side.other()),
            own_sleep: SleepWord::new(Arc::clone(&mapping), side),
            peer_sleep: SleepWord::new(mapping, side.other()),
        }
    }

    /// Creates the rings of a worker that will be started. Returns the front end's end and wakers,
    /// and the handles that the worker inherits.
    ///
    /// # Errors
    /// Returns the system's error if memory or descriptors have run out.
    pub fn create() -> io::Result<(RingEnd, RingWakers, RingHandles)> {
        let memory = shared_memory::create_on_demand(Mapping::SIZE)?;
        let mapping = Mapping::new(memory.as_fd())?;
        mapping.write_signature();
        let (ours, channel) = DescriptorChannel::pair()?;
        let [wakers, theirs] = RingWakers::create()?;
        let handles = RingHandles { memory, channel, wakers: theirs };
        let end = RingEnd::new(Arc::new(mapping), ours, Side::FrontEnd);
        Ok((end, wakers, handles))
    }
}

impl RingHandles {
    /// Maps the rings into this process, which is the worker.
    ///
    /// # Errors
    /// Returns [`InvalidData`](io::ErrorKind::InvalidData) if the memory contains no rings or rings
    /// with another layout, and the system's error if the memory cannot be mapped.
    pub fn attach(self) -> io::Result<(RingEnd, RingWakers)> {
        let memory = self.memory.as_fd();
        // Checked before mapping, because truncating unsealed memory would cause a SIGBUS later.
        shared_memory::check_size(memory, Mapping::SIZE)?;
        let mapping = Mapping::new(memory)?;
        if !mapping.has_valid_signature() {
            let message = "the rings are from another version of rookery";
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let channel = DescriptorChannel::from_end(self.channel);
        Ok((RingEnd::new(Arc::new(mapping), channel, Side::Worker), self.wakers))
    }

    /// Returns the descriptors that the worker inherits.
    pub(crate) fn all(&self) -> [BorrowedFd<'_>; 5] {
        let [one, two, three] = self.wakers.all();
        [self.memory.as_fd(), self.channel.as_fd(), one, two, three]
    }

    /// Takes ownership of inherited descriptors.
    ///
    /// # Safety
    /// - The descriptors belong to no other code.
    pub(crate) unsafe fn own(numbers: [RawFd; 5]) -> io::Result<RingHandles> {
        for number in numbers {
            // SAFETY: if the descriptor is not open, the call returns an error.
            descriptor::set_close_on_exec(unsafe { BorrowedFd::borrow_raw(number) }, true)?;
        }
        let [memory, channel, wakers @ ..] = numbers
            // SAFETY: the descriptors are open, and the caller guarantees that they belong to no
            // other code.
            .map(|number| unsafe { OwnedFd::from_raw_fd(number) });
        Ok(RingHandles { memory, channel, wakers: RingWakers::own(wakers) })
    }
}
