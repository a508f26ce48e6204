//! Tests the rings in a process that can open no more descriptors. The limit applies to the whole
//! process, so this is a program of its own with one test.

#![cfg(target_os = "linux")]

use std::fs::File;
use std::os::fd::AsFd as _;

use rookery_worker_protocol::rings::{Lane, RingEnd};

/// Makes this process able to open `free` more descriptors. Returns those that occupy the others.
fn leave(free: usize) -> Vec<File> {
    let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
    // SAFETY: the limit is valid for the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    let mut all: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    all.truncate(all.len() - free);
    all
}

#[test]
fn records_wait_for_their_descriptors_in_a_worker_and_not_in_the_front_end() {
    let (mut front, _, handles) = RingEnd::create().unwrap();
    let (mut worker, _) = handles.attach().unwrap();
    let file = tempfile::tempfile().unwrap();
    let long = vec![b'x'; 100_000];
    front.sender.send(1, b"a", Some(file.as_fd())).unwrap();
    let record = (Lane::Requests, 2);
    front.sender.send_parts(record, [&long, b""], Some(file.as_fd()), &mut 0).unwrap();
    front.sender.send(3, b"c", None).unwrap();
    let mut record = Vec::new();
    let mut take = |worker: &mut RingEnd| {
        let arrived = worker.receiver.take(&mut record).unwrap();
        arrived.map(|arrived| (arrived.kind, arrived.descriptor, record.len()))
    };

    let occupied = leave(0);
    for _ in 0..100 {
        assert!(take(&mut worker).is_none());
        assert!(worker.receiver.lacks_descriptors() && !worker.receiver.has_any());
        assert!(worker.receiver.arrivals().has_any(), "it is still there");
    }
    // A sent descriptor needs nothing more.
    front.sender.send(5, b"e", Some(file.as_fd())).unwrap();

    // The front end does without the descriptor, because all later records would wait for it.
    worker.sender.send(6, b"f", Some(file.as_fd())).unwrap();
    worker.sender.send(7, b"g", None).unwrap();
    let mut other = Vec::new();
    let arrived = front.receiver.take(&mut other).unwrap().unwrap();
    assert!(arrived.kind == 6 && arrived.descriptor.is_none() && arrived.is_descriptor_lost);
    let arrived = front.receiver.take(&mut other).unwrap().unwrap();
    assert!(arrived.kind == 7 && !arrived.is_descriptor_lost && other == b"g");

    drop(occupied);
    let occupied = leave(1);
    let (kind, descriptor, len) = take(&mut worker).unwrap();
    assert!(kind == 1 && descriptor.is_some() && len == 1);
    assert!(take(&mut worker).is_none() && worker.receiver.lacks_descriptors());

    drop(occupied);
    let (kind, descriptor, len) = take(&mut worker).unwrap();
    assert!(kind == 2 && descriptor.is_some() && len == long.len());
    assert!(!worker.receiver.lacks_descriptors());
    assert!(matches!(take(&mut worker), Some((3, None, 1))));
    assert!(matches!(take(&mut worker), Some((5, Some(_), 1))));
    assert!(take(&mut worker).is_none());
    // Nothing was opened that was not given to the caller.
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count();
    drop((front, worker, file));
    let rest = std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert_eq!(open - rest, 2 + 1, "the ends of the channel, and a file");
}
