//! What the peer has sent, and what is said to it.

use crate::endpoint::adapter::{Adapter, Counters, Rules, Time};
use crate::endpoint::{Endpoint, TimeSpan};
#[cfg(feature = "tokio")]
use crate::protocol::WholeFrame;
use crate::protocol::{
    Answer, CloseReason, DecodedPayload, Decoder, OpCode, ReadMode, Step, StepBytes, StepKind,
    Violation,
};

/// What came of bytes that were read.
#[derive(Debug)]
#[must_use = "a message that is dropped here is lost"]
pub enum Received<'a> {
    /// Nothing that the application is told of.
    Nothing,
    /// A whole text message; UTF-8.
    Text(DecodedPayload<'a>),
    /// A whole binary message.
    Binary(DecodedPayload<'a>),
    /// The peer's close frame, which has been answered: [`Endpoint::ending`] has its code.
    Closed,
    /// The peer broke the protocol, and was told so.
    Failed(Violation),
}

impl<S: Adapter> Endpoint<S> {
    /// Takes what was read, which is unmasked in place: how many bytes were used, and what came of them. To be called again
    /// with the rest. Pings and close frames are answered; behind a close frame or a breach of the protocol nothing counts,
    /// and all of `input` is used.
    ///
    /// `decoder` is one for all calls.
    pub fn receive<'a>(
        &mut self,
        decoder: &'a mut Decoder,
        input: &'a mut [u8],
        rules: &Rules<TimeSpan<S>>,
        now: impl FnOnce() -> S::Time,
    ) -> (usize, Received<'a>) {
        let all = input.len();
        if !self.may_receive() {
            return (all, Received::Nothing);
        }
        let (n, step) = match self.receive_step(decoder, input, ReadMode::Message, rules, now) {
            Ok(received) => received,
            Err(violation) => return (all, Received::Failed(violation)),
        };
        let Some(Step { kind: StepKind::Data { is_text, .. }, place }) = step else {
            let is_closed = !self.may_receive();
            return (n, if is_closed { Received::Closed } else { Received::Nothing });
        };
        let payload = match place {
            StepBytes::Fed(range) => DecodedPayload::Fed(&input[range]),
            _ => DecodedPayload::Assembled(decoder.assembled_mut()),
        };
        (n, if is_text { Received::Text(payload) } else { Received::Binary(payload) })
    }

    /// [`Endpoint::receive`] of an open connection, without the borrow: a step is data.
    #[expect(
        clippy::inline_always,
        reason = "saves 31 of the 734 instructions of the ablation's frame/ours"
    )]
    #[inline(always)]
    pub(crate) fn receive_step(
        &mut self,
        decoder: &mut Decoder,
        input: &mut [u8],
        mode: ReadMode,
        rules: &Rules<TimeSpan<S>>,
        now: impl FnOnce() -> S::Time,
    ) -> Result<(usize, Option<Step>), Violation> {
        let all = input.len();
        let (mut n, mut step) = match decoder.step(input, mode) {
            Ok(stepped) => stepped,
            Err(violation) => return Err(self.on_violation(violation, rules, now)),
        };
        self.counters.count(|statistics| statistics.fragments_received = decoder.fragments());
        match &step {
            Some(Step { kind: StepKind::Data { is_last, .. }, place }) => {
                let len = match place {
                    StepBytes::Fed(range) => range.len(),
                    place => decoder.kept(place).len(),
                };
                self.counters.count(|statistics| {
                    statistics.messages_received += u64::from(*is_last);
                    statistics.payload_received += len as u64;
                });
            }
            Some(Step { kind: StepKind::Control(opcode), place }) => {
                let payload = match place {
                    StepBytes::Fed(range) => &input[range.clone()],
                    place => decoder.kept(place),
                };
                self.receive_control(*opcode, payload, rules, now)?;
                step = None;
                if !self.may_receive() {
                    // Nothing after a close frame counts.
                    n = all;
                }
            }
            None => {}
        }
        Ok((n, step))
    }

    /// Counts a message that [`Decoder::decode_whole_frame`] has found: nothing else is to be done for one.
    #[cfg(feature = "tokio")]
    #[inline]
    pub(crate) fn on_whole_frame(&mut self, frame: WholeFrame) {
        self.counters.count(|statistics| {
            statistics.messages_received += 1;
            statistics.payload_received += frame.len() as u64;
        });
    }

    #[cold]
    fn receive_control(
        &mut self,
        opcode: OpCode,
        payload: &[u8],
        rules: &Rules<TimeSpan<S>>,
        now: impl FnOnce() -> S::Time,
    ) -> Result<(), Violation> {
        self.counters.count(|statistics| statistics.controls_received += 1);
        match opcode {
            OpCode::Ping => self.on_ping(payload, rules),
            OpCode::Pong => {
                if let Some(round_trip) = self.pings.on_pong(payload, now) {
                    self.counters.count(|statistics| statistics.round_trip = Some(round_trip));
                }
            }
            OpCode::Close => {
                let reason = match CloseReason::parse(payload) {
                    Ok(reason) => reason,
                    Err(violation) => return Err(self.on_violation(violation, rules, now)),
                };
                // An empty one is not on the heap.
                self.reason = reason.reason.into();
                if let Answer::Close(code) = self.closing.receive(&reason) {
                    self.send_close(code, "");
                }
                self.deadline = Some(now().after(rules.close_timeout));
                self.shutdown.close();
            }
            OpCode::Continuation | OpCode::Text | OpCode::Binary => {}
        }
        Ok(())
    }

    /// The peer broke the protocol.
    #[cold]
    fn on_violation(
        &mut self,
        violation: Violation,
        rules: &Rules<TimeSpan<S>>,
        now: impl FnOnce() -> S::Time,
    ) -> Violation {
        let reason = if S::SENDS_REASON { violation.to_string() } else { String::new() };
        self.fail(violation.close_code(), &reason, rules, now);
        violation
    }
}
