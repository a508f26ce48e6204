//! What waits to be written to a WebSocket.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use rookery_exchange::{Lease, MessageKind, Payload};
use rookery_websocket::protocol::{Header, MAX_HEADER, OpCode, encode_frame};

use crate::net::transport::Transport;

/// Messages up to here are copied behind one another and leave in one write; larger ones are written from where
/// they lie.
const JOINED: usize = 16 << 10;

/// Pieces written at once.
const SLICES: usize = 16;

/// Buffers that went out empty, for all WebSockets of a thread: one that is idle holds none.
#[derive(Debug, Default)]
pub(crate) struct Buffers(RefCell<Vec<Vec<u8>>>);

/// Buffers kept, and the largest that is: 4 MiB at the very most.
const KEPT: usize = 64;
const KEPT_BYTES: usize = 64 << 10;

impl Buffers {
    fn take(&self) -> Vec<u8> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    fn give(&self, mut buffer: Vec<u8>) {
        let mut kept = self.0.borrow_mut();
        if kept.len() < KEPT && buffer.capacity() <= KEPT_BYTES {
            buffer.clear();
            kept.push(buffer);
        }
    }
}

/// Frames waiting to be written, in order. Empty, it holds no memory but its table.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that have been written.
    written: usize,
    len: usize,
}

#[derive(Debug)]
enum Piece {
    /// Frames, behind one another.
    Frames(Vec<u8>),
    /// A payload, after its header.
    Pooled(Vec<u8>),
    /// A payload that is the application's memory.
    Lent(Lease),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Frames(bytes) | Piece::Pooled(bytes) => bytes,
            Piece::Lent(lease) => lease.as_bytes(),
        }
    }
}

impl SendQueue {
    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes behind the message that is being sent.
    pub(crate) fn behind(&self) -> usize {
        self.pieces.iter().skip(self.front()).map(|piece| piece.bytes().len()).sum()
    }

    /// Drops what is behind the message that is being sent: the peer sees whole messages, and fewer of them.
    pub(crate) fn cut(&mut self, buffers: &Buffers) {
        for piece in self.pieces.drain(self.front()..) {
            self.len -= piece.bytes().len();
            if let Piece::Frames(frames) = piece {
                buffers.give(frames);
            }
        }
    }

    /// How many pieces the message that is being sent is in: small ones that were joined, and the payload whose header
    /// ends them.
    fn front(&self) -> usize {
        match (self.pieces.front(), self.pieces.get(1)) {
            (Some(Piece::Frames(_)), Some(Piece::Pooled(_) | Piece::Lent(_))) => 2,
            (Some(_), _) => 1,
            (None, _) => 0,
        }
    }

    /// Appends bytes that are no frame: the answer to the handshake.
    pub(crate) fn push_raw(&mut self, buffers: &Buffers, bytes: &[u8]) {
        self.frames(buffers).extend_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Appends what `encode` writes.
    pub(crate) fn push_with(&mut self, buffers: &Buffers, encode: impl FnOnce(&mut Vec<u8>)) {
        let frames = self.frames(buffers);
        let before = frames.len();
        encode(frames);
        let grown = frames.len() - before;
        self.len += grown;
    }

    /// Appends a message; gives its buffer back when it was copied.
    pub(crate) fn push(&mut self, buffers: &Buffers, kind: MessageKind, payload: Payload) -> Option<Vec<u8>> {
        let opcode = match kind {
            MessageKind::Text => OpCode::Text,
            MessageKind::Binary => OpCode::Binary,
        };
        let bytes = payload.as_bytes();
        if bytes.len() <= JOINED {
            self.push_with(buffers, |out| encode_frame(out, opcode, true, None, bytes));
            return match payload {
                Payload::Pooled(buffer) => Some(buffer),
                Payload::Lent(_) => None,
            };
        }
        let mut header = [0; MAX_HEADER];
        let n =
            Header { fin: true, rsv1: false, opcode, mask: None, len: bytes.len() as u64 }.write(&mut header);
        self.push_raw(buffers, &header[..n]);
        self.len += bytes.len();
        self.pieces.push_back(match payload {
            Payload::Pooled(bytes) => Piece::Pooled(bytes),
            Payload::Lent(lease) => Piece::Lent(lease),
        });
        None
    }

    /// Writes all that waits.
    pub(crate) fn poll_flush(
        &mut self,
        buffers: &Buffers,
        transport: &mut Transport,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.len > 0 {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut count = 0;
            for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
                *slice = IoSlice::new(&piece.bytes()[if count == 0 { self.written } else { 0 }..]);
                count += 1;
            }
            let n = ready!(transport.poll_write_vectored(cx, &slices[..count]))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(buffers, n);
        }
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, buffers: &Buffers, n: usize) {
        self.len -= n;
        self.written += n;
        while let Some(first) = self.pieces.front() {
            let whole = first.bytes().len();
            if self.written < whole {
                break;
            }
            self.written -= whole;
            if let Some(Piece::Frames(frames)) = self.pieces.pop_front() {
                buffers.give(frames);
            }
        }
    }

    fn frames(&mut self, buffers: &Buffers) -> &mut Vec<u8> {
        let joins = matches!(self.pieces.back(), Some(Piece::Frames(frames)) if frames.len() < 2 * JOINED);
        if !joins {
            self.pieces.push_back(Piece::Frames(buffers.take()));
        }
        match self.pieces.back_mut() {
            Some(Piece::Frames(frames)) => frames,
            _ => unreachable!("the last piece is one of frames: it was pushed if it was not"),
        }
    }
}
