//! The rings to a worker: this process's end, with the requests that were sent and not answered.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rookery_exchange::wire::Down;
use rookery_exchange::{Charge, MessageKind, Payload, WebSocketId};
use rookery_worker_protocol::rings::{
    Beside, Lane, Outbox, Receiver, RingEnd, RingWakers, SendError, Sleep, SleepWord,
};
use rookery_worker_protocol::{Ticket, TicketGuard};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::pool::balancing::queue::QueuedRequest;
use crate::pool::hop::waiting_messages::WaitingMessages;

/// The number of records after which a sleeping worker is woken, even if this thread has more to
/// read.
const WAKE_BATCH: u32 = 32;

/// The maximum number of records that wait until the worker returns blocks. A worker that takes
/// records never reaches this limit, because reports and messages from WebSockets are held back
/// long before (see [`has_unsent`]).
///
/// [`has_unsent`]: RingConnection::has_unsent
const MAX_UNSENT_RECORDS: usize = 1 << 19;

/// This process's end of the rings to one worker.
pub(in crate::pool) struct RingConnection {
    /// The sender of records. A message that waits keeps its charge to the memory budget.
    pub(in crate::pool) outbox: RefCell<Outbox<Option<Charge>>>,
    pub(in crate::pool) receiver: RefCell<Receiver>,
    pub(in crate::pool) own_sleep: SleepWord,
    worker_sleep: SleepWord,
    pub(in crate::pool) wakers: RingWakers,
    pub(in crate::pool) requests: RefCell<SentRequests>,
    /// The messages of WebSockets that are not in the ring yet.
    pub(in crate::pool) messages: RefCell<WaitingMessages>,
    /// The record that is being read.
    pub(in crate::pool) received: RefCell<Vec<u8>>,
    /// The charge to the memory budget for records of which only the first parts have arrived.
    pub(in crate::pool) incomplete: Cell<Option<Charge>>,
    /// The number of records that were sent since the worker was last woken.
    unannounced: Cell<u32>,
    /// The number of records that had been sent at some earlier check for a stall, and the number
    /// of checks since then. The worker had not taken the last of these records at any of them.
    pub(in crate::pool) stall: Cell<(usize, u32)>,
    /// Whether nothing is read from the worker any more, because it has violated the protocol or
    /// has ended.
    pub(in crate::pool) is_over: Cell<bool>,
    /// The registrations by which the worker ends the sleep of this thread's runtime. No task waits
    /// for them: the end of the sleep is enough.
    _registrations: Vec<AsyncFd<Arc<OwnedFd>>>,
}

impl fmt::Debug for RingConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingConnection").field("outbox", &self.outbox).finish_non_exhaustive()
    }
}

impl RingConnection {
    /// Creates this process's end from the rings of a worker. Must be called within the runtime of
    /// the I/O thread.
    pub(in crate::pool) fn new((end, wakers): (RingEnd, RingWakers)) -> RingConnection {
        let register = |fd| {
            // SAFETY: the value owns the descriptor, which stays open and unchanged.
            unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.ok()
        };
        let watched = wakers.watched_by_front_end().into_iter();
        let registrations: Option<Vec<_>> = watched.map(register).collect();
        RingConnection {
            outbox: RefCell::new(Outbox::new(end.sender)),
            receiver: RefCell::new(end.receiver),
            own_sleep: end.own_sleep,
            worker_sleep: end.peer_sleep,
            requests: RefCell::default(),
            messages: RefCell::default(),
            received: RefCell::default(),
            incomplete: Cell::default(),
            unannounced: Cell::new(0),
            stall: Cell::default(),
            // A worker that cannot wake this thread gets no requests, and is replaced.
            is_over: Cell::new(registrations.is_none()),
            _registrations: registrations.unwrap_or_default(),
            wakers,
        }
    }

    /// Returns true if the worker accepts records of a lane now.
    pub(in crate::pool) fn has_capacity(&self, lane: Lane) -> bool {
        !self.is_over.get() && self.outbox.borrow().waiting(lane) == 0
    }

    /// Returns true if the worker accepts requests now. It accepts none between the parts of a
    /// message, because R would run each of them before it could take the messages behind.
    pub(in crate::pool) fn accepts_requests(&self) -> bool {
        !self.is_over.get() && !self.outbox.borrow().has_waiting()
    }

    /// Returns true if records of a lane wait until the worker returns blocks.
    pub(in crate::pool) fn has_unsent(&self, lane: Lane) -> bool {
        !self.is_over.get() && self.outbox.borrow().waiting(lane) > 0
    }

    /// Returns true if the worker has not taken all records.
    pub(in crate::pool) fn has_unread(&self) -> bool {
        let outbox = self.outbox.borrow();
        !self.is_over.get() && outbox.sender().is_unread(outbox.sender().sent())
    }

    /// Returns true if messages of WebSockets wait for R, here or in the ring.
    pub(in crate::pool) fn has_messages(&self) -> bool {
        self.messages.borrow().has_untaken(&self.outbox.borrow())
    }

    // ---- sending ----

    /// Sends a record. The worker is woken before this thread sleeps, or after [`WAKE_BATCH`]
    /// records.
    pub(in crate::pool) fn send(&self, down: Down<'_>) {
        self.send_quietly(down);
        self.count_unannounced();
    }

    /// Sends a record for which the worker need not be woken.
    pub(in crate::pool) fn send_quietly(&self, down: Down<'_>) {
        let lane = match down {
            Down::Message { .. }
            | Down::Closed { .. }
            | Down::Drained { .. }
            | Down::Sent { .. } => Lane::Messages,
            _ => Lane::Requests,
        };
        self.send_record(lane, Beside::default(), None, |record| Some(down.write(record)));
    }

    /// Sends a record in the lane of messages, because it takes turns with them.
    pub(in crate::pool) fn send_message_event(&self, down: Down<'_>) {
        let write = |record: &mut Vec<u8>| Some(down.write(record));
        self.send_record(Lane::Messages, Beside::default(), None, write);
        self.count_unannounced();
    }

    /// Sends a message of a WebSocket. Returns the buffer of the message for reuse.
    pub(in crate::pool) fn send_message(
        &self,
        socket: WebSocketId,
        kind: MessageKind,
        payload: Payload,
    ) -> Option<Vec<u8>> {
        let (payload, charge) = match payload {
            Payload::Charged(bytes, charge) => (Payload::Pooled(bytes), Some(charge)),
            other => (other, None),
        };
        let down = Down::Message { socket, kind, content: b"" };
        let beside = Beside { descriptor: None, tail: payload.as_bytes() };
        self.send_record(Lane::Messages, beside, charge, |record| Some(down.write(record)));
        self.count_unannounced();
        payload.into_buffer()
    }

    /// Counts a record for which the worker must be woken, and wakes the worker after
    /// [`WAKE_BATCH`] such records.
    pub(in crate::pool) fn count_unannounced(&self) {
        self.unannounced.set(self.unannounced.get() + 1);
        if self.unannounced.get() >= WAKE_BATCH {
            self.wake_worker();
        }
    }

    /// Sends a record ([`Outbox::send`]), which may wait until there is a free block. A record that
    /// waits keeps `charge`, its charge to the memory budget. Returns false if the system does not
    /// accept the descriptor of the record.
    pub(in crate::pool) fn send_record(
        &self,
        lane: Lane,
        beside: Beside<'_>,
        charge: Option<Charge>,
        write: impl FnOnce(&mut Vec<u8>) -> Option<u8>,
    ) -> bool {
        if self.is_over.get() {
            return true;
        }
        let mut outbox = self.outbox.borrow_mut();
        match outbox.send(lane, beside, write, |_| false, |_| charge) {
            Ok(()) if outbox.all_waiting() <= MAX_UNSENT_RECORDS => true,
            Err(SendError::System) => false,
            _ => {
                self.is_over.set(true);
                true
            }
        }
    }

    /// Sends the records that waited for a free block, and wakes the worker if records were sent.
    /// Returns false if some still wait.
    pub(in crate::pool) fn flush(&self) -> bool {
        let mut outbox = self.outbox.borrow_mut();
        let before = outbox.sender().sent();
        // The system may accept a descriptor later.
        if outbox.flush() == Err(SendError::Malformed) {
            self.is_over.set(true);
        }
        if outbox.sender().sent() > before || self.unannounced.get() > 0 {
            self.wake_worker();
        }
        !outbox.has_waiting() || self.is_over.get()
    }

    /// Ends the use of the rings, because the worker has ended. Drops the records that wait, and
    /// those that have not arrived completely.
    pub(in crate::pool) fn end(&self) {
        self.is_over.set(true);
        self.outbox.borrow_mut().clear();
        self.messages.take();
        self.receiver.borrow_mut().end();
        self.incomplete.take();
    }

    fn wake_worker(&self) {
        self.unannounced.set(0);
        self.worker_sleep.wake_sleeper(|| self.wakers.wake_worker());
    }

    // ---- sleeping ----

    /// Announces that this thread is about to sleep. Returns false if records have arrived.
    pub(in crate::pool) fn prepare_sleep(&self) -> bool {
        self.own_sleep.announce(Sleep::Polling);
        self.is_over.get() || !self.receiver.borrow().has_any()
    }
}

/// A request that was sent to a worker.
pub(in crate::pool) struct SentRequest {
    pub(in crate::pool) request: QueuedRequest,
    pub(in crate::pool) ticket: TicketGuard,
    pub(in crate::pool) sent_at: Instant,
    /// The time that the request waited in the queue.
    pub(in crate::pool) waited: Duration,
}

/// The requests that were sent to a worker and not answered, at the places of their tickets.
#[derive(Default)]
pub(in crate::pool) struct SentRequests(Vec<Option<SentRequest>>);

impl SentRequests {
    pub(in crate::pool) fn keep(&mut self, request: SentRequest) {
        let place = request.ticket().place();
        if self.0.len() <= place {
            self.0.resize_with(place + 1, || None);
        }
        self.0[place] = Some(request);
    }

    /// Removes and returns the request with this ticket. A response with another ticket is late.
    pub(in crate::pool) fn take(&mut self, ticket: Ticket) -> Option<SentRequest> {
        let place = self.0.get_mut(ticket.place())?;
        place.take_if(|request| request.ticket() == ticket)
    }

    pub(in crate::pool) fn iter(&self) -> impl Iterator<Item = &SentRequest> {
        self.0.iter().flatten()
    }

    /// Removes and returns the requests for which `is_wanted` returns true, in the order in which
    /// they were sent.
    pub(in crate::pool) fn take_all(
        &mut self,
        is_wanted: impl Fn(&SentRequest) -> bool,
    ) -> Vec<SentRequest> {
        let wanted = self.0.iter_mut().filter_map(|place| place.take_if(|it| is_wanted(it)));
        let mut taken: Vec<_> = wanted.collect();
        taken.sort_unstable_by_key(|request| request.ticket().sequence());
        taken
    }
}

impl SentRequest {
    pub(in crate::pool) fn ticket(&self) -> Ticket {
        self.ticket.ticket()
    }
}
