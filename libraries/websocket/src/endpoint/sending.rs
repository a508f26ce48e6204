//! The encoding and queueing of the frames that a WebSocket endpoint sends, and the rules for their
//! order.

use crate::endpoint::adapter::{Adapter, Counters, Rules};
use crate::endpoint::queue::Queue;
use crate::endpoint::{Endpoint, TimeSpan};
use crate::protocol::deflate::Fin;
use crate::protocol::{
    CONTROL_MAX, CloseCode, Header, MAX_HEADER, MaskKey, OpCode, Role, append_frame, encode_close,
    encode_control, encode_message,
};
use std::fmt;

/// The reason why a frame could not be queued for sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// A close frame was sent or received before, so no other frame can be sent.
    Closed,
    /// An earlier write to the transport has failed, so nothing can be sent any more.
    Broken,
    /// A fragmented message was begun and is not finished, so no other message can be sent.
    WithinMessage,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendError::Closed => "the connection is closed",
            SendError::Broken => "an earlier write to the transport has failed",
            SendError::WithinMessage => "an earlier message is not finished",
        })
    }
}

impl std::error::Error for SendError {}

/// The progress of sending a fragmented message.
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
    /// Returns the queued output for the adapter to write. Call [`Endpoint::on_written`] after some
    /// of it was written.
    #[inline]
    pub fn output(&mut self, rules: &Rules<TimeSpan<S>>) -> &Queue<S> {
        if self.pong.is_some() {
            self.queue_pong(rules);
        }
        &self.queue
    }

    /// Returns true if output is queued for writing.
    #[inline]
    pub fn has_output(&self) -> bool {
        !self.queue.is_empty() || self.pong.is_some()
    }

    /// Returns the number of bytes that are queued for writing.
    #[inline]
    pub fn pending(&self) -> usize {
        self.queue.len()
    }

    /// Returns the number of queued bytes after the message that is being written.
    pub fn bytes_after_current(&self) -> usize {
        self.queue.bytes_after_current()
    }

    /// Removes the first `n` bytes from the send queue, because they have been written. Returns
    /// true if the queue is empty afterwards.
    ///
    /// # Panics
    /// If `n` is more than the number of queued bytes.
    #[inline]
    pub fn on_written(&mut self, n: usize) -> bool {
        self.holds_pongs = false;
        self.counters.count(|statistics| statistics.bytes_sent += n as u64);
        self.queue.advance(n) && self.pong.is_none()
    }

    /// Records that the transport accepts no bytes at the moment. Until it accepts bytes again,
    /// only the newest of the peer's pings is answered. Calling this method is optional.
    pub fn on_write_blocked(&mut self) {
        self.holds_pongs = true;
    }

    /// Records that a write to the transport has failed. Drops all queued output; nothing can be
    /// queued from now on.
    pub fn on_write_failed(&mut self) {
        self.is_broken = true;
        self.queue.clear();
        self.pong = None;
    }

    /// Drops the queued frames after the message that is being written. That message is kept, so
    /// that the peer receives only whole messages.
    pub fn drop_after_current(&mut self) {
        self.queue.drop_after_current();
    }

    /// Returns the buffer of an empty send queue to the adapter, so that an idle connection holds
    /// no buffer.
    #[inline]
    pub fn release(&mut self) {
        self.queue.release();
    }

    /// Queues bytes that are not a frame, such as the response to the opening handshake.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.queue.push_raw(bytes);
    }

    /// Checks that a message may be sent now.
    ///
    /// # Errors
    /// The errors of [`Endpoint::check_open`], and [`SendError::WithinMessage`] while a fragmented
    /// message is unfinished.
    #[inline]
    pub fn check_message(&self) -> Result<(), SendError> {
        if self.writing == Writing::Nothing {
            self.check_open()
        } else {
            Err(SendError::WithinMessage)
        }
    }

    /// Checks that a frame other than a close frame may be sent now.
    ///
    /// # Errors
    /// [`SendError::Closed`] after a close frame, and [`SendError::Broken`] after a failed write.
    #[inline]
    pub fn check_open(&self) -> Result<(), SendError> {
        if self.is_broken {
            return Err(SendError::Broken);
        }
        if self.closing.may_send() { Ok(()) } else { Err(SendError::Closed) }
    }

    /// Encodes a message and queues its frame. The caller must call [`Endpoint::check_message`]
    /// first.
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

    /// Queues a message of a server. A payload of up to [`Adapter::COPY_MAX`] bytes is copied into
    /// the send queue and returned to the caller. A larger payload is queued without a copy, and
    /// `None` is returned.
    ///
    /// # Errors
    /// The errors of [`Endpoint::check_message`]. The payload is then dropped.
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

    /// Queues a frame that other code has encoded, without copying it. The frame contains a whole
    /// message, whose length before encoding is `payload` bytes.
    ///
    /// # Errors
    /// The errors of [`Endpoint::check_message`]. The frame is then dropped.
    pub fn send_frame(&mut self, frame: S::Payload, payload: usize) -> Result<(), SendError> {
        self.check_message()?;
        self.count_message(payload);
        self.queue.push_payload(frame);
        Ok(())
    }

    /// Writes the header of a server's message into `out` and returns the header's length.
    /// `payload` is the length of the message. While the send queue is empty, the caller can then
    /// write header and message by a vectored write, and call [`Endpoint::on_direct_write`]
    /// afterwards.
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

    /// Records that the transport has accepted the first `n` bytes of a header and its payload.
    /// Queues the remaining bytes.
    pub fn on_direct_write(&mut self, header: &[u8], payload: &[u8], n: usize) {
        self.count_message(payload.len());
        self.counters.count(|statistics| statistics.bytes_sent += n as u64);
        if n < header.len() + payload.len() {
            self.holds_pongs = true;
            self.queue.push_raw(&header[n.min(header.len())..]);
            self.queue.push_raw(&payload[n.saturating_sub(header.len())..]);
        }
    }

    /// Begins a fragmented message. No other message can be sent until this message has ended.
    ///
    /// # Errors
    /// [`SendError::WithinMessage`] if another fragmented message is unfinished.
    pub fn begin_fragmented(&mut self) -> Result<(), SendError> {
        if self.writing != Writing::Nothing {
            return Err(SendError::WithinMessage);
        }
        self.writing = Writing::Fragmented;
        Ok(())
    }

    /// Queues a fragment of a message as one frame. `opcode` is [`OpCode::Continuation`] except for
    /// the first fragment. The last fragment ends the message.
    ///
    /// # Errors
    /// The errors of [`Endpoint::check_open`].
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

    /// Allows other messages to be sent again. Call this method after the last fragment of a
    /// fragmented message has been queued, or if no fragment was queued.
    pub fn end_fragmented(&mut self) {
        self.writing = Writing::Nothing;
    }

    /// Gives up an unfinished fragmented message, if there is one. Closes the connection with the
    /// close code 1011, because the peer must not take half a message for a whole one.
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

    /// Returns true while a fragmented message is unfinished.
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
        // No frame may follow a close frame (RFC 6455, 5.5.1).
        self.pong = None;
        if !self.is_broken {
            let mask = self.mask();
            encode_close(self.queue.tail(), code, reason, mask);
            self.queue.appended();
            self.counters.count(|statistics| statistics.controls_sent += 1);
        }
    }

    /// Queues the pong for a ping. While the peer reads fast enough, each ping is answered in
    /// order. Otherwise only the newest ping is answered.
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
        // A pong also goes out behind queued messages. Otherwise a continuous flow of messages
        // would hold it back for ever.
        if !self.queue.is_empty() && !self.keeps_up(rules) {
            return;
        }
        if let Some(pong) = self.pong.take() {
            self.send_control(OpCode::Pong, &pong.payload[..usize::from(pong.len)]);
        }
    }

    /// Returns true if the peer reads fast enough that all its pings can be answered.
    fn keeps_up(&self, rules: &Rules<TimeSpan<S>>) -> bool {
        !self.holds_pongs && self.pending() < rules.high_water
    }
}

fn plain_header(opcode: OpCode, len: usize) -> Header {
    Header { fin: true, rsv1: false, opcode, mask: None, len: len as u64 }
}
