//! One direction of a WebSocket tunnel: from the client to the upstream process, or back.

use std::io;
use std::task::Poll;

/// The buffer and the state of one direction of a WebSocket tunnel.
#[derive(Debug, Default)]
pub(super) struct Direction {
    /// The bytes that were read from one side of the tunnel. Some of them may already have been
    /// written to the other side.
    pub(super) buffered: Vec<u8>,
    /// The number of bytes at the start of `buffered` that have already been written.
    pub(super) written: usize,
    /// True once the side that this direction reads from has sent its last byte.
    pub(super) is_ended: bool,
    /// True once the side that this direction writes to has been told that no more bytes follow.
    pub(super) is_shut_down: bool,
}

impl Direction {
    pub(super) fn has_unwritten(&self) -> bool {
        self.written < self.buffered.len()
    }

    /// Writes the buffered bytes of this direction, and frees the buffer when it is empty.
    pub(super) fn poll_flush(
        &mut self,
        mut write: impl FnMut(&[u8]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<()>> {
        while self.has_unwritten() {
            match write(&self.buffered[self.written..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(n)) => self.written += n,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        if self.buffered.capacity() > 0 {
            self.buffered = Vec::new();
            self.written = 0;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes `bytes`, unless earlier bytes of this direction are still buffered. Buffers the bytes
    /// that could not be written.
    pub(super) fn forward(
        &mut self,
        mut bytes: &[u8],
        mut write: impl FnMut(&[u8]) -> Poll<io::Result<usize>>,
    ) -> io::Result<()> {
        while !self.has_unwritten() && !bytes.is_empty() {
            match write(bytes) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(n)) => bytes = &bytes[n..],
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => break,
            }
        }
        self.buffered.extend_from_slice(bytes);
        Ok(())
    }
}
