//! What the body of a reply comes from: files, and compressors, which work on other threads.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use rookery_exchange::Charge;

use super::compress::Gzip;
use super::connection::Connection;
use super::sending::SentFile;
use crate::blocking::job::Job;

/// A file that is sent as it is, by the connection: see [`sending`](super::sending).
#[derive(Debug)]
pub(super) struct FileSource {
    file: Arc<SentFile>,
    at: u64,
    pub(super) left: u64,
}

/// What is compressed on its way out, on another thread: a piece takes milliseconds.
#[derive(Debug)]
pub(super) struct GzipSource {
    /// `None` while it is away, and when the end has come.
    compressing: Option<Compressing>,
    working: Option<Job<Compressed>>,
}

#[derive(Debug)]
pub(super) enum Input {
    Whole(Bytes),
    File { file: Arc<SentFile>, at: u64, left: u64 },
}

/// A compressor, what is left for it, and what it is charged for: wherever it is, until it is gone.
#[derive(Debug)]
pub(super) struct Compressing {
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
    pub(super) fn new(file: SentFile, at: u64, left: u64) -> FileSource {
        FileSource { file: Arc::new(file), at, left }
    }

    /// The next piece of it, as hyper gets it.
    pub(super) fn piece(&mut self, connection: &Connection) -> Option<Bytes> {
        if self.left == 0 {
            return None;
        }
        let stand_in = connection.send_file(&self.file, self.at, self.left);
        self.at += stand_in.len() as u64;
        self.left -= stand_in.len() as u64;
        Some(stand_in)
    }
}

/// Bodies up to here are compressed at once and keep a length; larger ones in pieces of this size.
pub(super) const GZIP_PIECE: usize = 64 << 10;

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
                    let mut piece = vec![0; usize::try_from(*left).unwrap_or(usize::MAX).min(GZIP_PIECE)];
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
    pub(super) fn new(input: Input, charge: Charge) -> GzipSource {
        let compressing = Compressing { gzip: Gzip::new(), input, _charge: charge };
        GzipSource { compressing: Some(compressing), working: None }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.compressing.is_none() && self.working.is_none()
    }

    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Vec<u8>>>> {
        if let Some(compressing) = self.compressing.take() {
            self.working = Some(Job::start(move || compressing.work()));
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
