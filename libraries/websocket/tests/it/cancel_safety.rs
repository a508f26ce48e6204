//! Cancel safety as one property: if any operation is dropped at any poll and any other follows,
//! each queued message is still delivered once, whole and in order. `program/` runs and checks the
//! programs.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Waker};

use rookery_websocket::protocol::deflate::Takeover;
use rookery_websocket::{Config, Kind, Parts};
use tokio::io::AsyncWriteExt as _;

use crate::program::{ALL, Operation, Setup, What, parse, run};
use crate::support::{FAST, pipe};

/// The operations before, each on side 0 or 1, with its parameter.
const BEFORE: [&[(What, usize, u8)]; 5] = [
    &[],
    // Text in frames of one byte, read in chunks that end within characters.
    &[(What::Write, 1, 4), (What::ReadChunk, 0, 0)],
    // A partly read message behind a whole one.
    &[(What::Send, 1, 0), (What::Write, 1, 5), (What::ReadChunk, 0, 0), (What::Read, 0, 0)],
    // More than the pipe holds, in both directions.
    &[
        (What::Send, 0, 3),
        (What::Send, 1, 3),
        (What::Queue, 0, 3),
        (What::Queue, 1, 3),
        (What::Write, 1, 3),
    ],
    &[(What::Split, 0, 0), (What::Send, 1, 3), (What::Queue, 1, 0), (What::Send, 0, 3)],
];

/// The behaviour of the transport: everything at once; a byte at a time with pauses; or nothing for
/// a while, then some bytes.
fn behaviours() -> [Vec<u8>; 4] {
    let cycle = |pattern: &[u8]| pattern.iter().copied().cycle().take(300).collect();
    [Vec::new(), cycle(&[0, 65]), cycle(&[0, 0, 75, 69, 0, 67]), cycle(&[200, 66, 0])]
}

#[test]
fn any_operation_dropped_at_any_poll_then_any_other() {
    for behaviour in behaviours() {
        // Compression takes most of the time, and one behaviour is enough to test it.
        let deflates =
            if behaviour.len() == 300 { &[None][..] } else { &[None, Some(Takeover::Kept)] };
        for deflate in deflates {
            for (n, before) in BEFORE.iter().enumerate() {
                let setup = Setup {
                    deflate: *deflate,
                    keeps_alive: n == 3,
                    is_split: false,
                    behaviour: behaviour.clone(),
                };
                for dropped in ALL {
                    for polls in [1, 3] {
                        for next in ALL {
                            let mut program: Vec<_> = before
                                .iter()
                                .map(|(what, side, choice)| Operation {
                                    what: *what,
                                    side: *side,
                                    polls: 3,
                                    choice: *choice,
                                })
                                .collect();
                            let choice = polls as u8;
                            program.push(Operation { what: dropped, side: 0, polls, choice });
                            program.push(Operation { what: next, side: 0, polls: 4, choice });
                            program.push(Operation {
                                what: What::ReadChunk,
                                side: 0,
                                polls: 2,
                                choice,
                            });
                            program.push(Operation {
                                what: What::Read,
                                side: 0,
                                polls: 40,
                                choice,
                            });
                            run(&setup, &program);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn programs_at_random() {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (z ^ (z >> 27)) >> 24
    };
    for round in 0..1500 {
        let mut data = vec![next() as u8 & 15, (next() % 80) as u8];
        // Failures are rarer than in the fuzz targets, so that most programs continue.
        data.extend((0..data[1]).map(|_| match next() as u8 {
            64 if round % 4 > 0 => 65,
            byte => byte,
        }));
        data.extend((0..40 + next() % 100).map(|_| next() as u8));
        let (setup, operations) = parse(&data).expect("two bytes and more");
        run(&setup, &operations);
    }
}

/// The rest of a text message whose beginning was read in chunks is not text if it begins within a
/// character. Such a rest was once returned as a `&str` with the byte A9.
#[tokio::test(start_paused = true)]
async fn the_rest_of_a_text_that_begins_within_a_character() {
    let (mut here, there) = pipe(FAST);
    let mut server = Parts::server(there).connection(Config::default());
    here.write_all(&[0x01, 0x81, 0, 0, 0, 0, 0xC3]).await.unwrap();
    let chunk = server.read_chunk().await.unwrap().unwrap();
    assert_eq!((chunk.kind, chunk.bytes, chunk.is_last), (Kind::Text, &[0xC3][..], false));
    here.write_all(&[0x80, 0x81, 0, 0, 0, 0, 0xA9]).await.unwrap();
    let rest = server.read().await.unwrap().unwrap();
    assert_eq!((rest.as_text(), rest.kind(), &rest[..]), (None, Kind::Binary, &[0xA9][..]));

    // A rest that begins with a character is text, and so is the last chunk of a text message.
    for last in [false, true] {
        here.write_all(&[0x01, 0x82, 0, 0, 0, 0, 0xC3, 0xA9]).await.unwrap();
        assert_eq!(server.read_chunk().await.unwrap().unwrap().bytes, "é".as_bytes());
        here.write_all(&[0x80, 0x82, 0, 0, 0, 0, 0xC3, 0xA8]).await.unwrap();
        if last {
            let chunk = server.read_chunk().await.unwrap().unwrap();
            assert_eq!((chunk.kind, chunk.is_last), (Kind::Text, true));
        } else {
            assert_eq!(server.read().await.unwrap().unwrap().as_text(), Some("è"));
        }
    }
}

/// A dropped close has discarded the beginning of a message, so its end must not be returned as a
/// message.
#[tokio::test(start_paused = true)]
async fn the_tail_of_a_message_after_a_dropped_close() {
    let (mut here, there) = pipe(FAST);
    let mut server = Parts::server(there).connection(Config::default());
    here.write_all(&[0x01, 0x85, 0, 0, 0, 0]).await.unwrap();
    here.write_all(b"begin").await.unwrap();
    {
        let close = pin!(server.close(rookery_websocket::protocol::CloseCode::NORMAL, ""));
        assert!(close.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    here.write_all(&[0x80, 0x83, 0, 0, 0, 0]).await.unwrap();
    here.write_all(b"end").await.unwrap();
    here.write_all(&[0x82, 0x81, 0, 0, 0, 0, b'x']).await.unwrap();
    assert_eq!(server.read().await.unwrap().map(|message| message.to_vec()), Some(b"x".to_vec()));
}
