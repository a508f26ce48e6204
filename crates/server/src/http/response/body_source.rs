//! The sources of response bodies: files, and compressors that run on background threads.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use rookery_exchange::{Charge, Peer};
use rookery_system::blocking::{self, BlockingTask};
use rookery_system::file::read_exact_at;

use crate::http::connection::http_connection::HttpConnection;
use crate::http::response::compress::Gzip;
use crate::http::response::sendfile::{READ_CHUNK, SentFile};
use crate::http::response::stream::registry::CompressorPermit;
use crate::http::response::stream::response_stream::{Detachable, NextChunk, ResponseStream};

/// A file that is sent uncompressed as a response body, with
/// [`sendfile`](crate::http::response::sendfile) where possible.
#[derive(Debug)]
pub(crate) struct FileSource {
    file: Arc<SentFile>,
    at: u64,
    pub(crate) left: u64,
    /// The background task that is reading the next chunk of the file, if `sendfile` cannot be
    /// used.
    read_job: Option<BlockingTask<Vec<u8>>>,
}

/// A response body that is compressed while it is sent. Compression runs on a background thread,
/// because it takes milliseconds for each chunk.
#[derive(Debug)]
pub(crate) struct GzipSource {
    /// The compression task. It is `None` while a background thread works on it, and after the end
    /// of the body.
    task: Option<CompressionTask>,
    job: Option<BlockingTask<CompressionResult>>,
}

#[derive(Debug)]
pub(crate) enum Input {
    Whole(Bytes),
    File { file: Arc<SentFile>, at: u64, left: u64 },
}

/// A gzip compressor together with its remaining input and its memory charge. All of them move
/// between threads together.
#[derive(Debug)]
pub(crate) struct CompressionTask {
    gzip: Gzip,
    input: Input,
    _charge: Charge,
}

#[derive(Debug)]
struct CompressionResult {
    /// The compression task for the remaining input, or `None` after the last chunk.
    rest: Option<CompressionTask>,
    out: Vec<u8>,
}

impl FileSource {
    pub(crate) fn new(file: SentFile, at: u64, left: u64) -> FileSource {
        FileSource { file: Arc::new(file), at, left, read_job: None }
    }

    /// Returns placeholder bytes for the next part of the file, or `None` at the end of the file.
    /// The connection replaces the placeholder by the file's contents when hyper writes it.
    pub(crate) fn next_placeholder(&mut self, connection: &HttpConnection) -> Option<Bytes> {
        if self.left == 0 {
            return None;
        }
        let placeholder = connection.queue_file(&self.file, self.at, self.left);
        self.at += placeholder.len() as u64;
        self.left -= placeholder.len() as u64;
        Some(placeholder)
    }

    /// Reads the next chunk of the file into memory. HTTP/2 streams need this because they have no
    /// socket of their own for `sendfile`.
    pub(crate) fn poll_chunk(
        &mut self,
        peer: Peer,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Vec<u8>>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let len = usize::try_from(self.left).unwrap_or(usize::MAX).min(READ_CHUNK);
        let read = match &mut self.read_job {
            Some(read_job) => {
                let read = ready!(Pin::new(read_job).poll(cx));
                self.read_job = None;
                read
            }
            None => match self.file.try_read(self.at, len) {
                Some(chunk) => Ok(chunk),
                None => {
                    let (file, at) = (Arc::clone(&self.file), self.at);
                    self.read_job = Some(blocking::start_for(peer, move || file.read(at, len)));
                    return self.poll_chunk(peer, cx);
                }
            },
        };
        if let Ok(chunk) = &read {
            self.at += chunk.len() as u64;
            self.left -= chunk.len() as u64;
        }
        Poll::Ready(Some(read))
    }
}

/// The maximum size in bytes of a response body that is compressed as a whole, so that its
/// compressed length can be sent as `Content-Length`. Larger bodies are compressed in chunks of
/// this size.
pub(crate) const GZIP_CHUNK: usize = 64 << 10;

impl CompressionTask {
    /// Compresses chunks of the response body until there is compressed output.
    fn run(mut self) -> io::Result<CompressionResult> {
        let mut out = Vec::new();
        loop {
            let is_last = match &mut self.input {
                Input::Whole(bytes) => {
                    self.gzip.push(&bytes.split_to(bytes.len().min(GZIP_CHUNK)), &mut out);
                    bytes.is_empty()
                }
                Input::File { file, at, left } => {
                    let mut chunk =
                        vec![0; usize::try_from(*left).unwrap_or(usize::MAX).min(GZIP_CHUNK)];
                    read_exact_at(file, &mut chunk, *at)?;
                    self.gzip.push(&chunk, &mut out);
                    *at += chunk.len() as u64;
                    *left -= chunk.len() as u64;
                    *left == 0
                }
            };
            if is_last {
                self.gzip.finish(&mut out);
                return Ok(CompressionResult { rest: None, out });
            }
            if !out.is_empty() {
                return Ok(CompressionResult { rest: Some(self), out });
            }
        }
    }
}

impl GzipSource {
    pub(crate) fn new(input: Input, charge: Charge) -> GzipSource {
        let task = CompressionTask { gzip: Gzip::new(), input, _charge: charge };
        GzipSource { task: Some(task), job: None }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.task.is_none() && self.job.is_none()
    }

    pub(crate) fn poll_chunk(
        &mut self,
        peer: Peer,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Vec<u8>>>> {
        if let Some(task) = self.task.take() {
            self.job = Some(blocking::start_for(peer, move || task.run()));
        }
        let Some(job) = &mut self.job else { return Poll::Ready(None) };
        let compressed = ready!(Pin::new(job).poll(cx));
        self.job = None;
        Poll::Ready(Some(compressed.map(|compressed| {
            self.task = compressed.rest;
            compressed.out
        })))
    }
}

/// The maximum size in bytes of a response chunk that is compressed on the I/O thread.
const GZIP_INLINE: usize = 4 << 10;

/// A streamed response that is compressed. The compressor is flushed after each chunk, so that the
/// client can decode it at once, unless the next chunk is already available.
#[derive(Debug)]
pub(crate) struct GzipStream {
    stream: Rc<ResponseStream>,
    /// The compressor of the streamed response. It is `None` while a background thread uses it, and
    /// after the end of the response.
    compressor: Option<Compressor>,
    job: Option<BlockingTask<(Compressor, Vec<u8>)>>,
    _permit: CompressorPermit,
}

/// A gzip compressor together with its memory charge, so that both move between threads together.
#[derive(Debug)]
struct Compressor {
    gzip: Gzip,
    _charge: Charge,
}

impl Compressor {
    /// Compresses a chunk, and returns the compressor and its output. If `is_last` is true (no
    /// further chunk is available yet), flushes the compressor, so that the client can decode all
    /// data so far.
    fn compress_chunk(mut self, chunk: &[u8], is_last: bool) -> (Compressor, Vec<u8>) {
        let mut out = Vec::new();
        self.gzip.push(chunk, &mut out);
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
        permit: CompressorPermit,
    ) -> GzipStream {
        // hyper must keep the response, because its body contains the compressor.
        stream.set_detachable(Detachable::No);
        let compressor = Compressor { gzip: Gzip::new(), _charge: charge };
        GzipStream { stream, compressor: Some(compressor), job: None, _permit: permit }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.compressor.is_none() && self.job.is_none()
    }

    pub(crate) fn poll_chunk(
        &mut self,
        peer: Peer,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Vec<u8>>>> {
        loop {
            if let Some(job) = &mut self.job {
                let (compressor, out) = ready!(Pin::new(job).poll(cx))?;
                self.job = None;
                self.compressor = Some(compressor);
                self.stream.end_compression(!out.is_empty());
                if !out.is_empty() {
                    return Poll::Ready(Some(Ok(out)));
                }
            }
            let Some(mut compressor) = self.compressor.take() else { return Poll::Ready(None) };
            let was_unflushed = self.stream.is_unflushed();
            match self.stream.next_chunk() {
                NextChunk::Chunk(bytes) => {
                    self.stream.begin_compression(bytes.len(), was_unflushed);
                    let is_last = !self.stream.has_queued();
                    if bytes.len() > GZIP_INLINE {
                        self.job = Some(blocking::start_for(peer, move || {
                            Ok(compressor.compress_chunk(&bytes, is_last))
                        }));
                        continue;
                    }
                    let (compressor, out) = compressor.compress_chunk(&bytes, is_last);
                    self.compressor = Some(compressor);
                    self.stream.end_compression(!out.is_empty());
                    if !out.is_empty() {
                        return Poll::Ready(Some(Ok(out)));
                    }
                }
                NextChunk::Wait => {
                    self.compressor = Some(compressor);
                    return Poll::Pending;
                }
                NextChunk::CloseState => {
                    let mut out = Vec::new();
                    compressor.gzip.finish(&mut out);
                    return Poll::Ready(Some(Ok(out)));
                }
            }
        }
    }
}
