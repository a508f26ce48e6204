//! Tests in which one side ends after each of its stores to the shared memory, as SIGKILL ends a
//! process. The other side must get exactly what was published completely.

use std::os::fd::AsFd as _;

use super::layout::{BLOCKS, MAX_RECORD_LEN, Side};
use super::sender::RESERVED;
use super::sync::counted::{after_store, stop_after};
use super::*;
use crate::{Scoreboard, Ticket};

fn pair() -> (RingEnd, RingEnd) {
    let (front, _, handles) = RingEnd::create().unwrap();
    (front, handles.attach().unwrap().0)
}

/// Calls `run` with 1, 2, and so on, until `run` returns true. `run` must stop an end of the rings
/// after this number of stores, and must return true if the end made fewer stores. Returns the last
/// number.
fn at_every_store(mut run: impl FnMut(usize) -> bool) -> usize {
    (1..10_000).find(|stores| run(*stores)).expect("it comes to an end")
}

/// Takes all records, and checks their kinds and contents. Returns the number of records.
fn take_all(end: &mut RingEnd, expected: &[(u8, Vec<u8>, bool)]) -> usize {
    let mut out = Vec::new();
    let mut taken = 0;
    while let Some(arrived) = end.receiver.take(&mut out).unwrap() {
        let (kind, content, has_file) = &expected[taken];
        assert_eq!((arrived.kind, arrived.descriptor.is_some()), (*kind, *has_file));
        assert!(out == *content, "{kind}");
        taken += 1;
    }
    taken
}

#[test]
#[cfg_attr(miri, ignore = "files and sockets")]
fn a_sender_that_ends_at_any_store_has_sent_complete_records_only() {
    let file = super::tests::file("a file");
    let records = [
        (1, b"short".to_vec(), false),
        (2, vec![b'x'; 9000], false),
        (3, vec![b'y'; MAX_RECORD_LEN + 1], false),
        (4, b"with a file".to_vec(), true),
        (5, vec![b'z'; MAX_RECORD_LEN + 1], true),
        (6, Vec::new(), false),
    ];
    let mut seen = [false; 7];
    let stores = at_every_store(|stores| {
        let (mut front, mut worker) = pair();
        // Afterwards, the records use returned blocks, and words after the first of the ring.
        for _ in 0..2 {
            while worker.sender.send(9, b"before", None).is_ok() {}
            let mut out = Vec::new();
            while front.receiver.take(&mut out).unwrap().is_some() {}
        }
        let mut returned = 0;
        let end = stop_after(stores, || {
            for (kind, content, has_file) in &records {
                let file = has_file.then(|| file.as_fd());
                let record = (Lane::Requests, *kind);
                worker.sender.send_parts(record, [content, b""], file, &mut 0).unwrap();
                returned += 1;
            }
        });
        let taken = take_all(&mut front, &records);
        // The last store of a record is that of its word. If the sender is stopped after that
        // store, the record has been sent, although `send` has not returned.
        assert!(taken == returned || taken == returned + 1, "{stores}: {taken} {returned}");
        seen[taken] = true;
        end.is_some()
    });
    assert!(stores > 6 * 3 && seen == [true; 7], "{stores} {seen:?}");
}

#[test]
#[cfg_attr(miri, ignore = "files and sockets")]
fn a_receiver_that_ends_at_any_store_does_no_harm_to_the_sender() {
    let mut seen = std::collections::HashSet::new();
    at_every_store(|stores| {
        let (mut front, mut worker) = pair();
        while front.sender.send(1, b"x", None).is_ok() {}
        let end = stop_after(stores, || {
            worker.own_sleep.announce(Sleep::Waiting);
            worker.own_sleep.set_awake();
            let mut out = Vec::new();
            (0..3).for_each(|_| drop(worker.receiver.take(&mut out).unwrap().unwrap()));
        });
        // Only blocks that were returned can be used again, and each of them only once.
        let sent = (0..BLOCKS).take_while(|_| front.sender.send(2, b"y", None).is_ok()).count();
        assert_eq!(front.sender.send(2, b"y", None), Err(SendError::Full));
        let stored = front.sender.mapping().sent_by(Side::FrontEnd);
        let unread = stored
            .records
            .0
            .iter()
            .filter(|word| word.load(std::sync::atomic::Ordering::Relaxed) != 0);
        let used = BLOCKS - RESERVED;
        assert!((used - 1..=used).contains(&unread.count()));
        let _ = front.peer_sleep.take_sleep();
        seen.insert(sent);
        end.is_some()
    });
    assert_eq!(seen, (0..=3).collect());
}

/// The outcome of a request whose worker has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Outcome {
    Answered,
    /// The request is queued again, for another worker.
    Requeued,
    /// The client gets 502, because the application may have had an effect.
    Lost,
}

#[test]
#[cfg_attr(miri, ignore = "files and sockets")]
fn requests_of_a_worker_that_ends_at_any_store_have_one_outcome_each() {
    let file = super::tests::file("a body");
    let mut seen = std::collections::HashSet::new();
    let stores = at_every_store(|stores| {
        let (mut front, mut worker) = pair();
        let scoreboard = Scoreboard::new();
        let tickets: Vec<_> =
            (0..4).map(|place| Ticket::new(place + 1, place as usize).unwrap()).collect();
        for ticket in &tickets {
            front.sender.send(1, &ticket.word().to_le_bytes(), None).unwrap();
        }
        // The front end has withdrawn the third request.
        assert!(scoreboard.withdraw(tickets[2]));
        // The number of times that the application has begun each request.
        let mut effects = [0; 4];
        let end = stop_after(stores, || {
            let mut record = Vec::new();
            while worker.receiver.take(&mut record).unwrap().is_some() {
                let ticket = u64::from_le_bytes(record[..8].try_into().unwrap());
                let ticket = Ticket::of_word(ticket).unwrap();
                scoreboard.count_taken();
                after_store();
                let is_begun = scoreboard.begin(ticket);
                after_store();
                if !is_begun {
                    continue;
                }
                effects[ticket.place()] += 1;
                let file = (ticket.place() == 1).then(|| file.as_fd());
                worker.sender.send(5, &record, file).unwrap();
                let _ = worker.peer_sleep.take_sleep();
                scoreboard.count_done(1);
                after_store();
            }
        });
        // These are the steps of the front end after the end of the process.
        let mut answered = [false; 4];
        let mut record = Vec::new();
        while let Some(arrived) = front.receiver.take(&mut record).unwrap() {
            let ticket = u64::from_le_bytes(record[..8].try_into().unwrap());
            let ticket = Ticket::of_word(ticket).unwrap();
            assert_eq!(arrived.descriptor.is_some(), ticket.place() == 1);
            assert!(!std::mem::replace(&mut answered[ticket.place()], true), "twice");
        }
        for ticket in &tickets {
            let place = ticket.place();
            let outcome = match (answered[place], scoreboard.has_begun(*ticket)) {
                (true, _) => Outcome::Answered,
                (false, true) => Outcome::Lost,
                (false, false) => Outcome::Requeued,
            };
            match outcome {
                Outcome::Answered => assert_eq!(effects[place], 1),
                Outcome::Requeued => assert_eq!(effects[place], 0, "it would be done twice"),
                Outcome::Lost => assert!(effects[place] <= 1),
            }
            assert!(place != 2 || outcome == Outcome::Requeued, "it was withdrawn");
            seen.insert((place, outcome));
        }
        end.is_some()
    });
    // The withdrawn request had one outcome, and each of the other three had each outcome.
    assert_eq!(seen.len(), 3 * 3 + 1, "{stores} stores: {seen:?}");
}
