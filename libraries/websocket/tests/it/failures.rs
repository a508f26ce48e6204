//! Failures of other implementations. Tests that need no connection are beside the decoder and the
//! handshake.

use std::time::Duration;

use rookery_websocket::protocol::deflate::DeflateConfig;
use rookery_websocket::protocol::handshake::{BadHead, Refusal, ServerConfig};
use rookery_websocket::protocol::{
    DecoderLimits, MaskKey, OpCode, Violation, encode_control, encode_frame,
};
use rookery_websocket::{Config, Error, Parts, SendStatus, accept};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::cancellation::pair;
use crate::support::{FAST, Pace, pipe};

const KEY: Option<MaskKey> = Some(MaskKey([1, 2, 3, 4]));

/// Returns a server's response to a head, and the reason of a refusal.
async fn refused(head: Vec<u8>) -> (Refusal, String) {
    let (mut here, there) = pipe(FAST);
    let config = ServerConfig::default();
    let served = async { accept(there, &config, Config::default()).await.map(|_| ()) };
    let asked = async {
        // The server may close the connection before all of the head is written.
        let _ = here.write_all(&head).await;
        let mut answer = Vec::new();
        here.read_to_end(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    };
    match tokio::join!(served, asked) {
        (Err(Error::Refused(refusal)), answer) => (refusal, answer),
        (other, _) => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn cve_2023_43669_a_head_of_20_mb() {
    let mut head = b"GET / HTTP/1.1\r\nX: ".to_vec();
    head.resize(20 << 20, b'a');
    let (refusal, answer) = refused(head).await;
    assert_eq!(refusal, Refusal::Head(BadHead::TooLong));
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn cve_2024_37890_too_many_headers() {
    let mut head = b"GET / HTTP/1.1\r\n".to_vec();
    for n in 0..200 {
        head.extend_from_slice(format!("X{n}: y\r\n").as_bytes());
    }
    head.extend_from_slice(b"\r\n");
    let (refusal, answer) = refused(head).await;
    assert_eq!(refusal, Refusal::Head(BadHead::TooManyHeaders));
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_never_ends_is_given_up() {
    let (mut here, there) = pipe(FAST);
    here.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    let before = tokio::time::Instant::now();
    let accepted = accept(there, &ServerConfig::default(), Config::default()).await;
    assert!(matches!(accepted, Err(Error::HandshakeTimeout)));
    assert_eq!(before.elapsed(), Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_pings_and_never_reads_makes_nothing_grow() {
    // tokio-websockets queues a pong for each ping. The peer's side holds 64 bytes.
    let (mut here, there) = pipe(Pace { capacity: 64, ..FAST });
    let mut server = Parts::server(there).connection(Config::default().keep_alive(None));
    let mut ping = Vec::new();
    encode_control(&mut ping, OpCode::Ping, KEY, &[7; 40]);
    let flood = async {
        for _ in 0..100_000 {
            here.write_all(&ping).await.unwrap();
        }
        here
    };
    let most = async {
        let mut most = 0;
        loop {
            assert!(server.read_timeout(Duration::ZERO).await.is_err(), "no message was sent");
            most = most.max(server.pending());
            tokio::task::yield_now().await;
            if server.statistics().controls_received == 100_000 {
                return most;
            }
        }
    };
    let (mut here, most) = tokio::join!(flood, most);
    assert!(most <= 256, "{most} bytes were queued");
    // The newest pong is still to be sent.
    let mut answers = vec![0; 42 * 2];
    let (read, _) =
        tokio::join!(here.read_exact(&mut answers), server.read_timeout(Duration::from_secs(1)));
    read.unwrap();
    assert_eq!(answers[..2], [0x8A, 40]);
}

/// A delayed pong was once sent only when nothing else was queued, which is never the case while
/// messages keep coming.
#[tokio::test(start_paused = true)]
async fn a_pong_that_waited_is_not_starved_by_messages_that_keep_coming() {
    // The peer reads, but never everything, so each message finds earlier ones in the queue.
    let (here, there) = pipe(Pace { capacity: 16, ..FAST });
    let (mut reading, mut writing) = tokio::io::split(here);
    let config = Config::default().high_water(100).keep_alive(None);
    let mut server = Parts::server(there).connection(config);
    let _ = server.send(&[0; 60][..]).await.unwrap();
    let mut ping = Vec::new();
    encode_control(&mut ping, OpCode::Ping, KEY, b"owed");
    writing.write_all(&ping).await.unwrap();
    let sending = async {
        loop {
            assert!(matches!(server.read_timeout(Duration::ZERO).await, Err(Error::TimedOut)));
            let _ = server.send(&[0; 60][..]).await.unwrap();
            assert!(server.pending() > 0, "messages keep coming");
        }
    };
    let mut all = vec![0; 20 * 62];
    tokio::select! {
        () = sending => {}
        read = reading.read_exact(&mut all) => assert_eq!(read.unwrap(), 20 * 62),
    }
    let pong = all.windows(6).position(|bytes| bytes == b"\x8A\x04owed");
    assert!(pong.is_some_and(|at| at % 62 == 0), "between two of the first messages: {pong:?}");
}

#[tokio::test(start_paused = true)]
async fn tungstenite_480_a_peer_that_does_not_read_is_seen_and_bounded() {
    let (_here, there) = pipe(Pace { capacity: 100, ..FAST });
    let mut server = Parts::server(there).connection(Config::default());
    let message = [1; 10_000];
    let mut seen = Vec::new();
    for _ in 0..300 {
        seen.push(server.queue(&message[..]).unwrap());
    }
    let dropped = seen.iter().position(|status| *status == SendStatus::Dropped).unwrap();
    let pressed = seen.iter().position(|status| *status == SendStatus::Backpressure).unwrap();
    assert_eq!(pressed, (64 << 10) / 10_004, "the message that passes the mark");
    assert_eq!(dropped, ((1 << 20) - 10_000) / 10_004 + 1);
    assert!(server.pending() <= 1 << 20);
    assert_eq!(server.statistics().dropped, (300 - dropped) as u64);
    let waited = tokio::time::timeout(Duration::from_secs(3), server.send("waits")).await;
    assert!(waited.is_err(), "send waits for room");
}

#[tokio::test(start_paused = true)]
async fn fastwebsockets_100_fragments_add_up() {
    let (mut here, there) = pipe(FAST);
    let limits = DecoderLimits::new().message(1000).fragments(100);
    let mut server = Parts::server(there).connection(Config::default().limits(limits));
    let mut bytes = Vec::new();
    encode_frame(&mut bytes, OpCode::Binary, false, KEY, &[0; 600]);
    encode_frame(&mut bytes, OpCode::Continuation, false, KEY, &[0; 600]);
    here.write_all(&bytes).await.unwrap();
    assert!(matches!(server.read().await, Err(Error::Violation(Violation::TooBig))));
}

#[tokio::test(start_paused = true)]
async fn ws_2329_empty_continuations_are_limited() {
    let (mut here, there) = pipe(FAST);
    let mut server = Parts::server(there).connection(Config::default());
    let mut bytes = Vec::new();
    encode_frame(&mut bytes, OpCode::Text, false, KEY, b"");
    for _ in 0..4096 {
        encode_frame(&mut bytes, OpCode::Continuation, false, KEY, b"");
    }
    here.write_all(&bytes).await.unwrap();
    assert!(matches!(server.read().await, Err(Error::Violation(Violation::Fragments))));
}

#[tokio::test(start_paused = true)]
async fn fastwebsockets_unmasked_and_interleaved_frames_are_refused() {
    for (bytes, violation) in [
        (&[0x81, 0x01, b'x'][..], Violation::Mask),
        (&[0x01, 0x80, 0, 0, 0, 0, 0x01, 0x80, 0, 0, 0, 0], Violation::Interleaved),
        (&[0x82, 0xFE, 0, 125, 0, 0, 0, 0], Violation::Length),
        (&[0xC1, 0x80, 0, 0, 0, 0], Violation::ReservedBits),
        (&[0x88, 0x82, 0, 0, 0, 0, 0x03, 0xED], Violation::CloseCode(1005)),
    ] {
        let (mut here, there) = pipe(FAST);
        let mut server = Parts::server(there).connection(Config::default());
        here.write_all(bytes).await.unwrap();
        match server.read().await {
            Err(Error::Violation(found)) => assert_eq!(found, violation),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_bomb_of_1000_to_1_is_refused_over_a_connection() {
    let deflate = DeflateConfig::default().threshold(0);
    let (mut client, mut server) = pair(FAST, Some(deflate)).await;
    let bomb = vec![0; 20 << 20];
    let (sent, read) = tokio::join!(
        async {
            let _ = client.send(&bomb[..]).await?;
            client.read().await.map(|_| ())
        },
        server.read()
    );
    assert!(matches!(read, Err(Error::Violation(Violation::TooBig))), "{read:?}");
    assert!(server.statistics().bytes_received < 1 << 20, "a thousand to one");
    drop(sent);
}

#[tokio::test(start_paused = true)]
async fn fastwebsockets_64_a_header_cut_by_a_dropped_read() {
    let (mut here, there) = pipe(FAST);
    let mut server = Parts::server(there).connection(Config::default());
    let mut bytes = Vec::new();
    encode_frame(&mut bytes, OpCode::Text, true, KEY, &[b'x'; 300]);
    for byte in bytes.chunks(1) {
        here.write_all(byte).await.unwrap();
        if byte.as_ptr() == bytes.last().unwrap() {
            break;
        }
        assert!(matches!(
            server.read_timeout(Duration::from_millis(1)).await,
            Err(Error::TimedOut)
        ));
    }
    assert_eq!(server.read().await.unwrap().unwrap().len(), 300);
}

/// A transport that writes half of the first write, fails the second, and accepts all later ones.
#[derive(Debug)]
struct FailsOnce {
    end: crate::support::End,
    writes: usize,
}

impl tokio::io::AsyncRead for FailsOnce {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        target: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.end).poll_read(cx, target)
    }
}

impl tokio::io::AsyncWrite for FailsOnce {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        self.writes += 1;
        match self.writes {
            1 => std::pin::Pin::new(&mut self.end).poll_write(cx, &bytes[..bytes.len() / 2]),
            2 => std::task::Poll::Ready(Err(std::io::ErrorKind::TimedOut.into())),
            _ => std::pin::Pin::new(&mut self.end).poll_write(cx, bytes),
        }
    }

    fn poll_flush(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.end).poll_shutdown(cx)
    }
}

/// Found by the fuzz target `websocket_workload`.
#[tokio::test(start_paused = true)]
async fn nothing_follows_half_a_frame() {
    let (mut here, there) = pipe(FAST);
    let mut server =
        Parts::server(FailsOnce { end: there, writes: 0 }).connection(Config::default());
    assert!(server.send("half of this goes ou").await.is_err());
    let mut bytes = Vec::new();
    encode_control(&mut bytes, OpCode::Ping, KEY, b"are you there");
    encode_frame(&mut bytes, OpCode::Text, true, KEY, b"still read");
    here.write_all(&bytes).await.unwrap();
    assert_eq!(server.read().await.unwrap().unwrap().as_text(), Some("still read"));
    assert!(server.read_timeout(Duration::from_secs(1)).await.is_err());
    assert!(server.send("more").await.is_err());
    drop(server);
    let mut sent = Vec::new();
    here.read_to_end(&mut sent).await.unwrap();
    assert_eq!(sent.len(), 11, "half of a frame of 22 bytes: {sent:?}");
}
