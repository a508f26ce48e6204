//! Counts the allocations for each frame, of which there are none.
#![cfg(not(miri))] // Miri's allocator is not the system's

#[path = "it/support.rs"]
#[allow(dead_code)]
mod support;

use std::time::Duration;

use rookery_test_support::allocator::{CountingAllocator, thread};
use rookery_websocket::protocol::{Decoder, DecoderLimits, MaskKey, OpCode, Role, encode_frame};
use rookery_websocket::{Config, Connection, Error, Kind, Outgoing, Parts, SendStatus};
use support::{End, FAST, Pace, pipe};
use tokio::sync::Notify;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const ROUNDS: u64 = 100;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Reading {
    Plain,
    Deadline,
    Cancellable,
}

/// Sends a message there and back. The server waits before the message arrives.
async fn round_trip(
    client: &mut Connection<End>,
    server: &mut Connection<End>,
    message: Outgoing<'_>,
    len: usize,
    reading: Reading,
) {
    let serve = async {
        let read = match reading {
            Reading::Deadline => {
                // The deadline of each read is later than that of the read before it, as in real
                // use.
                let read = server.read_timeout(Duration::from_secs(30)).await;
                assert_eq!(read.unwrap().unwrap().len(), len);
                None
            }
            _ => Some(server.receive().await.unwrap().unwrap()),
        };
        match read {
            Some((read, mut writer)) => {
                assert_eq!(read.len(), len);
                let _ = writer.reply(read).await.unwrap();
            }
            None => {
                let _ = server.send(message).await.unwrap();
            }
        }
    };
    let ask = async {
        let _ = client.send(message).await.unwrap();
        assert_eq!(client.read().await.unwrap().unwrap().len(), len);
    };
    tokio::join!(serve, ask);
}

async fn count(pace: Pace, kind: Kind, len: usize, reading: Reading) -> u64 {
    let (here, there) = pipe(pace);
    let mut client = Parts::client(here).connection(Config::default());
    let mut server = Parts::server(there).connection(Config::default());
    let canceller = server.canceller();
    let text = "a".repeat(len);
    let message = match kind {
        Kind::Text => Outgoing::Text(&text),
        Kind::Binary => Outgoing::Binary(text.as_bytes()),
    };
    for _ in 0..20 {
        round_trip(&mut client, &mut server, message, len, reading).await;
    }
    if reading == Reading::Cancellable {
        canceller.cancel();
        assert!(matches!(server.read().await, Err(Error::Cancelled)), "the token can fire");
    }
    let before = thread::allocations();
    for _ in 0..ROUNDS {
        round_trip(&mut client, &mut server, message, len, reading).await;
    }
    thread::allocations() - before
}

#[tokio::test(flavor = "current_thread")]
async fn a_message_read_and_written_allocates_nothing() {
    // The message arrives whole in one read, and then in parts, so that it is assembled.
    let cut = Pace { chunk: 300, ..FAST };
    for pace in [FAST, cut] {
        for kind in [Kind::Text, Kind::Binary] {
            for len in [16, 512, 16 << 10] {
                for reading in [Reading::Plain, Reading::Deadline, Reading::Cancellable] {
                    let counted = count(pace, kind, len, reading).await;
                    assert_eq!(
                        counted, 0,
                        "{ROUNDS} round trips of {len} bytes, {kind:?}, {reading:?}, {pace:?}"
                    );
                }
            }
        }
    }
}

/// Neither tokio's timer around a write nor the notification that a cancellable write races with
/// belongs to this crate, and neither may allocate together with it.
async fn write(
    connection: &mut Connection<End>,
    message: Outgoing<'_>,
    writing: Reading,
    cancelled: &Notify,
) {
    let sent = match writing {
        Reading::Plain => connection.send(message).await,
        Reading::Deadline => {
            tokio::time::timeout(Duration::from_secs(30), connection.send(message)).await.unwrap()
        }
        Reading::Cancellable => tokio::select! {
            biased;
            () = cancelled.notified() => panic!("nobody cancels"),
            sent = connection.send(message) => sent,
        },
    };
    assert_eq!(sent.unwrap(), SendStatus::Sent);
}

#[tokio::test(flavor = "current_thread")]
async fn a_message_written_under_a_deadline_or_a_token_allocates_nothing() {
    for role in [Role::Client, Role::Server] {
        for kind in [Kind::Text, Kind::Binary] {
            for len in [16, 512, 16 << 10] {
                for writing in [Reading::Plain, Reading::Deadline, Reading::Cancellable] {
                    let (here, there) = pipe(FAST);
                    let mut client = Parts::client(here).connection(Config::default());
                    let mut server = Parts::server(there).connection(Config::default());
                    let (writer, reader) = match role {
                        Role::Client => (&mut client, &mut server),
                        Role::Server => (&mut server, &mut client),
                    };
                    let text = "a".repeat(len);
                    let message = match kind {
                        Kind::Text => Outgoing::Text(&text),
                        Kind::Binary => Outgoing::Binary(text.as_bytes()),
                    };
                    let cancelled = Notify::new();
                    let mut before = 0;
                    for round in 0..ROUNDS + 20 {
                        if round == 20 {
                            before = thread::allocations();
                        }
                        write(writer, message, writing, &cancelled).await;
                        assert_eq!(reader.read().await.unwrap().unwrap().len(), len);
                    }
                    let counted = thread::allocations() - before;
                    assert_eq!(
                        counted, 0,
                        "{ROUNDS} writes of {len} bytes, {role:?}, {kind:?}, {writing:?}"
                    );
                }
            }
        }
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_timed_out_read_allocates_nothing_after_the_first() {
    let (_here, there) = pipe(FAST);
    let mut server = Parts::server(there).connection(Config::default());
    let timeout = Duration::from_millis(1);
    assert!(matches!(server.read_timeout(timeout).await, Err(Error::TimedOut)));
    let before = thread::allocations();
    for _ in 0..5 {
        assert!(matches!(server.read_timeout(timeout).await, Err(Error::TimedOut)));
    }
    assert_eq!(thread::allocations() - before, 0);
}

#[tokio::test(flavor = "current_thread")]
async fn halves_allocate_nothing() {
    let (here, there) = pipe(FAST);
    let mut client = Parts::client(here).connection(Config::default());
    let (mut reader, sender) = Parts::server(there).connection(Config::default()).split();
    let mut before = 0;
    for round in 0..ROUNDS + 10 {
        if round == 10 {
            before = thread::allocations();
        }
        let serve = async {
            assert_eq!(reader.read().await.unwrap().unwrap().as_text(), Some("hello"));
            let _ = sender.send("to all of you").await.unwrap();
        };
        let ask = async {
            let _ = client.send("hello").await.unwrap();
            assert_eq!(client.read().await.unwrap().unwrap().as_text(), Some("to all of you"));
        };
        tokio::join!(serve, ask);
    }
    assert_eq!(thread::allocations() - before, 0);
}

#[test]
fn the_protocol_alone_allocates_nothing() {
    let mut frame = Vec::with_capacity(1024);
    let mut decoder = Decoder::new(Role::Server, DecoderLimits::default());
    let before = thread::allocations();
    for n in 0..ROUNDS as usize {
        frame.clear();
        encode_frame(
            &mut frame,
            OpCode::Binary,
            true,
            Some(MaskKey([1, 2, 3, 4])),
            &[7; 900][..n * 9],
        );
        let (used, event) = decoder.decode(&mut frame).unwrap();
        assert!(event.is_some());
        assert_eq!(used, frame.len());
    }
    assert_eq!(thread::allocations() - before, 0);
}

#[test]
fn an_announced_length_reserves_nothing() {
    let mut decoder =
        Decoder::new(Role::Server, DecoderLimits::new().message(u64::MAX).fragments(10));
    let mut header = [0x82, 0xFF, 0x7F, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0];
    let before = thread::allocations();
    assert!(matches!(decoder.decode(&mut header), Ok((14, None))));
    assert_eq!(thread::allocations() - before, 0);
}
