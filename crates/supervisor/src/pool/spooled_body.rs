//! The body of a request in a file, on its way to a worker: read where that may wait.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use rookery_exchange::{BodySource, Exchange};
use tokio::task::JoinHandle;

/// Bytes that are read of a file at a time: what a Unix socket takes in a few writes, and little for each of many uploads.
const PIECE: u64 = 256 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct SpooledBody {
    file: Arc<File>,
    at: u64,
    len: u64,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

impl SpooledBody {
    /// That of an exchange, which keeps its own: it may have to be sent again. `None` when its body is in memory.
    ///
    /// # Errors
    /// When the descriptors have run out.
    pub(super) fn of(exchange: &Exchange) -> io::Result<Option<SpooledBody>> {
        let BodySource::File(file) = exchange.body().source() else { return Ok(None) };
        let file = Arc::new(file.try_clone()?);
        Ok(Some(SpooledBody { file, at: 0, len: exchange.body().len(), reading: None }))
    }

    /// The next piece of it; `None` at the end.
    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
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

    async fn read(exchange: &Exchange) -> (Vec<u8>, usize) {
        let mut body = SpooledBody::of(exchange).unwrap().unwrap();
        let (mut all, mut pieces) = (Vec::new(), 0);
        while let Some(piece) = poll_fn(|cx| body.poll_piece(cx)).await {
            all.extend_from_slice(&piece.unwrap());
            pieces += 1;
        }
        (all, pieces)
    }

    #[tokio::test]
    async fn a_file_is_read_in_pieces_and_as_often_as_it_is_sent() {
        let bytes: Vec<u8> = (0..PIECE * 2 + 5).map(|at| at as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let mut exchange = Exchange::new();
        exchange.begin(1, 1, 0);
        assert!(SpooledBody::of(&exchange).unwrap().is_none());
        exchange.body_mut().set_file(file, bytes.len() as u64);
        for _ in 0..2 {
            let (all, pieces) = read(&exchange).await;
            assert!(all == bytes && pieces == 3);
        }
    }

    #[tokio::test]
    async fn a_file_that_became_shorter_is_an_error() {
        let mut exchange = Exchange::new();
        exchange.begin(1, 1, 0);
        exchange.body_mut().set_file(tempfile::tempfile().unwrap(), 10);
        let mut body = SpooledBody::of(&exchange).unwrap().unwrap();
        assert!(poll_fn(|cx| body.poll_piece(cx)).await.unwrap().is_err());
    }
}
