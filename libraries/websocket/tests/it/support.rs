//! A transport in memory whose speed a test sets.

use std::collections::VecDeque;
use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The behaviour of a pipe.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// The number of bytes that the pipe holds.
    pub(crate) capacity: usize,
    /// The maximum number of bytes of one read or write.
    pub(crate) chunk: usize,
    /// True if each read and write returns `Pending` once before it proceeds.
    pub(crate) stutters: bool,
}

pub(crate) const FAST: Pace = Pace { capacity: 256 << 10, chunk: usize::MAX, stutters: false };

#[derive(Debug)]
struct Channel {
    bytes: VecDeque<u8>,
    pace: Pace,
    reader: Option<Waker>,
    writer: Option<Waker>,
    is_closed: bool,
    has_stuttered: [bool; 2],
}

/// One end of a pipe. Allocates nothing once it is made.
#[derive(Debug)]
pub(crate) struct End {
    incoming: Arc<Mutex<Channel>>,
    outgoing: Arc<Mutex<Channel>>,
}

pub(crate) fn pipe(pace: Pace) -> (End, End) {
    let channel = || {
        Arc::new(Mutex::new(Channel {
            bytes: VecDeque::with_capacity(pace.capacity),
            pace,
            reader: None,
            writer: None,
            is_closed: false,
            has_stuttered: [false; 2],
        }))
    };
    let (a, b) = (channel(), channel());
    (End { incoming: a.clone(), outgoing: b.clone() }, End { incoming: b, outgoing: a })
}

impl Channel {
    fn stutters(&mut self, side: usize, cx: &Context<'_>) -> bool {
        if !self.pace.stutters {
            return false;
        }
        self.has_stuttered[side] = !self.has_stuttered[side];
        if self.has_stuttered[side] {
            cx.waker().wake_by_ref();
        }
        self.has_stuttered[side]
    }

    fn take(&mut self, slices: &[&[u8]]) -> usize {
        let room = (self.pace.capacity - self.bytes.len()).min(self.pace.chunk);
        let mut taken = 0;
        for slice in slices {
            let n = slice.len().min(room - taken);
            self.bytes.extend(&slice[..n]);
            taken += n;
        }
        if taken > 0 {
            self.reader.take().into_iter().for_each(Waker::wake);
        }
        taken
    }
}

impl AsyncRead for End {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let channel = &mut *self.incoming.lock().unwrap();
        if channel.stutters(0, cx) {
            return Poll::Pending;
        }
        let n = channel.bytes.len().min(target.remaining()).min(channel.pace.chunk);
        if n == 0 && !channel.is_closed {
            channel.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let (first, second) = channel.bytes.as_slices();
        let cut = n.min(first.len());
        target.put_slice(&first[..cut]);
        target.put_slice(&second[..n - cut]);
        channel.bytes.drain(..n);
        channel.writer.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for End {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let channel = &mut *self.outgoing.lock().unwrap();
        if channel.stutters(1, cx) {
            return Poll::Pending;
        }
        if channel.is_closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let first = slices.first().map_or(&[][..], |slice| slice);
        let second = slices.get(1).map_or(&[][..], |slice| slice);
        match channel.take(&[first, second]) {
            0 => {
                channel.writer = Some(cx.waker().clone());
                Poll::Pending
            }
            n => Poll::Ready(Ok(n)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let channel = &mut *self.outgoing.lock().unwrap();
        channel.is_closed = true;
        channel.reader.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        for channel in [&self.incoming, &self.outgoing] {
            let Ok(mut channel) = channel.lock() else { continue };
            channel.is_closed = true;
            channel.reader.take().into_iter().for_each(Waker::wake);
            channel.writer.take().into_iter().for_each(Waker::wake);
        }
    }
}
