//! The reader of request bodies that the server has spooled to a temporary file. Reading the file
//! can block, so it is read on a thread for blocking tasks.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use rookery_exchange::{BodySource, Exchange};
use tokio::task::JoinHandle;

/// The number of bytes of a spooled request body that are read from its file at a time. A small
/// value limits the memory for simultaneous uploads.
const CHUNK_SIZE: u64 = 256 << 10;

/// A request body in a temporary file, with the position of the next byte to read.
#[derive(Debug)]
pub(in crate::pool) struct SpooledBody {
    file: Arc<File>,
    position: u64,
    len: u64,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

impl SpooledBody {
    /// Returns a reader of the spooled body of a request, or `None` if the body is in memory. The
    /// reader duplicates the file descriptor, because the request may have to be sent again to
    /// another worker.
    ///
    /// # Errors
    /// Returns the system's error if no file descriptor is available.
    pub(in crate::pool) fn of(exchange: &Exchange) -> io::Result<Option<SpooledBody>> {
        let BodySource::File(file) = exchange.body().source() else { return Ok(None) };
        let file = Arc::new(file.try_clone()?);
        Ok(Some(SpooledBody { file, position: 0, len: exchange.body().len(), reading: None }))
    }

    /// Polls for the next chunk of the spooled body. The result is `None` at the end of the body.
    pub(super) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.position == self.len {
            return Poll::Ready(None);
        }
        let (position, left) = (self.position, self.len - self.position);
        let reading = self.reading.get_or_insert_with(|| {
            let file = Arc::clone(&self.file);
            tokio::task::spawn_blocking(move || {
                let mut chunk = vec![0; usize::try_from(left.min(CHUNK_SIZE)).unwrap_or(0)];
                file.read_exact_at(&mut chunk, position)?;
                Ok(Bytes::from(chunk))
            })
        });
        let read = ready!(Pin::new(reading).poll(cx));
        self.reading = None;
        let chunk = read.unwrap_or_else(|panic| Err(io::Error::other(panic)));
        if let Ok(chunk) = &chunk {
            self.position += chunk.len() as u64;
        }
        Poll::Ready(Some(chunk))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write as _;

    use super::*;

    async fn read(exchange: &Exchange) -> (Vec<u8>, usize) {
        let mut body = SpooledBody::of(exchange).unwrap().unwrap();
        let (mut all, mut chunks) = (Vec::new(), 0);
        while let Some(chunk) = poll_fn(|cx| body.poll_chunk(cx)).await {
            all.extend_from_slice(&chunk.unwrap());
            chunks += 1;
        }
        (all, chunks)
    }

    #[tokio::test]
    async fn reads_a_file_in_chunks_each_time_the_body_is_sent() {
        let bytes: Vec<u8> = (0..CHUNK_SIZE * 2 + 5).map(|at| at as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let mut exchange = Exchange::new();
        exchange.begin(1, 1, 0);
        assert!(SpooledBody::of(&exchange).unwrap().is_none());
        exchange.body_mut().set_file(file, bytes.len() as u64);
        for _ in 0..2 {
            let (all, chunks) = read(&exchange).await;
            assert!(all == bytes && chunks == 3);
        }
    }

    #[tokio::test]
    async fn returns_an_error_if_the_file_has_become_shorter() {
        let mut exchange = Exchange::new();
        exchange.begin(1, 1, 0);
        exchange.body_mut().set_file(tempfile::tempfile().unwrap(), 10);
        let mut body = SpooledBody::of(&exchange).unwrap().unwrap();
        assert!(poll_fn(|cx| body.poll_chunk(cx)).await.unwrap().is_err());
    }
}
