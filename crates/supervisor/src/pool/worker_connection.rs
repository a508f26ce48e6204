//! Connections to a worker: one request at a time, written from its exchange, and its reply read into it.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use rookery_exchange::Exchange;
use rookery_server::UnixStream;
use tokio::io::{AsyncReadExt as _, AsyncWrite as _};

use super::framing::Malformed;
use super::framing::chunked_body::Chunks;
use super::framing::response_head::{self, Framing, HEAD_BYTES, Head, RequestForm};
use super::pool_backend::PoolBackend;
use super::response_forwarder;
use super::spooled_body::SpooledBody;
use super::state::State;

/// How long connecting may take. A worker that lives accepts at once; one that is stopped has a queue of 4,096.
const CONNECT_TIME: Duration = Duration::from_secs(1);

/// Bytes that a head is read with: most replies are there then.
const FIRST_READ: usize = 16 << 10;

/// Bytes that are read at a time of a body that goes in pieces. A buffer of that size is kept.
const PIECE: usize = 64 << 10;

/// Bytes of a head that may be looked at anew with each read; behind them only a line of nothing is looked for.
const LOOKED_AT: usize = 16 << 10;

/// Why there is no response.
#[derive(Debug)]
pub(super) enum Failure {
    /// The worker has not seen the request.
    Unsent,
    /// It has seen it, or may have.
    Lost,
    /// What it answered is no response.
    Unreadable,
    /// The worker is not waited for any longer.
    TookTooLong,
    /// R has not begun the request within the time that it may wait.
    NotBegun,
}

/// See the module.
#[derive(Debug)]
pub(super) struct WorkerConnection {
    socket: UnixStream,
    request: Outgoing,
    /// What has been read and not been taken.
    read: Vec<u8>,
    /// What is yet to come of the body.
    body: Body,
    /// Whether it may be used again.
    is_kept: bool,
}

/// A request on its way out.
#[derive(Debug, Default)]
struct Outgoing {
    /// The head, and a body that is in memory, until they have left; and how much of them has.
    bytes: Vec<u8>,
    at: usize,
    file: Option<SpooledBody>,
    /// What has been read of the file.
    piece: Bytes,
    failed: Option<Failed>,
}

/// Why nothing more of a request leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failed {
    /// The worker takes nothing more. How that ends is seen by what it says.
    Socket,
    /// Its body cannot be read. The worker waits for it.
    File,
}

#[derive(Debug)]
enum Body {
    Length(u64),
    Chunks(Chunks),
}

impl Body {
    fn is_over(&self) -> bool {
        match self {
            Body::Length(left) => *left == 0,
            Body::Chunks(chunks) => chunks.is_over(),
        }
    }
}

/// A connection that is ready for a request, an old one or a new.
pub(super) async fn connection(worker: &PoolBackend) -> Result<WorkerConnection, Failure> {
    match worker.connection() {
        Some(kept) => Ok(kept),
        None => open(worker).await,
    }
}

/// A new connection.
pub(super) async fn open(worker: &PoolBackend) -> Result<WorkerConnection, Failure> {
    let connecting = tokio::net::UnixStream::connect(&worker.backend.socket);
    let connected =
        tokio::time::timeout(CONNECT_TIME, connecting).await.map_err(|_| Failure::Unsent)?;
    let socket = connected.and_then(tokio::net::UnixStream::into_std).and_then(UnixStream::new);
    let socket = socket.map_err(|_| Failure::Unsent)?;
    Ok(WorkerConnection::new(socket))
}

impl WorkerConnection {
    fn new(socket: UnixStream) -> WorkerConnection {
        let (request, read) = (Outgoing::default(), Vec::new());
        WorkerConnection { socket, request, read, body: Body::Length(0), is_kept: true }
    }

    /// Sends a request, and waits for the head of its reply, which is written into its exchange. `request` is its head, with a body that
    /// is in memory behind it; else `file` is the body.
    pub(super) async fn ask(
        &mut self,
        state: &State,
        request: Vec<u8>,
        file: Option<SpooledBody>,
        asked: RequestForm,
        exchange: &mut Exchange,
    ) -> Result<Head, Failure> {
        self.request = Outgoing { bytes: request, file, ..Outgoing::default() };
        self.is_kept = false;
        let mut looked_at = 0;
        let head = poll_fn(|cx| {
            self.request.poll_write(&mut self.socket, cx);
            self.request.let_go(state);
            match self.request.failed {
                Some(Failed::Socket) if self.request.at == 0 => {
                    return Poll::Ready(Err(Failure::Unsent));
                }
                // It may have said why it has ended.
                None | Some(Failed::Socket) => {}
                Some(Failed::File) => return Poll::Ready(Err(Failure::Lost)),
            }
            loop {
                match self.poll_read(cx, state, FIRST_READ) {
                    Poll::Ready(Ok(1..)) => {}
                    Poll::Ready(_) => return Poll::Ready(Err(Failure::Lost)),
                    Poll::Pending => return Poll::Pending,
                }
                if !may_be_whole(&self.read, std::mem::replace(&mut looked_at, self.read.len())) {
                    continue;
                }
                match self.take_head(asked, exchange) {
                    Ok(None) => {}
                    Ok(Some(head)) => return Poll::Ready(Ok(head)),
                    Err(Malformed) => return Poll::Ready(Err(Failure::Unreadable)),
                }
            }
        })
        .await?;
        Ok(head)
    }

    fn take_head(
        &mut self,
        asked: RequestForm,
        exchange: &mut Exchange,
    ) -> Result<Option<Head>, Malformed> {
        let read = response_head::read(&self.read, asked, |head, lines| {
            response_forwarder::begin(exchange, head.status, lines)
        });
        let Some((head, len)) = read? else { return Ok(None) };
        self.read.drain(..len);
        self.body = match head.body {
            Framing::None => Body::Length(0),
            Framing::Length(length) => Body::Length(length),
            Framing::Chunks => Body::Chunks(Chunks::new()),
        };
        // What is behind a reply nobody has asked for.
        self.is_kept = head.is_kept && (self.read.is_empty() || !self.body.is_over());
        Ok(Some(head))
    }

    /// The whole body, which has this length.
    ///
    /// # Errors
    /// The worker has ended before.
    pub(super) async fn whole(&mut self, state: &State, len: usize) -> io::Result<&[u8]> {
        while self.read.len() < len {
            let missing = len - self.read.len();
            if poll_fn(|cx| self.poll_on(cx, state, missing)).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        self.body = Body::Length(0);
        self.is_kept &= self.read.len() == len;
        Ok(&self.read[..len])
    }

    /// The next piece of the body; `None`: there are no more.
    ///
    /// # Errors
    /// The worker has ended before, or these are no chunks.
    pub(super) fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
        state: &State,
    ) -> Poll<Option<io::Result<Vec<u8>>>> {
        loop {
            if self.body.is_over() {
                return Poll::Ready(None);
            }
            if self.read.is_empty() {
                match ready!(self.poll_on(cx, state, PIECE)) {
                    Ok(0) => return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into()))),
                    Ok(_) => {}
                    Err(error) => return Poll::Ready(Some(Err(error))),
                }
            }
            let (data, used) = match &mut self.body {
                Body::Length(left) => {
                    let data = usize::try_from(*left).unwrap_or(usize::MAX).min(self.read.len());
                    *left -= data as u64;
                    (data, data)
                }
                Body::Chunks(chunks) => match chunks.decode(&mut self.read) {
                    Ok(decoded) => (decoded.data, decoded.used),
                    Err(Malformed) => {
                        return Poll::Ready(Some(Err(io::ErrorKind::InvalidData.into())));
                    }
                },
            };
            self.is_kept &= used == self.read.len();
            self.read.truncate(data);
            if data > 0 {
                return Poll::Ready(Some(Ok(std::mem::take(&mut self.read))));
            }
        }
    }

    /// Reads on, while the request may still be on its way.
    fn poll_on(
        &mut self,
        cx: &mut Context<'_>,
        state: &State,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        self.request.poll_write(&mut self.socket, cx);
        if self.request.failed == Some(Failed::File) {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        self.poll_read(cx, state, room)
    }

    /// Reads into a buffer that it has only while there is something in it: it may be hours until there is more, of thousands of them.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        state: &State,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        if self.read.capacity() == 0 {
            self.read = state.buffer();
        }
        self.read.reserve(room);
        let read = pin!(self.socket.read_buf(&mut self.read)).poll(cx);
        if read.is_pending() && self.read.is_empty() {
            state.keep_buffer(std::mem::take(&mut self.read));
        }
        read
    }

    /// The connection for another request, if it may be used for one: all of the request has left and all of its reply has come.
    pub(super) fn settled(mut self, state: &State) -> Option<WorkerConnection> {
        if !self.is_kept
            || !self.request.has_left()
            || !self.body.is_over()
            || self.request.failed.is_some()
        {
            return None;
        }
        self.request.let_go(state);
        state.keep_buffer(std::mem::take(&mut self.read));
        Some(self)
    }

    /// Whether nothing has come since its last reply: an end has, if the worker has ended.
    pub(super) fn is_silent(&mut self) -> bool {
        let mut byte = [0; 1];
        let mut buffer = tokio::io::ReadBuf::new(&mut byte);
        let mut cx = Context::from_waker(Waker::noop());
        tokio::io::AsyncRead::poll_read(Pin::new(&mut self.socket), &mut cx, &mut buffer)
            .is_pending()
    }

    /// The socket, and what has been read behind the head.
    pub(super) fn into_parts(self) -> (UnixStream, Vec<u8>) {
        (self.socket, self.read)
    }
}

/// Whether a head may end in what was read behind the first `looked_at` bytes.
fn may_be_whole(read: &[u8], looked_at: usize) -> bool {
    if read.len() <= LOOKED_AT || read.len() >= HEAD_BYTES {
        return true;
    }
    let new = &read[looked_at.saturating_sub(3)..];
    new.windows(2).any(|pair| pair == b"\n\n") || new.windows(3).any(|triple| triple == b"\n\r\n")
}

impl Outgoing {
    fn has_left(&self) -> bool {
        self.at >= self.bytes.len() && self.file.is_none() && self.piece.is_empty()
    }

    /// Lets the memory go of what has left: R may take long, and the reply too.
    fn let_go(&mut self, state: &State) {
        if self.at >= self.bytes.len() && self.bytes.capacity() > 0 {
            state.keep_buffer(std::mem::take(&mut self.bytes));
        }
    }

    /// Writes what there is room for.
    fn poll_write(&mut self, socket: &mut UnixStream, cx: &mut Context<'_>) {
        while !self.has_left() && self.failed.is_none() {
            match self.poll_step(socket, cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(failed)) => self.failed = Some(failed),
                Poll::Pending => return,
            }
        }
    }

    fn poll_step(
        &mut self,
        socket: &mut UnixStream,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Failed>> {
        let mut socket = Pin::new(socket);
        if self.at < self.bytes.len() {
            let written = ready!(socket.as_mut().poll_write(cx, &self.bytes[self.at..]));
            self.at += written.map_err(|_| Failed::Socket)?;
        } else if !self.piece.is_empty() {
            let written = ready!(socket.as_mut().poll_write(cx, &self.piece));
            self.piece.advance(written.map_err(|_| Failed::Socket)?);
        } else if let Some(file) = &mut self.file {
            match ready!(file.poll_piece(cx)) {
                Some(piece) => self.piece = piece.map_err(|_| Failed::File)?,
                None => self.file = None,
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::rc::Rc;
    use std::sync::Arc;

    use rookery_exchange::IoWaker;

    use super::super::PoolLimits;
    use super::super::session_affinity::Keys;
    use super::*;

    struct NoWaker;

    impl IoWaker for NoWaker {
        fn wake(&self) {}

        fn wake_within(&self, _: Duration) {}
    }

    fn state() -> Rc<State> {
        State::new(
            Arc::default(),
            PoolLimits::default(),
            Arc::new(Keys::new("")),
            Arc::new(NoWaker),
        )
    }

    #[tokio::test]
    async fn a_reply_that_is_awaited_costs_no_memory() {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut connection = WorkerConnection::new(UnixStream::new(ours).unwrap());
        let (state, mut exchange) = (state(), Exchange::new());
        exchange.begin(1, 1, 0);
        // More than a socket takes at once.
        let request = vec![b'x'; 1 << 20];
        let len = request.len();
        let (go, goes) = std::sync::mpsc::channel();
        let worker = std::thread::spawn(move || {
            goes.recv().unwrap();
            theirs.read_exact(&mut vec![0; len]).unwrap();
            theirs
                .write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n")
                .unwrap();
            theirs
        });
        // What lies here for others, with the request's own.
        let kept = || [state.buffer(), state.buffer()].map(|buffer| buffer.capacity());
        state.keep_buffer(Vec::with_capacity(100));
        let head = {
            let mut asking =
                pin!(connection.ask(&state, request, None, RequestForm::Other, &mut exchange));
            let is_pending = poll_fn(|cx| Poll::Ready(asking.as_mut().poll(cx).is_pending())).await;
            assert!(is_pending);
            let [one, other] = kept();
            assert!(one >= 100 && other == 0, "{one} {other}");
            state.keep_buffer(Vec::with_capacity(one));
            go.send(()).unwrap();
            asking.await.unwrap()
        };
        assert_eq!(head.body, Framing::Chunks);
        let _theirs = worker.join().unwrap();
        let piece = poll_fn(|cx| connection.poll_piece(cx, &state)).await.unwrap().unwrap();
        assert_eq!(piece, b"a");
        let next = poll_fn(|cx| Poll::Ready(connection.poll_piece(cx, &state).is_pending())).await;
        assert!(next);
        assert_eq!((connection.request.bytes.capacity(), connection.read.capacity()), (0, 0));
        assert!(connection.request.has_left() && connection.request.at == len);
    }
}
