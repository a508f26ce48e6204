//! Writes the body of a streamed response in the chunked transfer coding (RFC 9112, 7.1), without
//! hyper.
//!
//! This saves memory for event streams, which may last for hours with few events. hyper would keep
//! a read buffer and a write buffer for all this time. An idle stream takes 14 KB with hyper and 5
//! KB without it.

use std::future::poll_fn;
use std::io::{IoSlice, Write as _};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};

use crate::http::connection::http_connection::HttpConnection;
use crate::http::response::stream::response_stream::{NextChunk, ResponseStream};

/// Writes the application's chunks to the client until the streamed response is complete. Returns
/// false if it stays incomplete and the connection must be closed.
///
/// # Cancel safety
/// Dropping the future is safe, because the connection's guard releases the request.
pub(crate) async fn write_stream(connection: &HttpConnection) -> bool {
    let Some(stream) = connection.response_stream() else { return false };
    let mut writing = None;
    let is_complete = poll_fn(|cx| {
        connection.set_waker(cx);
        if connection.close_state.get().is_immediate() {
            return Poll::Ready(false);
        }
        match poll(connection, &stream, &mut writing, cx) {
            Poll::Pending if connection.detect_stream_end(cx) => Poll::Ready(false),
            polled => polled,
        }
    })
    .await;
    if is_complete {
        connection.on_stream_written();
    }
    is_complete
}

fn poll(
    connection: &HttpConnection,
    stream: &ResponseStream,
    writing: &mut Option<Chunk>,
    cx: &mut Context<'_>,
) -> Poll<bool> {
    loop {
        if let Some(chunk) = writing {
            while chunk.has_unread_input() {
                match connection.poll_write(cx, &chunk.rest()) {
                    Poll::Ready(Ok(written @ 1..)) => chunk.advance(written),
                    // The write failed because the client disconnected.
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(false),
                    Poll::Pending => {
                        // Lets the application produce the next chunk while this one is blocked, if
                        // the queue has capacity.
                        stream.request_chunk();
                        return Poll::Pending;
                    }
                }
            }
            if chunk.is_last {
                return ready!(connection.poll_flush(cx))
                    .map_or(Poll::Ready(false), |()| Poll::Ready(true));
            }
            *writing = None;
        }
        match stream.next_chunk() {
            NextChunk::Chunk(first) => {
                let chunk = Chunk::of(first, || stream.take_queued());
                connection.count_response_bytes(chunk.data_len());
                *writing = Some(chunk);
            }
            NextChunk::CloseState => *writing = Some(Chunk::last()),
            NextChunk::Wait if stream.is_unflushed() => {
                if ready!(connection.poll_flush(cx)).is_err() {
                    return Poll::Ready(false);
                }
                connection.on_all_written();
            }
            NextChunk::Wait => return Poll::Pending,
        }
    }
}

/// The maximum length in bytes of a chunk's size line: hexadecimal digits and a line end.
const SIZE_LINE: usize = 2 * size_of::<usize>() + 2;

/// The maximum number of queued chunks that are written together, as one chunk of the transfer
/// coding. Written one by one, chunks of 64 KiB need a packet more each, because the size line and
/// the line end make them longer than the largest packet.
const MAX_PARTS: usize = 4;

/// A chunk of a streamed response that is being written over HTTP/1.1, together with the line that
/// states its size.
struct Chunk {
    size_line: [u8; SIZE_LINE],
    size_line_at: usize,
    size_line_end: usize,
    parts: [Bytes; MAX_PARTS],
    end: &'static [u8],
    is_last: bool,
}

impl Chunk {
    /// Creates a chunk of a streamed response from `first` and the bytes that `next` returns.
    /// `first` must not be empty, because an empty chunk ends the body.
    fn of(first: Bytes, mut next: impl FnMut() -> Option<Bytes>) -> Chunk {
        debug_assert!(!first.is_empty(), "an empty chunk is the last");
        let mut parts: [Bytes; MAX_PARTS] = std::array::from_fn(|_| Bytes::new());
        parts[0] = first;
        for part in &mut parts[1..] {
            let Some(bytes) = next() else { break };
            *part = bytes;
        }
        Chunk::new(parts, false)
    }

    fn last() -> Chunk {
        Chunk::new(std::array::from_fn(|_| Bytes::new()), true)
    }

    fn new(parts: [Bytes; MAX_PARTS], is_last: bool) -> Chunk {
        let mut chunk = Chunk {
            size_line: [0; SIZE_LINE],
            size_line_at: 0,
            size_line_end: 0,
            parts,
            end: b"\r\n",
            is_last,
        };
        let len = chunk.data_len();
        let mut rest = &mut chunk.size_line[..];
        write!(rest, "{len:x}\r\n").expect("room for any size");
        chunk.size_line_end = SIZE_LINE - rest.len();
        chunk
    }

    /// Returns the number of bytes of the response that are left in the chunk.
    fn data_len(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }

    fn has_unread_input(&self) -> bool {
        !self.end.is_empty()
    }

    fn rest(&self) -> [IoSlice<'_>; MAX_PARTS + 2] {
        let mut rest = [IoSlice::new(&[]); MAX_PARTS + 2];
        let line = std::iter::once(&self.size_line[self.size_line_at..self.size_line_end]);
        let pieces = line.chain(self.parts.iter().map(|part| &part[..])).chain([self.end]);
        for (slice, piece) in rest.iter_mut().zip(pieces.filter(|piece| !piece.is_empty())) {
            *slice = IoSlice::new(piece);
        }
        rest
    }

    /// Records that `written` further bytes of the chunk have been written.
    fn advance(&mut self, mut written: usize) {
        let of_line = written.min(self.size_line_end - self.size_line_at);
        self.size_line_at += of_line;
        written -= of_line;
        for part in &mut self.parts {
            let of_part = written.min(part.len());
            written -= of_part;
            part.advance(of_part);
            if part.is_empty() {
                // An empty `Bytes` would still hold its memory.
                *part = Bytes::new();
            }
        }
        self.end = &self.end[written..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(mut chunk: Chunk, step: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while chunk.has_unread_input() {
            let rest: Vec<u8> = chunk.rest().iter().flat_map(|slice| slice.to_vec()).collect();
            let n = step.min(rest.len());
            all.extend_from_slice(&rest[..n]);
            chunk.advance(n);
        }
        all
    }

    #[test]
    fn partial_writes_do_not_change_a_chunk() {
        for step in 1..40 {
            assert_eq!(
                written(Chunk::of(Bytes::from_static(b"data: 1\n\n"), || None), step),
                b"9\r\ndata: 1\n\n\r\n"
            );
            assert_eq!(
                written(Chunk::of(Bytes::from(vec![b'x'; 16]), || None), step),
                b"10\r\nxxxxxxxxxxxxxxxx\r\n"
            );
            assert_eq!(written(Chunk::last(), step), b"0\r\n\r\n");
        }
    }

    #[test]
    fn queued_chunks_are_written_together_up_to_a_maximum() {
        for step in 1..30 {
            let mut queue = (0..6u8).map(|n| Bytes::from(vec![b'a' + n; 3]));
            let first = queue.next().unwrap();
            let chunk = Chunk::of(first, || queue.next());
            assert_eq!(chunk.data_len(), 12);
            assert_eq!(written(chunk, step), b"c\r\naaabbbcccddd\r\n");
            let chunk = Chunk::of(queue.next().unwrap(), || queue.next());
            assert_eq!(written(chunk, step), b"6\r\neeefff\r\n");
        }
    }

    #[test]
    fn a_written_part_gives_up_its_memory_before_the_chunk_is_complete() {
        let owner: std::sync::Arc<[u8]> = vec![b'x'; 8].into();
        let mut next = Some(Bytes::from_static(b"rest"));
        let first = Bytes::from_owner(std::sync::Arc::clone(&owner));
        let mut chunk = Chunk::of(first, || next.take());
        chunk.advance("c\r\n".len() + 7);
        assert_eq!(std::sync::Arc::strong_count(&owner), 2);
        chunk.advance(1);
        assert_eq!(std::sync::Arc::strong_count(&owner), 1);
        assert!(chunk.has_unread_input());
    }

    #[test]
    fn size_line_fits_any_size() {
        assert_eq!(format!("{:x}\r\n", usize::MAX).len(), SIZE_LINE);
    }
}
