//! Models of the rings, of the sleep words and of the withdrawal of requests. Loom (a model
//! checker) runs each model in every order of the threads' steps with at most three preemptions,
//! and with every value that the memory orders allow a load to return. The models are run by
//! `scripts/soundness model`, or
//! `RUSTFLAGS="--cfg loom" cargo test -p rookery-worker-protocol --lib --release rings::model`.
//!
//! The rings of the models have four words and three blocks. Loom reports a deadlock if a wake-up
//! is lost, because nothing in the models ends a wait after a time, and it reports a block that is
//! read while it is written.

use loom::sync::atomic::{AtomicBool, AtomicU64};
use loom::sync::{Arc as LoomArc, Condvar, Mutex};
use loom::thread;
use std::sync::atomic::Ordering::{self, Relaxed, SeqCst};
use std::time::Duration;

use super::layout::{BLOCKS, Mapping, Side};
use super::*;
use crate::Ticket;
use crate::scoreboard::begun_word::{self, Word};

/// Runs `work` as a loom model: in every order of its threads' steps with at most three
/// preemptions.
fn model(work: impl Fn(RingEnd, RingEnd) + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(move || {
        let mapping = Arc::new(Mapping::modelled());
        // The records of the models have no descriptors.
        let channel =
            || DescriptorChannel::from_end(std::fs::File::open("/dev/null").unwrap().into());
        let front = RingEnd::new(Arc::clone(&mapping), channel(), Side::FrontEnd);
        work(front, RingEnd::new(mapping, channel(), Side::Worker));
    });
}

/// Sends a record once there is a block for it.
fn send(end: &mut RingEnd, kind: u8, bytes: &[u8]) {
    while let Err(error) = end.sender.send(kind, bytes, None) {
        assert_eq!(error, SendError::Full);
        thread::yield_now();
    }
}

/// Takes a record if there is one, and checks that its bytes are those of its kind.
fn take(end: &mut RingEnd) -> Option<u8> {
    let mut out = Vec::new();
    let kind = end.receiver.take(&mut out).unwrap()?.kind;
    assert!(!out.is_empty() && out.iter().all(|byte| *byte == kind), "{kind} {out:?}");
    Some(kind)
}

/// Wakes the other side if it sleeps in [`wait`] or [`poll`].
fn wake(end: &RingEnd, signal: &Signal) {
    end.peer_sleep.wake_sleeper(|| signal.set());
}

/// Sleeps until there is a record, as an application does that waits in `service()`.
fn wait(end: &RingEnd, has_others: impl Fn() -> bool) {
    end.own_sleep.announce(Sleep::Waiting);
    if end.receiver.arrivals().has_any() || has_others() {
        end.own_sleep.set_awake();
    } else {
        end.own_sleep.wait(Duration::MAX);
    }
}

/// Sleeps until there is a record, as the front end does.
fn poll(end: &RingEnd, signal: &Signal) {
    end.own_sleep.announce(Sleep::Polling);
    if !end.receiver.has_any() {
        signal.wait();
    }
    end.own_sleep.set_awake();
}

/// A model of a descriptor whose changes to being readable are reported (`EPOLLET`).
#[derive(Default)]
struct Signal(Mutex<bool>, Condvar);

impl Signal {
    fn set(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }

    fn wait(&self) {
        let mut is_set = self.0.lock().unwrap();
        while !*is_set {
            is_set = self.1.wait(is_set).unwrap();
        }
        *is_set = false;
    }
}

impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }

    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        AtomicU64::compare_exchange(self, current, new, SeqCst, SeqCst)
    }
}

#[test]
fn records_arrive_complete_and_once_and_blocks_are_used_again() {
    model(|mut front, mut worker| {
        let sending = thread::spawn(move || {
            // More than there are blocks, and more than there are words.
            for kind in 1..=BLOCKS as u8 + 2 {
                send(&mut front, kind, &[kind; 4][..usize::from(kind % 4) + 1]);
            }
        });
        for expected in 1..=BLOCKS as u8 + 2 {
            let kind = loop {
                match take(&mut worker) {
                    Some(kind) => break kind,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(kind, expected);
        }
        sending.join().unwrap();
        assert_eq!(take(&mut worker), None);
    });
}

#[test]
fn a_record_in_parts_arrives_whole_whatever_the_other_lane_sends() {
    model(|mut front, mut worker| {
        let sending = thread::spawn(move || {
            let (mut sent, mut has_sent_short) = (0, false);
            while sent < 6 || !has_sent_short {
                if sent < 6 {
                    let record = (Lane::Messages, 7);
                    let _ = front.sender.send_parts(record, [&[7; 6], b""], None, &mut sent);
                }
                has_sent_short = has_sent_short || front.sender.send(3, &[3], None).is_ok();
                thread::yield_now();
            }
        });
        let mut kinds = [0; 2];
        for at in 0..2 {
            kinds[at] = loop {
                match take(&mut worker) {
                    Some(kind) => break kind,
                    None => thread::yield_now(),
                }
            };
        }
        kinds.sort_unstable();
        assert_eq!(kinds, [3, 7]);
        sending.join().unwrap();
        assert_eq!((take(&mut worker), worker.receiver.incomplete_bytes()), (None, 0));
    });
}

#[test]
fn a_record_is_either_taken_or_withdrawn() {
    model(|mut front, mut worker| {
        let taking = thread::spawn(move || {
            let mut taken = Vec::new();
            while taken.last() != Some(&2) {
                taken.extend(take(&mut worker));
                thread::yield_now();
            }
            taken
        });
        send(&mut front, 1, &[1, 1]);
        let part = front.sender.last();
        let mut out = Vec::new();
        let withdrawn = front.sender.withdraw(part, &mut out);
        assert!(withdrawn.is_none() || (withdrawn, &out[..]) == (Some(1), &[1, 1]));
        send(&mut front, 2, &[2]);
        let expected = if withdrawn.is_some() { &[2][..] } else { &[1, 2] };
        assert_eq!(taking.join().unwrap(), expected);
    });
}

#[test]
fn both_sides_sleep_and_each_is_woken() {
    for polls in [false, true] {
        model(move |mut front, mut worker| {
            let signal = LoomArc::new(Signal::default());
            let there = LoomArc::clone(&signal);
            let echo = thread::spawn(move || {
                let mut left = 2;
                while left > 0 {
                    match take(&mut worker) {
                        Some(kind) => {
                            send(&mut worker, kind, &[kind]);
                            wake(&worker, &there);
                            left -= 1;
                        }
                        None => wait(&worker, || false),
                    }
                }
            });
            for kind in 1..=2 {
                send(&mut front, kind, &[kind]);
                wake(&front, &signal);
                while take(&mut front).is_none() {
                    if polls { poll(&front, &signal) } else { wait(&front, || false) }
                }
            }
            echo.join().unwrap();
        });
    }
}

#[test]
fn an_application_that_waits_for_two_queues_misses_neither() {
    model(|mut front, mut worker| {
        let has_event = LoomArc::new(AtomicBool::new(false));
        let event = LoomArc::clone(&has_event);
        let own_sleep = worker.own_sleep.clone();
        // The server's thread of the worker. The state of the link is not a part of this model.
        let pushing = thread::spawn(move || {
            event.store(true, SeqCst);
            own_sleep.wake_waiting();
        });
        let sending = thread::spawn(move || {
            send(&mut front, 1, &[1]);
            wake(&front, &Signal::default());
        });
        let (mut has_record, mut is_notified) = (false, false);
        while !has_record || !is_notified {
            has_record |= take(&mut worker).is_some();
            is_notified |= has_event.load(SeqCst);
            if !has_record || !is_notified {
                wait(&worker, || !is_notified && has_event.load(SeqCst));
            }
        }
        pushing.join().unwrap();
        sending.join().unwrap();
    });
}

#[test]
fn a_request_in_the_ring_is_begun_or_withdrawn_and_never_both() {
    model(|mut front, mut worker| {
        let place = LoomArc::new(AtomicU64::new(0));
        let tickets = [1, 2].map(|sequence| Ticket::new(sequence, 7).unwrap());
        let there = LoomArc::clone(&place);
        let worker = thread::spawn(move || {
            let mut begun = Vec::new();
            while let Some(kind) = take(&mut worker) {
                let ticket = tickets[usize::from(kind) - 1];
                begun.push((kind, begun_word::begin(&*there, ticket)));
            }
            (worker, begun)
        });
        send(&mut front, 1, &[1]);
        let first = begun_word::withdraw(&*place, tickets[0]);
        // Another request gets the place once the first one is withdrawn.
        let second = first && {
            send(&mut front, 2, &[2]);
            begun_word::withdraw(&*place, tickets[1])
        };
        let (mut worker, mut begun) = worker.join().unwrap();
        while let Some(kind) = take(&mut worker) {
            let ticket = tickets[usize::from(kind) - 1];
            begun.push((kind, begun_word::begin(&*place, ticket)));
        }
        let expected = [(1, !first), (2, !second)];
        assert_eq!(begun, expected[..if first { 2 } else { 1 }]);
        assert!(place.load(Relaxed) > 0);
    });
}

#[test]
fn a_lost_wake_up_is_found() {
    // Without the second look into the ring, the model must fail.
    let found = std::panic::catch_unwind(|| {
        model(|mut front, mut worker| {
            let sending = thread::spawn(move || {
                send(&mut front, 1, &[1]);
                wake(&front, &Signal::default());
            });
            while take(&mut worker).is_none() {
                worker.own_sleep.announce(Sleep::Waiting);
                worker.own_sleep.wait(Duration::MAX);
            }
            sending.join().unwrap();
        });
    });
    assert!(found.is_err());
}
