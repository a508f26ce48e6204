//! The application's commands as records to the front end.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rookery_exchange::wire::{Up, response_body};
use rookery_exchange::{
    Command, Event, Exchange, Link, MessageKind, Payload, Peer, ResponseBody, StreamEnd, StreamId,
    WebSocketId,
};
use rookery_worker_protocol::rings::{Beside, Lane, SendError};

use super::{FROM_FRONT_END, MAX_IDLE, Socket, Stream, WorkerRings};

/// The maximum length in bytes of the head of a response.
const MAX_HEAD: usize = 1 << 20;

/// The maximum length in bytes of a message to a WebSocket.
const MAX_MESSAGE: usize = 256 << 20;

/// The close code for a message that is too long (RFC 6455, 7.4.1).
const TOO_LONG: u16 = 1009;

/// The maximum time for which the application's thread waits while the front end takes nothing of a
/// record in parts.
const MAX_STALL: Duration = Duration::from_millis(20);

/// The maximum time for which the application's thread waits until all of a record in parts has
/// been sent. The rest waits in the outbox, so that R can be interrupted.
const MAX_WAIT: Duration = Duration::from_millis(200);

/// The time after which the application's thread looks again whether blocks have been returned.
const WAIT_STEP: Duration = Duration::from_micros(30);

/// Converts an id of this process to the id in the front end.
pub(super) fn front_end_id(id: u64) -> u64 {
    id & !FROM_FRONT_END
}

/// The patience of the application's thread while the front end takes a record in parts.
#[derive(Debug, Default)]
struct Patience {
    /// The number of bytes that had been sent when the front end last took some, and the time.
    progress: Option<(usize, Instant)>,
    began: Option<Instant>,
}

impl Patience {
    /// Waits for a moment. Returns false if the thread has waited for long enough.
    fn wait(&mut self, sent: usize) -> bool {
        let now = Instant::now();
        let began = *self.began.get_or_insert(now);
        let since = match self.progress {
            Some((before, since)) if before == sent => since,
            _ => {
                self.progress = Some((sent, now));
                now
            }
        };
        if now - since >= MAX_STALL || now - began >= MAX_WAIT {
            return false;
        }
        std::thread::sleep(WAIT_STEP);
        true
    }
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
                    self.send_chunk(stream, (is_pushing, is_waiting), payload.as_bytes());
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
            if let ResponseBody::File { file: body, len, .. } = exchange.response_mut().take_body()
            {
                (file, file_len) = (Some(body), Some(len));
            }
        }
        let mut lane = Lane::Requests;
        if exchange.is_upgrade() && exchange.response().status() == 101 {
            // The messages must not overtake the response.
            lane = Lane::Messages;
            let backlog = exchange.backlog().map(Arc::clone).unwrap_or_default();
            self.sockets.insert(id, Socket { listener, backlog });
        } else if let ResponseBody::Stream(stream) = exchange.response().body() {
            let flow = Arc::clone(&stream.flow);
            let stream = Stream { listener, flow, written: 0 };
            self.streams.insert(id, stream);
        }
        let descriptor = file.as_ref().map(File::as_fd);
        let is_sent =
            self.push(lane, Beside { descriptor, tail: response_body(&exchange) }, |record| {
                let kind = Up::write_response(&exchange, ids, file_len, record);
                (record.len() <= MAX_HEAD).then_some(kind)
            });
        if !is_sent {
            self.end_unsendable((id, ids.1), link);
        }
        self.recycle_exchange(exchange);
    }

    /// Reports that a response cannot be sent, and ends its WebSocket or stream.
    pub(super) fn end_unsendable(&mut self, (id, ticket): (u64, u64), link: &Link) {
        self.send_up(Up::Unsendable { exchange: front_end_id(id), ticket });
        if let Some(Socket { listener, backlog }) = self.sockets.remove(&id) {
            backlog.end();
            let reason = Box::default();
            let event = Event::Closed { socket: id, listener, code: 1006, reason, is_clean: false };
            let _ = link.push(Peer::default(), event);
        }
        if let Some(Stream { listener, flow, .. }) = self.streams.remove(&id) {
            flow.end();
            let reason = StreamEnd::Error;
            let _ = link.push(Peer::default(), Event::StreamEnded { stream: id, listener, reason });
        }
    }

    fn send_message(&mut self, socket: WebSocketId, kind: MessageKind, tail: &[u8]) {
        let is_waiting = self.sockets.get(&socket).is_some_and(|open| open.backlog.is_high());
        let socket = front_end_id(socket);
        if tail.len() > MAX_MESSAGE {
            let reason = b"the message is too long";
            return self.send_up(Up::Close { socket, code: TOO_LONG, reason });
        }
        let up = Up::Message { socket, kind, is_waiting, content: b"" };
        let beside = Beside { descriptor: None, tail };
        self.push(Lane::Messages, beside, |record| Some(up.write(record)));
    }

    fn send_chunk(
        &mut self,
        stream: StreamId,
        (is_pushing, is_waiting): (bool, bool),
        tail: &[u8],
    ) {
        let stream = front_end_id(stream);
        let up = Up::Chunk { stream, is_pushing, is_waiting, content: b"" };
        let beside = Beside { descriptor: None, tail };
        self.push(Lane::Requests, beside, |record| Some(up.write(record)));
    }

    pub(super) fn send_up(&mut self, up: Up<'_>) {
        let lane = match up {
            Up::Message { .. } | Up::Ping { .. } | Up::Close { .. } | Up::Abort { .. } => {
                Lane::Messages
            }
            _ => Lane::Requests,
        };
        self.push(lane, Beside::default(), |record| Some(up.write(record)));
    }

    /// Sends the records that the front end did not accept before. A response whose descriptor the
    /// system does not accept is replaced by a report to its client.
    pub(super) fn send_unsent(&mut self) {
        let before = self.outbox.sender().sent();
        while self.outbox.flush() == Err(SendError::System) {
            let refused = self.outbox.take_refused();
            let up = refused.as_ref().and_then(|it| Up::read(it.kind, &it.bytes).ok());
            if let Some(Up::Response { exchange, ticket, .. }) = up {
                self.unsendable.push((exchange | FROM_FRONT_END, ticket));
            }
        }
        self.is_unannounced |= self.outbox.sender().sent() > before;
        self.queue.set_unsent(self.outbox.has_waiting());
    }

    /// Sends a record ([`Outbox::send`]), which may wait until the front end accepts it. Returns
    /// false if the record must not or cannot be sent.
    ///
    /// [`Outbox::send`]: rookery_worker_protocol::rings::Outbox::send
    fn push(
        &mut self,
        lane: Lane,
        beside: Beside<'_>,
        write: impl FnOnce(&mut Vec<u8>) -> Option<u8>,
    ) -> bool {
        if self.outbox.has_waiting() {
            self.send_unsent();
        }
        let WorkerRings { outbox, front_end_sleep, wakers, .. } = self;
        let mut patience = Patience::default();
        let wait = |sent| {
            front_end_sleep.wake_sleeper(|| wakers.wake_front_end());
            patience.wait(sent)
        };
        let result = outbox.send(lane, beside, write, wait, |_| ());
        if outbox.has_waiting() {
            self.queue.set_unsent(true);
        }
        result != Err(SendError::System)
    }
}

fn recycle(payload: Payload, link: &Link) {
    if let Some(buffer) = payload.into_buffer() {
        link.recycle(buffer);
    }
}
