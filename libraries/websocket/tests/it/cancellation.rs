//! Each future of each operation is dropped after each number of polls, and the stream stays whole.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use rookery_websocket::protocol::CloseCode;
use rookery_websocket::protocol::deflate::{DeflateConfig, Takeover};
use rookery_websocket::protocol::handshake::{OriginPolicy, ServerConfig};
use rookery_websocket::{ClientConfig, Config, Connection, Error, Kind, accept, client};
use tokio::time::timeout;

use crate::support::{End, FAST, Pace, pipe};

/// Polls an operation `polls` times and drops it if it is not complete.
async fn polled<T>(operation: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut operation = pin!(operation);
    let mut left = polls;
    poll_fn(move |cx| {
        if left == 0 {
            cx.waker().wake_by_ref();
            return Poll::Ready(None);
        }
        left -= 1;
        operation.as_mut().poll(cx).map(Some)
    })
    .await
}

pub(crate) async fn pair(
    pace: Pace,
    deflate: Option<DeflateConfig>,
) -> (Connection<End>, Connection<End>) {
    let (here, there) = pipe(pace);
    let server = ServerConfig::default().deflate(deflate).origin(OriginPolicy::Any);
    let config = ClientConfig::default().deflate(deflate);
    let (served, connected) =
        tokio::join!(accept(there, &server, Config::default()), client(here, "host", "/", &config));
    (connected.unwrap().0, served.unwrap().0)
}

fn message(n: usize) -> Vec<u8> {
    // Lengths around those at which the header changes, and a length larger than the pipe.
    let len = [0, 1, 125, 126, 127, 700, 3000][n % 7];
    (0..len).map(|at| (at * 31 + n) as u8).collect()
}

async fn exchange(polls: usize, pace: Pace, deflate: Option<DeflateConfig>) {
    const COUNT: usize = 14;
    let (mut client, mut server) = pair(pace, deflate).await;
    let echo = async {
        let mut held: Option<Vec<u8>> = None;
        let mut echoed = 0;
        while echoed < COUNT {
            match held.take() {
                None => {
                    if let Some(read) = polled(server.read(), polls).await {
                        held = Some(read.unwrap().unwrap().to_vec());
                    }
                }
                // A `send` that was dropped while it waited has sent nothing, so it is repeated.
                Some(bytes) => match polled(server.send(&bytes[..]), polls).await {
                    Some(sent) => {
                        let _ = sent.unwrap();
                        echoed += 1;
                    }
                    None => held = Some(bytes),
                },
            }
        }
        server.flush().await.unwrap();
        while server.read().await.unwrap().is_some() {}
    };
    let ask = async {
        for n in 0..COUNT {
            let sent = message(n);
            while polled(client.send(&sent[..]), polls).await.is_none() {}
            loop {
                if let Some(read) = polled(client.read(), polls).await {
                    assert_eq!(&read.unwrap().unwrap()[..], sent, "message {n}");
                    break;
                }
            }
        }
        loop {
            if let Some(ended) = polled(client.close(CloseCode::NORMAL, "bye"), polls).await {
                assert!(ended.unwrap().is_clean);
                break;
            }
        }
    };
    tokio::join!(echo, ask);
}

#[tokio::test(start_paused = true)]
async fn every_operation_dropped_after_each_number_of_polls() {
    let kept = DeflateConfig::default().takeover(Takeover::Kept).threshold(0);
    for polls in 1..5 {
        for chunk in [1, 7, 200, usize::MAX] {
            for deflate in [None, Some(kept)] {
                exchange(polls, Pace { capacity: 512, chunk, stutters: true }, deflate).await;
                exchange(polls, Pace { chunk, ..FAST }, deflate).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn chunks_written_and_read_with_every_write_dropped_once() {
    for polls in 1..4 {
        for chunk in [1, 5, 1000] {
            let pace = Pace { capacity: 100, chunk, stutters: true };
            let (mut client, mut server) = pair(pace, None).await;
            let text = "a chunk of téxt ".repeat(300);
            let write = async {
                let mut writer = client.write(Kind::Text).unwrap();
                for bytes in text.as_bytes().chunks(97) {
                    while polled(writer.write(bytes), polls).await.is_none() {}
                }
                writer.finish().await.unwrap();
                client.flush().await.unwrap();
            };
            let read = async {
                let mut got = Vec::new();
                loop {
                    let Some(read) = polled(server.read_chunk(), polls).await else { continue };
                    let read = read.unwrap().unwrap();
                    assert_eq!(read.kind, Kind::Text);
                    got.extend_from_slice(read.bytes);
                    if read.is_last {
                        break;
                    }
                }
                assert_eq!(got, text.as_bytes());
            };
            tokio::join!(write, read);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_in_chunks_is_finished_by_one_poll_however_full_the_pipe() {
    for deflate in [None, Some(DeflateConfig::default())] {
        let (mut client, mut server) = pair(Pace { capacity: 512, ..FAST }, deflate).await;
        // More than the pipe and the high-water mark hold, in bytes that do not compress.
        let mut state = 1_u32;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as u8
        };
        let noise: Vec<u8> = std::iter::repeat_with(&mut next).take(100_000).collect();
        let mut writer = client.write(Kind::Binary).unwrap();
        writer.write(&noise).await.expect("an empty queue takes it");
        assert!(timeout(Duration::from_secs(1), writer.write(b"more")).await.is_err(), "no room");
        {
            let mut finish = pin!(writer.finish());
            let polled = poll_fn(|cx| Poll::Ready(finish.as_mut().poll(cx))).await;
            assert!(matches!(polled, Poll::Ready(Ok(()))), "{polled:?}");
        }
        let (flushed, read) = tokio::join!(client.flush(), server.read());
        flushed.unwrap();
        assert_eq!(&read.unwrap().unwrap()[..], noise);
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_writer_was_leaked_is_not_interrupted() {
    let (mut client, mut server) = pair(FAST, None).await;
    let mut writer = client.write(Kind::Text).unwrap();
    writer.write(b"begun").await.unwrap();
    std::mem::forget(writer);
    assert!(matches!(client.send("within").await, Err(Error::Abandoned)));
    assert!(matches!(client.queue("within"), Err(Error::Abandoned)));
    assert!(matches!(client.write(Kind::Text), Err(Error::Abandoned)));
    let (closed, read) = tokio::join!(client.close(CloseCode::NORMAL, ""), server.read());
    assert!(closed.unwrap().is_clean);
    assert_eq!(read.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_ping_dropped_half_way_loses_no_message() {
    let (mut client, mut server) = pair(Pace { stutters: true, ..FAST }, None).await;
    let _ = server.send("first").await.unwrap();
    server.flush().await.unwrap();
    assert!(polled(client.ping(), 1).await.is_none());
    let asked = async {
        assert!(matches!(client.ping().await, Err(Error::MessageFirst)));
        assert_eq!(client.read().await.unwrap().unwrap().as_text(), Some("first"));
        client.ping().await.unwrap();
        assert!(client.statistics().round_trip.is_some());
        client.close(CloseCode::NORMAL, "").await.unwrap();
    };
    let served = async { while server.read().await.unwrap().is_some() {} };
    tokio::join!(asked, served);
}
