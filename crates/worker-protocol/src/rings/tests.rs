//! Tests of the rings. The two ends are in one process, with two mappings of the memory.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::layout::{BLOCKS, CLASSES, Mapping, Side, WORDS, place};
use super::*;

fn pair() -> (RingEnd, RingEnd) {
    if cfg!(miri) {
        let mapping = Arc::new(Mapping::allocated());
        let front = RingEnd::new(Arc::clone(&mapping), Side::FrontEnd);
        return (front, RingEnd::new(mapping, Side::Worker));
    }
    let (front, memory) = RingEnd::create().unwrap();
    (front, RingEnd::attach(&memory).unwrap())
}

#[test]
fn records_arrive_complete_and_in_order_in_both_directions() {
    let (mut front, mut worker) = pair();
    let mut out = Vec::new();
    let rounds = if cfg!(miri) { WORDS + 40 } else { 3 * WORDS };
    for round in 0..rounds {
        let len = [0, 1, 200, 1024, 1025, 8192, 8193, 65_536, MAX_RECORD_LEN]
            [round % if cfg!(miri) { 5 } else { 9 }];
        let bytes: Vec<u8> = (0..len).map(|at| (at + round) as u8).collect();
        front.sender.send(1 + (round % 255) as u8, &bytes).unwrap();
        worker.sender.send(7, &bytes).unwrap();
        assert_eq!(worker.receiver.take(&mut out), Ok(Some(1 + (round % 255) as u8)));
        assert_eq!(out, bytes);
        assert_eq!(front.receiver.take(&mut out), Ok(Some(7)));
        assert_eq!(out, bytes);
    }
    assert_eq!(worker.receiver.take(&mut out), Ok(None));
    assert!(!worker.receiver.has_any() && !worker.receiver.arrivals().has_any());
}

#[test]
fn a_sender_without_blocks_is_full_until_some_are_returned() {
    let (mut front, mut worker) = pair();
    let sent = (0..).find(|_| front.sender.send(1, b"x").is_err()).unwrap();
    assert_eq!(sent, BLOCKS, "small records also use large blocks");
    assert_eq!(front.sender.send(1, b"x"), Err(SendError::Full));
    let mut out = Vec::new();
    worker.receiver.take(&mut out).unwrap().unwrap();
    front.sender.send(1, b"y").unwrap();
    assert_eq!(front.sender.send(1, b"x"), Err(SendError::Full));
    let rest = (0..).find(|_| worker.receiver.take(&mut out).unwrap().is_none()).unwrap();
    assert_eq!((rest, out.as_slice()), (BLOCKS, &b"y"[..]));
    assert_eq!(front.sender.send(1, &[0; MAX_RECORD_LEN + 1]), Err(SendError::TooLong));
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn invalid_words_of_a_hostile_worker_are_found() {
    let hostile = |word: u64| {
        let (mut front, worker) = pair();
        worker.sender.mapping().shared().sent_by[Side::Worker as usize].records.0[0]
            .store(word, Relaxed);
        front.receiver.take(&mut Vec::new())
    };
    let word = |kind: u64, block: u64, len: u64| kind << 56 | block << 32 | len;
    assert_eq!(hostile(word(1, 0, 1024)), Ok(Some(1)));
    assert_eq!(hostile(word(1, BLOCKS as u64 - 1, MAX_RECORD_LEN as u64)), Ok(Some(1)));
    for bad in [
        word(0, 0, 1),
        word(1, BLOCKS as u64, 0),
        word(1, 0x00FF_FFFF, 0),
        word(1, 0, 1025),
        word(1, BLOCKS as u64 - 1, MAX_RECORD_LEN as u64 + 1),
        word(1, 0, u64::from(u32::MAX)),
        u64::MAX,
    ] {
        assert_eq!(hostile(bad), Err(Malformed), "{bad:x}");
    }
    // A block that was never sent, one that does not exist, and one twice.
    for returns in [&[1_u64][..], &[BLOCKS as u64 + 1], &[u64::MAX], &[2, 2]] {
        let (mut front, worker) = pair();
        let shared = worker.sender.mapping().shared();
        // All small blocks but none of the others are in use.
        for block in 0..CLASSES[0].count {
            front.sender.send(1, b"x").unwrap();
            shared.sent_by[0].records.0[block].store(0, Relaxed);
        }
        let is_sent = returns[0] == 1 && returns.len() == 1;
        for (at, word) in returns.iter().enumerate() {
            shared.sent_by[0].returns.0[at].store(*word, Relaxed);
        }
        let result = front.sender.send(1, b"x");
        assert_eq!(result.is_ok(), is_sent, "{returns:?} {result:?}");
    }
}

#[test]
fn blocks_do_not_overlap() {
    let mut end = 0;
    for block in 0..BLOCKS {
        let place = place(block).unwrap();
        assert_eq!((place.offset, place.offset % 64), (end, 0));
        end += CLASSES[place.class].size;
    }
    assert!(place(BLOCKS).is_none());
}

#[test]
#[cfg_attr(miri, ignore = "sleeps in a futex")]
fn no_wake_up_is_lost_and_nothing_changes_between_threads() {
    const ROUNDS: u64 = 20_000;
    let (mut front, mut worker) = pair();
    let echo = std::thread::spawn(move || {
        let (mut out, mut seen) = (Vec::new(), 0);
        while seen < ROUNDS {
            match worker.receiver.take(&mut out).unwrap() {
                Some(kind) => {
                    worker.sender.send(kind, &out).unwrap();
                    seen += 1;
                    if worker.peer_sleep.take_sleep() == Sleep::Waiting {
                        worker.peer_sleep.wake();
                    }
                }
                None => wait(&worker),
            }
        }
    });
    let (mut out, mut received, mut sent) = (Vec::new(), 0, 0_u64);
    while received < ROUNDS {
        // From one to sixty records on the way.
        while sent < ROUNDS && sent - received < 1 + received % 60 {
            front.sender.send(3, &sent.to_le_bytes()).unwrap();
            sent += 1;
        }
        if front.peer_sleep.take_sleep() == Sleep::Waiting {
            front.peer_sleep.wake();
        }
        match front.receiver.take(&mut out).unwrap() {
            Some(_) => {
                assert_eq!(out, received.to_le_bytes());
                received += 1;
            }
            None => wait(&front),
        }
    }
    echo.join().unwrap();
}

/// Waits for a record. A lost wake-up is a wait that lasts to its limit.
fn wait(end: &RingEnd) {
    end.own_sleep.announce(Sleep::Waiting);
    if end.receiver.has_any() {
        end.own_sleep.set_awake();
        return;
    }
    let began = Instant::now();
    end.own_sleep.wait(Duration::from_secs(10));
    assert!(began.elapsed() < Duration::from_secs(9), "a lost wake-up");
}
