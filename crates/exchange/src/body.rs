//! The body of a request: pieces of the exchange's arena, or a temporary file.

use std::fs::File;
use std::io;

use crate::span::Span;

/// The body of a request, whole before the application sees it.
#[derive(Debug, Default)]
pub struct RequestBody {
    segments: Vec<Span>,
    file: Option<File>,
    len: u64,
}

/// Where a body lies.
#[derive(Debug)]
pub enum BodySource<'a> {
    /// No byte arrived.
    Empty,
    /// In the exchange's arena.
    Memory,
    /// In a temporary file without a name.
    File(&'a File),
}

impl RequestBody {
    /// Bytes in the body.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether no byte arrived.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the body lies.
    pub fn source(&self) -> BodySource<'_> {
        match &self.file {
            Some(file) => BodySource::File(file),
            None if self.len == 0 => BodySource::Empty,
            None => BodySource::Memory,
        }
    }

    /// The body in memory, in pieces.
    pub fn segments(&self) -> impl Iterator<Item = &[u8]> {
        // SAFETY: spans of the exchange that holds this body, borrowed with it (a body is only reached through its
        // exchange, whose `reset` resets the body before the arena).
        self.segments.iter().map(|span| unsafe { span.bytes() })
    }

    /// Takes the body's file instead of its memory. `len` is the file's length.
    pub fn set_file(&mut self, file: File, len: u64) {
        self.segments.clear();
        self.file = Some(file);
        self.len = len;
    }

    /// Reads from `offset` on into `out`; 0 at the end.
    ///
    /// # Errors
    /// Those of reading the file.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        if let Some(file) = &self.file {
            return std::os::unix::fs::FileExt::read_at(file, out, offset);
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

    pub(crate) fn push(&mut self, segment: Span) {
        if segment.len() > 0 {
            self.segments.push(segment);
            self.len += segment.len() as u64;
        }
    }

    pub(crate) fn reset(&mut self) {
        self.segments.clear();
        self.segments.shrink_to(KEPT_SEGMENTS);
        self.file = None;
        self.len = 0;
    }
}

/// A body of 1 MiB comes in about 64 reads of 16 KiB; the table kept between requests is 1 KiB.
const KEPT_SEGMENTS: usize = 64;

#[cfg(test)]
mod tests {
    use crate::Exchange;

    #[test]
    fn reading_at_every_offset_and_length_gives_the_body() {
        let mut exchange = Exchange::new();
        exchange.begin(1, 1, 0);
        for piece in [&b"abc"[..], b"", b"d", b"efghij"] {
            exchange.push_body(piece);
        }
        let whole = b"abcdefghij";
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
