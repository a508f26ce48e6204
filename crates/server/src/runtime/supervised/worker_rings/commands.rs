//! The application's commands as records to the front end.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use rookery_exchange::wire::{MAX_INLINE_BODY, Up};
use rookery_exchange::{
    Command, Event, Exchange, Link, MessageKind, Payload, ResponseBody, StreamEnd, WebSocketId,
};
use rookery_system::linux::content_file;
use rookery_worker_protocol::rings::{MAX_LONG_RECORD, SendError, WaitingRecord};

use super::{FROM_FRONT_END, MAX_IDLE, Socket, Stream, WorkerRings};

/// The maximum length in bytes of the head of a response.
const MAX_HEAD: usize = 1 << 20;

/// The close code for a message that is too long (RFC 6455, 7.4.1).
const TOO_LONG: u16 = 1009;

/// Converts an id of this process to the id in the front end.
pub(super) fn front_end_id(id: u64) -> u64 {
    id & !FROM_FRONT_END
}

/// Returns the bytes of a body that is in memory and too long for its record.
fn long_body(exchange: &Exchange) -> Option<&[u8]> {
    let bytes = match exchange.response().body() {
        ResponseBody::Copied => exchange.response_copy().unwrap_or_default(),
        ResponseBody::Lent(lease) => lease.as_bytes(),
        ResponseBody::None | ResponseBody::File { .. } | ResponseBody::Stream(_) => return None,
    };
    Some(bytes).filter(|bytes| bytes.len() > MAX_INLINE_BODY)
}

impl WorkerRings {
    /// Sends a command that concerns an exchange, a WebSocket or a stream of the front end.
    pub fn send(&mut self, command: Command, link: &Link) {
        match command {
            Command::Respond(exchange) => self.respond(exchange, link),
            Command::ReadBody(exchange) => self.read_body(exchange, link),
            Command::StreamBody { exchange, .. } => self.stream_body(exchange, link),
            Command::BodyConsumed { exchange, bytes } => {
                self.continue_body(exchange, bytes, link);
            }
            Command::Send { socket, kind, payload } => {
                self.send_message(socket, kind, payload.as_bytes());
                recycle(payload, link);
            }
            Command::Ping { socket } => self.send_up(Up::Ping { socket: front_end_id(socket) }),
            Command::Close { socket, code, reason } => {
                self.send_up(Up::Close { socket: front_end_id(socket), code, reason: &reason });
            }
            Command::Abort { socket } => self.send_up(Up::Abort { socket: front_end_id(socket) }),
            Command::Chunk { stream, payload, is_pushing } => {
                if let Some(open) = self.streams.get(&stream) {
                    open.flow.on_chunk_arrived();
                    let is_waiting = !open.flow.has_capacity();
                    let (stream, content) = (front_end_id(stream), payload.as_bytes());
                    self.send_up(Up::Chunk { stream, is_pushing, is_waiting, content });
                }
                recycle(payload, link);
            }
            Command::ResumePulls { stream } => {
                self.send_up(Up::ResumePulls { stream: front_end_id(stream) });
            }
            Command::SendHead { stream } => {
                self.send_up(Up::SendHead { stream: front_end_id(stream) });
            }
            Command::EndStream { stream } => {
                self.send_up(Up::EndStream { stream: front_end_id(stream) });
            }
            Command::AbortStream { stream, reason, page } => {
                self.send_up(Up::AbortStream { stream: front_end_id(stream), reason, page: &page });
            }
        }
        self.announce_in_time();
    }

    /// Ends all streamed responses, because the application stops after its supervisor has drained.
    /// The clients of event streams reconnect; the other responses stay incomplete.
    pub fn stop_streams(&mut self) {
        let open: Vec<_> = self.streams.keys().map(|id| front_end_id(*id)).collect();
        for stream in open {
            self.send_up(Up::AbortStream { stream, reason: StreamEnd::Stop, page: b"" });
        }
        self.announce_in_time();
    }

    /// Gives a request back to the front end, because no listener serves it.
    pub(super) fn decline(&mut self, exchange: Box<Exchange>) {
        let (id, ticket) = (front_end_id(exchange.id()), exchange.ticket());
        self.send_up(Up::Declined { exchange: id, ticket });
        self.recycle_exchange(exchange);
        self.announce_in_time();
    }

    pub(super) fn recycle_exchange(&mut self, exchange: Box<Exchange>) {
        self.unanswered = self.unanswered.saturating_sub(1);
        self.keep_exchange(exchange);
    }

    /// Keeps an exchange for a later request.
    pub(super) fn keep_exchange(&mut self, mut exchange: Box<Exchange>) {
        if self.idle.len() < MAX_IDLE {
            exchange.reset();
            self.idle.push(exchange);
        }
    }

    pub(super) fn respond(&mut self, mut exchange: Box<Exchange>, link: &Link) {
        let (id, listener) = (exchange.id(), exchange.listener());
        let ids = (front_end_id(id), exchange.ticket());
        // The front end waits for no response: the front end has withdrawn the request, or will
        // send the request again.
        if !self.end_head(&exchange, link) || exchange.response().status() == 0 {
            return self.recycle_exchange(exchange);
        }
        let (mut file, mut file_len) = (None, None);
        if let ResponseBody::File { .. } = exchange.response().body() {
            if let ResponseBody::File { file: body, len } = exchange.response_mut().take_body() {
                (file, file_len) = (Some(body), Some(len));
            }
        } else if let Some(bytes) = long_body(&exchange) {
            // The response crosses at once, however fast the client reads it and whatever this
            // thread does next.
            (file, file_len) = (content_file::create([bytes]).ok(), Some(bytes.len() as u64));
        }
        if exchange.is_upgrade() && exchange.response().status() == 101 {
            let backlog = exchange.backlog().map(Arc::clone).unwrap_or_default();
            self.sockets.insert(id, Socket { listener, backlog });
        } else if let ResponseBody::Stream(stream) = exchange.response().body() {
            let flow = Arc::clone(&stream.flow);
            let stream = Stream { listener, flow, written: 0 };
            self.streams.insert(id, stream);
        }
        let is_sent = file.is_some() == file_len.is_some()
            && self.push(file.as_ref(), |record| {
                let kind = Up::write_response(&exchange, ids, file_len, record);
                (record.len() <= MAX_HEAD).then_some(kind)
            });
        if !is_sent {
            let (exchange_id, ticket) = ids;
            self.send_up(Up::Unsendable { exchange: exchange_id, ticket });
            self.end_unsendable(id, link);
        }
        self.recycle_exchange(exchange);
    }

    /// Ends the WebSocket or stream of a response that cannot be sent.
    pub(super) fn end_unsendable(&mut self, id: u64, link: &Link) {
        if let Some(Socket { listener, backlog }) = self.sockets.remove(&id) {
            backlog.end();
            let reason = Box::default();
            let event = Event::Closed { socket: id, listener, code: 1006, reason, is_clean: false };
            let _ = link.push(event);
        }
        if let Some(Stream { listener, flow, .. }) = self.streams.remove(&id) {
            flow.end();
            let reason = StreamEnd::Error;
            let _ = link.push(Event::StreamEnded { stream: id, listener, reason });
        }
    }

    fn send_message(&mut self, socket: WebSocketId, kind: MessageKind, content: &[u8]) {
        let is_waiting = self.sockets.get(&socket).is_some_and(|open| open.backlog.is_high());
        let socket = front_end_id(socket);
        // The record also contains an id and a flag.
        if content.len() > MAX_LONG_RECORD - 16 {
            let reason = b"the message is too long";
            return self.send_up(Up::Close { socket, code: TOO_LONG, reason });
        }
        self.send_up(Up::Message { socket, kind, is_waiting, content });
    }

    pub(super) fn send_up(&mut self, up: Up<'_>) {
        self.push(None, |record| Some(up.write(record)));
    }

    /// Sends the records that the front end did not accept before. A record for which the system
    /// provides no memory or descriptor is replaced by a substitute.
    pub(super) fn send_unsent(&mut self) {
        let before = self.outbox.waiting();
        while self.outbox.flush() == Err(SendError::System) {
            let unsendable = &mut self.unsendable;
            self.outbox.replace_first(|record| {
                let substitute = substitute(record)?;
                if let Up::Unsendable { exchange, .. } = substitute {
                    unsendable.push(exchange | FROM_FRONT_END);
                }
                let mut bytes = Vec::new();
                Some((substitute.write(&mut bytes), bytes))
            });
        }
        self.is_unannounced |= self.outbox.waiting() < before;
        self.queue.set_unsent(self.outbox.waiting() > 0);
    }

    /// Sends the record that `write` writes ([`Outbox::send`]), which may wait until the front end
    /// accepts it. Returns false if the record must not or cannot be sent.
    ///
    /// [`Outbox::send`]: rookery_worker_protocol::rings::Outbox::send
    fn push(
        &mut self,
        file: Option<&File>,
        write: impl FnOnce(&mut Vec<u8>) -> Option<u8>,
    ) -> bool {
        if self.outbox.waiting() > 0 {
            self.send_unsent();
        }
        let sent = self.outbox.send(file.map(File::as_fd), write);
        if self.outbox.waiting() > 0 {
            self.queue.set_unsent(true);
        }
        sent != Err(SendError::System)
    }
}

/// Returns the record that is sent instead of a record whose file cannot be created or sent.
/// Returns `None` if no record is to be sent.
fn substitute(record: &WaitingRecord) -> Option<Up<'static>> {
    match Up::read(record.kind, &record.bytes).ok()? {
        Up::Response { exchange, ticket, .. } => Some(Up::Unsendable { exchange, ticket }),
        Up::Message { socket, .. } => Some(Up::Abort { socket }),
        Up::Chunk { stream, .. } => {
            Some(Up::AbortStream { stream, reason: StreamEnd::Slow, page: b"" })
        }
        _ => None,
    }
}

fn recycle(payload: Payload, link: &Link) {
    if let Payload::Pooled(buffer) = payload {
        link.recycle(buffer);
    }
}
