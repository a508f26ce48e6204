//! The body of a request, which is stored in the exchange's arena, in one buffer, or in a temporary
//! file.

use std::any::Any;
use std::fs::File;
use std::io;

use super::arena_slice::ArenaSlice;
use super::body_buffer::BodyBuffer;

/// The body of a request, as the server collects it before it passes the request to the
/// application.
#[derive(Debug, Default)]
pub struct RequestBody {
    segments: Vec<ArenaSlice>,
    block: Option<BodyBuffer>,
    file: Option<File>,
    file_guard: Option<FileGuard>,
    len: u64,
}

/// A value that is kept until the temporary file of a request body is closed, such as a charge for
/// the space of the file.
pub type FileGuard = Box<dyn Any + Send>;

/// The storage of a request body: in memory or in a temporary file.
#[derive(Debug)]
pub enum BodySource<'a> {
    /// The request body is empty.
    Empty,
    /// The request body is in memory.
    Memory,
    /// The request body is in a temporary file, which has no name in the file system.
    File(&'a File),
}

impl RequestBody {
    /// Returns the length of the request body in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if the request body is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns where the request body is stored: in memory or in a file.
    pub fn source(&self) -> BodySource<'_> {
        match &self.file {
            Some(file) => BodySource::File(file),
            None if self.len == 0 => BodySource::Empty,
            None => BodySource::Memory,
        }
    }

    /// Returns the bytes of a request body that is stored in memory, as consecutive segments.
    /// Returns no segment for a body in a file.
    pub fn segments(&self) -> impl Iterator<Item = &[u8]> {
        // SAFETY: the slices belong to the exchange that contains this body and that is borrowed
        // with it. A body is only accessible through its exchange, whose `reset` clears the body
        // before the arena.
        let behind = self.segments.iter().map(|span| unsafe { span.bytes() });
        self.block.iter().map(BodyBuffer::bytes).chain(behind)
    }

    /// Returns the [`BodyBuffer`] that contains the whole request body, or `None` if the body is in
    /// the arena or in a file.
    pub fn block(&self) -> Option<&BodyBuffer> {
        self.block.as_ref().filter(|_| self.segments.is_empty())
    }

    /// Moves the request body from the arena into the buffer `block`. Further bytes of the body are
    /// also stored in this buffer until its capacity is exhausted.
    pub fn use_block(&mut self, mut block: BodyBuffer) {
        if self.block.is_none() && self.segments().all(|segment| block.push(segment)) {
            self.segments.clear();
            self.block = Some(block);
        }
    }

    /// Replaces the request body by the contents of a file of `len` bytes. `guard` is kept until
    /// the file is closed.
    pub fn set_file(&mut self, file: File, len: u64, guard: Option<FileGuard>) {
        self.segments.clear();
        self.block = None;
        self.file = Some(file);
        self.file_guard = guard;
        self.len = len;
    }

    /// Removes and returns the temporary file of a request body that is no longer needed, and its
    /// guard. The caller can then close the file on a thread that may block.
    pub fn take_file(&mut self) -> Option<(File, Option<FileGuard>)> {
        Some((self.file.take()?, self.file_guard.take()))
    }

    /// Copies bytes of the request body, beginning at `offset`, into `out`. Returns the number of
    /// copied bytes, which is 0 at the end of the body.
    ///
    /// # Errors
    /// Returns the error of reading the file.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        if let Some(file) = &self.file {
            return rookery_system::file::read_at(file, out, offset);
        }
        let Ok(mut skip) = usize::try_from(offset) else { return Ok(0) };
        let mut done = 0;
        for segment in self.segments() {
            if skip >= segment.len() {
                skip -= segment.len();
                continue;
            }
            let take = (segment.len() - skip).min(out.len() - done);
            out[done..done + take].copy_from_slice(&segment[skip..skip + take]);
            done += take;
            skip = 0;
            if done == out.len() {
                break;
            }
        }
        Ok(done)
    }

    /// Returns the number of bytes of memory that the request body occupies outside the arena.
    pub(crate) fn capacity(&self) -> usize {
        self.segments.capacity() * size_of::<ArenaSlice>()
            + self.block.as_ref().map_or(0, BodyBuffer::capacity)
    }

    /// Appends bytes to the buffer of the request body. Returns false if there is no buffer or its
    /// capacity would be exceeded.
    pub(crate) fn push_to_block(&mut self, bytes: &[u8]) -> bool {
        let is_in = self.block.as_mut().is_some_and(|block| block.push(bytes));
        self.len += if is_in { bytes.len() as u64 } else { 0 };
        is_in
    }

    pub(crate) fn push(&mut self, segment: ArenaSlice) {
        if segment.len() == 0 {
            return;
        }
        self.len += segment.len() as u64;
        // Adjacent slices are merged, so that a body of one-byte chunks does not need a slice for
        // each byte.
        let is_merged = self.segments.last_mut().is_some_and(|last| last.extend(segment));
        if !is_merged {
            self.segments.push(segment);
        }
    }

    pub(crate) fn reset(&mut self) {
        self.segments.clear();
        self.segments.shrink_to(KEPT_SEGMENTS);
        self.block = None;
        self.file = None;
        self.file_guard = None;
        self.len = 0;
    }
}

/// The maximum capacity, in segments, that the table of body segments keeps from one request to the
/// next.
// The kept table occupies at most 1 KiB. A body of 1 MiB needs about ten segments.
const KEPT_SEGMENTS: usize = 64;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{BodyBufferPool, Exchange};

    #[test]
    fn reading_at_every_offset_and_length_gives_the_body() {
        // In the arena, and moved into a block before the first, second, third and fourth piece.
        for moved_before in [None, Some(0), Some(1), Some(2), Some(3)] {
            let mut exchange = Exchange::new();
            exchange.begin(1, 1, 0);
            for (at, piece) in [&b"abc"[..], b"", b"d", b"efghij"].into_iter().enumerate() {
                if moved_before == Some(at) {
                    let block = Arc::new(BodyBufferPool::default()).take(10).unwrap();
                    exchange.body_mut().use_block(block);
                }
                exchange.push_body(piece);
            }
            assert_eq!(exchange.body().block().is_some(), moved_before.is_some());
            reads_as(&exchange, b"abcdefghij");
        }
    }

    fn reads_as(exchange: &Exchange, whole: &[u8]) {
        assert_eq!(exchange.body().len(), 10);
        for offset in 0..12usize {
            for len in 0..12 {
                let mut out = vec![0; len];
                let n = exchange.body().read_at(offset as u64, &mut out).unwrap();
                let end = whole.len().min(offset + len);
                assert_eq!(&out[..n], whole.get(offset..end).unwrap_or_default());
            }
        }
    }
}
