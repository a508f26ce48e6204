//! What waits to be written.
//!
//! Frames are encoded behind one another into one buffer, the *head*, and leave it in as few writes as the transport
//! allows. A payload that was handed over lies *behind* it, and so do the frames after that. Most connections never have
//! one, so what is behind is on the heap.

use std::collections::VecDeque;
use std::fmt;
use std::io::IoSlice;

use crate::endpoint::shell::Shell;

/// Pieces behind the head whose table an idle connection keeps. A peer that does not read makes it 64 MiB of small messages.
const KEPT_PIECES: usize = 16;

/// Bytes waiting to be written, in order. Released, it holds no buffer.
pub struct Queue<S: Shell> {
    /// The first frames; the first `written` bytes have left.
    head: Vec<u8>,
    written: usize,
    behind: Option<Box<Behind<S>>>,
}

struct Behind<S: Shell> {
    pieces: VecDeque<Piece<S>>,
    /// Bytes of the first piece that have left; none while there is a head.
    written: usize,
    /// Bytes of all pieces that have not.
    len: usize,
    /// Bytes of the last piece that are in `len`, if it is one of frames.
    counted: usize,
}

enum Piece<S: Shell> {
    /// Frames, behind one another.
    Frames(Vec<u8>),
    /// The payload of the header before.
    Payload(S::Payload),
}

impl<S: Shell> Piece<S> {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Frames(bytes) => bytes,
            Piece::Payload(payload) => S::bytes(payload),
        }
    }
}

impl<S: Shell> Default for Queue<S> {
    fn default() -> Queue<S> {
        Queue { head: Vec::new(), written: 0, behind: None }
    }
}

impl<S: Shell> Queue<S> {
    /// Whether the head is all there ever is: a shell that hands nothing over does not pay for those that do.
    const IS_JOINED: bool = S::CHUNK == usize::MAX && S::COPIED == usize::MAX;

    /// Bytes that wait.
    #[inline]
    pub fn len(&self) -> usize {
        let behind = if Self::IS_JOINED { None } else { self.behind.as_ref() };
        self.head.len() - self.written + behind.map_or(0, |behind| behind.len)
    }

    /// Whether nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.written == self.head.len() && !self.has_behind()
    }

    /// The first bytes that wait in one place.
    #[inline]
    pub fn first(&self) -> &[u8] {
        if self.written < self.head.len() || Self::IS_JOINED {
            return &self.head[self.written..];
        }
        let Some(behind) = &self.behind else { return &[] };
        behind.pieces.front().map_or(&[], |piece| &piece.bytes()[behind.written..])
    }

    /// Puts what waits into `slices`, for a vectored write; how many.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        if let (true, Some(slice)) = (self.written < self.head.len(), slices.first_mut()) {
            *slice = IoSlice::new(&self.head[self.written..]);
            count = 1;
        }
        let Some(behind) = &self.behind else { return count };
        let mut skipped = behind.written;
        for (slice, piece) in slices[count..].iter_mut().zip(&behind.pieces) {
            *slice = IoSlice::new(&piece.bytes()[std::mem::take(&mut skipped)..]);
            count += 1;
        }
        count
    }

    /// Notes that the first `n` bytes have left; whether they were all.
    ///
    /// # Panics
    /// When fewer wait.
    #[inline]
    pub(super) fn advance(&mut self, n: usize) -> bool {
        let left = self.head.len() - self.written;
        if n < left {
            self.written += n;
            return false;
        }
        self.head.clear();
        self.written = 0;
        if !Self::IS_JOINED && self.behind.is_some() {
            self.advance_behind(n - left);
            return self.is_empty();
        }
        assert!(n == left, "no more leaves than waits");
        true
    }

    /// What is behind moves up.
    #[cold]
    fn advance_behind(&mut self, mut n: usize) {
        let behind = self.behind.as_mut().expect("asked before");
        behind.len = behind.len.checked_sub(n).expect("no more leaves than waits");
        n += behind.written;
        behind.written = 0;
        while let Some(first) = behind.pieces.front() {
            let whole = first.bytes().len();
            if n >= whole {
                n -= whole;
                if let Some(Piece::Frames(frames)) = behind.pieces.pop_front() {
                    S::give_buffer(frames);
                }
            } else if let Piece::Frames(_) = first {
                let Some(Piece::Frames(frames)) = behind.pieces.pop_front() else {
                    unreachable!("just seen")
                };
                behind.len -= frames.len() - n;
                S::give_buffer(std::mem::replace(&mut self.head, frames));
                self.written = n;
                return;
            } else {
                behind.written = n;
                return;
            }
        }
    }

    /// Where the next frame is to be appended. Then call [`Queue::appended`].
    #[inline]
    pub(super) fn tail(&mut self) -> &mut Vec<u8> {
        if Self::IS_JOINED || (self.head.len() < S::CHUNK && !self.has_behind()) {
            self.room()
        } else {
            self.tail_behind()
        }
    }

    /// A frame was appended to the tail.
    #[inline]
    pub(super) fn appended(&mut self) {
        if !Self::IS_JOINED && self.behind.is_some() {
            self.count_tail();
        }
    }

    /// Appends bytes as they are.
    #[inline]
    pub(super) fn push_raw(&mut self, bytes: &[u8]) {
        self.tail().extend_from_slice(bytes);
        self.appended();
    }

    /// Appends a payload, whose header was appended before.
    pub(super) fn push_payload(&mut self, payload: S::Payload) {
        let behind = self.behind.get_or_insert_default();
        behind.len += S::bytes(&payload).len();
        behind.pieces.push_back(Piece::Payload(payload));
    }

    /// Bytes behind the message that is being sent. What was joined with it counts as a part of it.
    pub(super) fn behind(&self) -> usize {
        let Some(behind) = &self.behind else { return 0 };
        let front = self.front();
        let first =
            behind.pieces.iter().take(front).map(|piece| piece.bytes().len()).sum::<usize>();
        if front == 0 { behind.len } else { behind.len + behind.written - first }
    }

    /// Drops what is behind the message that is being sent: the peer sees whole messages, and fewer of them.
    pub(super) fn cut(&mut self) {
        let front = self.front();
        let Some(behind) = &mut self.behind else { return };
        for piece in behind.pieces.drain(front..) {
            behind.len -= piece.bytes().len();
            if let Piece::Frames(frames) = piece {
                S::give_buffer(frames);
            }
        }
    }

    /// Drops all that waits.
    pub(super) fn clear(&mut self) {
        self.head.clear();
        self.written = 0;
        self.behind = None;
        self.release();
    }

    /// Gives the buffer back when nothing is in it, and the table of what is behind when it has grown.
    #[inline]
    pub(super) fn release(&mut self) {
        if self.written == self.head.len() && self.head.capacity() > 0 {
            S::give_buffer(std::mem::take(&mut self.head));
            self.written = 0;
        }
        if !Self::IS_JOINED && self.behind.as_ref().is_some_and(|behind| behind.has_grown()) {
            self.behind = None;
        }
    }

    #[inline]
    fn has_behind(&self) -> bool {
        !Self::IS_JOINED && self.behind.as_ref().is_some_and(|behind| behind.len > 0)
    }

    /// How many pieces behind the head the message that is being sent has: its payload, if its header ends the head or has
    /// left already.
    fn front(&self) -> usize {
        let first = self.behind.as_ref().and_then(|behind| behind.pieces.front());
        usize::from(matches!(first, Some(Piece::Payload(_))))
    }

    /// The head, with room at its start taken back.
    #[inline]
    fn room(&mut self) -> &mut Vec<u8> {
        if self.head.capacity() == 0 {
            self.head = S::take_buffer();
        } else if self.written > self.head.len() / 2 {
            // What has left is cut off once it is more than what has not: each byte is moved at most once.
            self.head.drain(..self.written);
            self.written = 0;
        }
        &mut self.head
    }

    #[cold]
    fn tail_behind(&mut self) -> &mut Vec<u8> {
        let behind = self.behind.get_or_insert_default();
        let joins =
            matches!(behind.pieces.back(), Some(Piece::Frames(frames)) if frames.len() < S::CHUNK);
        if !joins {
            behind.pieces.push_back(Piece::Frames(S::take_buffer()));
            behind.counted = 0;
        }
        match behind.pieces.back_mut() {
            Some(Piece::Frames(frames)) => frames,
            _ => unreachable!("the last piece is one of frames: it was pushed if it was not"),
        }
    }

    #[cold]
    fn count_tail(&mut self) {
        let Some(behind) = &mut self.behind else { return };
        if let Some(Piece::Frames(frames)) = behind.pieces.back() {
            behind.len += frames.len() - behind.counted;
            behind.counted = frames.len();
        }
    }
}

impl<S: Shell> Behind<S> {
    /// Whether nothing is in it, and it has had more than a few pieces: few are kept, for the next.
    fn has_grown(&self) -> bool {
        self.pieces.is_empty() && self.pieces.capacity() > KEPT_PIECES
    }
}

impl<S: Shell> Default for Behind<S> {
    fn default() -> Behind<S> {
        Behind { pieces: VecDeque::new(), written: 0, len: 0, counted: 0 }
    }
}

impl<S: Shell> fmt::Debug for Queue<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::tests::Pieces;

    #[test]
    fn a_table_that_has_grown_is_given_back_and_a_small_one_is_kept() {
        let mut queue = Queue::<Pieces>::default();
        for (pieces, is_kept) in [(2, true), (2_000, false)] {
            for _ in 0..pieces {
                queue.push_raw(&[0; 64]);
            }
            assert!(queue.advance(64 * pieces));
            queue.release();
            assert_eq!(queue.behind.is_some(), is_kept, "{pieces}");
        }
    }
}
