//! permessage-deflate over a connection.

use rookery_websocket::protocol::deflate::{DeflateConfig, Deflater, Fin, Takeover, WindowBits};
use rookery_websocket::protocol::{CloseCode, MaskKey, OpCode, Role, Violation, encode_message};
use rookery_websocket::{Config, Error, Kind, Parts};
use tokio::io::AsyncWriteExt as _;

use crate::cancellation::pair;
use crate::support::{FAST, Pace, pipe};

#[tokio::test(start_paused = true)]
async fn every_window_and_takeover_there_and_back() {
    let text = "{\"id\":12345,\"name\":\"a name\",\"values\":[1,2,3,4,5]}".repeat(40);
    for bits in 9..=15 {
        for takeover in [Takeover::None, Takeover::Kept] {
            let window = WindowBits::new(bits).unwrap();
            let deflate =
                DeflateConfig::default().takeover(takeover).own_bits(window).peer_bits(window);
            let (mut client, mut server) = pair(Pace { chunk: 99, ..FAST }, Some(deflate)).await;
            for _ in 0..3 {
                for message in [&text[..], "short"] {
                    let (_, received) = tokio::join!(client.send(message), async {
                        let (read, mut writer) = server.receive().await.unwrap().unwrap();
                        assert_eq!(read.as_text(), Some(message));
                        writer.send(read).await
                    });
                    let _ = received.unwrap();
                    assert_eq!(client.read().await.unwrap().unwrap().as_text(), Some(message));
                }
            }
            let ratio = server.statistics().compression_ratio().unwrap();
            assert!(ratio > 8.0, "{ratio} at {bits} bits");
            let small = server.statistics().bytes_received;
            assert!(small < 3 * text.len() as u64, "{small}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_in_compressed_chunks() {
    for takeover in [Takeover::None, Takeover::Kept] {
        let deflate = DeflateConfig::default().takeover(takeover);
        let (mut client, mut server) = pair(Pace { chunk: 13, ..FAST }, Some(deflate)).await;
        for _ in 0..3 {
            let mut writer = client.write(Kind::Binary).unwrap();
            for n in 0..20_u8 {
                writer.write(&[n; 100]).await.unwrap();
            }
            writer.finish().await.unwrap();
            let (flushed, read) = tokio::join!(client.flush(), server.read());
            flushed.unwrap();
            let expected: Vec<u8> = (0..20).flat_map(|n| [n; 100]).collect();
            assert_eq!(&read.unwrap().unwrap()[..], expected);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn both_sides_count_the_same_frames() {
    let (mut client, mut server) = pair(FAST, Some(DeflateConfig::default())).await;
    let _ = client.send("short").await.unwrap();
    let mut writer = client.write(Kind::Text).unwrap();
    for _ in 0..3 {
        writer.write(b"a chunk").await.unwrap();
    }
    writer.finish().await.unwrap();
    for expected in ["short", "a chunka chunka chunk"] {
        assert_eq!(server.read().await.unwrap().unwrap().as_text(), Some(expected));
    }
    let (pinged, closed) = tokio::join!(
        async {
            client.ping().await.unwrap();
            client.close(CloseCode::NORMAL, "").await
        },
        server.read()
    );
    assert!(pinged.is_ok() && closed.unwrap().is_none());
    let (ours, theirs) = (client.statistics(), server.statistics());
    // Two messages, one of them in three chunks and an empty last frame, then a ping and a close.
    assert_eq!((ours.messages_sent, ours.fragments_sent, ours.controls_sent), (2, 3, 2));
    let received = (theirs.messages_received, theirs.fragments_received, theirs.controls_received);
    assert_eq!(received, (2, 3, 2));
    assert_eq!((ours.controls_received, theirs.controls_sent), (2, 2));
}

/// A thousandth of the message's size is sent, and a reader in chunks never has more than a chunk
/// in memory.
#[tokio::test(start_paused = true)]
async fn a_chunk_is_bounded_however_well_it_was_compressed() {
    for takeover in [Takeover::None, Takeover::Kept] {
        let deflate = DeflateConfig::default().takeover(takeover).threshold(0);
        for chunk in [usize::MAX, 10] {
            let (mut client, mut server) = pair(Pace { chunk, ..FAST }, Some(deflate)).await;
            // Marks among the zeros show lost and repeated bytes.
            let mut sent = vec![0; 4 << 20];
            sent.iter_mut().enumerate().step_by(70_001).for_each(|(n, byte)| *byte = n as u8);
            let read = async {
                let (mut got, mut largest, mut chunks) = (Vec::new(), 0, 0);
                loop {
                    let chunk = server.read_chunk().await.unwrap().unwrap();
                    largest = largest.max(chunk.bytes.len());
                    got.extend_from_slice(chunk.bytes);
                    if chunk.is_last {
                        break;
                    }
                    chunks += 1;
                }
                assert!(chunks >= 60, "{chunks} chunks");
                assert!(largest <= (64 << 10) + 1024, "a chunk of {largest} bytes");
                assert!(got == sent);
                let first = server.read_chunk().await.unwrap().unwrap().bytes.to_vec();
                let rest = server.read().await.unwrap().unwrap();
                assert!(first.len() <= 64 << 10 && [&first[..], &rest[..]].concat() == sent);
                assert_eq!(server.read().await.unwrap().unwrap().as_text(), Some("after it"));
            };
            let send = async {
                let _ = client.send(&sent[..]).await.unwrap();
                let _ = client.send(&sent[..]).await.unwrap();
                let _ = client.send("after it").await.unwrap();
                client.flush().await.unwrap();
            };
            tokio::join!(read, send);
        }
    }
}

/// Data that followed an invalid byte was once returned as a chunk, and the violation was not
/// reported.
#[tokio::test(start_paused = true)]
async fn no_text_is_returned_after_an_invalid_byte() {
    let config = DeflateConfig::default().threshold(0);
    let agreed = config.choose(b"permessage-deflate").unwrap();
    let mut deflater = Deflater::new(&agreed, Role::Client, &config).unwrap();
    let mut text = vec![0; 256 << 10];
    text[10] = 0xFF;
    let mut frame = Vec::new();
    let mask = Some(MaskKey([1, 2, 3, 4]));
    encode_message(&mut frame, OpCode::Text, Fin::Last, mask, &text, Some(&mut deflater));
    let (mut here, there) = pipe(FAST);
    let mut server = Parts::server(there).deflate((agreed, config)).connection(Config::default());
    here.write_all(&frame).await.unwrap();
    let read = server.read_chunk().await;
    assert!(matches!(read, Err(Error::Violation(Violation::Utf8))), "{read:?}");
    assert!(matches!(server.read_chunk().await, Err(Error::Closed)));
}
