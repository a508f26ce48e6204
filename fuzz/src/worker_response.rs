//! The fuzz target of a worker's response, which is compared with that of hyper's client.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use hyper::body::{Body as _, Bytes};
use hyper::client::conn::http1;
use hyper::rt::{Read, ReadBufCursor, Write};
use rookery_supervisor::{ParsedResponse, parse_response_for_fuzzer};

/// Reads a response. The first byte is odd if the request is HEAD, the next two say where the
/// response is cut, and the response follows.
pub fn response(data: &[u8]) {
    let [first, high, low, response @ ..] = data else { return };
    let at = usize::from(u16::from_be_bytes([*high, *low])).min(response.len());
    check(response, at, first % 2 == 1);
}

/// Checks that the result does not depend on the cut, and that hyper reads the same if we accept
/// the response.
pub fn check(response: &[u8], at: usize, is_head: bool) {
    let whole = parse_response_for_fuzzer(&[response], is_head);
    assert_eq!(
        parse_response_for_fuzzer(&[&response[..at], &response[at..]], is_head),
        whole,
        "cut at {at}"
    );
    let Ok(Some((status, mut lines, body, behind))) = whole else { return };
    let (hyper_status, mut hyper_lines, hyper_body, _) =
        by_hyper(&response[..response.len() - behind], is_head).unwrap_or_else(|| {
            panic!("we accept the response and hyper refuses it: {}", response.escape_ascii())
        });
    assert_eq!((status, &body), (hyper_status, &hyper_body));
    // A `HeaderMap` has lines of the same name together, and lower-case names.
    lines.iter_mut().for_each(|line| line.0.make_ascii_lowercase());
    lines.sort_by(|a, b| a.0.cmp(&b.0));
    hyper_lines.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(lines, hyper_lines);
}

/// A connection on which the response arrives after a request, and then an EOF.
struct Script<'a> {
    response: &'a [u8],
    has_request: bool,
}

impl Read for Script<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.has_request {
            return Poll::Pending;
        }
        let (now, later) = self.response.split_at(self.response.len().min(buffer.remaining()));
        buffer.put_slice(now);
        self.response = later;
        Poll::Ready(Ok(()))
    }
}

impl Write for Script<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.has_request = true;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// An empty body.
struct EmptyBody;

impl hyper::body::Body for EmptyBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }
}

fn by_hyper(response: &[u8], is_head: bool) -> Option<ParsedResponse> {
    let mut cx = Context::from_waker(Waker::noop());
    let mut builder = http1::Builder::new();
    builder.max_headers(1000).max_buf_size(512 << 10);
    let Poll::Ready(Ok((mut sender, connection))) =
        pin!(builder.handshake(Script { response, has_request: false })).poll(&mut cx)
    else {
        return None;
    };
    let method = if is_head { hyper::Method::HEAD } else { hyper::Method::GET };
    let request = hyper::Request::builder().method(method).uri("/").body(EmptyBody).ok()?;
    let (mut connection, mut sending) = (pin!(connection), Box::pin(sender.send_request(request)));
    let mut received = None;
    let mut body = Vec::new();
    // Both futures make progress without any other task.
    for _ in 0..100_000 {
        let _ = connection.as_mut().poll(&mut cx);
        match &mut received {
            None => match sending.as_mut().poll(&mut cx) {
                Poll::Ready(Ok(response)) => received = Some(response),
                Poll::Ready(Err(_)) => return None,
                Poll::Pending => {}
            },
            Some(response) => match Pin::new(response.body_mut()).poll_frame(&mut cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    body.extend_from_slice(&frame.into_data().unwrap_or_default());
                }
                Poll::Ready(Some(Err(_))) => return None,
                Poll::Ready(None) => {
                    let lines = response.headers().iter();
                    let lines =
                        lines.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
                    return Some((response.status().as_u16(), lines.collect(), body, 0));
                }
                Poll::Pending => {}
            },
        }
    }
    panic!("hyper waits for something else");
}
