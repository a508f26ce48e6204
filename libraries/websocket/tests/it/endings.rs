//! Ends that never arrive, and when and how they are reported.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rookery_websocket::protocol::{
    CloseCode, MaskKey, OpCode, Violation, encode_close, encode_frame,
};
use rookery_websocket::{Config, Connection, Error, KeepAlive, Parts};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::Instant;

use crate::support::{End, FAST, pipe};

const KEY: Option<MaskKey> = Some(MaskKey([1, 2, 3, 4]));

/// A transport whose shutdown never completes, like that of a TLS stream whose peer does not read.
#[derive(Debug)]
struct Endless(End);

impl AsyncRead for Endless {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, target)
    }
}

impl AsyncWrite for Endless {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

fn server() -> (Connection<Endless>, End) {
    let (here, there) = pipe(FAST);
    let config = Config::default().keep_alive(None);
    (Parts::server(Endless(there)).connection(config), here)
}

/// Performs a read that must not wait for ever, which is an hour of the test's clock.
async fn read(server: &mut Connection<Endless>) -> Result<(), Error> {
    let read = tokio::time::timeout(Duration::from_secs(3600), server.read());
    read.await.expect("the read ends").map(|message| assert!(message.is_none()))
}

#[tokio::test(start_paused = true)]
async fn a_blocked_shutdown_hides_no_violation() {
    let (mut server, mut here) = server();
    here.write_all(&[0x81, 0x81, 0, 0, 0, 0, 0xFF]).await.unwrap();
    let start = Instant::now();
    assert!(matches!(read(&mut server).await, Err(Error::Violation(Violation::Utf8))));
    assert_eq!(start.elapsed().as_secs(), 5, "the close timeout");
    assert!(matches!(read(&mut server).await, Err(Error::Closed)));
}

#[tokio::test(start_paused = true)]
async fn a_blocked_shutdown_after_the_peers_end_does_not_wait_for_ever() {
    let (mut server, here) = server();
    drop(here);
    let start = Instant::now();
    assert!(matches!(read(&mut server).await, Err(Error::Eof)));
    assert_eq!(start.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_blocked_shutdown_does_not_make_a_clean_close_unclean() {
    let (mut server, mut here) = server();
    let mut bytes = Vec::new();
    encode_close(&mut bytes, Some(CloseCode::NORMAL), "", KEY);
    here.write_all(&bytes).await.unwrap();
    read(&mut server).await.unwrap();
    assert!(server.ending().is_clean);
}

#[tokio::test(start_paused = true)]
async fn deadlines_and_cancellers_apply_during_the_close() {
    let (mut server, mut here) = server();
    here.write_all(&[0x81, 0x81, 0, 0, 0, 0, 0xFF]).await.unwrap();
    let start = Instant::now();
    assert!(matches!(server.read_timeout(Duration::from_secs(1)).await, Err(Error::TimedOut)));
    assert_eq!(start.elapsed().as_secs(), 1);
    let at = start + Duration::from_secs(2);
    assert!(matches!(server.read_before(at).await, Err(Error::TimedOut)));
    assert_eq!(start.elapsed().as_secs(), 2);
    let canceller = server.canceller();
    let cancel = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        canceller.cancel();
    };
    let (cancelled, ()) = tokio::join!(read(&mut server), cancel);
    assert!(matches!(cancelled, Err(Error::Cancelled)), "{cancelled:?}");
    assert_eq!(start.elapsed().as_secs(), 3);
    // The reason for which the connection ended is still to be reported.
    assert!(matches!(read(&mut server).await, Err(Error::Violation(Violation::Utf8))));
    assert_eq!(start.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn sender_closes_without_a_reader() {
    let (mut here, there) = pipe(FAST);
    let (reader, sender) = Parts::server(there).connection(Config::default()).split();
    drop(reader);
    let _ = sender.queue("before").unwrap();
    let ending = sender.close(CloseCode::GOING_AWAY, "bye").await.unwrap();
    assert!(!ending.is_clean, "nobody heard an answer");
    drop(sender);
    let mut sent = Vec::new();
    here.read_to_end(&mut sent).await.unwrap();
    let mut expected = Vec::new();
    encode_frame(&mut expected, OpCode::Text, true, None, b"before");
    encode_close(&mut expected, Some(CloseCode::GOING_AWAY), "bye", None);
    assert_eq!(sent, expected);
}

#[tokio::test(start_paused = true)]
async fn sender_closes_beside_a_reader_that_does_not_read_and_a_peer_that_does_not() {
    for has_reader in [true, false] {
        let (_here, there) = pipe(crate::support::Pace { capacity: 3, ..FAST });
        let (reader, sender) = Parts::server(there).connection(Config::default()).split();
        let reader = has_reader.then_some(reader);
        let start = Instant::now();
        let closed =
            tokio::time::timeout(Duration::from_secs(3600), sender.close(CloseCode::NORMAL, "bye"));
        assert!(!closed.await.expect("it ends").unwrap().is_clean);
        assert_eq!(start.elapsed().as_secs(), 5);
        drop(reader);
    }
}

#[tokio::test(start_paused = true)]
async fn infinite_durations() {
    for longest in
        [Duration::MAX, Duration::from_secs(i64::MAX as u64), Duration::from_secs(1 << 62)]
    {
        let config = Config::default()
            .keep_alive(Some(KeepAlive::default().interval(longest).timeout(longest)))
            .close_timeout(longest)
            .handshake_timeout(longest);
        let (mut here, there) = pipe(FAST);
        let mut server = Parts::server(there).connection(config.clone());
        let hundred = Duration::from_secs(100);
        assert!(tokio::time::timeout(hundred, server.read_timeout(longest)).await.is_err());
        assert!(tokio::time::timeout(Duration::from_secs(1), server.ping()).await.is_err());
        let mut end = Instant::now();
        for shift in (0..63).rev() {
            end = end.checked_add(Duration::from_secs(1 << shift)).unwrap_or(end);
        }
        assert!(tokio::time::timeout(hundred, server.read_before(end)).await.is_err());
        let closed =
            tokio::time::timeout(Duration::from_secs(1), server.close(CloseCode::NORMAL, ""));
        assert!(closed.await.is_err());
        let mut answer = Vec::new();
        encode_close(&mut answer, None, "", KEY);
        here.write_all(&answer).await.unwrap();
        assert_eq!(server.read().await.unwrap(), None);

        let (_here, there) = pipe(FAST);
        let server = rookery_websocket::protocol::handshake::ServerConfig::default();
        let accepted = rookery_websocket::accept(there, &server, config);
        assert!(tokio::time::timeout(Duration::from_secs(1), accepted).await.is_err());
    }
}
