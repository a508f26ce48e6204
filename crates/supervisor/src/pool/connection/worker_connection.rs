//! A connection to a worker, which carries one request and its response at a time.

use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use rookery_exchange::Exchange;
use rookery_server::UnixStream;
use tokio::io::{AsyncReadExt as _, AsyncWrite as _};

use super::framing::Malformed;
use super::framing::chunked_body::ChunkDecoder;
use super::framing::response_head::{self, Framing, Head, MAX_HEAD_SIZE, RequestForm};
use super::response_headers;
use super::spooled_body::SpooledBody;
use crate::pool::buffer_pool::BufferPool;

/// The maximum time for connecting to a worker. A worker normally accepts a connection at once.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The number of bytes to read from a worker at a time until the head of its response is complete.
/// Most responses are not longer than that.
const HEAD_READ_SIZE: usize = 16 << 10;

/// The number of bytes to read from a worker at a time while its response is streamed.
const BODY_READ_SIZE: usize = 64 << 10;

/// The length in bytes up to which the incomplete head of a response is parsed again after each
/// read. A longer head is parsed only when an empty line has arrived, because parsing it again each
/// time would be slow.
const MAX_REPARSED: usize = 16 << 10;

/// The reason why a request got no response from its worker.
#[derive(Debug)]
pub(in crate::pool) enum Failure {
    /// The worker has not received any byte of the request.
    Unsent,
    /// The connection broke after the worker had received at least a part of the request.
    Lost,
    /// The worker's response is not valid HTTP.
    Malformed,
    /// R was busy with the request for longer than the worker timeout.
    Timeout,
    /// R did not begin to process the request by the deadline.
    NotBegun,
}

/// A connection to a worker, which carries one request and its response at a time.
#[derive(Debug)]
pub(in crate::pool) struct WorkerConnection {
    socket: UnixStream,
    request: OutgoingRequest,
    /// The bytes that have been read from the worker's socket but not processed.
    read: Vec<u8>,
    /// The reader of the response's body, which knows how much of the body is still missing.
    body: BodyReader,
    /// Whether the connection to the worker can be used for another request after this response.
    is_reusable: bool,
}

/// A request that is being sent to a worker.
#[derive(Debug, Default)]
struct OutgoingRequest {
    /// The head of the request, and the body if it is in memory. The buffer is released once all
    /// bytes have been written.
    bytes: Vec<u8>,
    /// The number of bytes of the request's head and in-memory body that have been written to the
    /// socket.
    written: usize,
    file: Option<SpooledBody>,
    /// A chunk of the spooled body that has been read from the file but not yet written to the
    /// socket.
    chunk: Bytes,
    failed: Option<SendError>,
}

/// The reason why a request cannot be sent completely to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendError {
    /// The worker has closed the connection, possibly after it sent a complete response.
    Socket,
    /// The request's spooled body cannot be read from its file.
    File,
}

#[derive(Debug)]
enum BodyReader {
    /// The response's body has a Content-Length, and this many of its bytes have not been read.
    Length(u64),
    Chunked(ChunkDecoder),
}

impl BodyReader {
    fn is_complete(&self) -> bool {
        match self {
            BodyReader::Length(left) => *left == 0,
            BodyReader::Chunked(decoder) => decoder.is_complete(),
        }
    }
}

/// Opens a connection to the Unix socket of a worker.
pub(in crate::pool) async fn connect(path: &Path) -> Result<WorkerConnection, Failure> {
    let connecting = tokio::net::UnixStream::connect(path);
    let connected =
        tokio::time::timeout(CONNECT_TIMEOUT, connecting).await.map_err(|_| Failure::Unsent)?;
    let socket = connected.and_then(tokio::net::UnixStream::into_std).and_then(UnixStream::new);
    let socket = socket.map_err(|_| Failure::Unsent)?;
    Ok(WorkerConnection::new(socket))
}

impl WorkerConnection {
    fn new(socket: UnixStream) -> WorkerConnection {
        let (request, read) = (OutgoingRequest::default(), Vec::new());
        let body = BodyReader::Length(0);
        WorkerConnection { socket, request, read, body, is_reusable: true }
    }

    /// Sends a request to the worker, waits for the head of the response, and writes that head into
    /// the exchange (the request with its response). `request` contains the head of the request,
    /// and also the body if the body is in memory. If the body is in a temporary file, `file` reads
    /// it from there.
    pub(in crate::pool) async fn send(
        &mut self,
        buffers: &BufferPool,
        request: Vec<u8>,
        file: Option<SpooledBody>,
        form: RequestForm,
        exchange: &mut Exchange,
    ) -> Result<Head, Failure> {
        self.request = OutgoingRequest { bytes: request, file, ..OutgoingRequest::default() };
        self.is_reusable = false;
        let mut parsed = 0;
        let head = poll_fn(|cx| {
            self.request.poll_write(&mut self.socket, cx);
            self.request.release_buffer(buffers);
            match self.request.failed {
                Some(SendError::Socket) if self.request.written == 0 => {
                    return Poll::Ready(Err(Failure::Unsent));
                }
                // The worker may have sent a response before it closed the connection, so reading
                // continues.
                None | Some(SendError::Socket) => {}
                Some(SendError::File) => return Poll::Ready(Err(Failure::Lost)),
            }
            loop {
                match self.poll_read(cx, buffers, HEAD_READ_SIZE) {
                    Poll::Ready(Ok(1..)) => {}
                    Poll::Ready(_) => return Poll::Ready(Err(Failure::Lost)),
                    Poll::Pending => return Poll::Pending,
                }
                if !may_be_complete(&self.read, std::mem::replace(&mut parsed, self.read.len())) {
                    continue;
                }
                match self.take_head(form, exchange) {
                    Ok(None) => {}
                    Ok(Some(head)) => return Poll::Ready(Ok(head)),
                    Err(Malformed) => return Poll::Ready(Err(Failure::Malformed)),
                }
            }
        })
        .await?;
        Ok(head)
    }

    /// Parses the head of the response, removes it from the bytes that were read, and writes it
    /// into the exchange (the request with its response). Returns `None` if the head is incomplete.
    fn take_head(
        &mut self,
        form: RequestForm,
        exchange: &mut Exchange,
    ) -> Result<Option<Head>, Malformed> {
        let read = response_head::read(&self.read, form, |head, lines| {
            response_headers::write(exchange, head.status, lines);
        });
        let Some((head, len)) = read? else { return Ok(None) };
        self.read.drain(..len);
        self.body = match head.body {
            Framing::None => BodyReader::Length(0),
            Framing::Length(length) => BodyReader::Length(length),
            Framing::Chunked => BodyReader::Chunked(ChunkDecoder::new()),
        };
        // A connection with bytes after the end of the response is not reused, because these bytes
        // belong to no request.
        self.is_reusable = head.is_reusable && (self.read.is_empty() || !self.body.is_complete());
        Ok(Some(head))
    }

    /// Reads and returns the whole body of the response, which has `len` bytes.
    ///
    /// # Errors
    /// Returns an error if the connection ends before the body is complete.
    pub(in crate::pool) async fn read_body(
        &mut self,
        buffers: &BufferPool,
        len: usize,
    ) -> io::Result<&[u8]> {
        while self.read.len() < len {
            let missing = len - self.read.len();
            if poll_fn(|cx| self.poll_progress(cx, buffers, missing)).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        self.body = BodyReader::Length(0);
        self.is_reusable &= self.read.len() == len;
        Ok(&self.read[..len])
    }

    /// Polls for the next chunk of the response's body. The result is `None` at the end of the
    /// body.
    ///
    /// # Errors
    /// Returns `UnexpectedEof` if the connection ends before the body is complete, and
    /// `InvalidData` if the chunked coding is malformed or the body of the request cannot be read.
    pub(in crate::pool) fn poll_chunk(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &BufferPool,
    ) -> Poll<Option<io::Result<Vec<u8>>>> {
        loop {
            if self.body.is_complete() {
                return Poll::Ready(None);
            }
            if self.read.is_empty() {
                match ready!(self.poll_progress(cx, buffers, BODY_READ_SIZE)) {
                    Ok(0) => return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into()))),
                    Ok(_) => {}
                    Err(error) => return Poll::Ready(Some(Err(error))),
                }
            }
            let (data, used) = match &mut self.body {
                BodyReader::Length(left) => {
                    let data = usize::try_from(*left).unwrap_or(usize::MAX).min(self.read.len());
                    *left -= data as u64;
                    (data, data)
                }
                BodyReader::Chunked(decoder) => match decoder.decode(&mut self.read) {
                    Ok(decoded) => (decoded.data, decoded.used),
                    Err(Malformed) => {
                        return Poll::Ready(Some(Err(io::ErrorKind::InvalidData.into())));
                    }
                },
            };
            self.is_reusable &= used == self.read.len();
            self.read.truncate(data);
            if data > 0 {
                return Poll::Ready(Some(Ok(std::mem::take(&mut self.read))));
            }
        }
    }

    /// Writes the remaining bytes of the request and reads more of the response. Returns the number
    /// of bytes that were read.
    fn poll_progress(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &BufferPool,
        capacity: usize,
    ) -> Poll<io::Result<usize>> {
        self.request.poll_write(&mut self.socket, cx);
        if self.request.failed == Some(SendError::File) {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        self.poll_read(cx, buffers, capacity)
    }

    /// Reads from the worker's socket into the buffer `self.read`. If the socket has no data and
    /// the buffer is empty, the buffer is returned to the buffer pool, so that an idle response
    /// stream occupies no memory.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &BufferPool,
        capacity: usize,
    ) -> Poll<io::Result<usize>> {
        if self.read.capacity() == 0 {
            self.read = buffers.take();
        }
        self.read.reserve(capacity);
        let read = pin!(self.socket.read_buf(&mut self.read)).poll(cx);
        if read.is_pending() && self.read.is_empty() {
            buffers.put(std::mem::take(&mut self.read));
        }
        read
    }

    /// Returns the connection if it can be used for another request. Returns `None` if the request
    /// was not sent completely, the response was not read completely, or the worker will close the
    /// connection.
    pub(in crate::pool) fn into_reusable(
        mut self,
        buffers: &BufferPool,
    ) -> Option<WorkerConnection> {
        if !self.is_reusable
            || !self.request.is_sent()
            || !self.body.is_complete()
            || self.request.failed.is_some()
        {
            return None;
        }
        self.request.release_buffer(buffers);
        buffers.put(std::mem::take(&mut self.read));
        Some(self)
    }

    /// Returns true if the connection is open and its socket has no data to read. Returns false if
    /// data have arrived or the worker has closed the connection.
    pub(in crate::pool) fn poll_idle(&mut self) -> bool {
        let mut byte = [0; 1];
        let mut buffer = tokio::io::ReadBuf::new(&mut byte);
        let mut cx = Context::from_waker(Waker::noop());
        tokio::io::AsyncRead::poll_read(Pin::new(&mut self.socket), &mut cx, &mut buffer)
            .is_pending()
    }

    /// Returns the connection's socket, and the bytes after the head of the response that have
    /// already been read.
    pub(in crate::pool) fn into_parts(self) -> (UnixStream, Vec<u8>) {
        (self.socket, self.read)
    }
}

/// Returns true if the response head in `read` may be complete and should be parsed. `parsed` is
/// the number of bytes that had arrived when the head was last parsed.
fn may_be_complete(read: &[u8], parsed: usize) -> bool {
    if read.len() <= MAX_REPARSED || read.len() >= MAX_HEAD_SIZE {
        return true;
    }
    let new = &read[parsed.saturating_sub(3)..];
    new.windows(2).any(|pair| pair == b"\n\n") || new.windows(3).any(|triple| triple == b"\n\r\n")
}

impl OutgoingRequest {
    fn is_sent(&self) -> bool {
        self.written >= self.bytes.len() && self.file.is_none() && self.chunk.is_empty()
    }

    /// Returns the request's buffer to the buffer pool once the buffer has been written completely.
    /// It is not needed while R processes the request, which may take long.
    fn release_buffer(&mut self, buffers: &BufferPool) {
        if self.written >= self.bytes.len() && self.bytes.capacity() > 0 {
            buffers.put(std::mem::take(&mut self.bytes));
        }
    }

    /// Writes as many bytes of the request as the socket accepts.
    fn poll_write(&mut self, socket: &mut UnixStream, cx: &mut Context<'_>) {
        while !self.is_sent() && self.failed.is_none() {
            match self.poll_step(socket, cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => self.failed = Some(error),
                Poll::Pending => return,
            }
        }
    }

    fn poll_step(
        &mut self,
        socket: &mut UnixStream,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        let mut socket = Pin::new(socket);
        if self.written < self.bytes.len() {
            let written = ready!(socket.as_mut().poll_write(cx, &self.bytes[self.written..]));
            self.written += written.map_err(|_| SendError::Socket)?;
        } else if !self.chunk.is_empty() {
            let written = ready!(socket.as_mut().poll_write(cx, &self.chunk));
            self.chunk.advance(written.map_err(|_| SendError::Socket)?);
        } else if let Some(file) = &mut self.file {
            match ready!(file.poll_chunk(cx)) {
                Some(chunk) => self.chunk = chunk.map_err(|_| SendError::File)?,
                None => self.file = None,
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[tokio::test]
    async fn waiting_for_a_response_costs_no_memory() {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut connection = WorkerConnection::new(UnixStream::new(ours).unwrap());
        let (buffers, mut exchange) = (BufferPool::default(), Exchange::new());
        exchange.begin(1, 1, 0);
        // The request is larger than the buffer of a socket.
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
        let kept = || [buffers.take(), buffers.take()].map(|buffer| buffer.capacity());
        buffers.put(Vec::with_capacity(100));
        let head = {
            let mut sending =
                pin!(connection.send(&buffers, request, None, RequestForm::Other, &mut exchange));
            let is_pending =
                poll_fn(|cx| Poll::Ready(sending.as_mut().poll(cx).is_pending())).await;
            assert!(is_pending);
            let [one, other] = kept();
            assert!(one >= 100 && other == 0, "{one} {other}");
            buffers.put(Vec::with_capacity(one));
            go.send(()).unwrap();
            sending.await.unwrap()
        };
        assert_eq!(head.body, Framing::Chunked);
        let _theirs = worker.join().unwrap();
        let chunk = poll_fn(|cx| connection.poll_chunk(cx, &buffers)).await.unwrap().unwrap();
        assert_eq!(chunk, b"a");
        let is_pending =
            poll_fn(|cx| Poll::Ready(connection.poll_chunk(cx, &buffers).is_pending())).await;
        assert!(is_pending);
        assert_eq!((connection.request.bytes.capacity(), connection.read.capacity()), (0, 0));
        assert!(connection.request.is_sent() && connection.request.written == len);
    }
}
