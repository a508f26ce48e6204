//! Programs of operations on the two ends of a connection. Each operation is dropped after as many
//! polls as the program says, over a transport that behaves as the program says. Each queued
//! message must be delivered once, whole and in order, and text must be UTF-8.
//!
//! `cancel_safety.rs` runs programs with every pair of operations, and the fuzz targets
//! `websocket_workload` and `websocket_halves` run any bytes as programs.

mod oracle;
mod wire;

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use rookery_websocket::protocol::deflate::{DeflateConfig, Takeover};
use rookery_websocket::protocol::{CloseCode, Role};
use rookery_websocket::{
    Config, Connection, Error, KeepAlive, Kind, Parts, Reader, SendStatus, Sender,
};
use tokio::time::Instant;

use oracle::{Oracle, Sent};
use wire::{End, Wire};

/// An operation on one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Read,
    Send,
    Flush,
    Queue,
    Ping,
    Cancel,
    Close,
    ReadChunk,
    Receive,
    ReadTimeout,
    ReadBefore,
    Drained,
    Write,
    /// Time passes, on both sides.
    Advance,
    Split,
    DropReader,
}

pub(crate) const ALL: [What; 16] = [
    What::Read,
    What::Send,
    What::Flush,
    What::Queue,
    What::Ping,
    What::Cancel,
    What::Close,
    What::ReadChunk,
    What::Receive,
    What::ReadTimeout,
    What::ReadBefore,
    What::Drained,
    What::Write,
    What::Advance,
    What::Split,
    What::DropReader,
];

#[derive(Debug, Clone, Copy)]
pub(crate) struct Operation {
    pub(crate) what: What,
    pub(crate) side: usize,
    /// The number of polls after which the operation is dropped.
    pub(crate) polls: usize,
    /// A parameter, such as a duration or the chunks of a message.
    pub(crate) choice: u8,
}

/// The configuration of both ends, and the behaviour of the transport.
#[derive(Debug, Clone, Default)]
pub(crate) struct Setup {
    pub(crate) deflate: Option<Takeover>,
    pub(crate) keeps_alive: bool,
    /// Both ends are split from the start.
    pub(crate) is_split: bool,
    pub(crate) behaviour: Vec<u8>,
}

/// Decodes `[configuration, behaviours, behaviours..., operations...]`. An operation has two bytes:
/// its kind and side, and its number of polls and parameter.
pub(crate) fn parse(data: &[u8]) -> Option<(Setup, Vec<Operation>)> {
    let [configuration, behaviours, rest @ ..] = data else { return None };
    let (behaviour, operations) = rest.split_at(usize::from(*behaviours).min(rest.len()));
    let deflate = match configuration & 3 {
        0 | 1 => None,
        2 => Some(Takeover::None),
        _ => Some(Takeover::Kept),
    };
    let setup = Setup {
        deflate,
        keeps_alive: configuration & 4 != 0,
        is_split: configuration & 8 != 0,
        behaviour: behaviour.to_vec(),
    };
    let operations = operations.chunks_exact(2).filter_map(|pair| {
        let what = match usize::from(pair[0] >> 1) % (ALL.len() + 1) {
            0 => What::Read,
            n => ALL[n - 1],
        };
        let (polls, choice) = (usize::from(pair[1] % 8) + 1, pair[1] >> 3);
        // Operations that end the use of a side are rare, because little else would be tested
        // otherwise.
        let is_rare = matches!(what, What::Close | What::DropReader);
        let side = usize::from(pair[0] & 1);
        (!is_rare || polls == 8 || choice > 24).then_some(Operation { what, side, polls, choice })
    });
    Some((setup, operations.collect()))
}

/// Runs a program, and panics if a property does not hold.
pub(crate) fn run(setup: &Setup, operations: &[Operation]) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let _told = Reported(setup, operations);
    runtime.expect("a runtime").block_on(async {
        let mut program = Program::new(setup);
        for operation in operations {
            program.operate(*operation).await;
        }
        program.finish().await;
    });
}

/// Prints the program that failed.
struct Reported<'a>(&'a Setup, &'a [Operation]);

impl Drop for Reported<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "{:?}\n{:#?}",
                self.0,
                self.1.iter().map(|each| format!("{each:?}")).collect::<Vec<_>>()
            );
        }
    }
}

#[expect(clippy::large_enum_variant, reason = "there are two of them")]
enum Link {
    Whole(Connection<End>),
    Halves(Option<Reader<End>>, Sender<End>),
    /// The halves, while the connection is split.
    Neither,
}

struct Program {
    wire: std::rc::Rc<std::cell::RefCell<Wire>>,
    links: [Link; 2],
    /// The messages that each side has sent.
    oracles: [Oracle; 2],
    counter: usize,
    keeps_alive: bool,
    /// An event has occurred after which a side may find its connection closed.
    may_end: bool,
}

impl Program {
    fn new(setup: &Setup) -> Program {
        let (wire, ends) = Wire::new(&setup.behaviour);
        let deflate = setup.deflate.map(|takeover| {
            let config = DeflateConfig::default().takeover(takeover).threshold(8);
            (config.choose(b"permessage-deflate").expect("an offer"), config)
        });
        let keep_alive = setup.keeps_alive.then_some(
            KeepAlive::default().interval(Duration::from_secs(2)).timeout(Duration::from_secs(3)),
        );
        let mut roles = [Role::Client, Role::Server].into_iter();
        let links = ends.map(|io| {
            let role = roles.next().expect("two ends");
            let config = Config::default().keep_alive(keep_alive).high_water(2000);
            let parts = match role {
                Role::Client => Parts::client(io),
                Role::Server => Parts::server(io),
            };
            let connection = parts.deflate(deflate).connection(config);
            if setup.is_split {
                let (reader, sender) = connection.split();
                Link::Halves(Some(reader), sender)
            } else {
                Link::Whole(connection)
            }
        });
        Program {
            wire,
            links,
            oracles: [Oracle::default(), Oracle::default()],
            counter: 0,
            keeps_alive: setup.keeps_alive,
            may_end: false,
        }
    }

    async fn operate(&mut self, operation: Operation) {
        let Operation { what, side, polls, choice } = operation;
        match what {
            What::Read
            | What::ReadChunk
            | What::Receive
            | What::ReadTimeout
            | What::ReadBefore
            | What::Cancel => self.read(operation).await,
            What::Send | What::Queue => self.send(operation).await,
            What::Write => self.write(operation).await,
            What::Flush | What::Drained | What::Ping => {
                let done = match &mut self.links[side] {
                    Link::Whole(connection) => match what {
                        What::Flush => polled(connection.flush(), polls).await,
                        What::Drained => polled(connection.drained(), polls).await,
                        _ => polled(connection.ping(), polls).await.map(|pong| pong.map(|_| ())),
                    },
                    Link::Halves(_, sender) => match what {
                        What::Flush => polled(sender.flush(), polls).await,
                        What::Drained => polled(sender.drained(), polls).await,
                        _ => polled(sender.ping(), polls).await.map(|pong| pong.map(|_| ())),
                    },
                    Link::Neither => unreachable!("split in one step"),
                };
                match done {
                    Some(Err(Error::MessageFirst | Error::Cancelled)) if what == What::Ping => {}
                    // There is no reader to receive the pong.
                    Some(Err(Error::Closed))
                        if what == What::Ping && self.oracles[1 - side].has_no_reader => {}
                    Some(Err(error)) => self.ended(side, &error),
                    Some(Ok(())) | None => {}
                }
            }
            What::Close => {
                self.may_end = true;
                let closed = match &mut self.links[side] {
                    Link::Whole(connection) => {
                        // The operation discards what arrives.
                        self.oracles[1 - side].is_thrown_away = true;
                        polled(connection.close(CloseCode::NORMAL, "done"), polls).await
                    }
                    Link::Halves(_, sender) => {
                        polled(sender.close(CloseCode::NORMAL, "done"), polls).await
                    }
                    Link::Neither => unreachable!("split in one step"),
                };
                if let Some(Err(error)) = closed {
                    self.ended(side, &error);
                }
            }
            What::Advance => {
                let time = [1, 900, 2_500, 6_000][usize::from(choice % 4)];
                self.may_end |= self.keeps_alive;
                tokio::time::advance(Duration::from_millis(time)).await;
            }
            What::Split => {
                let link = std::mem::replace(&mut self.links[side], Link::Neither);
                self.links[side] = match link {
                    Link::Whole(connection) => {
                        let (reader, sender) = connection.split();
                        Link::Halves(Some(reader), sender)
                    }
                    link => link,
                };
            }
            What::DropReader => {
                if let Link::Halves(reader, _) = &mut self.links[side] {
                    *reader = None;
                    self.oracles[1 - side].has_no_reader = true;
                }
            }
        }
        self.look_on();
    }

    /// Performs an operation that is possible at any time.
    fn look_on(&self) {
        for link in &self.links {
            let (pending, ending) = match link {
                Link::Whole(connection) => (connection.pending(), connection.ending()),
                Link::Halves(_, sender) => (sender.pending(), sender.ending()),
                Link::Neither => unreachable!("split in one step"),
            };
            assert!(pending < 1 << 20, "{pending} bytes wait");
            assert!(self.may_end || ending.code.is_none(), "closed by nobody");
        }
    }

    async fn read(&mut self, operation: Operation) {
        let Operation { what, side, polls, choice } = operation;
        let incoming = &mut self.oracles[1 - side];
        let timeout =
            [Duration::ZERO, Duration::from_secs(1), Duration::MAX][usize::from(choice % 3)];
        let deadline = Instant::now() + timeout.min(Duration::from_secs(1 << 40));
        let error = match &mut self.links[side] {
            Link::Whole(connection) => {
                if what == What::Cancel {
                    connection.canceller().cancel();
                }
                match what {
                    What::ReadChunk => match polled(connection.read_chunk(), polls).await {
                        Some(Ok(chunk)) => incoming.chunk(chunk),
                        Some(Err(error)) => Some(error),
                        None => None,
                    },
                    What::Receive => match polled(connection.receive(), polls).await {
                        Some(Ok(None)) => incoming.message(None),
                        Some(Ok(Some((message, mut writer)))) => {
                            incoming.message(Some(message));
                            let echo = Sent::whole(message.kind(), message.to_vec());
                            let sent = match choice % 3 {
                                0 => polled(writer.reply(message), polls).await,
                                1 => polled(writer.send(message), polls).await,
                                _ => Some(writer.queue(message)),
                            };
                            match sent {
                                Some(Ok(SendStatus::Dropped)) | None => None,
                                Some(Ok(_)) => {
                                    self.oracles[side].sent.push_back(echo);
                                    None
                                }
                                Some(Err(error)) => Some(error),
                            }
                        }
                        Some(Err(error)) => Some(error),
                        None => None,
                    },
                    What::ReadTimeout => {
                        incoming.read(polled(connection.read_timeout(timeout), polls).await)
                    }
                    What::ReadBefore => {
                        incoming.read(polled(connection.read_before(deadline), polls).await)
                    }
                    _ => incoming.read(polled(connection.read(), polls).await),
                }
            }
            Link::Halves(Some(reader), _) => {
                if what == What::Cancel {
                    reader.canceller().cancel();
                }
                match what {
                    What::ReadChunk => match polled(reader.read_chunk(), polls).await {
                        Some(Ok(chunk)) => incoming.chunk(chunk),
                        Some(Err(error)) => Some(error),
                        None => None,
                    },
                    What::ReadTimeout => {
                        incoming.read(polled(reader.read_timeout(timeout), polls).await)
                    }
                    What::ReadBefore => {
                        incoming.read(polled(reader.read_before(deadline), polls).await)
                    }
                    _ => incoming.read(polled(reader.read(), polls).await),
                }
            }
            Link::Halves(None, _) => None,
            Link::Neither => unreachable!("split in one step"),
        };
        match error {
            Some(Error::TimedOut) => assert!(matches!(what, What::ReadTimeout | What::ReadBefore)),
            // Cancels the current read or the next.
            Some(Error::Cancelled) | None => {}
            Some(error) => self.ended(side, &error),
        }
    }

    async fn send(&mut self, operation: Operation) {
        let Operation { what, side, polls, choice } = operation;
        let (kind, bytes) = self.next_message(choice);
        let taken = match (what, &mut self.links[side]) {
            (What::Queue, Link::Whole(connection)) => Some(match kind {
                Kind::Text => {
                    connection.queue(std::str::from_utf8(&bytes).expect("made of characters"))
                }
                Kind::Binary => connection.queue(&bytes[..]),
            }),
            (What::Queue, Link::Halves(_, sender)) => Some(sender.queue(&bytes[..])),
            (_, Link::Whole(connection)) => match kind {
                Kind::Text => {
                    let text = std::str::from_utf8(&bytes).expect("made of characters");
                    polled(connection.send(text), polls).await
                }
                Kind::Binary => polled(connection.send(&bytes[..]), polls).await,
            },
            (_, Link::Halves(_, sender)) => polled(sender.send(&bytes[..]), polls).await,
            (_, Link::Neither) => unreachable!("split in one step"),
        };
        let is_half = matches!(self.links[side], Link::Halves(..));
        let kind = if is_half { Kind::Binary } else { kind };
        match taken {
            // Nothing was sent if the operation was dropped while it waited.
            Some(Ok(SendStatus::Dropped)) | None => {}
            Some(Ok(_)) => self.oracles[side].sent.push_back(Sent::whole(kind, bytes)),
            Some(Err(error)) => self.ended(side, &error),
        }
    }

    /// Writes a message in chunks, which the other side reads meanwhile. The message is finished or
    /// given up.
    async fn write(&mut self, operation: Operation) {
        let Operation { side, polls, choice, .. } = operation;
        let (kind, bytes) = self.next_message(choice);
        let size = [1, 2, 7, 100][usize::from(choice % 4)];
        let is_given_up = choice >= 28;
        // Taken out, so that the other side can be used beside the writer.
        let mut link = std::mem::replace(&mut self.links[side], Link::Neither);
        let Link::Whole(connection) = &mut link else {
            self.links[side] = link;
            return self.send(Operation { what: What::Send, ..operation }).await;
        };
        let error = 'written: {
            let mut writer = match connection.write(kind) {
                Ok(writer) => writer,
                Err(error) => break 'written Some(error),
            };
            self.oracles[side].sent.push_back(Sent { kind, bytes: Vec::new(), is_finished: false });
            for (n, chunk) in bytes.chunks(size).take(40).enumerate() {
                match polled(writer.write(chunk), polls).await {
                    Some(Ok(())) => self.oracles[side].unfinished().extend_from_slice(chunk),
                    // The chunk was not queued, so the rest of the message follows.
                    None if self.oracles[side].unfinished().is_empty() && kind == Kind::Binary => {}
                    None => {
                        let written = self.oracles[side].unfinished().len();
                        if !is_cut(kind, &bytes[..written]) {
                            break;
                        }
                        // A message that ends within a character can only be given up.
                        self.may_end = true;
                        self.oracles[side].give_up();
                        break 'written None;
                    }
                    Some(Err(error)) => {
                        self.may_end = true;
                        self.oracles[side].give_up();
                        break 'written Some(error);
                    }
                }
                let what = [What::Read, What::ReadChunk, What::Ping, What::ReadChunk][n % 4];
                let other = Operation { what, side: 1 - side, polls, choice: 0 };
                if !matches!(self.links[1 - side], Link::Neither) && choice % 3 > 0 {
                    Box::pin(self.operate_other(other)).await;
                }
            }
            let written = self.oracles[side].unfinished().clone();
            if is_given_up || is_cut(kind, &written) {
                self.may_end |= !written.is_empty();
                self.oracles[side].give_up();
                break 'written None;
            }
            match polled(writer.finish(), 1).await {
                Some(Ok(())) => {
                    self.oracles[side].finish();
                    None
                }
                Some(Err(error)) => {
                    self.may_end = true;
                    self.oracles[side].give_up();
                    Some(error)
                }
                None => panic!("the first poll ends a message"),
            }
        };
        self.links[side] = link;
        if let Some(error) = error {
            self.ended(side, &error);
        }
    }

    async fn operate_other(&mut self, operation: Operation) {
        match operation.what {
            What::Ping => {
                if let Link::Whole(connection) = &mut self.links[operation.side] {
                    let _ = polled(connection.ping(), operation.polls).await;
                }
            }
            _ => self.read(operation).await,
        }
    }

    fn next_message(&mut self, choice: u8) -> (Kind, Vec<u8>) {
        self.counter += 1;
        let n = self.counter;
        let kind = if n % 3 == 0 { Kind::Binary } else { Kind::Text };
        let len = [n * 7 % 140, 3, 0, n * 53 % 900][usize::from(choice % 4)];
        // No part of the text is the beginning of another part.
        let mut bytes = Vec::new();
        let mut at = 0;
        while bytes.len() < len {
            bytes.extend_from_slice(format!("é{n}.{at}€ ").as_bytes());
            at += 1;
        }
        let cut =
            (0..=len).rev().find(|cut| std::str::from_utf8(&bytes[..*cut]).is_ok()).unwrap_or(0);
        bytes.truncate(if kind == Kind::Text { cut } else { len });
        (kind, bytes)
    }

    /// Returns true for a possible error: the transport failed, or one side closed, gave a message
    /// up or was silent.
    fn ended(&mut self, side: usize, error: &Error) {
        let is_end = matches!(
            error,
            Error::Io(_) | Error::Eof | Error::Closed | Error::PongTimeout | Error::Abandoned
        );
        let may_end = self.may_end || self.wire.borrow().has_failed;
        assert!(is_end && may_end, "{error} on side {side} between two of ours");
        self.may_end = true;
    }

    /// Checks that each queued message is delivered in the end, if nothing failed and neither side
    /// closed.
    async fn finish(&mut self) {
        self.wire.borrow_mut().behaviour.clear();
        for _ in 0..10_000 {
            let is_done = |oracle: &Oracle| oracle.sent.is_empty() || oracle.has_no_reader;
            if self.may_end || self.wire.borrow().has_failed || self.oracles.iter().all(is_done) {
                break;
            }
            for side in [0, 1] {
                for what in [What::Read, What::Flush] {
                    self.operate(Operation { what, side, polls: 4, choice: 0 }).await;
                }
            }
        }
        if !self.may_end && !self.wire.borrow().has_failed {
            for oracle in &self.oracles {
                assert!(oracle.sent.is_empty() || oracle.has_no_reader, "lost: {:?}", oracle.sent);
            }
        }
        for link in &mut self.links {
            if let Link::Whole(connection) = std::mem::replace(link, Link::Neither) {
                polled(connection.close_now(), 1).await;
            }
        }
    }
}

/// Returns true if the bytes end within a character.
fn is_cut(kind: Kind, bytes: &[u8]) -> bool {
    kind == Kind::Text && std::str::from_utf8(bytes).is_err()
}

/// Polls an operation `polls` times and drops it if it is not complete.
async fn polled<T>(operation: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut operation = pin!(operation);
    poll_fn(|cx| {
        for _ in 0..polls {
            if let Poll::Ready(done) = operation.as_mut().poll(cx) {
                return Poll::Ready(Some(done));
            }
        }
        Poll::Ready(None)
    })
    .await
}
