//! The send queue of a WebSocket connection: the encoded bytes to be written.
//!
//! Frames are encoded one after the other into one buffer, the *head*. A large payload is not
//! copied into the head. Instead, this payload and all frames after it are queued in the
//! *overflow*, which is a separate allocation because most connections never need it.

use std::collections::VecDeque;
use std::fmt;
use std::io::IoSlice;

use crate::endpoint::adapter::Adapter;

/// The largest capacity of a table of queued segments (buffers and payloads) that is kept when the
/// table becomes empty. A larger table, which has grown while the peer did not read, is freed.
const KEPT_SEGMENTS: usize = 16;

/// The send queue of a WebSocket connection: the bytes to be written, in order. After
/// [`Endpoint::release`](crate::endpoint::Endpoint::release), an empty queue holds no buffer.
pub struct Queue<S: Adapter> {
    /// The head: the buffer with the queue's first frames. The first `written` bytes have been
    /// written.
    head: Vec<u8>,
    written: usize,
    overflow: Option<Box<Overflow<S>>>,
}

struct Overflow<S: Adapter> {
    segments: VecDeque<Segment<S>>,
    /// The number of bytes of the first segment that have been written. It is 0 until the head (the
    /// buffer before all segments) has been written.
    written: usize,
    /// The total number of bytes of all segments that have not been written.
    len: usize,
    /// If the last segment contains frames: the number of its bytes that `len` includes. Frames
    /// that are appended to the segment are not yet included.
    counted: usize,
}

enum Segment<S: Adapter> {
    /// Encoded frames, one after the other. The last bytes may be the header of the payload in the
    /// next segment.
    Frames(Vec<u8>),
    /// A payload, or a whole encoded frame, that was queued without a copy. The header of a payload
    /// is at the end of the bytes before it.
    Payload(S::Payload),
}

impl<S: Adapter> Segment<S> {
    fn bytes(&self) -> &[u8] {
        match self {
            Segment::Frames(bytes) => bytes,
            Segment::Payload(payload) => S::bytes(payload),
        }
    }
}

impl<S: Adapter> Default for Queue<S> {
    fn default() -> Queue<S> {
        Queue { head: Vec::new(), written: 0, overflow: None }
    }
}

impl<S: Adapter> Queue<S> {
    /// True for an adapter that keeps all queued output in one buffer (the head). The code for the
    /// overflow (the part of the queue after the head) is then omitted.
    const IS_JOINED: bool = S::BUFFER_SIZE == usize::MAX && S::COPY_MAX == usize::MAX;

    /// Returns the number of bytes in the send queue.
    #[inline]
    pub fn len(&self) -> usize {
        let overflow = if Self::IS_JOINED { None } else { self.overflow.as_ref() };
        self.head.len() - self.written + overflow.map_or(0, |overflow| overflow.len)
    }

    /// Returns true if no bytes are queued for sending.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.written == self.head.len() && !self.has_overflow()
    }

    /// Returns the bytes at the front of the send queue, up to the end of the first buffer.
    #[inline]
    pub fn first(&self) -> &[u8] {
        if self.written < self.head.len() || Self::IS_JOINED {
            return &self.head[self.written..];
        }
        let Some(overflow) = &self.overflow else { return &[] };
        overflow.segments.front().map_or(&[], |segment| &segment.bytes()[overflow.written..])
    }

    /// Fills `slices` with the first bytes of the send queue for a vectored write. Returns the
    /// number of filled slices.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        if let (true, Some(slice)) = (self.written < self.head.len(), slices.first_mut()) {
            *slice = IoSlice::new(&self.head[self.written..]);
            count = 1;
        }
        let Some(overflow) = &self.overflow else { return count };
        let mut skipped = overflow.written;
        for (slice, segment) in slices[count..].iter_mut().zip(&overflow.segments) {
            *slice = IoSlice::new(&segment.bytes()[std::mem::take(&mut skipped)..]);
            count += 1;
        }
        count
    }

    /// Removes the first `n` bytes from the send queue. Returns true if the queue is empty
    /// afterwards.
    ///
    /// # Panics
    /// If fewer than `n` bytes are queued.
    #[inline]
    pub(super) fn advance(&mut self, n: usize) -> bool {
        let left = self.head.len() - self.written;
        if n < left {
            self.written += n;
            return false;
        }
        self.head.clear();
        self.written = 0;
        if !Self::IS_JOINED && self.overflow.is_some() {
            self.advance_overflow(n - left);
            return self.is_empty();
        }
        assert!(n == left, "at most the queued bytes are written");
        true
    }

    /// Removes `n` written bytes from the overflow (the part of the send queue after its first
    /// buffer). If the overflow then begins with frames, makes them the first buffer.
    #[cold]
    fn advance_overflow(&mut self, mut n: usize) {
        let overflow = self.overflow.as_mut().expect("the caller has checked it");
        overflow.len = overflow.len.checked_sub(n).expect("at most the queued bytes are written");
        n += overflow.written;
        overflow.written = 0;
        while let Some(first) = overflow.segments.front() {
            let whole = first.bytes().len();
            if n >= whole {
                n -= whole;
                if let Some(Segment::Frames(frames)) = overflow.segments.pop_front() {
                    S::return_buffer(frames);
                }
            } else if let Segment::Frames(_) = first {
                let Some(Segment::Frames(frames)) = overflow.segments.pop_front() else {
                    unreachable!("matched above")
                };
                overflow.len -= frames.len() - n;
                S::return_buffer(std::mem::replace(&mut self.head, frames));
                self.written = n;
                return;
            } else {
                overflow.written = n;
                return;
            }
        }
    }

    /// Returns the buffer to which the next frame has to be appended. Call [`Queue::appended`]
    /// after appending it.
    #[inline]
    pub(super) fn tail(&mut self) -> &mut Vec<u8> {
        if Self::IS_JOINED || (self.head.len() < S::BUFFER_SIZE && !self.has_overflow()) {
            self.head_for_append()
        } else {
            self.overflow_tail()
        }
    }

    /// Updates the length of the send queue after a frame was appended to its last buffer.
    #[inline]
    pub(super) fn appended(&mut self) {
        if !Self::IS_JOINED && self.overflow.is_some() {
            self.count_tail();
        }
    }

    /// Appends bytes unchanged to the send queue.
    #[inline]
    pub(super) fn push_raw(&mut self, bytes: &[u8]) {
        self.tail().extend_from_slice(bytes);
        self.appended();
    }

    /// Appends a payload, or a whole encoded frame, to the send queue without a copy. The header of
    /// a payload must have been appended before.
    pub(super) fn push_payload(&mut self, payload: S::Payload) {
        let overflow = self.overflow.get_or_insert_default();
        overflow.len += S::bytes(&payload).len();
        overflow.segments.push_back(Segment::Payload(payload));
    }

    /// Returns the number of queued bytes after the message that is being written. Other frames in
    /// the same buffer count as a part of that message.
    pub(super) fn bytes_after_current(&self) -> usize {
        let Some(overflow) = &self.overflow else { return 0 };
        let front = self.current_segments();
        let first = overflow
            .segments
            .iter()
            .take(front)
            .map(|segment| segment.bytes().len())
            .sum::<usize>();
        if front == 0 { overflow.len } else { overflow.len + overflow.written - first }
    }

    /// Drops the queued bytes after the message that is being written. That message is kept, so
    /// that the peer receives only whole messages.
    pub(super) fn drop_after_current(&mut self) {
        let front = self.current_segments();
        let Some(overflow) = &mut self.overflow else { return };
        for segment in overflow.segments.drain(front..) {
            overflow.len -= segment.bytes().len();
            if let Segment::Frames(frames) = segment {
                S::return_buffer(frames);
            }
        }
    }

    /// Drops all bytes in the send queue.
    pub(super) fn clear(&mut self) {
        self.head.clear();
        self.written = 0;
        self.overflow = None;
        self.release();
    }

    /// Returns the send queue's first buffer to the adapter if it is empty. Frees the table of
    /// further segments if it is empty and has grown.
    #[inline]
    pub(super) fn release(&mut self) {
        if self.written == self.head.len() && self.head.capacity() > 0 {
            S::return_buffer(std::mem::take(&mut self.head));
            self.written = 0;
        }
        if !Self::IS_JOINED && self.overflow.as_ref().is_some_and(|overflow| overflow.has_grown()) {
            self.overflow = None;
        }
    }

    #[inline]
    fn has_overflow(&self) -> bool {
        !Self::IS_JOINED && self.overflow.as_ref().is_some_and(|overflow| overflow.len > 0)
    }

    /// Returns 1 if the overflow (the part of the send queue after its first buffer) begins with a
    /// payload, otherwise 0. Such a payload counts as a part of the message that is being written,
    /// because its header comes before the overflow and may have been written already.
    fn current_segments(&self) -> usize {
        let first = self.overflow.as_ref().and_then(|overflow| overflow.segments.front());
        usize::from(matches!(first, Some(Segment::Payload(_))))
    }

    /// Returns the send queue's first buffer for appending a frame. If more than half of its bytes
    /// have been written, removes them from the buffer first.
    #[inline]
    fn head_for_append(&mut self) -> &mut Vec<u8> {
        if self.head.capacity() == 0 {
            self.head = S::take_buffer();
        } else if self.written > self.head.len() / 2 {
            // Written bytes are removed once they are more than half, so each byte is moved at most
            // once.
            self.head.drain(..self.written);
            self.written = 0;
        }
        &mut self.head
    }

    #[cold]
    fn overflow_tail(&mut self) -> &mut Vec<u8> {
        let overflow = self.overflow.get_or_insert_default();
        let has_space = match overflow.segments.back() {
            Some(Segment::Frames(frames)) => frames.len() < S::BUFFER_SIZE,
            _ => false,
        };
        if !has_space {
            overflow.segments.push_back(Segment::Frames(S::take_buffer()));
            overflow.counted = 0;
        }
        match overflow.segments.back_mut() {
            Some(Segment::Frames(frames)) => frames,
            _ => unreachable!("a segment of frames was pushed above"),
        }
    }

    #[cold]
    fn count_tail(&mut self) {
        let Some(overflow) = &mut self.overflow else { return };
        if let Some(Segment::Frames(frames)) = overflow.segments.back() {
            overflow.len += frames.len() - overflow.counted;
            overflow.counted = frames.len();
        }
    }
}

impl<S: Adapter> Overflow<S> {
    /// Returns true if the table of overflow segments is empty and too large to keep. A small table
    /// is kept for the next overflow.
    fn has_grown(&self) -> bool {
        self.segments.is_empty() && self.segments.capacity() > KEPT_SEGMENTS
    }
}

impl<S: Adapter> Default for Overflow<S> {
    fn default() -> Overflow<S> {
        Overflow { segments: VecDeque::new(), written: 0, len: 0, counted: 0 }
    }
}

impl<S: Adapter> fmt::Debug for Queue<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::tests::Chunked;

    #[test]
    fn a_large_table_is_freed_and_a_small_one_is_kept() {
        let mut queue = Queue::<Chunked>::default();
        for (segments, is_kept) in [(2, true), (2_000, false)] {
            for _ in 0..segments {
                queue.push_raw(&[0; 64]);
            }
            assert!(queue.advance(64 * segments));
            queue.release();
            assert_eq!(queue.overflow.is_some(), is_kept, "{segments}");
        }
    }
}
