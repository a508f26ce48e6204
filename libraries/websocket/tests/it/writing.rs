//! How messages reach the transport, and how they are read without waiting.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rookery_websocket::protocol::deflate::DeflateConfig;
use rookery_websocket::{Config, Kind, Parts, SendStatus};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::cancellation::pair;
use crate::support::{FAST, pipe};

/// A transport that accepts everything and records the addresses of the data.
#[derive(Debug, Default)]
struct Addresses {
    /// The start and the length of the data of each call.
    writes: Vec<Vec<(usize, usize)>>,
}

impl AsyncRead for Addresses {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Addresses {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.writes
            .push(slices.iter().map(|slice| (slice.as_ptr() as usize, slice.len())).collect());
        Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_servers_plain_message_of_2_kib_is_written_without_a_copy() {
    for (len, is_copied) in [(2047, true), (2048, false), (1 << 20, false)] {
        let mut server = Parts::server(Addresses::default()).connection(Config::default());
        let payload = vec![7; len];
        assert_eq!(server.send(&payload[..]).await.unwrap(), SendStatus::Sent);
        let writes = &server.transport().writes;
        assert_eq!(writes.len(), 1, "one write for the header and the payload");
        let lies_there = writes[0].contains(&(payload.as_ptr() as usize, len));
        assert_eq!(lies_there, !is_copied, "{len} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn an_arrived_message_is_read_even_after_the_timeout() {
    let (mut client, mut server) = pair(FAST, None).await;
    for _ in 0..2 {
        let _ = client.send("hello").await.unwrap();
        assert!(server.read_timeout(Duration::ZERO).await.unwrap().is_some());
        let _ = client.send("hello").await.unwrap();
        let past = tokio::time::Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(server.read_before(past).await.unwrap().is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_compression_would_lengthen_is_sent_uncompressed() {
    let deflate = DeflateConfig::default().threshold(0);
    let (mut client, mut server) = pair(FAST, Some(deflate)).await;
    let before = client.statistics().bytes_sent;
    let noise = *b"\x91\x07\xF3\x3C";
    let _ = client.send(&noise).await.unwrap();
    assert_eq!(&server.read().await.unwrap().unwrap()[..], noise);
    assert_eq!(client.statistics().bytes_sent - before, 2 + 4 + 4, "header, key and payload");
}

#[tokio::test(start_paused = true)]
async fn an_empty_queue_takes_a_message_of_any_size() {
    let (_here, there) = pipe(FAST);
    let mut server = Parts::server(there).connection(Config::default().queue_max(10).high_water(5));
    assert_eq!(server.queue(&[7; 1000]).unwrap(), SendStatus::Backpressure);
    assert_eq!(server.queue("").unwrap(), SendStatus::Dropped);
    server.flush().await.unwrap();
    assert_eq!(server.queue("").unwrap(), SendStatus::Sent);
}

#[tokio::test(start_paused = true)]
async fn close_now_sends_no_close_frame() {
    let (client, mut server) = pair(FAST, None).await;
    client.close_now().await;
    assert!(matches!(server.read().await, Err(rookery_websocket::Error::Eof)));
    assert_eq!(server.ending().number(), 1006);
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_is_dropped_before_its_first_chunk_leaves_nothing() {
    let (mut client, mut server) = pair(FAST, None).await;
    drop(client.write(Kind::Text).unwrap());
    let _ = client.send("next").await.unwrap();
    assert_eq!(server.read().await.unwrap().unwrap().as_text(), Some("next"));
}
