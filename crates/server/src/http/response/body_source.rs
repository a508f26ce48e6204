//! What the body of a reply comes from: files, and compressors, which work on other threads.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use rookery_exchange::Charge;

use crate::blocking::blocking_task::BlockingTask;
use crate::http::connection::http_connection::HttpConnection;
use crate::http::response::compress::Gzip;
use crate::http::response::sendfile::{PIECE, SentFile};
use crate::http::response::stream::registry::CompressorPermit;
use crate::http::response::stream::response_stream::{Chunks, Next, ResponseStream};

/// A file that is sent as it is, by the connection: see [`sending`](super::sending).
#[derive(Debug)]
pub(crate) struct FileSource {
    file: Arc<SentFile>,
    at: u64,
    pub(crate) left: u64,
    /// A piece of it, where it has to be read.
    reading: Option<BlockingTask<Vec<u8>>>,
}

/// What is compressed on its way out, on another thread: a piece takes milliseconds.
#[derive(Debug)]
pub(crate) struct GzipSource {
    /// `None` while it is away, and when the end has come.
    compressing: Option<Compressing>,
    working: Option<BlockingTask<Compressed>>,
}

#[derive(Debug)]
pub(crate) enum Input {
    Whole(Bytes),
    File { file: Arc<SentFile>, at: u64, left: u64 },
}

/// A compressor, what is left for it, and what it is charged for: wherever it is, until it is gone.
#[derive(Debug)]
pub(crate) struct Compressing {
    gzip: Gzip,
    input: Input,
    _charge: Charge,
}

#[derive(Debug)]
struct Compressed {
    /// `None` after the last piece.
    rest: Option<Compressing>,
    out: Vec<u8>,
}

impl FileSource {
    pub(crate) fn new(file: SentFile, at: u64, left: u64) -> FileSource {
        FileSource { file: Arc::new(file), at, left, reading: None }
    }

    /// The next piece of it, as hyper gets it.
    pub(crate) fn piece(&mut self, connection: &HttpConnection) -> Option<Bytes> {
        if self.left == 0 {
            return None;
        }
        let stand_in = connection.send_file(&self.file, self.at, self.left);
        self.at += stand_in.len() as u64;
        self.left -= stand_in.len() as u64;
        Some(stand_in)
    }

    /// The next piece of it, read: a stream of HTTP/2 has no socket that the system could send it to.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Vec<u8>>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let len = usize::try_from(self.left).unwrap_or(usize::MAX).min(PIECE);
        let read = match &mut self.reading {
            Some(reading) => {
                let read = ready!(Pin::new(reading).poll(cx));
                self.reading = None;
                read
            }
            None => match self.file.read_now(self.at, len) {
                Some(piece) => Ok(piece),
                None => {
                    let (file, at) = (Arc::clone(&self.file), self.at);
                    self.reading = Some(BlockingTask::start(move || file.read(at, len)));
                    return self.poll_read(cx);
                }
            },
        };
        if let Ok(piece) = &read {
            self.at += piece.len() as u64;
            self.left -= piece.len() as u64;
        }
        Poll::Ready(Some(read))
    }
}

/// Bodies up to here are compressed at once and keep a length; larger ones in pieces of this size.
pub(crate) const GZIP_PIECE: usize = 64 << 10;

impl Compressing {
    /// Compresses pieces until something comes out.
    fn work(mut self) -> io::Result<Compressed> {
        let mut out = Vec::new();
        loop {
            let is_last = match &mut self.input {
                Input::Whole(bytes) => {
                    self.gzip.push(&bytes.split_to(bytes.len().min(GZIP_PIECE)), &mut out);
                    bytes.is_empty()
                }
                Input::File { file, at, left } => {
                    let mut piece =
                        vec![0; usize::try_from(*left).unwrap_or(usize::MAX).min(GZIP_PIECE)];
                    file.read_exact_at(&mut piece, *at)?;
                    self.gzip.push(&piece, &mut out);
                    *at += piece.len() as u64;
                    *left -= piece.len() as u64;
                    *left == 0
                }
            };
            if is_last {
                self.gzip.finish(&mut out);
                return Ok(Compressed { rest: None, out });
            }
            if !out.is_empty() {
                return Ok(Compressed { rest: Some(self), out });
            }
        }
    }
}

impl GzipSource {
    pub(crate) fn new(input: Input, charge: Charge) -> GzipSource {
        let compressing = Compressing { gzip: Gzip::new(), input, _charge: charge };
        GzipSource { compressing: Some(compressing), working: None }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.compressing.is_none() && self.working.is_none()
    }

    pub(crate) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Vec<u8>>>> {
        if let Some(compressing) = self.compressing.take() {
            self.working = Some(BlockingTask::start(move || compressing.work()));
        }
        let Some(working) = &mut self.working else { return Poll::Ready(None) };
        let compressed = ready!(Pin::new(working).poll(cx));
        self.working = None;
        Poll::Ready(Some(compressed.map(|compressed| {
            self.compressing = compressed.rest;
            compressed.out
        })))
    }
}

/// Pieces of a stream up to here are compressed where they are, as other bodies.
const PIECE_HERE: usize = 4 << 10;

/// A reply that comes in pieces, compressed. What a piece gives leaves with it unless the next one is there already: no client waits
/// for what lies in a compressor.
#[derive(Debug)]
pub(crate) struct GzipStream {
    stream: Rc<ResponseStream>,
    /// `None` while it is away, and when the end has come.
    compressor: Option<Compressor>,
    working: Option<BlockingTask<(Compressor, Vec<u8>)>>,
    _one: CompressorPermit,
}

/// A compressor, and what it is charged for, wherever it is.
#[derive(Debug)]
struct Compressor {
    gzip: Gzip,
    _charge: Charge,
}

impl Compressor {
    /// Compresses a piece; all of what has been is in what comes out after the last of those that are there.
    fn piece(mut self, piece: &[u8], is_last: bool) -> (Compressor, Vec<u8>) {
        let mut out = Vec::new();
        self.gzip.push(piece, &mut out);
        if is_last {
            self.gzip.flush(&mut out);
        }
        (self, out)
    }
}

impl GzipStream {
    pub(crate) fn new(
        stream: Rc<ResponseStream>,
        charge: Charge,
        one: CompressorPermit,
    ) -> GzipStream {
        // The compressor is hyper's body.
        stream.set_chunks(Chunks::No);
        let compressor = Compressor { gzip: Gzip::new(), _charge: charge };
        GzipStream { stream, compressor: Some(compressor), working: None, _one: one }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.compressor.is_none() && self.working.is_none()
    }

    pub(crate) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Vec<u8>>>> {
        loop {
            if let Some(working) = &mut self.working {
                let (compressor, out) = ready!(Pin::new(working).poll(cx))?;
                self.working = None;
                self.compressor = Some(compressor);
                self.stream.has_compressed(!out.is_empty());
                if !out.is_empty() {
                    return Poll::Ready(Some(Ok(out)));
                }
            }
            let Some(mut compressor) = self.compressor.take() else { return Poll::Ready(None) };
            let was_unflushed = self.stream.is_unflushed();
            match self.stream.next() {
                Next::Piece(bytes) => {
                    self.stream.compresses(bytes.len(), was_unflushed);
                    let is_last = !self.stream.has_next();
                    if bytes.len() > PIECE_HERE {
                        self.working =
                            Some(BlockingTask::start(
                                move || Ok(compressor.piece(&bytes, is_last)),
                            ));
                        continue;
                    }
                    let (compressor, out) = compressor.piece(&bytes, is_last);
                    self.compressor = Some(compressor);
                    self.stream.has_compressed(!out.is_empty());
                    if !out.is_empty() {
                        return Poll::Ready(Some(Ok(out)));
                    }
                }
                Next::Wait => {
                    self.compressor = Some(compressor);
                    return Poll::Pending;
                }
                Next::End => {
                    let mut out = Vec::new();
                    compressor.gzip.finish(&mut out);
                    return Poll::Ready(Some(Ok(out)));
                }
            }
        }
    }
}
