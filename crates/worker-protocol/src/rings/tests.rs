//! Tests of the rings. The two ends are in one process, with two mappings of the memory.

use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rookery_system::linux::content_file;

use super::layout::{BLOCKS, CLASSES, Mapping, Side, WORDS, place};
use super::*;

fn pair() -> (RingEnd, RingEnd) {
    if cfg!(miri) {
        let mapping = Arc::new(Mapping::allocated());
        // Miri has no sockets that keep the boundaries of packets, and opens no files. The tests
        // that it runs send no descriptors.
        let channel = || {
            let (end, _) = std::os::unix::net::UnixStream::pair().unwrap();
            DescriptorChannel::from_end(end.into())
        };
        let front = RingEnd::new(Arc::clone(&mapping), channel(), Side::FrontEnd);
        return (front, RingEnd::new(mapping, channel(), Side::Worker));
    }
    let (front, _, handles) = RingEnd::create().unwrap();
    (front, handles.attach().unwrap().0)
}

/// Takes a record without a descriptor, and returns its kind.
fn take(end: &mut RingEnd, out: &mut Vec<u8>) -> Result<Option<u8>, Malformed> {
    let arrived = end.receiver.take(out)?;
    Ok(arrived.map(|arrived| {
        assert!(arrived.descriptor.is_none());
        arrived.kind
    }))
}

#[test]
fn records_arrive_complete_and_in_order_in_both_directions() {
    let (mut front, mut worker) = pair();
    let mut out = Vec::new();
    let rounds = if cfg!(miri) { WORDS + 40 } else { 3 * WORDS };
    for round in 0..rounds {
        let len = [0, 1, 200, 1024, 1025, 8192, 8193, 65_536, MAX_RECORD_LEN][round % 9];
        let bytes: Vec<u8> = if cfg!(miri) {
            vec![round as u8; len]
        } else {
            (0..len).map(|at| (at + round) as u8).collect()
        };
        front.sender.send(1 + (round % 255) as u8, &bytes, None).unwrap();
        worker.sender.send(7, &bytes, None).unwrap();
        assert_eq!(take(&mut worker, &mut out), Ok(Some(1 + (round % 255) as u8)));
        assert_eq!(out, bytes);
        assert_eq!(take(&mut front, &mut out), Ok(Some(7)));
        assert_eq!(out, bytes);
    }
    assert_eq!(take(&mut worker, &mut out), Ok(None));
    assert!(!worker.receiver.has_any() && !worker.receiver.arrivals().has_any());
}

#[test]
fn a_sender_without_blocks_is_full_until_some_are_returned() {
    let (mut front, mut worker) = pair();
    let sent = (0..10_000).find(|_| front.sender.send(1, b"x", None).is_err()).unwrap();
    assert_eq!(sent, BLOCKS, "small records also use large blocks");
    assert_eq!(front.sender.send(1, b"x", None), Err(SendError::Full));
    let mut out = Vec::new();
    worker.receiver.take(&mut out).unwrap().unwrap();
    front.sender.send(1, b"y", None).unwrap();
    assert_eq!(front.sender.send(1, b"x", None), Err(SendError::Full));
    let rest = (0..10_000).find(|_| worker.receiver.take(&mut out).unwrap().is_none()).unwrap();
    assert_eq!((rest, out.as_slice()), (BLOCKS, &b"y"[..]));
}

#[test]
#[cfg_attr(miri, ignore = "files and sockets")]
fn long_records_and_descriptors_arrive_between_others() {
    let (mut front, mut worker) = pair();
    let long: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    let file = content_file::create([&b"a file"[..]]).unwrap();
    front.sender.send(1, b"short", None).unwrap();
    front.sender.send(2, &long, None).unwrap();
    front.sender.send(3, b"with", Some(file.as_fd())).unwrap();
    front.sender.send(4, &long[..=MAX_RECORD_LEN], Some(file.as_fd())).unwrap();
    front.sender.send(5, b"last", None).unwrap();
    let mut out = Vec::new();
    for (kind, content, has_file) in [
        (1, &b"short"[..], false),
        (2, &long, false),
        (3, b"with", true),
        (4, &long[..=MAX_RECORD_LEN], true),
        (5, b"last", false),
    ] {
        let arrived = worker.receiver.take(&mut out).unwrap().unwrap();
        assert_eq!((arrived.kind, arrived.descriptor.is_some()), (kind, has_file));
        assert!(out == content, "{kind}");
        if let Some(descriptor) = arrived.descriptor {
            let (file, mut text) = (std::fs::File::from(descriptor), [0; 6]);
            rookery_system::file::read_at(&file, &mut text, 0).unwrap();
            assert_eq!(&text, b"a file");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "files and sockets")]
fn a_record_whose_descriptors_the_channel_does_not_accept_is_sent_later() {
    let (mut front, mut worker) = pair();
    let file = content_file::create([&b"x"[..]]).unwrap();
    let mut out = Vec::new();
    let sent =
        (0..10_000).find(|_| front.sender.send(1, b"y", Some(file.as_fd())).is_err()).unwrap();
    assert_eq!(front.sender.send(1, b"y", Some(file.as_fd())), Err(SendError::Full));
    front.sender.send(2, b"y", None).unwrap();
    for _ in 0..sent {
        assert!(worker.receiver.take(&mut out).unwrap().unwrap().descriptor.is_some());
    }
    assert_eq!(take(&mut worker, &mut out), Ok(Some(2)));
    front.sender.send(1, b"y", Some(file.as_fd())).unwrap();
    assert!(worker.receiver.take(&mut out).unwrap().unwrap().descriptor.is_some());
}

#[test]
#[cfg_attr(miri, ignore = "files and sockets")]
fn descriptors_of_a_hostile_worker_are_found() {
    const IS_LONG: u64 = 1 << 55;
    const HAS_DESCRIPTOR: u64 = 1 << 54;
    let sealed = || content_file::create([&b"content"[..]]).unwrap();
    let hostile = |flags: u64, len: u64, packet: Option<(u64, Vec<std::fs::File>)>| {
        let (mut front, worker) = pair();
        if let Some((number, files)) = packet {
            let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
            worker.sender.channel().send(number, &files).unwrap();
        }
        let shared = worker.sender.mapping().shared();
        // SAFETY: nothing else uses the memory of this test.
        unsafe {
            let start = shared.sent_by[Side::Worker as usize].slab.0.block(place(0).unwrap());
            start.copy_from_nonoverlapping(len.to_le_bytes().as_ptr(), 8);
        }
        shared.sent_by[Side::Worker as usize].records.0[0].store(1 << 56 | flags | 8, Relaxed);
        let mut out = Vec::new();
        front.receiver.take(&mut out).map(|arrived| (arrived.unwrap().descriptor.is_some(), out))
    };
    assert_eq!(hostile(IS_LONG, 7, Some((0, vec![sealed()]))), Ok((false, b"content".to_vec())));
    let both = Some((0, vec![sealed(), sealed()]));
    assert_eq!(hostile(IS_LONG | HAS_DESCRIPTOR, 6, both), Ok((true, b"conten".to_vec())));
    let pipe = std::fs::File::open("/dev/zero").unwrap();
    for (flags, len, packet) in [
        // No packet, one with another number, too many or too few descriptors.
        (IS_LONG, 7, None),
        (IS_LONG, 7, Some((1, vec![sealed()]))),
        (IS_LONG, 7, Some((0, vec![sealed(), sealed()]))),
        (HAS_DESCRIPTOR, 7, Some((0, vec![sealed(), sealed()]))),
        (IS_LONG | HAS_DESCRIPTOR, 7, Some((0, vec![sealed()]))),
        // A length that the file does not have, one above the limit, and files that may block.
        (IS_LONG, 8, Some((0, vec![sealed()]))),
        (IS_LONG, MAX_LONG_RECORD as u64 + 1, Some((0, vec![sealed()]))),
        (IS_LONG, u64::MAX, Some((0, vec![sealed()]))),
        (IS_LONG, 7, Some((0, vec![pipe]))),
        (IS_LONG, 0, Some((0, vec![std::fs::File::open("/").unwrap()]))),
        (
            IS_LONG,
            7,
            Some((0, vec![std::fs::File::open(std::env::current_exe().unwrap()).unwrap()])),
        ),
    ] {
        let text = format!("{flags:x} {len} {packet:?}");
        assert_eq!(hostile(flags, len, packet), Err(Malformed), "{text}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "files and sockets")]
fn long_records_in_files_that_are_not_sealed_are_refused() {
    let (mut front, worker) = pair();
    let file = tempfile::tempfile().unwrap();
    worker.sender.channel().send(0, &[file.as_fd()]).unwrap();
    let record = &worker.sender.mapping().shared().sent_by[Side::Worker as usize].records.0[0];
    record.store(1 << 56 | 1 << 55 | 8, Relaxed);
    assert_eq!(take(&mut front, &mut Vec::new()), Err(Malformed));
}

#[test]
#[cfg_attr(miri, ignore = "files and sockets")]
fn a_sent_descriptor_stays_open_until_it_arrives_and_no_longer_than_to_the_next_record() {
    let (mut front, mut worker) = pair();
    let (mut reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
    reader.set_nonblocking(true).unwrap();
    let mut is_open = || reader.read(&mut [0]).is_err();
    front.sender.send(1, b"x", Some(writer.as_fd())).unwrap();
    drop(writer);
    let mut out = Vec::new();
    let arrived = worker.receiver.take(&mut out).unwrap().unwrap();
    front.sender.send(2, b"y", None).unwrap();
    assert!(is_open());
    drop(arrived);
    assert!(!is_open());
}

#[test]
#[cfg_attr(miri, ignore = "files and sockets")]
fn only_the_front_end_sends_records_above_the_limit() {
    let (mut front, mut worker) = pair();
    let longest = vec![7; MAX_LONG_RECORD + 1];
    let mut out = Vec::new();
    front.sender.send(1, &longest, None).unwrap();
    assert_eq!(take(&mut worker, &mut out), Ok(Some(1)));
    assert!(out == longest, "a setting may allow such messages");
    worker.sender.send(1, &longest, None).unwrap();
    assert_eq!(take(&mut front, &mut out), Err(Malformed));
}

#[test]
fn invalid_words_of_a_hostile_worker_are_found() {
    let hostile = |word: u64| {
        let (mut front, worker) = pair();
        worker.sender.mapping().shared().sent_by[Side::Worker as usize].records.0[0]
            .store(word, Relaxed);
        take(&mut front, &mut Vec::new())
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
            front.sender.send(1, b"x", None).unwrap();
            shared.sent_by[0].records.0[block].store(0, Relaxed);
        }
        let is_sent = returns[0] == 1 && returns.len() == 1;
        for (at, word) in returns.iter().enumerate() {
            shared.sent_by[0].returns.0[at].store(*word, Relaxed);
        }
        let result = front.sender.send(1, b"x", None);
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
fn no_wake_up_is_lost_and_nothing_changes_between_threads() {
    const ROUNDS: u64 = if cfg!(miri) { 100 } else { 20_000 };
    let (mut front, mut worker) = pair();
    let echo = std::thread::spawn(move || {
        let (mut out, mut seen) = (Vec::new(), 0);
        while seen < ROUNDS {
            match worker.receiver.take(&mut out).unwrap() {
                Some(arrived) => {
                    worker.sender.send(arrived.kind, &out, None).unwrap();
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
        // The number of records that have not come back varies from 1 to 60.
        while sent < ROUNDS && sent - received < 1 + received % 60 % BLOCKS as u64 {
            front.sender.send(3, &sent.to_le_bytes(), None).unwrap();
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

#[test]
#[cfg_attr(miri, ignore = "timers")]
fn each_wake_up_is_a_change_although_nothing_is_read() {
    use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

    let (_, wakers, handles) = RingEnd::create().unwrap();
    let (_, of_worker) = handles.attach().unwrap();
    // SAFETY: the call creates a descriptor, which nothing else owns.
    let epoll = unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)) };
    let [counter, timer] = wakers.watched_by_front_end();
    let watched = [(1, of_worker.watched_by_worker()), (2, counter), (3, timer)];
    for (number, descriptor) in &watched {
        let events = u32::from_ne_bytes((libc::EPOLLIN | libc::EPOLLET).to_ne_bytes());
        let mut event = libc::epoll_event { events, u64: *number };
        let (epoll, descriptor) = (epoll.as_raw_fd(), descriptor.as_raw_fd());
        // SAFETY: the descriptors are open, and the event is valid for the call.
        unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, descriptor, &raw mut event) };
    }
    let next = |timeout| {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: the descriptor is open, and the event is valid for the call.
        unsafe { libc::epoll_wait(epoll.as_raw_fd(), &raw mut event, 1, timeout) };
        event.u64
    };
    for _ in 0..100 {
        wakers.wake_worker();
        assert_eq!(next(10_000), 1);
        wakers.wake_front_end();
        assert_eq!(next(10_000), 2);
        wakers.wake_front_end_within(Duration::from_micros(50));
        assert_eq!(next(10_000), 3);
        assert_eq!(next(0), 0);
    }
}

/// Waits for a record. Panics if the wait lasts until its timeout, because a wake-up was then lost.
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
