//! Tests that compare the WebSocket endpoint with a simple model. The received bytes are split at
//! random, and calls and times are in random order.

mod oracle;

use std::io::IoSlice;
use std::time::Duration;

use self::oracle::{BINARY, CLOSE, KEY, Oracle, PING, PONG, PeerEvent, Settings, TEXT, frame};
use super::*;
use crate::protocol::deflate::Fin;
use crate::protocol::{DecodedPayload, Decoder, DecoderLimits, MAX_HEADER, MaskKey, Violation};

/// A test adapter that keeps all output in one buffer, as the adapter of `Connection` does.
struct Joined;

/// A test adapter that splits output into several buffers, as the server's adapter does. The
/// buffers are small, so that a few bytes make many segments.
pub(super) struct Chunked;

macro_rules! adapter {
    ($name:ident, $chunk:expr, $copied:expr, $sends_reason:expr, $mode:expr) => {
        impl Sealed for $name {}

        impl Adapter for $name {
            type Time = Duration;
            type Payload = Vec<u8>;
            type Counters = Statistics;

            const BUFFER_SIZE: usize = $chunk;
            const COPY_MAX: usize = $copied;
            const SENDS_REASON: bool = $sends_reason;
            const CLOSE_MODE: CloseMode = $mode;

            fn bytes(payload: &Vec<u8>) -> &[u8] {
                payload
            }

            fn mask() -> MaskKey {
                MaskKey(KEY)
            }

            fn take_buffer() -> Vec<u8> {
                Vec::new()
            }

            fn return_buffer(_: Vec<u8>) {}
        }
    };
}
adapter!(Joined, usize::MAX, usize::MAX, false, CloseMode::Prompt);
adapter!(Chunked, 64, 16, true, CloseMode::Lingering);

/// A generator of reproducible random numbers (`SplitMix64`).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a random number below `end`.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn payload(&mut self) -> Vec<u8> {
        let len = [0, 1, 5, 17, 40, 125, 126, 300][self.below(8)];
        (b'a'..=b'z').cycle().take(len).collect()
    }
}

/// Returns the random bytes that a simulated peer sends, and the events in them. Each event comes
/// with the number of bytes after which it is complete.
fn script(random: &mut Random, role: Role) -> (Vec<u8>, Vec<(usize, PeerEvent)>) {
    let peer = if role == Role::Server { Role::Client } else { Role::Server };
    let (mut wire, mut events) = (Vec::new(), Vec::new());
    for _ in 0..random.below(20) {
        let payload = random.payload();
        let control = payload[..payload.len().min(125)].to_vec();
        let event = match random.below(16) {
            0..=2 => {
                wire.extend(frame(peer, true, TEXT, &payload));
                PeerEvent::Text(payload)
            }
            3..=4 => {
                wire.extend(frame(peer, true, BINARY, &payload));
                PeerEvent::Binary(payload)
            }
            5..=7 => {
                let cut = random.below(payload.len() + 1);
                wire.extend(frame(peer, false, TEXT, &payload[..cut]));
                if random.below(2) == 0 {
                    wire.extend(frame(peer, true, PING, &control));
                    events.push((wire.len(), PeerEvent::Ping(control)));
                }
                wire.extend(frame(peer, true, 0, &payload[cut..]));
                PeerEvent::Text(payload)
            }
            8..=11 => {
                wire.extend(frame(peer, true, PING, &control));
                PeerEvent::Ping(control)
            }
            12..=13 => {
                let number = (random.below(3) as u32).to_be_bytes().to_vec();
                wire.extend(frame(peer, true, PONG, &number));
                PeerEvent::Pong(number)
            }
            14 => {
                let code = [None, Some(1000), Some(4321)][random.below(3)];
                let payload = code.map_or(Vec::new(), |code: u16| code.to_be_bytes().to_vec());
                wire.extend(frame(peer, true, CLOSE, &payload));
                PeerEvent::Close(code)
            }
            _ => violation(random, peer, role, &mut wire),
        };
        events.push((wire.len(), event));
    }
    // A message after the end counts only as bytes.
    let is_over = events
        .iter()
        .any(|(_, event)| matches!(event, PeerEvent::Close(_) | PeerEvent::Violation { .. }));
    if is_over {
        wire.extend(frame(peer, true, TEXT, b"behind the end"));
    }
    (wire, events)
}

/// Appends the bytes of a random protocol violation to `wire`, up to the byte that proves the
/// violation.
fn violation(random: &mut Random, peer: Role, role: Role, wire: &mut Vec<u8>) -> PeerEvent {
    let (bytes, violation) = match random.below(4) {
        0 => (vec![0x83, 0x80], Violation::OpCode(3)),
        1 => (frame(role, true, BINARY, b""), Violation::Mask),
        2 => (frame(peer, true, TEXT, b"a\xFF"), Violation::Utf8),
        _ => (frame(peer, true, CLOSE, b"\x03"), Violation::ClosePayload),
    };
    wire.extend(bytes);
    let reason = match violation {
        Violation::OpCode(_) => "reserved opcode 3",
        Violation::Mask => "wrong masking",
        Violation::Utf8 => "text is not UTF-8",
        _ => "close frame of one byte",
    };
    PeerEvent::Violation { code: if violation == Violation::Utf8 { 1007 } else { 1002 }, reason }
}

struct Run<S: Adapter> {
    random: Random,
    rules: Rules<Duration>,
    endpoint: Endpoint<S>,
    decoder: Decoder,
    oracle: Oracle,
    wire: Vec<u8>,
    events: Vec<(usize, PeerEvent)>,
    fed: usize,
    now: Duration,
    is_first_chunk: bool,
}

impl<S: Adapter<Time = Duration, Payload = Vec<u8>>> Run<S> {
    fn new(seed: u64, role: Role) -> Run<S> {
        let mut random = Random(seed);
        let seconds = Duration::from_secs;
        let silence = (S::CLOSE_MODE == CloseMode::Prompt).then_some(seconds(9));
        let rules = Rules {
            close_timeout: seconds(5),
            ping_interval: Some(seconds(4)),
            ping_timeout: silence,
            high_water: 200,
        };
        let (wire, events) = script(&mut random, role);
        let settings = Settings { role, mode: S::CLOSE_MODE, sends_reason: S::SENDS_REASON };
        Run {
            random,
            rules,
            endpoint: Endpoint::new(role, None),
            decoder: Decoder::new(role, DecoderLimits::default()),
            oracle: Oracle::new(settings, rules),
            wire,
            events,
            fed: 0,
            now: Duration::ZERO,
            is_first_chunk: true,
        }
    }

    fn step(&mut self) {
        match self.random.below(40) {
            0..=9 => self.feed(),
            10..=17 => self.write(),
            18..=22 => self.send(),
            23..=26 => self.chunk(),
            27..=29 => self.pass_time(),
            30..=33 => self.do_action(),
            _ => self.interfere(),
        }
        assert_eq!(self.endpoint.pending(), self.oracle.pending().len());
        assert_eq!(self.endpoint.has_output(), self.oracle.has_output());
        assert_eq!(self.endpoint.io_action(), self.oracle.io_action());
        assert_eq!(self.endpoint.may_send(), self.oracle.may_send());
        assert_eq!(self.endpoint.may_receive(), self.oracle.may_receive());
        assert_eq!(self.endpoint.check_message(), self.oracle.check_message());
        let ending = self.endpoint.ending();
        let is_clean = self.oracle.peer_closed.is_some() && !self.oracle.has_failed;
        assert_eq!(ending.is_clean, is_clean);
        let number = self.oracle.peer_closed.filter(|_| is_clean).unwrap_or(1006);
        assert_eq!(ending.number(), number);
        if self.oracle.pings > 0 {
            assert_eq!(
                self.endpoint.is_answered(self.oracle.pings),
                self.oracle.answered == self.oracle.pings
            );
        }
    }

    /// Passes some of the simulated peer's bytes to the endpoint and to the test's model of it.
    fn feed(&mut self) {
        if self.oracle.is_read_closed || self.oracle.is_over() {
            return;
        }
        let most = [1, 3, 20, 1000][self.random.below(4)];
        let n = self.random.below(most + 1).min(self.wire.len() - self.fed);
        let mut chunk = self.wire[self.fed..self.fed + n].to_vec();
        self.fed += n;
        if n > 0 {
            self.endpoint.on_input(n);
            self.oracle.on_input();
        }
        let mut shown = Vec::new();
        let (mut at, now) = (0, self.now);
        while at < chunk.len() {
            let (used, received) =
                self.endpoint.receive(&mut self.decoder, &mut chunk[at..], &self.rules, || now);
            assert!(used > 0, "no byte is used");
            at += used;
            shown.extend(match received {
                Received::Nothing => None,
                Received::Text(payload) => Some(PeerEvent::Text(bytes(&payload))),
                Received::Binary(payload) => Some(PeerEvent::Binary(bytes(&payload))),
                Received::Closed => {
                    Some(PeerEvent::Close(self.endpoint.ending().code.map(CloseCode::get)))
                }
                Received::Failed(violation) => {
                    Some(PeerEvent::Violation { code: violation.close_code().get(), reason: "" })
                }
            });
        }
        let mut expected = Vec::new();
        while self.events.first().is_some_and(|(end, _)| *end <= self.fed) {
            let (_, event) = self.events.remove(0);
            if self.oracle.may_receive() {
                self.oracle.on_event(&event, self.now);
                match event {
                    PeerEvent::Ping(_) | PeerEvent::Pong(_) => {}
                    PeerEvent::Violation { code, .. } => {
                        expected.push(PeerEvent::Violation { code, reason: "" });
                    }
                    event => expected.push(event),
                }
            }
        }
        assert_eq!(shown, expected);
    }

    /// Writes some of the endpoint's queued bytes, or none.
    fn write(&mut self) {
        self.oracle.look();
        let output = self.endpoint.output(&self.rules);
        let mut slices = [IoSlice::new(&[]); 64];
        let count = output.slices(&mut slices);
        let all: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.iter().copied()).collect();
        assert!(count < 64, "more chunks than the test looks at");
        assert_eq!(all, self.oracle.pending());
        assert_eq!(output.is_empty(), all.is_empty());
        let first = output.first();
        assert!(all.starts_with(first) && first.is_empty() == all.is_empty());
        let n = match self.random.below(4) {
            0 => 0,
            1 => all.len(),
            _ => self.random.below(all.len() + 1),
        };
        if n == 0 {
            self.endpoint.on_write_blocked();
            self.oracle.holds_pongs = true;
            return;
        }
        let is_all = self.endpoint.on_written(n);
        self.oracle.written += n;
        self.oracle.holds_pongs = false;
        assert_eq!(is_all, !self.oracle.has_output());
        if self.random.below(2) == 0 {
            self.endpoint.release();
        }
    }

    fn send(&mut self) {
        let payload = self.random.payload();
        let may = self.oracle.check_message();
        match self.random.below(4) {
            0 => {
                assert_eq!(self.endpoint.ping(self.now), self.oracle.ping());
                return;
            }
            1 if may.is_ok() => self.endpoint.send(OpCode::Binary, &payload),
            2 if may.is_ok()
                && self.endpoint.role() == Role::Server
                && self.endpoint.pending() == 0 =>
            {
                let mut header = [0; MAX_HEADER];
                let head = self.endpoint.direct_header(OpCode::Binary, payload.len(), &mut header);
                let n = self.random.below(head + payload.len() + 1);
                self.endpoint.on_direct_write(&header[..head], &payload, n);
                self.oracle.push(true, BINARY, &payload);
                self.oracle.written += n;
                self.oracle.holds_pongs |= n < head + payload.len();
                return;
            }
            _ => match self.endpoint.send_owned(OpCode::Binary, payload.clone()) {
                Ok(copied) => {
                    let is_copied =
                        self.endpoint.role() == Role::Client || payload.len() <= S::COPY_MAX;
                    assert_eq!(copied.is_some(), is_copied);
                }
                Err(unsent) => {
                    assert_eq!(Err(unsent), may);
                    return;
                }
            },
        }
        assert_eq!(may, Ok(()));
        self.oracle.push(true, BINARY, &payload);
    }

    /// Begins a fragmented message, or sends the next fragment of the current one, or abandons it.
    fn chunk(&mut self) {
        if !self.oracle.is_within {
            let begun = self.endpoint.begin_fragmented();
            let may = self.oracle.check_message();
            assert_eq!(begun.is_err(), may == Err(SendError::WithinMessage));
            self.oracle.is_within = begun.is_ok();
            self.is_first_chunk = true;
            return;
        }
        let payload = self.random.payload();
        let opcode = if self.is_first_chunk { OpCode::Text } else { OpCode::Continuation };
        let fin = if self.random.below(3) == 0 { Fin::Last } else { Fin::More };
        if self.random.below(8) == 0 {
            let now = self.now;
            self.endpoint.abandon_fragmented(&self.rules, || now);
            self.oracle.abandon(now);
            return;
        }
        let sent = self.endpoint.send_fragment(opcode, fin, &payload);
        let may = if self.oracle.is_broken { Err(SendError::Broken) } else { Ok(()) };
        let may = may.and(if self.oracle.may_send() { Ok(()) } else { Err(SendError::Closed) });
        assert_eq!(sent, may);
        if sent.is_ok() {
            self.oracle.push(
                fin == Fin::Last,
                if self.is_first_chunk { TEXT } else { 0 },
                &payload,
            );
            self.is_first_chunk = false;
            if fin == Fin::Last {
                self.endpoint.end_fragmented();
                self.oracle.is_within = false;
            }
        }
    }

    fn pass_time(&mut self) {
        self.now += Duration::from_millis([0, 10, 900, 2500][self.random.below(4)]);
        let now = self.now;
        assert_eq!(self.endpoint.deadline(&self.rules, || now), self.oracle.deadline(now));
        if self.random.below(4) > 0 {
            assert_eq!(self.endpoint.tick(&self.rules, now), self.oracle.tick(now), "at {now:?}");
        }
    }

    /// Performs the I/O action that the endpoint requests now.
    fn do_action(&mut self) {
        match self.endpoint.io_action() {
            IoAction::Flush if self.endpoint.pending() > 0 => return,
            IoAction::Flush => self.endpoint.on_flushed(),
            IoAction::Drain { .. } => self.endpoint.on_drained(),
            IoAction::ShutDown => self.endpoint.on_shut_down(),
            IoAction::Serve | IoAction::Over | IoAction::Reset => {}
        }
        self.oracle.done(self.oracle.io_action());
    }

    /// Makes random calls to the endpoint that are allowed at any time.
    fn interfere(&mut self) {
        let now = self.now;
        match self.random.below(24) {
            0 => {
                self.endpoint.close(CloseCode::new(1001), "going", &self.rules, || now);
                self.oracle.close(1001, "going", now);
            }
            1 if matches!(self.oracle.io_action(), IoAction::Serve | IoAction::Flush) => {
                self.endpoint.fail(CloseCode::TRY_AGAIN_LATER, "no room", &self.rules, || now);
                self.oracle.fail(1013, "no room", now);
            }
            2 => {
                self.endpoint.on_read_closed();
                self.oracle.on_read_closed();
            }
            3 => {
                self.endpoint.give_up_step();
                self.oracle.expire();
            }
            4 if self.random.below(4) == 0 => {
                self.endpoint.abort();
                self.oracle.abort();
            }
            5 if self.random.below(4) == 0 => {
                self.endpoint.on_write_failed();
                self.oracle.on_write_failed();
            }
            6..=8 => {
                self.endpoint.on_progress(&self.rules, now);
                self.oracle.on_progress(now);
            }
            9..=11 => {
                let (before, behind) =
                    (self.endpoint.pending(), self.endpoint.bytes_after_current());
                self.endpoint.drop_after_current();
                let after = self.endpoint.pending();
                assert_eq!(after, before - behind);
                self.oracle.cut(after);
            }
            12 => {
                self.endpoint.on_flushed();
                self.oracle.done(IoAction::Flush);
            }
            13 => {
                self.endpoint.on_drained();
                self.oracle.done(IoAction::Drain { waits: true });
            }
            14 => {
                self.endpoint.on_shut_down();
                self.oracle.done(IoAction::ShutDown);
            }
            _ => {}
        }
    }
}

fn bytes(payload: &DecodedPayload<'_>) -> Vec<u8> {
    payload.as_bytes().to_vec()
}

fn runs<S: Adapter<Time = Duration, Payload = Vec<u8>>>(role: Role, seeds: u64) {
    for seed in 0..seeds {
        let mut run = Run::<S>::new(seed, role);
        for step in 0..300 {
            let stepped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.step()));
            assert!(stepped.is_ok(), "seed {seed}, step {step}, {role:?}: {:#?}", run.oracle);
        }
    }
}

const SEEDS: u64 = if cfg!(miri) { 2 } else { 1_000 };

#[test]
fn any_order_of_calls_and_times_over_one_buffer() {
    runs::<Joined>(Role::Server, SEEDS);
    runs::<Joined>(Role::Client, SEEDS);
}

#[test]
fn any_order_of_calls_and_times_over_chunks() {
    runs::<Chunked>(Role::Server, SEEDS);
    runs::<Chunked>(Role::Client, SEEDS);
}
