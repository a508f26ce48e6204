//! What is queued to be written, and in which order it may be.

use crate::endpoint::adapter::{Adapter, Counters, Rules};
use crate::endpoint::queue::Queue;
use crate::endpoint::{Endpoint, TimeSpan};
use crate::protocol::deflate::Fin;
use crate::protocol::{
    CONTROL_MAX, CloseCode, Header, MAX_HEADER, MaskKey, OpCode, Role, append_frame, encode_close,
    encode_control, encode_message,
};

/// Why nothing was queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// A close frame was sent or received.
    Closed,
    /// Writing has failed before.
    Broken,
    /// A message is being written in chunks, or was given up half way: no other may stand within it.
    WithinMessage,
}

/// Whether a message is being written in chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writing {
    Nothing,
    Fragmented,
    Abandoned,
}

pub(super) struct Pong {
    len: u8,
    payload: [u8; CONTROL_MAX as usize],
}

impl<S: Adapter> Endpoint<S> {
    /// What waits to be written. When some of it has left, call [`Endpoint::on_written`].
    #[inline]
    pub fn output(&mut self, rules: &Rules<TimeSpan<S>>) -> &Queue<S> {
        if self.pong.is_some() {
            self.queue_pong(rules);
        }
        &self.queue
    }

    /// Whether anything waits to be written.
    #[inline]
    pub fn has_output(&self) -> bool {
        !self.queue.is_empty() || self.pong.is_some()
    }

    /// Bytes that wait to be written.
    #[inline]
    pub fn pending(&self) -> usize {
        self.queue.len()
    }

    /// Bytes that wait behind the message that is being written.
    pub fn bytes_after_current(&self) -> usize {
        self.queue.bytes_after_current()
    }

    /// The first `n` bytes of the output have left; whether that was all.
    ///
    /// # Panics
    /// When fewer wait.
    #[inline]
    pub fn on_written(&mut self, n: usize) -> bool {
        self.holds_pongs = false;
        self.counters.count(|statistics| statistics.bytes_sent += n as u64);
        self.queue.advance(n) && self.pong.is_none()
    }

    /// The transport takes nothing. Until it does, only the peer's newest ping is answered. A adapter may leave this out.
    pub fn on_write_blocked(&mut self) {
        self.holds_pongs = true;
    }

    /// The transport has failed: what waits is dropped, and nothing is queued any more.
    pub fn on_write_failed(&mut self) {
        self.is_broken = true;
        self.queue.clear();
        self.pong = None;
    }

    /// Drops what waits behind the message that is being written: the peer sees whole messages, and fewer of them.
    pub fn drop_after_current(&mut self) {
        self.queue.drop_after_current();
    }

    /// Gives the buffer back when nothing is in it, as in an idle connection.
    #[inline]
    pub fn release(&mut self) {
        self.queue.release();
    }

    /// Appends bytes that are no frame: the answer to the handshake.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.queue.push_raw(bytes);
    }

    /// Whether a message may be sent now.
    ///
    /// # Errors
    /// Why not.
    #[inline]
    pub fn check_message(&self) -> Result<(), SendError> {
        if self.writing == Writing::Nothing {
            self.check_open()
        } else {
            Err(SendError::WithinMessage)
        }
    }

    /// Whether anything but a close frame may be sent now.
    ///
    /// # Errors
    /// Why not.
    #[inline]
    pub fn check_open(&self) -> Result<(), SendError> {
        if self.is_broken {
            return Err(SendError::Broken);
        }
        if self.closing.may_send() { Ok(()) } else { Err(SendError::Closed) }
    }

    /// Queues a message, encoded; to be asked before: [`Endpoint::check_message`].
    #[expect(
        clippy::inline_always,
        reason = "saves some 20 of the 315 instructions of frames/write-512"
    )]
    #[inline(always)]
    pub fn send(&mut self, opcode: OpCode, payload: &[u8]) {
        debug_assert!(self.check_message().is_ok());
        let mask = self.mask();
        self.count_message(payload.len());
        match &mut self.deflater {
            Some(deflater) if deflater.is_worth_compressing(payload.len()) => {
                let out = self.queue.tail();
                let start = out.len();
                encode_message(out, opcode, Fin::Last, mask, payload, Some(deflater));
                let grown = out.len() - start;
                self.counters.count(|statistics| {
                    statistics.compressed.0 += payload.len() as u64;
                    statistics.compressed.1 += grown as u64;
                });
            }
            _ => append_frame(self.queue.tail(), opcode, true, mask, payload),
        }
        self.queue.appended();
    }

    /// Queues a message that was encoded before: its whole frame, and the length of its payload.
    pub fn send_encoded(&mut self, frame: &[u8], payload: usize) {
        debug_assert!(self.check_message().is_ok());
        self.count_message(payload);
        self.queue.push_raw(frame);
    }

    /// Queues a message of a server's, without a copy if it is large. The payload comes back if it was copied.
    ///
    /// # Errors
    /// Why it was not queued; then it is dropped.
    pub fn send_owned(
        &mut self,
        opcode: OpCode,
        payload: S::Payload,
    ) -> Result<Option<S::Payload>, SendError> {
        self.check_message()?;
        let bytes = S::bytes(&payload);
        if bytes.len() <= S::COPY_MAX || self.role == Role::Client {
            self.send(opcode, bytes);
            return Ok(Some(payload));
        }
        self.count_message(bytes.len());
        let mut header = [0; MAX_HEADER];
        let n = plain_header(opcode, bytes.len()).write(&mut header);
        self.queue.push_raw(&header[..n]);
        self.queue.push_payload(payload);
        Ok(None)
    }

    /// Queues a message that was encoded elsewhere, from where its frame lies; `payload` is its length before.
    ///
    /// # Errors
    /// Why it was not queued; then it is dropped.
    pub fn send_frame(&mut self, frame: S::Payload, payload: usize) -> Result<(), SendError> {
        self.check_message()?;
        self.count_message(payload);
        self.queue.push_payload(frame);
        Ok(())
    }

    /// The header of a server's message that its adapter writes by itself, the payload beside it and without a copy, because nothing
    /// else waits: its length. Then call [`Endpoint::on_direct_write`].
    pub fn direct_header(
        &self,
        opcode: OpCode,
        payload: usize,
        out: &mut [u8; MAX_HEADER],
    ) -> usize {
        debug_assert!(
            self.role == Role::Server && self.queue.is_empty() && self.check_message().is_ok()
        );
        plain_header(opcode, payload).write(out)
    }

    /// Of a header and its payload the transport has taken the first `n` bytes; the rest is queued.
    pub fn on_direct_write(&mut self, header: &[u8], payload: &[u8], n: usize) {
        self.count_message(payload.len());
        self.counters.count(|statistics| statistics.bytes_sent += n as u64);
        if n < header.len() + payload.len() {
            self.holds_pongs = true;
            self.queue.push_raw(&header[n.min(header.len())..]);
            self.queue.push_raw(&payload[n.saturating_sub(header.len())..]);
        }
    }

    /// Begins a message in chunks: until it is finished, or dropped before its first, no other can be sent.
    ///
    /// # Errors
    /// When another was not finished.
    pub fn begin_fragmented(&mut self) -> Result<(), SendError> {
        if self.writing != Writing::Nothing {
            return Err(SendError::WithinMessage);
        }
        self.writing = Writing::Fragmented;
        Ok(())
    }

    /// Queues a chunk as a frame: `opcode` is [`OpCode::Continuation`] but for the first. The last ends the message.
    ///
    /// # Errors
    /// Why not.
    pub fn send_fragment(
        &mut self,
        opcode: OpCode,
        fin: Fin,
        payload: &[u8],
    ) -> Result<(), SendError> {
        self.check_open()?;
        let mask = self.mask();
        self.counters.count(|statistics| {
            statistics.payload_sent += payload.len() as u64;
            statistics.messages_sent += u64::from(fin == Fin::Last);
            statistics.fragments_sent += u64::from(fin == Fin::More);
        });
        let deflater = self.deflater.as_deref_mut();
        encode_message(self.queue.tail(), opcode, fin, mask, payload, deflater);
        self.queue.appended();
        Ok(())
    }

    /// The message in chunks is done, or none of it was sent.
    pub fn end_fragmented(&mut self) {
        self.writing = Writing::Nothing;
    }

    /// The message in chunks is given up half way: the connection is closed with 1011, because a peer must not take half a message for a
    /// whole one. Nothing, if none is being written.
    pub fn abandon_fragmented(
        &mut self,
        rules: &Rules<TimeSpan<S>>,
        now: impl FnOnce() -> S::Time,
    ) {
        if self.writing == Writing::Fragmented {
            self.writing = Writing::Abandoned;
            self.close(Some(CloseCode::INTERNAL), "", rules, now);
        }
    }

    /// Whether a message in chunks has begun and not ended.
    pub fn is_within_message(&self) -> bool {
        self.writing == Writing::Fragmented
    }

    #[inline]
    fn mask(&self) -> Option<MaskKey> {
        (self.role == Role::Client).then(S::mask)
    }

    #[inline]
    fn count_message(&mut self, payload: usize) {
        self.counters.count(|statistics| {
            statistics.messages_sent += 1;
            statistics.payload_sent += payload as u64;
        });
    }

    pub(super) fn send_control(&mut self, opcode: OpCode, payload: &[u8]) {
        let mask = self.mask();
        encode_control(self.queue.tail(), opcode, mask, payload);
        self.queue.appended();
        self.counters.count(|statistics| statistics.controls_sent += 1);
    }

    pub(super) fn send_close(&mut self, code: Option<CloseCode>, reason: &str) {
        // Nothing may be sent behind it (RFC 6455, 5.5.1).
        self.pong = None;
        if !self.is_broken {
            let mask = self.mask();
            encode_close(self.queue.tail(), code, reason, mask);
            self.queue.appended();
            self.counters.count(|statistics| statistics.controls_sent += 1);
        }
    }

    /// Each ping of a batch is answered, in order, as long as the peer keeps up.
    pub(super) fn on_ping(&mut self, payload: &[u8], rules: &Rules<TimeSpan<S>>) {
        if self.is_broken || !self.closing.may_send() {
            return;
        }
        if self.pong.is_none() && self.keeps_up(rules) {
            return self.send_control(OpCode::Pong, payload);
        }
        let pong = self.pong.get_or_insert_with(|| Box::new(Pong { len: 0, payload: [0; 125] }));
        pong.len = payload.len() as u8;
        pong.payload[..payload.len()].copy_from_slice(payload);
    }

    #[cold]
    fn queue_pong(&mut self, rules: &Rules<TimeSpan<S>>) {
        // Not only when nothing else waits: where messages keep coming, that is never.
        if !self.queue.is_empty() && !self.keeps_up(rules) {
            return;
        }
        if let Some(pong) = self.pong.take() {
            self.send_control(OpCode::Pong, &pong.payload[..usize::from(pong.len)]);
        }
    }

    /// Whether the peer reads what it is sent.
    fn keeps_up(&self, rules: &Rules<TimeSpan<S>>) -> bool {
        !self.holds_pongs && self.pending() < rules.high_water
    }
}

fn plain_header(opcode: OpCode, len: usize) -> Header {
    Header { fin: true, rsv1: false, opcode, mask: None, len: len as u64 }
}
