//! A worker's end of the rings. The application's thread takes requests and messages directly from
//! the memory that the supervisor's front end shares with this process, and writes responses there.
//! The I/O thread only passes on wake-ups to an application that waits outside `service()`, for
//! example in package later.

mod commands;
mod heads;
mod side_queue;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use rookery_exchange::wire::{self, Down, RequestForm};
use rookery_exchange::{
    BodyBufferPool, ById, Event, Exchange, Link, ListenerId, Payload, SendBacklog, SideQueue,
    StreamFlow, StreamId, WakeSchedule, WebSocketId,
};
use rookery_worker_protocol::rings::{
    Lane, MAX_KEPT_RECORD, Malformed, Outbox, Receiver, RingEnd, RingWakers, SleepWord,
};

use self::heads::Head;
use self::side_queue::RingQueue;

/// The bit of an exchange's id which tells that the exchange comes from the front end. The ids of
/// this process's own server do not have it.
// R keeps ids as doubles, which have 53 bits.
const FROM_FRONT_END: u64 = 1 << 52;

/// The time for which the application's thread sleeps if the front end takes no records, or this
/// process lacks descriptors for the next record, and there is nothing else to do.
const RETRY_PAUSE: Duration = Duration::from_micros(200);

/// The number of bytes of records that wait until the front end accepts them, above which the
/// application gets no further events. While other threads take the front end's processor time, R
/// could otherwise add one large response after the other, which no memory budget counts yet.
const MAX_UNSENT: usize = 8 << 20;

/// The maximum number of unused exchanges that are kept for later requests.
const MAX_IDLE: usize = 64;

/// A worker's end of the rings to the supervisor's front end. It belongs to the application's
/// thread.
#[derive(Debug)]
pub struct WorkerRings {
    outbox: Outbox,
    receiver: Receiver,
    front_end_sleep: SleepWord,
    wakers: RingWakers,
    queue: Arc<RingQueue>,
    /// The record that is being read.
    record: Vec<u8>,
    #[allow(clippy::vec_box, reason = "an exchange is passed on in its box")]
    idle: Vec<Box<Exchange>>,
    blocks: Arc<BodyBufferPool>,
    /// The ids and tickets of exchanges whose responses waited and then could not be sent. Their
    /// WebSockets and streams must still be ended, after a report to the front end.
    unsendable: Vec<(u64, u64)>,
    /// Whether records were sent since the front end was last seen awake or woken.
    is_unannounced: bool,
    schedule: WakeSchedule,
    /// The requests of which the application has got only the heads.
    heads: ById<Head>,
    /// The tickets of requests that the application still has as heads, and that the front end will
    /// send again with their bodies. The application's response to such a head is dropped.
    abandoned: Vec<u64>,
    sockets: ById<Socket>,
    streams: ById<Stream>,
    /// The number of requests that the application has taken and not answered.
    unanswered: usize,
}

/// A WebSocket whose connection is in the front end.
#[derive(Debug)]
struct Socket {
    listener: ListenerId,
    backlog: Arc<SendBacklog>,
}

/// A streamed response whose connection is in the front end.
#[derive(Debug)]
struct Stream {
    listener: ListenerId,
    flow: Arc<StreamFlow>,
    /// The number of bytes that the front end has written.
    written: u64,
}

impl Stream {
    /// Records the number of bytes that the front end has written so far. Returns true if the
    /// application has waited until so few bytes wait for the client.
    fn set_written(&mut self, written: u64) -> bool {
        let more = written.saturating_sub(self.written);
        self.written += more;
        self.flow.on_written(usize::try_from(more).unwrap_or(usize::MAX))
    }
}

impl WorkerRings {
    /// Creates the worker's end, whose events the application will take beside those of `link`.
    pub fn new((end, wakers): (RingEnd, RingWakers), link: &Link) -> WorkerRings {
        let rings = WorkerRings {
            queue: Arc::new(RingQueue::new(end.receiver.arrivals(), end.own_sleep)),
            outbox: Outbox::new(end.sender),
            receiver: end.receiver,
            front_end_sleep: end.peer_sleep,
            wakers,
            record: Vec::new(),
            idle: Vec::new(),
            blocks: Arc::default(),
            unsendable: Vec::new(),
            is_unannounced: false,
            schedule: WakeSchedule::default(),
            heads: ById::default(),
            abandoned: Vec::new(),
            sockets: ById::default(),
            streams: ById::default(),
            unanswered: 0,
        };
        rings.attach(link);
        rings
    }

    /// Makes the application wait for the rings' events together with those of `link`. Must be
    /// called for each new link.
    pub fn attach(&self, link: &Link) {
        link.set_side_queue(Arc::clone(&self.queue) as Arc<dyn SideQueue>);
    }

    /// Returns true if the id is that of an exchange, a WebSocket or a stream of the front end.
    pub fn is_from_front_end(id: u64) -> bool {
        id & FROM_FRONT_END != 0
    }

    /// Returns the sum of the requests without a response, the open WebSockets and the open
    /// streamed responses. Adds one if records wait for the front end, because these records would
    /// be lost if this process ended.
    pub fn open(&self) -> usize {
        let unsent = usize::from(self.outbox.has_waiting());
        self.unanswered + self.sockets.len() + self.streams.len() + unsent
    }

    /// Takes the next event. If there is no event, or too much waits until the front end accepts
    /// it, sends the records that wait and wakes the front end to take records. `listener` is the
    /// listener that serves the requests of the front end. Without a listener, requests are given
    /// back to the front end.
    ///
    /// # Errors
    /// Returns an error if a record is invalid, or if this process has lacked descriptors for ten
    /// seconds. After an error, no further record can be taken.
    pub fn next(
        &mut self,
        listener: Option<ListenerId>,
        link: &Link,
    ) -> Result<Option<Event>, Malformed> {
        loop {
            let arrived =
                if self.is_behind() { None } else { self.receiver.take(&mut self.record)? };
            let Some(arrived) = arrived else {
                // The front end continues a record once it gets blocks back.
                self.is_unannounced |= self.receiver.incomplete_bytes() > 0;
                self.flush();
                while let Some((id, ticket)) = self.unsendable.pop() {
                    self.end_unsendable((id, ticket), link);
                }
                if self.outbox.has_waiting() || self.receiver.lacks_descriptors() {
                    std::thread::sleep(RETRY_PAUSE);
                }
                return Ok(None);
            };
            let record = std::mem::take(&mut self.record);
            let file = arrived.descriptor.map(File::from);
            let event = self.on_record(arrived.kind, &record, file, listener, link);
            if record.capacity() <= MAX_KEPT_RECORD {
                self.record = record;
            }
            if let Some(event) = event? {
                link.count_taken_from_side();
                return Ok(Some(event));
            }
        }
    }

    /// Returns true if so much waits until the front end accepts it that the application must wait
    /// as well.
    fn is_behind(&self) -> bool {
        let unsent = |lane| self.outbox.waiting_bytes(lane);
        unsent(Lane::Messages) + unsent(Lane::Requests) > MAX_UNSENT
    }

    /// Carries out a record. Returns the event that the record is for the application, if any.
    fn on_record(
        &mut self,
        kind: u8,
        record: &[u8],
        file: Option<File>,
        serving: Option<ListenerId>,
        link: &Link,
    ) -> Result<Option<Event>, Malformed> {
        let here = |id: u64| id | FROM_FRONT_END;
        // The listener of a message does not matter: R finds the app by the WebSocket.
        let listener = serving.unwrap_or(0);
        Ok(match Down::read(kind, record).map_err(|_| Malformed)? {
            Down::Request { form, content } => {
                let mut read = |has_body, file| {
                    let mut exchange = self.idle.pop().unwrap_or_else(Exchange::new);
                    let (it, blocks) = (&mut exchange, &self.blocks);
                    wire::read_request(content, listener, here, it, (file, has_body), blocks)
                        .map_err(|_| Malformed)?;
                    Ok(exchange)
                };
                let (exchange, complete) = match form {
                    RequestForm::HeadFirst => (read(false, None)?, Some(read(true, file)?)),
                    RequestForm::Complete | RequestForm::HeadOnly => (read(true, file)?, None),
                };
                self.unanswered += 1;
                if serving.is_none() {
                    self.decline(exchange);
                    return Ok(None);
                }
                if form == RequestForm::Complete {
                    return Ok(Some(Event::Request(exchange)));
                }
                self.heads.insert(exchange.id(), Head::new(exchange.ticket(), complete));
                Some(Event::Head(exchange))
            }
            Down::Message { socket, kind, content } => {
                let mut buffer = link.buffer();
                buffer.extend_from_slice(content);
                let payload = Payload::Pooled(buffer);
                Some(Event::Message { socket: here(socket), listener, kind, payload })
            }
            Down::Closed { socket, code, is_clean, reason } => {
                self.sockets.remove(&here(socket)).map(|ended| {
                    ended.backlog.end();
                    let reason = String::from_utf8_lossy(reason).into();
                    let (socket, listener) = (here(socket), ended.listener);
                    Event::Closed { socket, listener, code, reason, is_clean }
                })
            }
            Down::Drained { socket, sent } => self
                .on_sent(here(socket), sent)
                .map(|listener| Event::Drained { socket: here(socket), listener }),
            Down::Sent { socket, sent } => {
                self.on_sent(here(socket), sent);
                None
            }
            Down::Pull { stream, written } => self
                .on_written(here(stream), written)
                .map(|(listener, _)| Event::Pull { stream: here(stream), listener }),
            Down::Written { stream, written } => self
                .on_written(here(stream), written)
                .filter(|(_, is_awaited)| *is_awaited)
                .map(|(listener, _)| Event::Writable { stream: here(stream), listener }),
            Down::StreamEnded { stream, reason } => {
                let stream = here(stream);
                self.streams.remove(&stream).map(|ended| {
                    ended.flow.end();
                    Event::StreamEnded { stream, listener: ended.listener, reason }
                })
            }
        })
    }

    fn on_sent(&mut self, socket: WebSocketId, sent: u64) -> Option<ListenerId> {
        let socket = self.sockets.get(&socket)?;
        socket.backlog.set_written(sent);
        Some(socket.listener)
    }

    fn on_written(&mut self, stream: StreamId, written: u64) -> Option<(ListenerId, bool)> {
        let stream = self.streams.get_mut(&stream)?;
        let is_awaited = stream.set_written(written);
        Some((stream.listener, is_awaited))
    }

    // ---- sending ----

    /// Sends what the front end did not accept before, and wakes the front end if it sleeps and
    /// records were sent.
    pub fn flush(&mut self) {
        self.send_unsent();
        if std::mem::take(&mut self.is_unannounced) {
            self.schedule.on_taken();
            self.front_end_sleep.wake_sleeper(|| self.wakers.wake_front_end());
        }
    }

    /// Wakes a sleeping front end, at once or after a short delay ([`WakeSchedule`]).
    fn announce_in_time(&mut self) {
        self.is_unannounced = true;
        if self.front_end_sleep.is_asleep()
            && self.schedule.on_sent(|delay| self.wakers.wake_front_end_within(delay))
        {
            self.flush();
        }
    }
}
