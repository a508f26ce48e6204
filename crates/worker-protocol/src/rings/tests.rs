//! Tests of the rings. The two ends are in one process, with two mappings of the memory.

use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::layout::{BLOCKS, CLASSES, Mapping, Side, WORDS, place};
use super::outbox::Beside;
use super::sender::RESERVED;
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
    assert_eq!(sent, BLOCKS - RESERVED, "small records also use large blocks");
    assert_eq!(front.sender.send(1, b"x", None), Err(SendError::Full));
    let mut out = Vec::new();
    worker.receiver.take(&mut out).unwrap().unwrap();
    front.sender.send(1, b"y", None).unwrap();
    assert_eq!(front.sender.send(1, b"x", None), Err(SendError::Full));
    let rest = (0..10_000).find(|_| worker.receiver.take(&mut out).unwrap().is_none()).unwrap();
    assert_eq!((rest, out.as_slice()), (BLOCKS - RESERVED, &b"y"[..]));
}

/// Returns an open file with these contents.
pub(super) fn file(text: &str) -> std::fs::File {
    use std::io::Write as _;

    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

/// Bytes that show if a part is missing or in another place.
fn long(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

#[test]
#[cfg_attr(miri, ignore = "files and sockets")]
fn long_records_and_descriptors_arrive_between_others() {
    let (mut front, mut worker) = pair();
    let long = long(10 * MAX_RECORD_LEN + 7);
    let with = file("a file");
    let records = [
        (1, &b"short"[..], false),
        (2, &long, false),
        (3, b"with", true),
        (4, &long[..=MAX_RECORD_LEN], true),
        (5, b"last", false),
    ];
    for (kind, content, has_file) in records {
        let descriptor = has_file.then(|| with.as_fd());
        let record = (Lane::Requests, kind);
        front.sender.send_parts(record, [b"", content], descriptor, &mut 0).unwrap();
    }
    let mut out = Vec::new();
    for (kind, content, has_file) in records {
        let arrived = worker.receiver.take(&mut out).unwrap().unwrap();
        assert_eq!((arrived.kind, arrived.descriptor.is_some()), (kind, has_file));
        assert!(out == content, "{kind}");
        if let Some(descriptor) = arrived.descriptor {
            let (file, mut text) = (std::fs::File::from(descriptor), [0; 6]);
            rookery_system::file::read_at(&file, &mut text, 0).unwrap();
            assert_eq!(&text, b"a file");
        }
    }
    assert_eq!(worker.receiver.incomplete_bytes(), 0);
}

/// Records of arbitrary lengths, in both lanes, with a sender that stalls and continues and a
/// receiver that takes none for a while. Each lane must stay in order, and each record complete.
#[test]
fn records_in_parts_arrive_in_the_order_of_their_lane_whatever_waits() {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut random = move |limit: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) % limit
    };
    let (front, mut worker) = pair();
    let mut outbox = Outbox::<Arc<()>>::new(front.sender);
    let kept = Arc::new(());
    let mut expected = [std::collections::VecDeque::new(), std::collections::VecDeque::new()];
    let (mut out, mut waited) = (Vec::new(), [false; 2]);
    for number in (0..=99).cycle().take(if cfg!(miri) { 40 } else { 3000 }) {
        let lane = if random(2) == 0 { Lane::Requests } else { Lane::Messages };
        let len = match random(if cfg!(miri) { 40 } else { 12 }) {
            0 => random(12 * MAX_RECORD_LEN as u64),
            1 => MAX_RECORD_LEN as u64 - 1 + random(3),
            _ => random(300),
        };
        let bytes = long(len as usize + 1);
        let (head, tail) = bytes.split_at(random(len + 1) as usize);
        let kind = lane as u8 * 100 + number % 100 + 1;
        let write = |record: &mut Vec<u8>| {
            record.extend_from_slice(head);
            Some(kind)
        };
        let beside = Beside { tail, descriptor: None };
        // A call of `wait` that returns true without more blocks is followed by others.
        let mut patience = random(3);
        let wait = |_| {
            patience = patience.saturating_sub(1);
            patience > 0
        };
        outbox.send(lane, beside, write, wait, |_| Arc::clone(&kept)).unwrap();
        expected[lane as usize].push_back((kind, bytes));
        waited[lane as usize] |= outbox.waiting(lane) > 0;
        if random(3) > 0 {
            continue;
        }
        for _ in 0..random(30) {
            if let Some(arrived) = worker.receiver.take(&mut out).unwrap() {
                let lane = usize::from(arrived.kind > 100);
                let (kind, bytes) = expected[lane].pop_front().unwrap();
                assert!(arrived.kind == kind && out == bytes, "{kind} {}", bytes.len());
            }
            if random(3) == 0 {
                outbox.flush().unwrap();
            }
        }
    }
    while expected.iter().any(|lane| !lane.is_empty()) {
        outbox.flush().unwrap();
        let Some(arrived) = worker.receiver.take(&mut out).unwrap() else { continue };
        let (kind, bytes) = expected[usize::from(arrived.kind > 100)].pop_front().unwrap();
        assert!(arrived.kind == kind && out == bytes, "{kind} {}", bytes.len());
    }
    assert!(!outbox.has_waiting() && worker.receiver.incomplete_bytes() == 0);
    assert_eq!([Lane::Requests, Lane::Messages].map(|lane| outbox.waiting_bytes(lane)), [0; 2]);
    assert_eq!(Arc::strong_count(&kept), 1, "each value is dropped with its record");
    assert!(cfg!(miri) || waited == [true; 2]);
}

#[test]
fn messages_leave_blocks_for_requests_and_small_records_for_parts() {
    let (front, mut worker) = pair();
    let mut outbox = Outbox::<()>::new(front.sender);
    let mut send = |lane, len: usize| {
        let beside = Beside { tail: &vec![b'x'; len], descriptor: None };
        outbox.send(lane, beside, |_| Some(1), |_| false, |_| ()).unwrap();
        (outbox.waiting(Lane::Requests), outbox.waiting(Lane::Messages))
    };
    let messages = (0..=BLOCKS).find(|_| send(Lane::Messages, 1).1 > 0).unwrap();
    let halves: usize = CLASSES.iter().map(|class| class.count.div_ceil(2)).sum();
    assert!(messages <= halves && messages + 4 > halves, "{messages}");
    send(Lane::Messages, 100 * MAX_RECORD_LEN);
    // A request does not wait for the messages, and a long one does not wait for short ones.
    let short = (0..=BLOCKS).find(|_| send(Lane::Requests, 1).0 > 0).unwrap();
    assert!(short + messages + 4 > BLOCKS, "{short}");
    let mut out = Vec::new();
    while worker.receiver.take(&mut out).unwrap().is_some() {}
    outbox.flush().unwrap();
    let beside = Beside { tail: &vec![b'x'; 2 * MAX_RECORD_LEN], descriptor: None };
    if !cfg!(miri) {
        outbox.send(Lane::Requests, beside, |_| Some(2), |_| false, |_| ()).unwrap();
        assert_eq!(outbox.waiting(Lane::Requests), 0, "the long message has at most half");
        assert!(outbox.waiting(Lane::Messages) > 0);
    }
}

#[test]
#[cfg_attr(miri, ignore = "files and sockets")]
fn a_record_whose_descriptors_the_channel_does_not_accept_is_sent_later() {
    let (mut front, mut worker) = pair();
    let file = file("x");
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
    const HAS_DESCRIPTOR: u64 = 1 << 54;
    let hostile = |flags: u64, packet: Option<u64>| {
        let (mut front, worker) = pair();
        if let Some(number) = packet {
            worker.sender.channel().send(number, file("x").as_fd()).unwrap();
        }
        let shared = worker.sender.mapping().shared();
        shared.sent_by[Side::Worker as usize].records.0[0].store(1 << 56 | flags | 8, Relaxed);
        let arrived = front.receiver.take(&mut Vec::new());
        arrived.map(|arrived| arrived.unwrap().descriptor.is_some())
    };
    assert_eq!(hostile(HAS_DESCRIPTOR, Some(0)), Ok(true));
    // A packet with another number, and none.
    assert_eq!(hostile(HAS_DESCRIPTOR, Some(1)), Err(Malformed));
    assert_eq!(hostile(HAS_DESCRIPTOR, None), Err(Malformed));
}

#[test]
fn parts_of_a_hostile_worker_are_found() {
    const IS_MESSAGE: u64 = 1 << 55;
    const HAS_DESCRIPTOR: u64 = 1 << 54;
    let large = BLOCKS as u64 - 1;
    let word = |kind: u64, flags: u64, rest: usize| kind << 56 | flags | large << 32 | rest as u64;
    let taken = |words: &[u64]| {
        let (mut front, worker) = pair();
        let records = &worker.sender.mapping().shared().sent_by[Side::Worker as usize].records.0;
        for (at, word) in words.iter().enumerate() {
            records[at].store(*word, Relaxed);
        }
        let mut out = Vec::new();
        let taken = take(&mut front, &mut out);
        taken.map(|kind| kind.map(|_| out.len()))
    };
    let total = MAX_RECORD_LEN + 9;
    assert_eq!(taken(&[word(1, 0, total), word(1, 0, 9)]), Ok(Some(total)));
    assert_eq!(taken(&[word(1, 0, total), word(2, IS_MESSAGE, 3), word(1, 0, 9)]), Ok(Some(3)));
    assert_eq!(taken(&[word(1, 0, total)]), Ok(None));
    for bad in [
        // Another kind, another length, nothing, the beginning again, and another descriptor.
        word(2, 0, 9),
        word(1, 0, 8),
        word(1, 0, 0),
        word(1, 0, total),
        word(1, HAS_DESCRIPTOR, 9),
    ] {
        assert_eq!(taken(&[word(1, 0, total), bad]), Err(Malformed), "{bad:x}");
    }
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

#[test]
fn a_record_that_was_not_taken_can_be_withdrawn_and_the_others_arrive() {
    let (mut front, mut worker) = pair();
    let (mut out, mut again) = (Vec::new(), Vec::new());
    for _ in 0..WORDS {
        let parts = [1, 2, 3, 4].map(|kind| {
            front.sender.send(kind, &[kind; 9], None).unwrap();
            front.sender.last()
        });
        assert_eq!(take(&mut worker, &mut out), Ok(Some(1)));
        assert_eq!(front.sender.withdraw(parts[0], &mut again), None, "it was taken");
        for kind in [4, 2] {
            again.clear();
            let part = parts[usize::from(kind) - 1];
            assert_eq!(front.sender.withdraw(part, &mut again), Some(kind));
            assert_eq!(again, [kind; 9]);
            assert_eq!(front.sender.withdraw(part, &mut again), None, "only once");
        }
        assert_eq!(take(&mut worker, &mut out), Ok(Some(3)));
        assert_eq!(take(&mut worker, &mut out), Ok(None));
        assert_eq!(front.sender.withdraw(parts[2], &mut again), None);
    }
    assert!(!worker.receiver.has_any());
}

#[test]
fn a_record_in_parts_or_with_a_descriptor_is_not_withdrawn() {
    let (mut front, _worker) = pair();
    let (mut sent, mut out) = (0, Vec::new());
    let long = vec![7; MAX_RECORD_LEN + 1];
    front.sender.send_parts((Lane::Messages, 7), [&long, b""], None, &mut sent).unwrap();
    assert_eq!(front.sender.withdraw(front.sender.last(), &mut out), None);
    if !cfg!(miri) {
        let file = std::fs::File::open("/dev/null").unwrap();
        front.sender.send(7, b"x", Some(file.as_fd())).unwrap();
        assert_eq!(front.sender.withdraw(front.sender.last(), &mut out), None);
    }
    assert_eq!(out, b"");
}
