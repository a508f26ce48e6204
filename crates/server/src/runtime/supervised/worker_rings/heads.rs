//! Requests whose heads the application inspects before it gets their bodies.

use rookery_exchange::wire::Up;
use rookery_exchange::{
    AppToken, Event, Exchange, ExchangeId, Link, Payload, Peer, PushError, StreamEnd,
};

use super::WorkerRings;
use super::commands::front_end_id;

/// The maximum number of bytes of a request body that wait until the application has processed
/// them.
const READ_AHEAD: u64 = 256 << 10;

/// The maximum length of a chunk of a request body.
const CHUNK: u64 = 64 << 10;

/// A request of which the application has got only the head.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) ticket: u64,
    /// The complete request, unless its body has not been received.
    pub(super) complete: Option<Box<Exchange>>,
    /// The numbers of bytes that the application has got and processed, if it gets the body in
    /// chunks.
    streamed: Option<(u64, u64)>,
}

impl Head {
    pub(super) fn new(ticket: u64, complete: Option<Box<Exchange>>) -> Head {
        Head { ticket, complete, streamed: None }
    }
}

impl WorkerRings {
    /// Gives the complete request to the application, or asks the front end to receive the body.
    pub(super) fn read_body(&mut self, mut exchange: Box<Exchange>, link: &Link) {
        let (id, ticket) = (exchange.id(), exchange.ticket());
        match self.heads.remove(&id).and_then(|head| head.complete) {
            Some(mut complete) => {
                complete.set_app_token(AppToken::new(exchange.take_app_token(), link.releases()));
                self.unanswered += 1;
                self.recycle_exchange(exchange);
                if let Err(PushError::Full(mut complete)) =
                    link.push(Peer::default(), Event::Request(complete))
                {
                    complete.begin_response(503);
                    self.respond(complete, link);
                }
            }
            None => {
                self.send_up(Up::ReadBody {
                    exchange: front_end_id(id),
                    ticket,
                    is_head_seen: true,
                });
                self.recycle_exchange(exchange);
            }
        }
    }

    /// Gives the body of a request to the application in chunks. If the body has not been received,
    /// the application gets an empty body, and inspects the head again when the front end has
    /// received the body.
    pub(super) fn stream_body(&mut self, id: ExchangeId, link: &Link) {
        let Some(head) = self.heads.get_mut(&id) else { return };
        if head.complete.is_some() {
            head.streamed = Some((0, 0));
            return self.continue_body(id, 0, link);
        }
        let ticket = head.ticket;
        self.abandoned.push(ticket);
        self.end_body(id, StreamEnd::Client, link);
        self.send_up(Up::ReadBody { exchange: front_end_id(id), ticket, is_head_seen: false });
    }

    /// Gives further chunks of a body to the application, which has processed `processed` bytes.
    pub(super) fn continue_body(&mut self, id: ExchangeId, processed: usize, link: &Link) {
        let Some(Head { complete: Some(complete), streamed: Some((sent, done)), .. }) =
            self.heads.get_mut(&id)
        else {
            return;
        };
        let (body, listener) = (complete.body(), complete.listener());
        *done += processed as u64;
        while *sent < body.len() && *sent < *done + READ_AHEAD {
            let mut buffer = link.buffer();
            buffer.resize(CHUNK.min(body.len() - *sent) as usize, 0);
            match body.read_at(*sent, &mut buffer) {
                Ok(len) if len > 0 => buffer.truncate(len),
                _ => return self.end_body(id, StreamEnd::Error, link),
            }
            *sent += buffer.len() as u64;
            let payload = Payload::Pooled(buffer);
            let _ = link.push(Peer::default(), Event::Body { exchange: id, listener, payload });
        }
        if *sent == body.len() {
            self.end_body(id, StreamEnd::Done, link);
        }
    }

    fn end_body(&mut self, id: ExchangeId, reason: StreamEnd, link: &Link) {
        // The listener does not matter: R finds the receiver by the exchange.
        let _ = link.push(Peer::default(), Event::BodyEnd { exchange: id, listener: 0, reason });
        if let Some(complete) = self.heads.remove(&id).and_then(|head| head.complete) {
            self.keep_exchange(complete);
        }
    }

    /// Drops the body of a request to which the application responds. Returns false if the front
    /// end no longer waits for the response.
    pub(super) fn end_head(&mut self, exchange: &Exchange, link: &Link) -> bool {
        if let Some(at) = self.abandoned.iter().position(|ticket| *ticket == exchange.ticket()) {
            self.abandoned.swap_remove(at);
            return false;
        }
        match self.heads.get(&exchange.id()).map(|head| head.streamed.is_some()) {
            Some(true) => self.end_body(exchange.id(), StreamEnd::Done, link),
            Some(false) => {
                self.heads.remove(&exchange.id());
            }
            None => {}
        }
        true
    }
}
