//! Every future of every operation is dropped after each number of polls, and the stream stays whole.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use rookery_websocket::protocol::CloseCode;
use rookery_websocket::protocol::deflate::{DeflateConfig, Takeover};
use rookery_websocket::protocol::handshake::{OriginPolicy, ServerConfig};
use rookery_websocket::{ClientConfig, Config, Connection, Kind, accept, client};

use crate::support::{End, FAST, Pace, pipe};

/// Polls an operation `polls` times and drops it if it is not done.
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

pub(crate) async fn pair(pace: Pace, deflate: Option<DeflateConfig>) -> (Connection<End>, Connection<End>) {
    let (here, there) = pipe(pace);
    let server = ServerConfig { deflate, origin: OriginPolicy::Any, ..ServerConfig::default() };
    let config = ClientConfig { deflate, ..ClientConfig::default() };
    let (served, connected) =
        tokio::join!(accept(there, &server, Config::default()), client(here, "host", "/", &config));
    (connected.unwrap().0, served.unwrap().0)
}

fn message(n: usize) -> Vec<u8> {
    // Around the lengths where the header changes, and larger than the pipe.
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
                // Dropped while it waits, a send has sent nothing: it is repeated.
                Some(bytes) => match polled(server.send(&bytes[..]), polls).await {
                    Some(sent) => {
                        sent.unwrap();
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
    let kept = DeflateConfig {
        own_takeover: Takeover::Kept,
        peer_takeover: Takeover::Kept,
        threshold: 0,
        ..DeflateConfig::default()
    };
    for polls in 1..5 {
        for piece in [1, 7, 200, usize::MAX] {
            for deflate in [None, Some(kept)] {
                exchange(polls, Pace { capacity: 512, piece, stutters: true }, deflate).await;
                exchange(polls, Pace { piece, ..FAST }, deflate).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pieces_written_and_read_with_every_write_dropped_once() {
    for polls in 1..4 {
        for piece in [1, 5, 1000] {
            let pace = Pace { capacity: 100, piece, stutters: true };
            let (mut client, mut server) = pair(pace, None).await;
            let text = "a piece of téxt ".repeat(300);
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
                    let Some(read) = polled(server.read_piece(), polls).await else { continue };
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
async fn a_ping_dropped_half_way_loses_no_message() {
    let (mut client, mut server) = pair(Pace { stutters: true, ..FAST }, None).await;
    server.send("first").await.unwrap();
    server.flush().await.unwrap();
    assert!(polled(client.ping(), 1).await.is_none());
    let asked = async {
        assert!(matches!(client.ping().await, Err(rookery_websocket::Error::MessageFirst)));
        assert_eq!(client.read().await.unwrap().unwrap().as_text(), Some("first"));
        client.ping().await.unwrap();
        assert!(client.statistics().round_trip.is_some());
        client.close(CloseCode::NORMAL, "").await.unwrap();
    };
    let served = async { while server.read().await.unwrap().is_some() {} };
    tokio::join!(asked, served);
}
