//! The messages of WebSockets, and the events of streams, that wait until their worker has taken
//! earlier ones.

use std::collections::VecDeque;

use rookery_exchange::wire::Down;
use rookery_exchange::{
    Charge, ExchangeId, FairQueue, Load, MessageKind, Payload, Peer, Queued, StreamEnd,
};
use rookery_worker_protocol::rings::{Lane, MAX_RECORD_LEN, Outbox, SentPart};

/// The load at which the queue of messages to one worker is full. The server then reads no messages
/// from the worker's WebSockets.
const LIMIT: Load = Load { messages: 4096, bytes: 8 << 20, requests: 0 };

/// The maximum number of messages that are in the ring to a worker at a time. If R needs a few
/// microseconds for each message, this number keeps R busy until this thread sends more.
const WINDOW: usize = 64;

/// The sender of records to a worker.
type RingOutbox = Outbox<Option<Charge>>;

/// An event of a WebSocket or a streamed response that waits to be sent to its worker, because R
/// runs a callback for it.
#[derive(Debug)]
pub(in crate::pool) struct WaitingEvent {
    pub(super) peer: Peer,
    /// The WebSocket or stream.
    pub(super) id: ExchangeId,
    pub(super) content: Content,
}

/// The content of a [`WaitingEvent`].
#[derive(Debug)]
pub(super) enum Content {
    Message(MessageKind, Payload),
    /// The WebSocket has ended.
    Closed {
        code: u16,
        is_clean: bool,
        reason: Box<str>,
    },
    /// The client takes the next chunk of a stream, of which it has got `written` bytes.
    Pull {
        written: u64,
    },
    /// The client has caught up with a stream, of which it has got `written` bytes.
    Writable {
        written: u64,
    },
    /// The stream has ended.
    StreamEnded(StreamEnd),
}

impl WaitingEvent {
    #[cfg(test)]
    pub(in crate::pool) fn message(peer: Peer, id: ExchangeId, text: Vec<u8>) -> WaitingEvent {
        let content = Content::Message(MessageKind::Text, Payload::Pooled(text));
        WaitingEvent { peer, id, content }
    }

    /// Reads an event from a record that was withdrawn. A worker can have changed the record, which
    /// is dropped then.
    fn read(peer: Peer, kind: u8, mut record: Vec<u8>) -> Option<WaitingEvent> {
        let (id, content) = match Down::read(kind, &record).ok()? {
            Down::Message { socket, kind, content } => {
                let head = record.len() - content.len();
                record.drain(..head);
                (socket, Content::Message(kind, Payload::Pooled(record)))
            }
            Down::Closed { socket, code, is_clean, reason } => {
                let reason = String::from_utf8_lossy(reason).into();
                (socket, Content::Closed { code, is_clean, reason })
            }
            Down::Pull { stream, written } => (stream, Content::Pull { written }),
            Down::Written { stream, written } => (stream, Content::Writable { written }),
            Down::StreamEnded { stream, reason } => (stream, Content::StreamEnded(reason)),
            _ => return None,
        };
        Some(WaitingEvent { peer, id, content })
    }

    /// Returns a length in bytes that the record of the event does not exceed.
    fn max_record_len(&self) -> usize {
        const MAX_HEAD: usize = 32;
        MAX_HEAD
            + match &self.content {
                Content::Message(_, payload) => payload.as_bytes().len(),
                Content::Closed { reason, .. } => reason.len(),
                _ => 0,
            }
    }
}

impl Queued for WaitingEvent {
    fn load(&self) -> Load {
        match &self.content {
            Content::Message(_, payload) => {
                Load { messages: 1, bytes: payload.held(), requests: 0 }
            }
            _ => Load::default(),
        }
    }
}

/// The messages to one worker, both those that wait here and those in its ring.
///
/// The messages that wait are taken round-robin over the peers. The ring is taken in order. While
/// several peers wait, the ring therefore has at most one message of each, and while peers of
/// several networks wait, at most one of each network. If only one peer waits, it may fill the
/// ring. Its messages are withdrawn from the ring when a message of another peer arrives, or a
/// request.
#[derive(Debug, Default)]
pub(in crate::pool) struct WaitingMessages {
    queue: FairQueue<WaitingEvent>,
    /// The messages in the ring that the worker has not taken, oldest first.
    in_ring: VecDeque<InRing>,
    /// The peer of which the ring may have several messages, because no other peer was waiting.
    alone: Option<Peer>,
    /// The number of the last request in the ring.
    last_request: usize,
}

/// A message in the ring.
#[derive(Debug, Clone, Copy)]
struct InRing {
    peer: Peer,
    part: SentPart,
}

impl WaitingMessages {
    /// Returns true if the queue accepts another message of this peer.
    pub(super) fn has_capacity(&self, peer: Peer) -> bool {
        self.queue.admits_message(peer, LIMIT)
    }

    /// Returns true if no message waits here. The ring may have some.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns true if the worker has not taken all messages.
    pub(in crate::pool) fn has_untaken(&self, outbox: &RingOutbox) -> bool {
        let is_unread = |it: &InRing| outbox.sender().is_unread(it.part.number);
        !self.queue.is_empty() || self.in_ring.back().is_some_and(is_unread)
    }

    /// Adds an event behind those of its peer. Withdraws from the ring what would keep the peer
    /// from its turn.
    pub(in crate::pool) fn push(&mut self, event: WaitingEvent, outbox: &mut RingOutbox) {
        let peer = event.peer;
        let is_first = !self.queue.has_items_of(peer);
        let is_first_of_network = is_first && !self.queue.has_items_of_network(peer);
        self.queue.push(peer, event);
        if !is_first || self.in_ring.len() < 2 {
            return;
        }
        let gives_way = self.alone.take_if(|alone| alone.id() != peer.id()).is_some();
        self.withdraw(outbox, |earlier, this| {
            let (id, network) = (this.peer.id(), this.peer.network());
            if is_first_of_network && network != peer.network() {
                earlier.iter().any(|it| it.peer.network() == network)
            } else {
                gives_way && id != peer.id() && earlier.iter().any(|it| it.peer.id() == id)
            }
        });
    }

    /// Withdraws messages from the ring, so that at most one message comes between the last request
    /// there and the next one. Called before a request is sent.
    pub(super) fn before_request(&mut self, outbox: &mut RingOutbox) {
        let last_request = self.last_request;
        let is_later = |it: &InRing| it.part.number > last_request;
        self.withdraw(outbox, |earlier, this| is_later(this) && earlier.iter().any(is_later));
    }

    /// Records that a request was sent as the record with this number.
    pub(super) fn on_request_sent(&mut self, number: usize) {
        self.last_request = number;
    }

    /// Moves the messages from the ring back to the queue for which `is_surplus` returns true. Its
    /// arguments are the earlier messages in the ring, and the message.
    fn withdraw(
        &mut self,
        outbox: &mut RingOutbox,
        is_surplus: impl Fn(&[InRing], &InRing) -> bool,
    ) {
        self.forget_taken(outbox);
        if outbox.waiting(Lane::Messages) > 0 {
            // Earlier messages would be sent after the record that waits.
            return;
        }
        // The last ones first: if the worker has taken a message, it has taken all earlier ones.
        for at in (1..self.in_ring.len()).rev() {
            let (earlier, this) = self.in_ring.make_contiguous()[..=at].split_at(at);
            let (peer, part) = (this[0].peer, this[0].part);
            if !is_surplus(earlier, &this[0]) {
                continue;
            }
            let mut record = Vec::new();
            let Some(kind) = outbox.withdraw(part, &mut record) else { return };
            self.in_ring.remove(at);
            if let Some(event) = WaitingEvent::read(peer, kind, record) {
                self.queue.put_back(peer, event, |_| true);
            }
        }
    }

    fn forget_taken(&mut self, outbox: &RingOutbox) {
        let is_taken = |it: &InRing| !outbox.sender().is_unread(it.part.number);
        while self.in_ring.front().is_some_and(is_taken) {
            self.in_ring.pop_front();
        }
    }

    /// Removes and returns the next event if it may be in the ring now.
    pub(super) fn next(&mut self, outbox: &mut RingOutbox) -> Option<WaitingEvent> {
        self.forget_taken(outbox);
        let in_ring = &self.in_ring;
        // The next request would make this thread withdraw further messages.
        let follows_request = in_ring.back().is_some_and(|it| it.part.number > self.last_request)
            && outbox.sender().is_unread(self.last_request);
        if in_ring.len() >= WINDOW || follows_request {
            return None;
        }
        let has_peer = |peer: Peer| in_ring.iter().any(|it| it.peer.id() == peer.id());
        let has_network = |peer: Peer| in_ring.iter().any(|it| it.peer.network() == peer.network());
        let has_long = in_ring.iter().any(|it| !it.part.is_withdrawable());
        let is_alone = self.queue.peers() == 1 && !has_long;
        let (peer, event) = if is_alone {
            self.queue.pop()
        } else if self.queue.networks() == 1 && !has_long {
            self.queue.pop_of(|peer| !has_peer(peer))
        } else {
            self.queue.pop_of(|peer| !has_network(peer))
        }?;
        let len = event.max_record_len();
        let is_due = if len > MAX_RECORD_LEN {
            // Such a message cannot be withdrawn, and nor can those before it.
            !has_network(peer)
        } else {
            outbox.find_block(Lane::Messages, len)
        };
        if !is_due {
            self.queue.put_back(peer, event, |_| true);
            return None;
        }
        if is_alone {
            self.alone = Some(peer);
        }
        Some(event)
    }

    /// Records that an event of a peer was sent as this part.
    pub(super) fn on_sent(&mut self, peer: Peer, part: SentPart) {
        self.in_ring.push_back(InRing { peer, part });
    }
}

#[cfg(test)]
mod tests;
