//! The hop: requests, streams and WebSocket messages that cross to a worker in shared memory (the
//! rings of `rookery_worker_protocol`), while the client's connection stays in this process.
//!
//! ```text
//!   server --Event--> on_*, try_send --Down--> worker's R thread
//!   server <-Command- receive        <---Up--- worker's R thread
//! ```
//!
//! A worker may write anything. What it sends is copied, and checked by `wire::Up`; ids and tickets
//! that are not the worker's own are late, and are ignored. The first invalid record ends the worker.

mod ending;
mod requests;
mod responses;
mod sockets;
mod streams;
mod withdrawal;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rookery_exchange::wire::{Down, Up};
use rookery_worker_protocol::rings::{
    Receiver, RingEnd, RingWakers, SendError, Sender, Sleep, SleepWord,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use self::requests::SentRequests;
pub(super) use self::requests::try_send;
use self::sockets::HopSockets;
use self::streams::HopStreams;
use super::balancing::worker_load::PoolBackend;
use super::context::PoolContext;
use super::dispatch::{dispatch, schedule_retry};

pub(super) use self::ending::follow_workers;
pub(super) use self::sockets::{has_capacity, on_closed, on_drained, on_message};
pub(super) use self::streams::{on_pull, on_stream_ended, on_writable};
pub(super) use self::withdrawal::{wake_stalled, withdraw_late, withdraw_overdue};

/// The number of records after which a sleeping worker is woken, even if this thread has more to
/// read.
const WAKE_BATCH: u32 = 32;

/// The maximum number of bytes of records that wait until the worker returns blocks. Above this
/// limit, the server reads no messages from the worker's WebSockets.
const MAX_UNSENT: usize = 8 << 20;

/// The interval in which this thread looks whether the worker has returned blocks, while records
/// wait for them.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// The maximum number of bytes that are kept for the next record.
const MAX_KEPT_RECORD: usize = 256 << 10;

/// The state of the hop to all workers.
#[derive(Default)]
pub(super) struct Hops {
    /// The workers to which requests cross in shared memory.
    workers: RefCell<Vec<Rc<PoolBackend>>>,
    sockets: HopSockets,
    streams: HopStreams,
    /// Whether a timer is set because records wait for blocks.
    is_retrying: Cell<bool>,
}

/// This process's end of the rings to one worker.
pub(super) struct Hop {
    sender: RefCell<Sender>,
    receiver: RefCell<Receiver>,
    own_sleep: SleepWord,
    worker_sleep: SleepWord,
    wakers: RingWakers,
    requests: RefCell<SentRequests>,
    unsent: RefCell<VecDeque<Unsent>>,
    /// The number of bytes in `unsent`.
    unsent_bytes: Cell<usize>,
    /// The record that is being written.
    record: RefCell<Vec<u8>>,
    /// The record that is being read.
    received: RefCell<Vec<u8>>,
    /// The number of records since the worker was last woken.
    unannounced: Cell<u32>,
    /// The number of records at the last check for a stall, and the number of checks in a row at
    /// which the worker had taken none of those that were new at the check before.
    stall: Cell<(usize, u32)>,
    /// Whether nothing is read from the worker any more, because it has violated the protocol or
    /// has ended.
    is_over: Cell<bool>,
    /// Ends the sleep of this thread's runtime. Nothing waits for them.
    _registrations: Vec<AsyncFd<Arc<OwnedFd>>>,
}

/// A record that the worker has no block for yet.
struct Unsent {
    kind: u8,
    bytes: Vec<u8>,
    file: Option<File>,
}

impl fmt::Debug for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hop").field("sender", &self.sender).finish_non_exhaustive()
    }
}

impl Hop {
    /// Must be called within the runtime of the I/O thread.
    pub(super) fn new((end, wakers): (RingEnd, RingWakers)) -> Hop {
        let register = |fd| {
            // SAFETY: the value owns the descriptor, which stays open and unchanged.
            unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.ok()
        };
        let registrations = wakers.watched_by_front_end().into_iter().filter_map(register);
        Hop {
            sender: RefCell::new(end.sender),
            receiver: RefCell::new(end.receiver),
            own_sleep: end.own_sleep,
            worker_sleep: end.peer_sleep,
            requests: RefCell::default(),
            unsent: RefCell::default(),
            unsent_bytes: Cell::new(0),
            record: RefCell::default(),
            received: RefCell::default(),
            unannounced: Cell::new(0),
            stall: Cell::default(),
            is_over: Cell::new(false),
            _registrations: registrations.collect(),
            wakers,
        }
    }

    /// Returns true if the worker accepts records now.
    pub(super) fn has_capacity(&self) -> bool {
        !self.is_over.get() && self.unsent_bytes.get() == 0
    }

    /// Returns true if the worker has not taken all records.
    fn has_unread(&self) -> bool {
        let sender = self.sender.borrow();
        !self.is_over.get() && sender.is_unread(sender.sent())
    }

    // ---- sending ----

    fn send(&self, down: Down<'_>) {
        let mut record = self.record.take();
        record.clear();
        let kind = down.write(&mut record);
        self.send_record(kind, &record, None);
        self.keep_record(record);
        self.count_unannounced();
    }

    /// Sends a record for which the worker need not be woken.
    fn send_quietly(&self, down: Down<'_>) {
        let mut record = self.record.take();
        record.clear();
        let kind = down.write(&mut record);
        self.send_record(kind, &record, None);
        self.keep_record(record);
    }

    fn keep_record(&self, record: Vec<u8>) {
        if record.capacity() <= MAX_KEPT_RECORD {
            self.record.replace(record);
        }
    }

    fn count_unannounced(&self) {
        self.unannounced.set(self.unannounced.get() + 1);
        if self.unannounced.get() >= WAKE_BATCH {
            self.wake_worker();
        }
    }

    /// Sends a record, or keeps it until there is a free block. Returns false if the system refuses
    /// a descriptor.
    fn send_record(&self, kind: u8, bytes: &[u8], file: Option<&File>) -> bool {
        if self.is_over.get() {
            return true;
        }
        if self.unsent.borrow().is_empty() {
            match self.sender.borrow_mut().send(kind, bytes, file.map(File::as_fd)) {
                Ok(()) => return true,
                Err(SendError::System) => return false,
                Err(SendError::Malformed) => {
                    self.is_over.set(true);
                    return true;
                }
                Err(SendError::Full) => {}
            }
        }
        let Ok(file) = file.map(File::try_clone).transpose() else { return false };
        self.unsent_bytes.set(self.unsent_bytes.get() + bytes.len() + 1);
        self.unsent.borrow_mut().push_back(Unsent { kind, bytes: bytes.to_owned(), file });
        true
    }

    /// Sends the records that waited for a free block, and wakes the worker if records were sent.
    /// Returns false if some still wait.
    fn flush(&self) -> bool {
        let mut unsent = self.unsent.borrow_mut();
        while let Some(Unsent { kind, bytes, file }) = unsent.front() {
            let file = file.as_ref().map(File::as_fd);
            match self.sender.borrow_mut().send(*kind, bytes, file) {
                Ok(()) => {}
                // The system refuses a descriptor: later it may not.
                Err(SendError::Full | SendError::System) => break,
                Err(SendError::Malformed) => {
                    self.is_over.set(true);
                    break;
                }
            }
            self.unsent_bytes.set(self.unsent_bytes.get() - bytes.len() - 1);
            unsent.pop_front();
            self.unannounced.set(self.unannounced.get() + 1);
        }
        if self.unannounced.get() > 0 {
            self.wake_worker();
        }
        unsent.is_empty() || self.is_over.get()
    }

    fn wake_worker(&self) {
        self.unannounced.set(0);
        match self.worker_sleep.take_sleep() {
            Sleep::Awake => {}
            Sleep::Waiting => self.worker_sleep.wake(),
            Sleep::Polling => self.wakers.wake_worker(),
        }
    }

    // ---- sleeping ----

    /// Announces that this thread is about to sleep. Returns false if records have arrived.
    fn prepare_sleep(&self) -> bool {
        self.own_sleep.announce(Sleep::Polling);
        self.is_over.get() || !self.receiver.borrow().has_any()
    }
}

/// Announces to all workers that this thread is about to sleep. Returns false if records have
/// arrived.
pub(super) fn prepare_sleep(pool: &PoolContext) -> bool {
    let workers = pool.hops.workers.borrow();
    workers.iter().filter_map(|backend| backend.hop.as_ref()).all(Hop::prepare_sleep)
}

/// Announces to all workers that this thread is awake.
pub(super) fn on_wake(pool: &PoolContext) {
    let workers = pool.hops.workers.borrow();
    for hop in workers.iter().filter_map(|backend| backend.hop.as_ref()) {
        hop.own_sleep.set_awake();
    }
}

/// Takes what the workers have sent, assigns further requests, and wakes the workers that have got
/// any. Called before this thread sleeps, when the server takes the commands of the pool.
pub(super) fn run(pool: &Rc<PoolContext>) {
    let mut has_responses = false;
    for backend in pool.hops.workers.borrow().iter() {
        if let Some(hop) = &backend.hop {
            has_responses |= receive(pool, backend, hop);
        }
    }
    streams::report_written(pool);
    if has_responses {
        dispatch(pool);
    }
    let mut is_sent = true;
    for backend in pool.hops.workers.borrow().iter() {
        if let Some(hop) = &backend.hop {
            is_sent &= hop.flush();
            if hop.is_over.get() {
                // It gets nothing any more, and the supervisor kills it.
                backend.entry.set_violating();
            }
        }
    }
    if withdrawal::has_waiting(pool) {
        schedule_retry(pool);
    }
    if !is_sent && !pool.hops.is_retrying.replace(true) {
        let pool = Rc::clone(pool);
        tokio::task::spawn_local(async move {
            tokio::time::sleep(RETRY_INTERVAL).await;
            pool.hops.is_retrying.set(false);
            pool.responder.wake();
        });
    }
}

/// Takes what a worker has sent. Returns true if responses have arrived.
fn receive(pool: &Rc<PoolContext>, backend: &Rc<PoolBackend>, hop: &Hop) -> bool {
    if hop.is_over.get() {
        return false;
    }
    let mut record = hop.received.take();
    let mut has_responses = false;
    loop {
        let taken = hop.receiver.borrow_mut().take(&mut record);
        let Ok(taken) = taken else {
            hop.is_over.set(true);
            break;
        };
        let Some(arrived) = taken else { break };
        let file = arrived.descriptor.map(File::from);
        let Ok(up) = Up::read(arrived.kind, &record) else {
            hop.is_over.set(true);
            break;
        };
        let is_valid = match up {
            Up::Response { ticket, content, exchange } => {
                has_responses = true;
                responses::on_response(pool, (backend, hop), (exchange, ticket), content, file)
            }
            Up::Unsendable { ticket, .. } => {
                has_responses = true;
                responses::on_unsendable(pool, backend, hop, ticket);
                true
            }
            Up::Declined { ticket, .. } => {
                has_responses = true;
                responses::on_declined(pool, backend, hop, ticket);
                true
            }
            Up::Message { socket, kind, is_waiting, content } => {
                sockets::send(pool, backend, socket, (kind, is_waiting), content);
                true
            }
            Up::Ping { socket } | Up::Close { socket, .. } | Up::Abort { socket } => {
                sockets::command(pool, backend, socket, up);
                true
            }
            Up::Chunk { stream, .. }
            | Up::ResumePulls { stream }
            | Up::SendHead { stream }
            | Up::EndStream { stream }
            | Up::AbortStream { stream, .. } => {
                streams::command(pool, backend, stream, up);
                true
            }
        };
        if !is_valid {
            hop.is_over.set(true);
            break;
        }
        if record.capacity() > MAX_KEPT_RECORD {
            record = Vec::new();
        }
    }
    hop.received.replace(record);
    has_responses
}
