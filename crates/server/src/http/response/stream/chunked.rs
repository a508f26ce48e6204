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
            NextChunk::Chunk(bytes) => {
                connection.count_response_bytes(bytes.len());
                *writing = Some(Chunk::of(bytes));
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

/// A chunk of a streamed response that is being written over HTTP/1.1, together with the line that
/// states its size.
struct Chunk {
    size_line: [u8; SIZE_LINE],
    size_line_at: usize,
    size_line_end: usize,
    data: Bytes,
    end: &'static [u8],
    is_last: bool,
}

impl Chunk {
    /// Creates a chunk of a streamed response from `data`, which must not be empty because an empty
    /// chunk ends the body.
    fn of(data: Bytes) -> Chunk {
        debug_assert!(!data.is_empty(), "an empty chunk is the last");
        Chunk::new(data, false)
    }

    fn last() -> Chunk {
        Chunk::new(Bytes::new(), true)
    }

    fn new(data: Bytes, is_last: bool) -> Chunk {
        let mut size_line = [0; SIZE_LINE];
        let mut rest = &mut size_line[..];
        write!(rest, "{:x}\r\n", data.len()).expect("room for any size");
        let size_line_end = SIZE_LINE - rest.len();
        Chunk { size_line, size_line_at: 0, size_line_end, data, end: b"\r\n", is_last }
    }

    fn has_unread_input(&self) -> bool {
        !self.end.is_empty()
    }

    fn rest(&self) -> [IoSlice<'_>; 3] {
        [&self.size_line[self.size_line_at..self.size_line_end], &self.data, self.end]
            .map(IoSlice::new)
    }

    /// Records that `written` further bytes of the chunk have been written.
    fn advance(&mut self, written: usize) {
        let of_line = written.min(self.size_line_end - self.size_line_at);
        self.size_line_at += of_line;
        let of_data = (written - of_line).min(self.data.len());
        self.data.advance(of_data);
        self.end = &self.end[written - of_line - of_data..];
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
                written(Chunk::of(Bytes::from_static(b"data: 1\n\n")), step),
                b"9\r\ndata: 1\n\n\r\n"
            );
            assert_eq!(
                written(Chunk::of(Bytes::from(vec![b'x'; 16])), step),
                b"10\r\nxxxxxxxxxxxxxxxx\r\n"
            );
            assert_eq!(written(Chunk::last(), step), b"0\r\n\r\n");
        }
    }

    #[test]
    fn size_line_fits_any_size() {
        assert_eq!(format!("{:x}\r\n", usize::MAX).len(), SIZE_LINE);
    }
}
