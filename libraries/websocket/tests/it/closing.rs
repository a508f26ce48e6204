//! The ways in which connections end.

use std::time::Duration;

use rookery_websocket::protocol::{
    CloseCode, MaskKey, OpCode, Violation, encode_close, encode_control, encode_frame,
};
use rookery_websocket::{Config, Connection, Error, Kind, Parts};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::cancellation::pair;
use crate::support::{End, FAST, pipe};

const KEY: Option<MaskKey> = Some(MaskKey([1, 2, 3, 4]));

fn server() -> (Connection<End>, End) {
    let (here, there) = pipe(FAST);
    (Parts::server(there).connection(Config::default()), here)
}

#[tokio::test(start_paused = true)]
async fn either_side_closes_and_both_know_the_code() {
    for is_client in [true, false] {
        let (client, server) = pair(FAST, None).await;
        let (mut closes, mut waits) = if is_client { (client, server) } else { (server, client) };
        let code = CloseCode::new(3456).unwrap();
        let (closed, waited) = tokio::join!(closes.close(code, "reason"), waits.read());
        assert_eq!(waited.unwrap(), None);
        assert_eq!((waits.ending().code, waits.ending().is_clean), (Some(code), true));
        assert_eq!(closed.unwrap().code, Some(code));
        assert!(matches!(closes.send("late").await, Err(Error::Closed)));
        assert!(matches!(waits.queue("late"), Err(Error::Closed)));
        assert_eq!(waits.read().await.unwrap(), None, "and again");
    }
}

#[tokio::test(start_paused = true)]
async fn both_close_at_once() {
    let (mut client, mut server) = pair(FAST, None).await;
    let (ours, theirs) =
        tokio::join!(client.close(CloseCode::NORMAL, ""), server.close(CloseCode::GOING_AWAY, ""));
    assert_eq!(ours.unwrap().code, Some(CloseCode::GOING_AWAY));
    assert_eq!(theirs.unwrap().code, Some(CloseCode::NORMAL));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_answers_close_is_left_after_the_timeout() {
    let (mut server, _here) = server();
    let before = tokio::time::Instant::now();
    assert!(matches!(server.close(CloseCode::NORMAL, "").await, Err(Error::Eof)));
    assert_eq!(before.elapsed().as_secs(), 5);
    assert!(!server.ending().is_clean);
    assert!(matches!(server.read().await, Err(Error::Closed)));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_reads_our_close_is_left_after_the_timeout() {
    let (here, there) = pipe(crate::support::Pace { capacity: 3, ..FAST });
    let mut server = Parts::server(there).connection(Config::default());
    let before = tokio::time::Instant::now();
    assert!(server.close(CloseCode::NORMAL, "never read").await.is_err());
    assert!(before.elapsed() <= Duration::from_secs(10));
    drop(here);
}

#[tokio::test(start_paused = true)]
async fn close_discards_messages_before_the_peers_close_frame() {
    let (mut client, mut server) = pair(FAST, None).await;
    let _ = client.send("one").await.unwrap();
    let (closed, served) = tokio::join!(server.close(CloseCode::NORMAL, ""), async {
        let _ = client.send("two").await.unwrap();
        client.read().await.unwrap().is_none()
    });
    assert!(served && closed.unwrap().is_clean);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_without_close_is_an_error() {
    let (mut server, mut here) = server();
    let mut bytes = Vec::new();
    encode_frame(&mut bytes, OpCode::Text, true, KEY, b"whole");
    encode_frame(&mut bytes, OpCode::Text, true, KEY, b"half");
    here.write_all(&bytes[..bytes.len() - 2]).await.unwrap();
    drop(here);
    assert_eq!(server.read().await.unwrap().unwrap().as_text(), Some("whole"));
    assert!(matches!(server.read().await, Err(Error::Eof)));
    assert!(matches!(server.read().await, Err(Error::Closed)));
}

#[tokio::test(start_paused = true)]
async fn a_close_frame_before_a_disconnect_counts() {
    let (mut server, mut here) = server();
    let mut bytes = Vec::new();
    encode_close(&mut bytes, Some(CloseCode::GOING_AWAY), "tab closed", KEY);
    here.write_all(&bytes).await.unwrap();
    drop(here);
    let _ = server.queue("the reply that nobody hears").unwrap();
    assert_eq!(server.read().await.unwrap(), None);
    assert_eq!(server.ending().code, Some(CloseCode::GOING_AWAY));
}

#[tokio::test(start_paused = true)]
async fn nothing_after_a_close_frame_counts() {
    let (mut server, mut here) = server();
    let mut bytes = Vec::new();
    encode_close(&mut bytes, None, "", KEY);
    encode_frame(&mut bytes, OpCode::Text, true, KEY, b"late");
    bytes.extend_from_slice(&[0xFF; 10]);
    here.write_all(&bytes).await.unwrap();
    assert_eq!(server.read().await.unwrap(), None);
    let mut answer = Vec::new();
    drop(server);
    here.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, [0x88, 0], "an empty close frame is answered with an empty one");
}

#[tokio::test(start_paused = true)]
async fn a_violation_is_reported_with_its_code() {
    for (bytes, code) in [
        (&[0x81, 0x01, b'x'][..], 1002),
        (&[0x81, 0x81, 0, 0, 0, 0, 0xFF], 1007),
        (&[0x82, 0xFF, 0x7F, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 1009),
    ] {
        let (mut server, mut here) = server();
        here.write_all(bytes).await.unwrap();
        assert!(matches!(server.read().await, Err(Error::Violation(_))));
        drop(server);
        let mut answer = Vec::new();
        here.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer[..2], [0x88, 2]);
        assert_eq!(u16::from_be_bytes([answer[2], answer[3]]), code);
    }
}

#[tokio::test(start_paused = true)]
async fn half_a_message_is_never_taken_for_a_whole_one() {
    let (mut client, mut server) = pair(FAST, None).await;
    let mut writer = client.write(Kind::Text).unwrap();
    writer.write("€".as_bytes().get(..1).unwrap()).await.unwrap();
    assert!(matches!(writer.write(b"\xFF").await, Err(Error::Violation(Violation::Utf8))));
    drop(writer);
    assert!(matches!(client.send("next").await, Err(Error::Abandoned)));
    let (_, read) = tokio::join!(client.flush(), server.read());
    assert_eq!(read.unwrap(), None, "closed, and the half is not delivered");
    assert_eq!(server.ending().code, Some(CloseCode::INTERNAL));
}

/// A delayed pong was once sent after the close frame, after which nothing may be sent (RFC 6455,
/// 5.5.1).
#[tokio::test(start_paused = true)]
async fn nothing_follows_our_close_frame_not_even_a_pong_that_waited() {
    // The peer's side holds 16 bytes, so a message is half written when the ping arrives, and the
    // pong has to wait.
    let (mut here, there) = pipe(crate::support::Pace { capacity: 16, ..FAST });
    let mut server = Parts::server(there).connection(Config::default().keep_alive(None));
    let _ = server.send(&[0; 20]).await.unwrap();
    let mut ping = Vec::new();
    encode_control(&mut ping, OpCode::Ping, KEY, b"owed");
    here.write_all(&ping).await.unwrap();
    assert!(matches!(server.read_timeout(Duration::ZERO).await, Err(Error::TimedOut)));
    assert_eq!(server.statistics().controls_received, 1);
    let closing = server.close(CloseCode::NORMAL, "");
    let reading = async {
        let mut all = Vec::new();
        let _ = tokio::time::timeout(Duration::from_secs(30), here.read_to_end(&mut all)).await;
        all
    };
    let (_, all) = tokio::join!(closing, reading);
    assert_eq!(all[22..], [0x88, 2, 0x03, 0xE8], "the message and the close frame");
}
