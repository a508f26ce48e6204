//! Transports in memory. None of them allocates once it is made.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Returns the same bytes repeatedly. With `is_copied_once` the bytes are copied into a reader's
/// buffer only once and stay there, so that a read costs as much as reading from a buffer. This
/// requires a reader that changes nothing in its buffer and always uses the same one.
pub struct Replay {
    bytes: Vec<u8>,
    is_copied_once: bool,
    copied_to: Option<*const u8>,
}

impl Replay {
    pub fn new(frame: &[u8], total: usize, is_copied_once: bool) -> Replay {
        let count = total / frame.len();
        Replay { bytes: frame.repeat(count), is_copied_once, copied_to: None }
    }
}

impl AsyncRead for Replay {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let n = self.bytes.len();
        let place = target.initialize_unfilled().as_ptr();
        if target.remaining() >= n && self.is_copied_once && self.copied_to == Some(place) {
            target.advance(n);
        } else if target.remaining() >= n {
            target.put_slice(&self.bytes);
            self.copied_to = Some(place);
        } else {
            // A small buffer of the reader gets what fits, and the rest of the frame follows.
            let take = target.remaining();
            target.put_slice(&self.bytes[..take]);
            self.bytes.rotate_left(take);
        }
        Poll::Ready(Ok(()))
    }
}

impl io::Read for Replay {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let n = self.bytes.len().min(target.len());
        target[..n].copy_from_slice(&self.bytes[..n]);
        if n < self.bytes.len() {
            self.bytes.rotate_left(n);
        }
        Ok(n)
    }
}

impl AsyncWrite for Replay {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl io::Write for Replay {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A direction of a [`Pipe`].
struct Channel {
    bytes: VecDeque<u8>,
    reader: Option<Waker>,
}

/// One end of a pipe that holds 64 KiB in each direction.
#[derive(Clone)]
pub struct Pipe {
    incoming: Rc<RefCell<Channel>>,
    outgoing: Rc<RefCell<Channel>>,
}

pub fn pipe() -> (Pipe, Pipe) {
    let channel = || {
        Rc::new(RefCell::new(Channel { bytes: VecDeque::with_capacity(64 << 10), reader: None }))
    };
    let (a, b) = (channel(), channel());
    (Pipe { incoming: a.clone(), outgoing: b.clone() }, Pipe { incoming: b, outgoing: a })
}

impl Channel {
    fn read(&mut self, n: usize, mut put: impl FnMut(&[u8])) {
        let (first, second) = self.bytes.as_slices();
        let cut = n.min(first.len());
        put(&first[..cut]);
        put(&second[..n - cut]);
        self.bytes.drain(..n);
    }

    fn write(&mut self, bytes: &[u8]) -> usize {
        assert!(
            self.bytes.len() + bytes.len() <= 64 << 10,
            "the pipe is wider than what is in flight"
        );
        self.bytes.extend(bytes);
        self.reader.take().into_iter().for_each(Waker::wake);
        bytes.len()
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut channel = self.incoming.borrow_mut();
        let n = channel.bytes.len().min(target.remaining());
        if n == 0 {
            channel.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        channel.read(n, |bytes| target.put_slice(bytes));
        Poll::Ready(Ok(()))
    }
}

impl io::Read for Pipe {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let mut channel = self.incoming.borrow_mut();
        let n = channel.bytes.len().min(target.len());
        if n == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut at = 0;
        channel.read(n, |bytes| {
            target[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        });
        Ok(n)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(self.outgoing.borrow_mut().write(bytes)))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut channel = self.outgoing.borrow_mut();
        Poll::Ready(Ok(slices.iter().map(|slice| channel.write(slice)).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl io::Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.outgoing.borrow_mut().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
