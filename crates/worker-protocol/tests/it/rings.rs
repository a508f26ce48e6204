//! Tests of the rings between two processes, each of which sleeps in each way that it can.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rookery_worker_protocol::Inherited;
use rookery_worker_protocol::rings::{Lane, MAX_RECORD_LEN, RingEnd, RingWakers, SendError, Sleep};

use crate::support::start;
use crate::worker_environment::assert_children_have_no_descriptors;

/// The time after which a sleep was not ended in time.
const LOST: Duration = Duration::from_secs(10);

/// The kind of a record that the worker returns as it is.
const ECHO: u8 = 1;
/// The kind of a record after which the worker ends.
const END: u8 = 2;

/// An I/O thread's watch of descriptors for changes, as the async runtime makes it.
struct Watch(OwnedFd);

impl Watch {
    fn new(descriptors: impl IntoIterator<Item = Arc<OwnedFd>>) -> Watch {
        // SAFETY: the calls create a descriptor that nothing else owns, and add open descriptors.
        unsafe {
            let watch = OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC));
            for descriptor in descriptors {
                let events = libc::EPOLLIN.unsigned_abs() | libc::EPOLLET.unsigned_abs();
                let mut event = libc::epoll_event { events, u64: 0 };
                let (own, other) = (watch.as_raw_fd(), descriptor.as_raw_fd());
                assert_eq!(libc::epoll_ctl(own, libc::EPOLL_CTL_ADD, other, &raw mut event), 0);
            }
            Watch(watch)
        }
    }

    /// Sleeps until a descriptor is readable that was not before, or is so again.
    fn sleep(&self) {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: `event` is one valid entry.
        let changes = unsafe { libc::epoll_wait(self.0.as_raw_fd(), &raw mut event, 1, 10_000) };
        assert!(changes == 1, "a lost wake-up: {:?}", io::Error::last_os_error());
    }
}

/// Sends a record as soon as there are free blocks, while `others` takes what arrives.
fn send(
    end: &mut RingEnd,
    wake: impl Fn(&RingEnd),
    (kind, bytes): (u8, &[u8]),
    file: Option<&File>,
) {
    let (began, mut sent, record) = (Instant::now(), 0, (Lane::Requests, kind));
    let file = file.map(|file| file.as_fd());
    while let Err(error) = end.sender.send_parts(record, [bytes, b""], file, &mut sent) {
        assert!(error == SendError::Full && began.elapsed() < LOST, "{error:?}");
        wake(end);
        std::thread::yield_now();
    }
}

/// Sleeps in one of two ways, unless a record has arrived.
fn sleep(end: &RingEnd, way: Sleep, mut poll: impl FnMut()) {
    end.own_sleep.announce(way);
    if !end.receiver.has_any() {
        if way == Sleep::Polling {
            poll();
        } else {
            let began = Instant::now();
            end.own_sleep.wait(LOST);
            assert!(began.elapsed() < LOST * 9 / 10, "a lost wake-up");
        }
    }
    end.own_sleep.set_awake();
}

/// Wakes the worker if it sleeps.
fn wake_worker(end: &RingEnd, wakers: &RingWakers) {
    end.peer_sleep.wake_sleeper(|| wakers.wake_worker());
}

fn content(number: usize) -> Vec<u8> {
    let lens = [0, 9, 1500, 60_000, MAX_RECORD_LEN, MAX_RECORD_LEN + 1, 700_000];
    // Most records are short, so that the processes sleep often.
    let len = if number % 50 == 0 { lens[number / 50 % lens.len()] } else { number % 40 };
    (0..len).map(|at| (at + number) as u8).collect()
}

#[test]
fn records_and_files_cross_to_another_process_and_back_and_no_wake_up_is_lost() {
    const RECORDS: usize = 20_000;
    let mut worker = start("rings::returns_records", "");
    let (mut end, wakers) = worker.rings.take().unwrap();
    let watch = Watch::new(wakers.watched_by_front_end());
    let mut record = Vec::new();
    let (mut sent, mut received) = (0, 0);
    while received < RECORDS {
        // From one to thirty records are on their way.
        while sent < RECORDS && sent - received < 1 + received % 30 {
            let file = (sent % 64 == 0).then(|| tempfile::tempfile().unwrap());
            if let Some(file) = &file {
                file.set_len(sent as u64).unwrap();
            }
            send(&mut end, |end| wake_worker(end, &wakers), (ECHO, &content(sent)), file.as_ref());
            sent += 1;
        }
        wake_worker(&end, &wakers);
        let Some(arrived) = end.receiver.take(&mut record).unwrap() else {
            sleep(&end, Sleep::Polling, || watch.sleep());
            continue;
        };
        assert!(record == content(received), "{received}");
        let len = arrived.descriptor.map(|file| File::from(file).metadata().unwrap().len());
        assert_eq!(len, (received % 64 == 0).then_some(received as u64));
        received += 1;
    }
    send(&mut end, |_| (), (END, b""), None);
    wake_worker(&end, &wakers);
    assert!(worker.process.wait().unwrap().success());
}

/// Runs in the worker process.
#[test]
#[ignore = "started by the test above"]
fn returns_records() {
    // SAFETY: no other thread uses the environment, and the descriptors belong to nothing else.
    let inherited = unsafe { Inherited::take() }.unwrap().unwrap();
    let (mut end, wakers) = inherited.rings;
    assert_children_have_no_descriptors();
    let watch = Watch::new([wakers.watched_by_worker()]);
    let (mut record, mut sleeps) = (Vec::new(), 0);
    loop {
        let Some(arrived) = end.receiver.take(&mut record).unwrap() else {
            end.peer_sleep.wake_sleeper(|| wakers.wake_front_end());
            sleeps += 1;
            let way = if sleeps % 3 == 0 { Sleep::Polling } else { Sleep::Waiting };
            sleep(&end, way, || {
                watch.sleep();
                wakers.on_worker_woken();
            });
            continue;
        };
        if arrived.kind == END {
            return;
        }
        let file = arrived.descriptor.map(File::from);
        let content = std::mem::take(&mut record);
        let wake = |end: &RingEnd| end.peer_sleep.wake_sleeper(|| wakers.wake_front_end());
        send(&mut end, wake, (ECHO, &content), file.as_ref());
    }
}

/// A worker that waits for records can also be woken by its own threads.
#[test]
fn another_thread_wakes_a_worker_that_waits() {
    let (_end, _wakers, handles) = RingEnd::create().unwrap();
    let (worker, _wakers) = handles.attach().unwrap();
    let own_sleep = worker.own_sleep.clone();
    let waking = std::thread::spawn(move || {
        for _ in 0..200 {
            own_sleep.wake_waiting();
            std::thread::sleep(Duration::from_micros(500));
        }
    });
    let began = Instant::now();
    for _ in 0..50 {
        sleep(&worker, Sleep::Waiting, || ());
    }
    assert!(began.elapsed() < LOST / 2);
    waking.join().unwrap();
}
