//! Static paths that a worker announces to its supervisor, and the confirmation that it waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rookery_server::static_files::{StaticFiles, StaticPath, read_announcement};
use rookery_server::{Config, Confirmation, Supervision};
use rookery_worker_protocol::{ControlChannel, Message, Received};

use super::{TEST_TIMEOUT, Worker, echo, whose};

fn worker() -> Worker {
    Worker::new(Config::default(), echo(whose))
}

/// Returns an announcement's number and its keys.
fn announced(received: &Received) -> (u64, Vec<String>) {
    let Received::Announcement(number, bytes) = received else { panic!("{received:?}") };
    (*number, read_announcement(bytes).unwrap().into_keys().collect())
}

fn static_path(path: &str) -> StaticPath {
    StaticPath { path: path.into(), ..StaticPath::default() }
}

/// Announces a single path of this name.
fn announce(supervision: &Supervision, files: &StaticFiles, key: &str) {
    files.replace([(key.to_owned(), static_path("/srv"))]).unwrap();
    supervision.announce(files);
}

/// Confirms what is announced from now on until `is_over`. Returns how many packets came.
fn confirm(control: &ControlChannel, is_over: &AtomicBool) -> usize {
    let (mut packets, began) = (0, Instant::now());
    while !is_over.load(Ordering::Acquire) {
        assert!(began.elapsed() < TEST_TIMEOUT);
        match control.receive() {
            Received::Nothing => std::thread::yield_now(),
            received => {
                packets += 1;
                control.send(Message::Applied(announced(&received).0)).unwrap();
            }
        }
    }
    packets
}

#[test]
fn static_paths_are_announced_when_they_change() {
    let worker = worker();
    let files = StaticFiles::new();
    // There are no static paths, so that nothing is announced.
    worker.supervision.announce(&files);
    worker.is_pinged(1);
    announce(&worker.supervision, &files, "/a");
    worker.supervision.announce(&files);
    assert_eq!(announced(&worker.told()), (1, vec!["/a".to_owned()]));
    announce(&worker.supervision, &files, "/b");
    assert_eq!(announced(&worker.told()), (2, vec!["/b".to_owned()]));
    files.remove("/b");
    worker.supervision.announce(&files);
    assert_eq!(announced(&worker.told()), (3, Vec::new()));
    worker.is_pinged(2);
}

#[test]
fn each_change_is_waited_for_with_one_round_trip_and_no_change_with_none() {
    const CHANGES: usize = 300;
    let worker = worker();
    let files = StaticFiles::new();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let supervisor = scope.spawn(|| confirm(&worker.control, &is_over));
        for at in 0..CHANGES {
            announce(&worker.supervision, &files, &format!("/{at}"));
            assert_eq!(worker.supervision.wait_until_applied(), Confirmation::Applied);
            // The static paths are the same as before.
            worker.supervision.announce(&files);
            assert_eq!(worker.supervision.wait_until_applied(), Confirmation::Applied);
        }
        is_over.store(true, Ordering::Release);
        assert_eq!(supervisor.join().unwrap(), CHANGES);
    });
}

#[test]
fn the_wait_for_a_supervisor_that_does_not_read_is_limited_and_not_repeated() {
    let worker = worker();
    let files = StaticFiles::new();
    announce(&worker.supervision, &files, "/0");
    assert_eq!(worker.supervision.wait_until_applied(), Confirmation::TimedOut);
    let began = Instant::now();
    for at in 1..=1_000 {
        announce(&worker.supervision, &files, &format!("/{at}"));
        assert_eq!(worker.supervision.wait_until_applied(), Confirmation::NotAwaited);
    }
    // Waiting for each confirmation would take half an hour.
    assert!(began.elapsed() < TEST_TIMEOUT);
    // The supervisor reads again, and announcements are confirmed as before.
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| confirm(&worker.control, &is_over));
        let began = Instant::now();
        while worker.supervision.wait_until_applied() != Confirmation::Applied {
            assert!(began.elapsed() < TEST_TIMEOUT);
            std::thread::yield_now();
        }
        announce(&worker.supervision, &files, "/last");
        assert_eq!(worker.supervision.wait_until_applied(), Confirmation::Applied);
        is_over.store(true, Ordering::Release);
    });
}

#[test]
fn a_confirmation_of_an_earlier_change_is_not_one_of_the_last() {
    let worker = worker();
    let files = StaticFiles::new();
    announce(&worker.supervision, &files, "/a");
    announce(&worker.supervision, &files, "/b");
    // The supervisor confirms the first announcement, and one that was never sent.
    worker.control.send(Message::Applied(1)).unwrap();
    worker.control.send(Message::Applied(3)).unwrap();
    assert_eq!(worker.supervision.wait_until_applied(), Confirmation::TimedOut);
    worker.control.send(Message::Applied(2)).unwrap();
    let began = Instant::now();
    while worker.supervision.wait_until_applied() != Confirmation::Applied {
        assert!(began.elapsed() < TEST_TIMEOUT);
        std::thread::yield_now();
    }
}

#[test]
fn nobody_waits_for_a_supervisor_that_has_gone_or_is_not_heard() {
    let mut worker = worker();
    let files = StaticFiles::new();
    worker.server.unwatch_supervisor();
    announce(&worker.supervision, &files, "/a");
    assert_eq!(worker.supervision.wait_until_applied(), Confirmation::NotAwaited);
    worker.server.watch_supervisor(Arc::clone(&worker.supervision)).unwrap();
    // The supervisor closes the channel while the worker waits.
    let supervision = Arc::clone(&worker.supervision);
    let waiting = std::thread::spawn(move || supervision.wait_until_applied());
    let (nobody, _) = ControlChannel::pair().unwrap();
    drop(std::mem::replace(&mut worker.control, nobody));
    assert_eq!(waiting.join().unwrap(), Confirmation::NotAwaited);
    announce(&worker.supervision, &files, "/b");
    assert_eq!(worker.supervision.wait_until_applied(), Confirmation::NotAwaited);
}

#[test]
fn an_announcement_that_met_a_full_channel_is_sent_when_there_is_room() {
    const MOST: usize = 100;
    let worker = worker();
    let files = StaticFiles::new();
    // Each announcement nearly has the maximum size of a message, and together they exceed what a
    // socket buffers.
    let long = format!("/{}", "x".repeat(60_000));
    for round in 0..2 {
        for at in 0..MOST {
            files.replace([(format!("/{round}-{at}"), static_path(&long))]).unwrap();
            worker.supervision.announce(&files);
        }
        // The supervisor sends no ping; reading from the channel is sufficient.
        let last = [format!("/{round}-{}", MOST - 1)];
        let (mut heard, mut keys) = (0, Vec::new());
        while keys != last {
            keys = announced(&worker.told()).1;
            heard += 1;
        }
        assert!((1..MOST).contains(&heard), "{heard}");
        worker.is_pinged(1);
        assert_eq!(worker.control.receive(), Received::Nothing);
    }
}
