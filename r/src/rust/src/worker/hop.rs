//! The worker's end of the hop: R's thread takes requests and messages directly from the memory that
//! the supervisor's front end shares with this process, and writes its responses there.
//!
//! A spike: responses in memory only, no flow control of messages.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rookery_exchange::wire::{self, kind};
use rookery_exchange::{Command, Event, Exchange, Link, MessageKind, Payload, SideQueue};
use rookery_worker_protocol::rings::{
    Arrivals, Receiver, RingEnd, RingWakers, SendError, Sender, Sleep, SleepWord,
};

/// The bit of an exchange's id that tells that the exchange comes from the front end.
// R keeps ids as doubles, which have 53 bits.
const FROM_FRONT_END: u64 = 1 << 52;

/// The times after which the front end is woken: see `Link::send`.
const COALESCE: Duration = Duration::from_micros(100);
const MAX_DELAY: Duration = Duration::from_micros(500);

/// The number of unused exchanges that are kept for later requests.
const MAX_IDLE: usize = 64;

/// The worker's end of the rings.
#[derive(Debug)]
pub(crate) struct Hop {
    sender: Sender,
    receiver: Receiver,
    front_end_sleep: SleepWord,
    wakers: RingWakers,
    record: Vec<u8>,
    idle: Vec<Box<Exchange>>,
    /// The records that wait for a free block.
    unsent: VecDeque<(u8, Vec<u8>)>,
    /// Whether records were sent since the front end was last seen awake or woken.
    is_unannounced: bool,
    /// The time at which the oldest unannounced record was sent to a sleeping front end.
    oldest: Option<Instant>,
    side: Arc<Side>,
}

/// The rings as the queue for which R's thread waits beside its link.
struct Side {
    arrivals: Arrivals,
    own_sleep: SleepWord,
    is_sleeping: AtomicBool,
}

impl std::fmt::Debug for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Side").finish_non_exhaustive()
    }
}

impl SideQueue for Side {
    fn has_events(&self) -> bool {
        self.arrivals.has_any()
    }

    fn sleep(&self, timeout: Duration, has_others: &dyn Fn() -> bool) {
        self.is_sleeping.store(true, Ordering::SeqCst);
        self.own_sleep.announce(Sleep::Waiting);
        if self.has_events() || has_others() {
            self.own_sleep.set_awake();
        } else {
            self.own_sleep.wait(timeout);
        }
        self.is_sleeping.store(false, Ordering::SeqCst);
    }

    fn wake(&self) {
        if self.own_sleep.take_sleep() == Sleep::Waiting {
            self.own_sleep.wake();
        }
    }

    fn set_parked(&self, is_parked: bool) {
        if is_parked {
            self.own_sleep.announce(Sleep::Polling);
        } else {
            self.own_sleep.set_awake();
        }
    }
}

/// Returns true if the id is that of an exchange or a WebSocket of the front end.
pub(crate) fn is_from_front_end(id: u64) -> bool {
    id & FROM_FRONT_END != 0
}

impl Hop {
    pub(crate) fn new((end, wakers): (RingEnd, RingWakers), link: &Link) -> Hop {
        let side = Arc::new(Side {
            arrivals: end.receiver.arrivals(),
            own_sleep: end.own_sleep,
            is_sleeping: AtomicBool::new(false),
        });
        link.set_side_queue(Arc::clone(&side) as Arc<dyn SideQueue>);
        Hop {
            sender: end.sender,
            receiver: end.receiver,
            front_end_sleep: end.peer_sleep,
            wakers,
            record: Vec::new(),
            idle: Vec::new(),
            unsent: VecDeque::new(),
            is_unannounced: false,
            oldest: None,
            side,
        }
    }

    /// Takes the next event. If there is none, wakes the front end to take what was sent.
    pub(crate) fn next(&mut self, listener: u32, link: &Link) -> Option<Event> {
        let _ = &self.side;
        loop {
            let Ok(Some(kind)) = self.receiver.take(&mut self.record) else {
                self.flush();
                return None;
            };
            if let Some(event) = self.event(kind, listener, link) {
                link.count_taken_from_side();
                return Some(event);
            }
        }
    }

    fn event(&mut self, kind: u8, listener: u32, link: &Link) -> Option<Event> {
        if kind == kind::REQUEST {
            let mut exchange = self.idle.pop().unwrap_or_else(Exchange::new);
            let number = |id| id | FROM_FRONT_END;
            wire::read_request(&self.record, listener, number, &mut exchange).ok()?;
            return Some(Event::Request(exchange));
        }
        let (id, content) = self.record.split_first_chunk()?;
        let socket = u64::from_le_bytes(*id) | FROM_FRONT_END;
        match (kind, content) {
            (kind::TEXT | kind::BINARY, content) => {
                let mut buffer = link.buffer();
                buffer.extend_from_slice(content);
                let payload = Payload::Pooled(buffer);
                let is_text = kind == kind::TEXT;
                let kind = if is_text { MessageKind::Text } else { MessageKind::Binary };
                Some(Event::Message { socket, listener, kind, payload })
            }
            (kind::CLOSE, [low, high, is_clean, reason @ ..]) => Some(Event::Closed {
                socket,
                listener,
                code: u16::from_le_bytes([*low, *high]),
                reason: String::from_utf8_lossy(reason).into(),
                is_clean: *is_clean != 0,
            }),
            _ => None,
        }
    }

    /// Sends a command that concerns an exchange or a WebSocket of the front end.
    pub(crate) fn send(&mut self, command: Command, link: &Link) {
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        let socket_id = |record: &mut Vec<u8>, id: u64| {
            record.extend_from_slice(&(id & !FROM_FRONT_END).to_le_bytes());
        };
        let kind = match command {
            Command::Respond(mut exchange) => {
                let ids = (exchange.id() & !FROM_FRONT_END, exchange.ticket());
                if wire::write_response(&exchange, ids, &mut record).is_err() {
                    record.clear();
                    exchange.begin_response(501);
                    exchange.set_response_body(b"501 the spike sends no files and streams\n");
                    let _ = wire::write_response(&exchange, ids, &mut record);
                }
                if self.idle.len() < MAX_IDLE {
                    exchange.reset();
                    self.idle.push(exchange);
                }
                kind::RESPONSE
            }
            Command::Send { socket, kind, payload } => {
                socket_id(&mut record, socket);
                record.extend_from_slice(payload.as_bytes());
                if let Payload::Pooled(buffer) = payload {
                    link.recycle(buffer);
                }
                if kind == MessageKind::Text { kind::TEXT } else { kind::BINARY }
            }
            Command::Ping { socket } => {
                socket_id(&mut record, socket);
                kind::PING
            }
            Command::Close { socket, code, reason } => {
                socket_id(&mut record, socket);
                record.extend_from_slice(&code.to_le_bytes());
                record.push(0);
                record.extend_from_slice(&reason);
                kind::CLOSE
            }
            Command::Abort { socket } => {
                socket_id(&mut record, socket);
                kind::ABORT
            }
            _ => return,
        };
        if !self.unsent.is_empty() || self.sender.send(kind, &record) == Err(SendError::Full) {
            self.unsent.push_back((kind, record.clone()));
        }
        self.record = record;
        self.is_unannounced = true;
        self.announce_in_time();
    }

    /// Wakes a sleeping front end if the oldest record has waited, and otherwise makes sure that it
    /// wakes soon.
    fn announce_in_time(&mut self) {
        if !self.front_end_sleep.is_asleep() {
            return;
        }
        let now = Instant::now();
        match self.oldest {
            None => {
                self.oldest = Some(now);
                self.wakers.wake_front_end_within(MAX_DELAY);
            }
            Some(oldest) if now - oldest >= COALESCE => self.flush(),
            Some(_) => {}
        }
    }

    /// Sends what waited for free blocks, and wakes the front end if it sleeps and records were
    /// sent.
    pub(crate) fn flush(&mut self) {
        while let Some((kind, record)) = self.unsent.front() {
            if self.sender.send(*kind, record) == Err(SendError::Full) {
                break;
            }
            self.unsent.pop_front();
        }
        if std::mem::take(&mut self.is_unannounced) {
            self.oldest = None;
            if self.front_end_sleep.take_sleep() != Sleep::Awake {
                self.wakers.wake_front_end();
            }
        }
    }
}
