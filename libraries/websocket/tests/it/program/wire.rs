//! A transport that reads, writes and ends as its input says.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Both ends of one pipe, and the behaviour at each read, write and end.
#[derive(Debug)]
pub(crate) struct Wire {
    channels: [VecDeque<u8>; 2],
    is_closed: [bool; 2],
    /// A byte for each read, write and end. After the last one, everything passes at once.
    pub(crate) behaviour: VecDeque<u8>,
    pub(crate) has_failed: bool,
}

#[derive(Debug)]
pub(crate) struct End {
    wire: Rc<RefCell<Wire>>,
    /// The channel from which this end reads.
    side: usize,
}

/// The behaviour of the next read, write or end.
enum Act {
    Pend,
    Fail,
    AtMost(usize),
}

/// The number of bytes that one direction holds.
const CAPACITY: usize = 4096;

impl Wire {
    pub(crate) fn new(behaviour: &[u8]) -> (Rc<RefCell<Wire>>, [End; 2]) {
        let wire = Rc::new(RefCell::new(Wire {
            channels: [VecDeque::new(), VecDeque::new()],
            is_closed: [false; 2],
            behaviour: behaviour.iter().copied().collect(),
            has_failed: false,
        }));
        let ends = [0, 1].map(|side| End { wire: Rc::clone(&wire), side });
        (wire, ends)
    }

    fn act(&mut self) -> Act {
        match self.behaviour.pop_front() {
            None => Act::AtMost(usize::MAX),
            Some(0..=63) => Act::Pend,
            Some(64) => {
                self.has_failed = true;
                Act::Fail
            }
            Some(n) => Act::AtMost(usize::from(n) - 64),
        }
    }
}

impl AsyncRead for End {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // The test polls all pending tasks, so nothing needs to be woken.
        let mut wire = self.wire.borrow_mut();
        let most = match wire.act() {
            Act::Pend => return Poll::Pending,
            Act::Fail => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Act::AtMost(most) => most,
        };
        let is_closed = wire.is_closed[self.side];
        let channel = &mut wire.channels[self.side];
        let n = channel.len().min(most).min(target.remaining());
        if n == 0 && !is_closed {
            return Poll::Pending;
        }
        for byte in channel.drain(..n) {
            target.put_slice(&[byte]);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for End {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut wire = self.wire.borrow_mut();
        let most = match wire.act() {
            Act::Pend => return Poll::Pending,
            Act::Fail => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            Act::AtMost(most) => most,
        };
        let other = 1 - self.side;
        let n = bytes.len().min(most).min(CAPACITY.saturating_sub(wire.channels[other].len()));
        if n == 0 {
            return Poll::Pending;
        }
        wire.channels[other].extend(&bytes[..n]);
        Poll::Ready(Ok(n))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut wire = self.wire.borrow_mut();
        if let Act::Pend = wire.act() {
            return Poll::Pending;
        }
        wire.is_closed[1 - self.side] = true;
        Poll::Ready(Ok(()))
    }
}
