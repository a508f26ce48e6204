//! The target of what a worker replies, with hyper's client as its oracle.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use hyper::body::{Body as _, Bytes};
use hyper::client::conn::http1;
use hyper::rt::{Read, ReadBufCursor, Write};
use rookery_supervisor::{ParsedResponse, parse_response_for_fuzzer};

/// Whether a head alone is asked for (the first byte is odd), where the reply is cut (the next two), and the reply.
pub fn response(data: &[u8]) {
    let [first, high, low, reply @ ..] = data else { return };
    let at = usize::from(u16::from_be_bytes([*high, *low])).min(reply.len());
    check(reply, at, first % 2 == 1);
}

/// It is the same however it is cut; and what we take for a reply hyper takes for the same.
pub fn check(reply: &[u8], at: usize, asks_for_head: bool) {
    let whole = parse_response_for_fuzzer(&[reply], asks_for_head);
    assert_eq!(
        parse_response_for_fuzzer(&[&reply[..at], &reply[at..]], asks_for_head),
        whole,
        "cut at {at}"
    );
    let Ok(Some((status, mut lines, body, behind))) = whole else { return };
    let (as_hyper, mut as_hyper_lines, as_hyper_body, _) =
        by_hyper(&reply[..reply.len() - behind], asks_for_head)
            .unwrap_or_else(|| panic!("a reply to us and not to hyper: {}", reply.escape_ascii()));
    assert_eq!((status, &body), (as_hyper, &as_hyper_body));
    // A map has lines of one name together, in small letters.
    lines.iter_mut().for_each(|line| line.0.make_ascii_lowercase());
    lines.sort_by(|a, b| a.0.cmp(&b.0));
    as_hyper_lines.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(lines, as_hyper_lines);
}

/// A connection on which the reply comes when there has been a request, and then an end.
struct Script<'a> {
    reply: &'a [u8],
    is_asked: bool,
}

impl Read for Script<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.is_asked {
            return Poll::Pending;
        }
        let (now, later) = self.reply.split_at(self.reply.len().min(buffer.remaining()));
        buffer.put_slice(now);
        self.reply = later;
        Poll::Ready(Ok(()))
    }
}

impl Write for Script<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.is_asked = true;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// No body.
struct Nothing;

impl hyper::body::Body for Nothing {
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

fn by_hyper(reply: &[u8], asks_for_head: bool) -> Option<ParsedResponse> {
    let mut cx = Context::from_waker(Waker::noop());
    let mut builder = http1::Builder::new();
    builder.max_headers(1000).max_buf_size(512 << 10);
    let Poll::Ready(Ok((mut sender, connection))) =
        pin!(builder.handshake(Script { reply, is_asked: false })).poll(&mut cx)
    else {
        return None;
    };
    let method = if asks_for_head { hyper::Method::HEAD } else { hyper::Method::GET };
    let request = hyper::Request::builder().method(method).uri("/").body(Nothing).ok()?;
    let (mut connection, mut sending) = (pin!(connection), Box::pin(sender.send_request(request)));
    let mut response = None;
    let mut body = Vec::new();
    // Nothing waits for anything but these two.
    for _ in 0..100_000 {
        let _ = connection.as_mut().poll(&mut cx);
        match &mut response {
            None => match sending.as_mut().poll(&mut cx) {
                Poll::Ready(Ok(came)) => response = Some(came),
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
