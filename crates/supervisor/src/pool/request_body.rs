//! The body of a request on its way to a worker: a copy of what is in memory, or its file, read where that may wait.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use rookery_exchange::{BodySource, Exchange};
use tokio::task::JoinHandle;

/// Bytes that are read of a file at a time: what a Unix socket takes in a few writes, and little for each of many uploads.
const PIECE: u64 = 256 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct RequestBody {
    whole: Bytes,
    file: Option<Spooled>,
}

#[derive(Debug)]
struct Spooled {
    file: Arc<File>,
    at: u64,
    len: u64,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

impl RequestBody {
    /// That of an exchange, which keeps its own: it may have to be sent again.
    ///
    /// # Errors
    /// When the descriptors have run out.
    pub(super) fn of(exchange: &Exchange) -> io::Result<RequestBody> {
        let body = exchange.body();
        let mut whole = BytesMut::new();
        let file = match body.source() {
            BodySource::Empty => None,
            BodySource::Memory => {
                whole.reserve(usize::try_from(body.len()).unwrap_or(0));
                body.segments().for_each(|segment| whole.extend_from_slice(segment));
                None
            }
            BodySource::File(file) => {
                let file = Arc::new(file.try_clone()?);
                Some(Spooled { file, at: 0, len: body.len(), reading: None })
            }
        };
        Ok(RequestBody { whole: whole.freeze(), file })
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(spooled) = &mut self.file {
            return spooled.poll_piece(cx).map(|piece| piece.map(|bytes| bytes.map(Frame::data)));
        }
        if self.whole.is_empty() {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.whole)))))
    }

    fn is_end_stream(&self) -> bool {
        self.size_hint().exact() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.file.as_ref().map_or(self.whole.len() as u64, |spooled| spooled.len - spooled.at);
        SizeHint::with_exact(left)
    }
}

impl Spooled {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.at == self.len {
            return Poll::Ready(None);
        }
        let (at, left) = (self.at, self.len - self.at);
        let reading = self.reading.get_or_insert_with(|| {
            let file = Arc::clone(&self.file);
            tokio::task::spawn_blocking(move || {
                let mut piece = vec![0; usize::try_from(left.min(PIECE)).unwrap_or(0)];
                file.read_exact_at(&mut piece, at)?;
                Ok(Bytes::from(piece))
            })
        });
        let read = ready!(Pin::new(reading).poll(cx));
        self.reading = None;
        let piece = read.unwrap_or_else(|panic| Err(io::Error::other(panic)));
        if let Ok(piece) = &piece {
            self.at += piece.len() as u64;
        }
        Poll::Ready(Some(piece))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write as _;

    use super::*;

    async fn read(mut body: RequestBody) -> (Vec<u8>, usize) {
        let (mut all, mut frames) = (Vec::new(), 0);
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let data = frame.unwrap().into_data().unwrap();
            all.extend_from_slice(&data);
            frames += 1;
        }
        assert!(body.is_end_stream());
        (all, frames)
    }

    #[tokio::test]
    async fn a_body_is_read_as_often_as_it_is_sent() {
        let mut exchange = Exchange::new();
        exchange.begin(1, 1, 0);
        assert!(RequestBody::of(&exchange).unwrap().is_end_stream());
        for piece in [&b"ab"[..], b"", b"c"] {
            exchange.push_body(piece);
        }
        for _ in 0..2 {
            let body = RequestBody::of(&exchange).unwrap();
            assert_eq!(body.size_hint().exact(), Some(3));
            assert_eq!(read(body).await, (b"abc".to_vec(), 1));
        }
    }

    #[tokio::test]
    async fn a_file_is_read_in_pieces() {
        let bytes: Vec<u8> = (0..PIECE * 2 + 5).map(|at| at as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let mut exchange = Exchange::new();
        exchange.begin(1, 1, 0);
        exchange.body_mut().set_file(file, bytes.len() as u64);
        for _ in 0..2 {
            let (all, frames) = read(RequestBody::of(&exchange).unwrap()).await;
            assert!(all == bytes && frames == 3);
        }
    }

    #[tokio::test]
    async fn a_file_that_became_shorter_is_an_error() {
        let mut exchange = Exchange::new();
        exchange.begin(1, 1, 0);
        exchange.body_mut().set_file(tempfile::tempfile().unwrap(), 10);
        let mut body = RequestBody::of(&exchange).unwrap();
        assert!(poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.unwrap().is_err());
    }
}
