//! Tests of the hop in shared memory: withdrawal, streams and their flow control, bodies as files,
//! and workers that end or write garbage.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rookery_exchange::wire::Up;
use rookery_exchange::{Share, StreamEnd};
use rookery_server::{Config, Limits};
use rookery_supervisor::{Availability, Backend, PoolLimits, SessionAffinity, WorkerId};
use rookery_test_support::client::masked_frame;
use rookery_test_support::wait_until;
use rookery_worker_protocol::rings::{Lane, RingEnd, RingWakers, SendError};
use rookery_worker_protocol::{RState, SharedScoreboard, Ticket, now};

use crate::support::admin::Admin;
use crate::support::fake_worker::{FakeWorker, flood_body};
use crate::support::frontend::Frontend;

fn begun(front: &Frontend, worker: usize) -> usize {
    front.workers[worker].gate.begun.load(Ordering::Relaxed)
}

#[test]
fn requests_behind_a_slow_one_go_to_a_worker_that_becomes_free() {
    let limits = PoolLimits { min_ahead: 3, ..PoolLimits::default() };
    let front = Frontend::with(2, limits, Config::default());
    let mut held: Vec<_> = (0..2).map(|_| Some(front.ask("/hold"))).collect();
    wait_until("both work", || begun(&front, 0) == 1 && begun(&front, 1) == 1);
    let waiting: Vec<_> = (0..4).map(|_| front.ask("/slot")).collect();
    wait_until("each has some", || front.workers.iter().all(|it| it.backend.load().0 > 1));
    let asked = Instant::now();
    front.workers[1].gate.open();
    for waiting in waiting {
        assert_eq!(waiting.join().unwrap().text(), "1");
    }
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
    assert_eq!(begun(&front, 0), 1, "it has begun none of them");
    front.workers[0].gate.open();
    let slots: Vec<_> = held.iter_mut().map(|it| it.take().unwrap().join().unwrap()).collect();
    assert!(slots.iter().all(|reply| reply.status == 200));
    // The records of the withdrawn requests do no harm.
    for _ in 0..10 {
        assert_eq!(front.connect().get("/slot").status, 200);
    }
}

#[test]
fn a_withdrawn_handshake_leaves_no_session_reserved() {
    let limits = PoolLimits {
        session_affinity: SessionAffinity::None,
        max_sessions: 1,
        min_ahead: 3,
        ..PoolLimits::default()
    };
    let front = Frontend::with(2, limits, Config::default());
    let held: Vec<_> = (0..2).map(|_| front.ask("/hold")).collect();
    wait_until("both work", || begun(&front, 0) == 1 && begun(&front, 1) == 1);
    let upgrade = || {
        let mut client = front.connect();
        std::thread::spawn(move || {
            let slot = client.upgrade("/ws").header("x-slot").map(str::to_owned);
            (client, slot)
        })
    };
    let waiting = upgrade();
    let has_it = |worker: &&FakeWorker| worker.backend.load().0 == 2;
    wait_until("it waits behind one", || front.workers.iter().any(|it| has_it(&it)));
    let (behind, other) = if has_it(&&front.workers[0]) { (0, 1) } else { (1, 0) };
    front.workers[other].gate.open();
    let (_first, slot) = waiting.join().unwrap();
    assert_eq!(slot, Some(other.to_string()));
    front.workers[behind].gate.open();
    for held in held {
        assert_eq!(held.join().unwrap().status, 200);
    }
    let (_second, slot) = upgrade().join().unwrap();
    assert_eq!(slot, Some(behind.to_string()), "it has no session");
}

#[test]
fn streams_of_any_length_arrive_whole_and_end_once() {
    for path in ["/flood/400", "/pulled/400"] {
        let front = Frontend::new(1);
        let mut client = front.connect();
        let reply = client.get(path);
        assert!(reply.status == 200 && reply.body == flood_body(400), "{path}");
        let ended = &front.workers[0].gate.streams_ended;
        wait_until("it has ended", || *ended.lock().unwrap() == [StreamEnd::Done]);
        wait_until("it counts no more", || front.workers[0].backend.load().0 == 0);
        assert_eq!(client.get("/slot").text(), "0");
    }
}

#[test]
fn a_client_that_does_not_read_stops_the_application_and_costs_no_others() {
    for path in ["/flood/2000", "/pulled/2000"] {
        let front = Frontend::new(1);
        let mut slow = front.connect();
        slow.shrink_receive_buffer();
        slow.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(slow.head().status, 200);
        let chunks = || front.workers[0].gate.chunks.load(Ordering::Relaxed);
        let mut before = usize::MAX;
        wait_until("it waits", || {
            std::thread::sleep(Duration::from_millis(200));
            std::mem::replace(&mut before, chunks()) == chunks()
        });
        assert!(chunks() < 1000, "{} chunks", chunks());
        assert_eq!(front.connect().get("/slot").text(), "0");
        // It reads again, and then disconnects.
        slow.read_exactly(5_000_000);
        drop(slow);
        let ended = &front.workers[0].gate.streams_ended;
        wait_until("the application hears of it", || {
            matches!(ended.lock().unwrap()[..], [StreamEnd::Client | StreamEnd::Error])
        });
        wait_until("it counts no more", || front.workers[0].backend.load().0 == 0);
    }
}

#[test]
fn spooled_bodies_cross_as_files() {
    let mut config = Config::default();
    config.limits.body_buffer_size = 100_000;
    let front = Frontend::with(1, PoolLimits::default(), config);
    let mut client = front.connect();
    for len in [99_999, 100_001, 3_000_000] {
        let body: Vec<u8> = (0..len).map(|at: u32| (at % 253) as u8).collect();
        let reply = client.request("POST", "/echo", &body);
        assert!(reply.status == 200 && reply.body == body, "{len}");
    }
}

#[test]
fn long_bodies_and_messages_cross_whole_while_others_cross() {
    let front = Frontend::new(1);
    let body = |len: usize| -> Vec<u8> { (0..len).map(|at| (at % 253) as u8).collect() };
    std::thread::scope(|scope| {
        for client in 0..6_usize {
            let front = &front;
            scope.spawn(move || {
                let mut http = front.connect();
                for round in 0..4 {
                    let sent = body(70_000 + 137_000 * client + round);
                    let reply = http.request("POST", "/echo", &sent);
                    assert!(reply.status == 200 && reply.body == sent, "{client} {round}");
                }
                let reply = http.get("/bytes/20000000");
                assert!(reply.body.len() == 20_000_000 && reply.body.iter().all(|it| *it == b'x'));
                let head = http.request("HEAD", "/bytes/2000000", b"");
                assert_eq!((head.header("content-length"), head.body.len()), (Some("2000000"), 0));
            });
            scope.spawn(move || {
                let mut socket = front.connect();
                socket.upgrade("/ws");
                for len in [1, 200_000, 7, 3_000_000, 81_920] {
                    let sent = body(len + client);
                    socket.message(2, &sent);
                    assert!(socket.frame_after_pings() == (2, sent), "{client} {len}");
                }
            });
        }
    });
}

#[test]
fn a_worker_that_ends_within_a_long_response_loses_only_that_response() {
    let mut front = Frontend::new(0);
    let (backend, mut end, wakers, theirs) = add_puppet(&front);
    let asking = front.ask("/slot");
    let mut record = Vec::new();
    wait_until("the request arrives", || end.receiver.take(&mut record).unwrap().is_some());
    let ticket = u64::from_le_bytes(record[8..16].try_into().unwrap());
    assert!(theirs.begin(Ticket::of_word(ticket).unwrap()));
    // The ids of the request, and more bytes than all blocks have.
    let (bytes, mut sent) = ([&record[..16], &vec![0; 3 << 20]].concat(), 0);
    let result = end.sender.send_parts((Lane::Requests, 5), [&bytes, b""], None, &mut sent);
    assert!(result == Err(SendError::Full) && sent > 1 << 20, "{result:?}");
    wakers.wake_front_end();
    wait_until("the front end has taken the parts", || {
        end.sender.send_parts((Lane::Requests, 5), [&bytes, b""], None, &mut sent).is_ok()
            || sent > 2 << 20
    });
    front.join(1);
    front.registry.remove(&backend);
    assert_eq!(asking.join().unwrap().status, 502);
    assert_eq!(front.connect().get("/bytes/1000000").body.len(), 1_000_000);
}

#[test]
fn repeated_headers_arrive_and_those_of_a_connection_do_not() {
    let front = Frontend::new(1);
    let reply = front.connect().get("/lines");
    let lines = reply.head.to_ascii_lowercase();
    assert_eq!(lines.matches("set-cookie: ").count(), 2, "{lines}");
    assert!(lines.contains("x-mixed: c") && !lines.contains("keep-alive"), "{lines}");
    let head = front.connect().request("HEAD", "/bytes/100000", b"");
    assert_eq!((head.status, head.header("content-length")), (200, Some("100000")));
}

#[test]
fn a_worker_that_wants_the_body_of_a_complete_request_is_found_out() {
    let front = Frontend::new(0);
    let (backend, mut end, wakers, _theirs) = add_puppet(&front);
    let asking = front.ask("/slot");
    let mut record = Vec::new();
    wait_until("the request arrives", || end.receiver.take(&mut record).unwrap().is_some());
    let number = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().unwrap());
    let mut out = Vec::new();
    let up = Up::ReadBody { exchange: number(0), ticket: number(8), is_head_seen: true };
    let kind = up.write(&mut out);
    end.sender.send(kind, &out, None).unwrap();
    wakers.wake_front_end();
    assert_eq!(asking.join().unwrap().status, 502);
    wait_until("it is found out", || backend.is_violating());
}

/// Adds a worker to the front end that does nothing by itself. Returns its end of the rings.
fn add_puppet(front: &Frontend) -> (Arc<Backend>, RingEnd, RingWakers, SharedScoreboard) {
    let (scoreboard, memory) = SharedScoreboard::create().unwrap();
    let theirs = SharedScoreboard::attach(&memory).unwrap();
    theirs.set_r_state(RState::Idle, now());
    let id = WorkerId::new().unwrap();
    let (end, wakers, handles) = RingEnd::create().unwrap();
    let backend = Backend::new((9, 99), 1, id, "".into(), scoreboard, (end, wakers));
    front.registry.add(&backend);
    let (end, wakers) = handles.attach().unwrap();
    (backend, end, wakers, theirs)
}

#[test]
fn a_worker_that_writes_garbage_gets_no_more_requests_and_another_one_answers() {
    let mut random = 0x2545_F491_4F6C_DD1D_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let file = tempfile::tempfile().unwrap();
    for round in 0..40 {
        let mut front = Frontend::new(0);
        let (backend, mut end, wakers, _theirs) = add_puppet(&front);
        let asking = front.ask("/slot");
        wait_until("it has the request", || backend.load().0 == 1);
        let mut record = Vec::new();
        wait_until("the request arrives", || end.receiver.take(&mut record).unwrap().is_some());
        // The ids of the request, and random bytes.
        let mut bytes = record[..16].to_vec();
        bytes.extend((0..next() % 40).map(|_| next() as u8));
        let kind = if round < 20 { 1 + round } else { 1 + (next() % 255) as u8 };
        let beside = (next() % 4 == 0).then(|| file.as_fd());
        end.sender.send(kind, &bytes, beside).unwrap();
        wakers.wake_front_end();
        // Then certainly something invalid.
        end.sender.send(255, b"x", None).unwrap();
        wakers.wake_front_end();
        wait_until("it is found out", || backend.is_violating());
        front.join(1);
        assert_eq!(front.connect().get("/slot").text(), "1");
        // The supervisor kills the worker.
        front.registry.remove(&backend);
        assert_eq!(backend.availability(), Availability::Dead);
        let status = asking.join().unwrap().status;
        assert!(status == 200 || status == 502, "{kind}: {status}");
    }
}

#[test]
fn a_worker_that_sends_records_without_end_does_not_stop_the_others() {
    let mut front = Frontend::new(0);
    let (backend, mut end, wakers, _theirs) = add_puppet(&front);
    front.join(1);
    let is_over = Arc::new(AtomicBool::new(false));
    let flooding = std::thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            let (mut record, mut sent) = (Vec::new(), 0_u64);
            while !is_over.load(Ordering::Relaxed) {
                // A command for a stream that does not exist.
                if end.sender.send(11, &77_u64.to_le_bytes(), None).is_ok() {
                    sent += 1;
                }
                end.peer_sleep.wake_sleeper(|| wakers.wake_front_end());
                while let Ok(Some(_)) = end.receiver.take(&mut record) {}
            }
            sent
        }
    });
    let limit = Instant::now() + Duration::from_secs(20);
    for _ in 0..20 {
        let mut client = front.connect();
        // The request may be given to the other worker, which never answers.
        let asking = std::thread::spawn(move || client.get("/slot").status);
        std::thread::sleep(Duration::from_millis(20));
        if asking.is_finished() {
            assert_eq!(asking.join().unwrap(), 200);
        }
        assert!(Instant::now() < limit);
    }
    is_over.store(true, Ordering::Relaxed);
    assert!(flooding.join().unwrap() > 100);
    assert!(!backend.is_violating());
    front.registry.remove(&backend);
    assert_eq!(front.connect().get("/slot").text(), "1");
}

#[test]
fn late_and_foreign_records_are_ignored() {
    let front = Frontend::new(0);
    let (backend, mut end, wakers, theirs) = add_puppet(&front);
    // Responses, chunks, messages and closes for requests that the worker does not have.
    for kind in [2, 3, 5, 6, 7, 8, 10, 11, 12, 19, 22] {
        let mut record = 77_u64.to_le_bytes().to_vec();
        record.extend_from_slice(match kind {
            2 | 3 => b"\0hello",
            5 => &[0; 20],
            8 | 19 => &[9; 8],
            22 => &[9, 9, 9, 9, 9, 9, 9, 9, 1],
            _ => b"",
        });
        end.sender.send(kind, &record, None).unwrap();
    }
    wakers.wake_front_end();
    let mut record = Vec::new();
    // The worker is told that the stream or WebSocket of its late response has ended.
    wait_until("the ends arrive", || end.receiver.take(&mut record).unwrap().is_some());
    assert!(!backend.is_violating());
    theirs.set_r_state(RState::Idle, now());
    let asking = front.ask("/slot");
    wait_until("it has a request", || backend.load().0 == 1);
    front.registry.remove(&backend);
    drop((end, wakers));
    std::thread::sleep(Duration::from_millis(50));
    let mut front = front;
    front.join(1);
    assert_eq!(asking.join().unwrap().text(), "1");
}

#[test]
fn any_number_on_the_scoreboard_is_accepted() {
    for word in [u64::MAX, u64::MAX - 1, 1 << 63, u64::MAX / 3] {
        let mut front = Frontend::new(0);
        let admin = Admin::of_registry(&front.registry);
        let (scoreboard, memory) = SharedScoreboard::create().unwrap();
        let theirs = SharedScoreboard::attach(&memory).unwrap();
        let id = WorkerId::new().unwrap();
        let (end, wakers, handles) = RingEnd::create().unwrap();
        let rings = (end, wakers);
        let backend = Backend::new((9, 99), 1, id, "/nonexistent".into(), scoreboard, rings);
        let memory = std::fs::File::from(memory);
        let words = word.to_le_bytes().repeat(memory.metadata().unwrap().len() as usize / 8);
        let write_all = || {
            memory.write_all_at(&words, 0).unwrap();
            // Otherwise the worker gets no requests.
            theirs.set_r_state(RState::Idle, now());
        };
        write_all();
        front.registry.add(&backend);
        let (mut end, wakers) = handles.attach().unwrap();
        let asking: Vec<_> = (0..3).map(|_| front.ask("/slot")).collect();
        let (mut record, mut requests) = (Vec::new(), 0);
        for _ in 0..20 {
            write_all();
            admin.metric("rookery_queue_length");
            while let Some(arrived) = end.receiver.take(&mut record).unwrap() {
                // A response with status 200, and no headers and no body, if it is a request.
                if arrived.kind == 1 {
                    requests += 1;
                    record.truncate(16);
                    record.extend([200, 0, 0, 0, 0, 0, 0, 0]);
                    end.sender.send(5, &record, None).unwrap();
                    wakers.wake_front_end();
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(requests > 0);
        front.registry.remove(&backend);
        front.join(1);
        for asking in asking {
            assert!(matches!(asking.join().unwrap().status, 200 | 502));
        }
        assert_eq!(front.connect().get("/slot").text(), "1");
    }
}

#[test]
fn a_worker_that_takes_nothing_but_sends_without_end_is_ended() {
    let front = Frontend::new(0);
    let (backend, mut end, wakers, _theirs) = add_puppet(&front);
    // The front end responds to a late response with the record that its stream has ended.
    let mut late = [77_u64.to_le_bytes(), 9_u64.to_le_bytes()].concat();
    late.extend([0; 8]);
    let limit = Instant::now() + Duration::from_secs(60);
    while !backend.is_violating() {
        let _ = end.sender.send(5, &late, None);
        end.peer_sleep.wake_sleeper(|| wakers.wake_front_end());
        assert!(Instant::now() < limit, "the records that wait for it grow without end");
    }
    front.registry.remove(&backend);
}

/// The bytes of a response that no socket buffers.
const UNREAD: usize = 15_000_000;

fn with_memory(max_client_memory: usize) -> Frontend {
    let limits = Limits { max_client_memory: Some(max_client_memory), ..Limits::default() };
    let config = Config { limits, ..Config::default() };
    Frontend::with(1, PoolLimits::default(), config)
}

#[test]
fn responses_that_are_not_read_count_with_all_their_bytes() {
    // What is sent to clients may have 34 MB of this, so that two responses fit.
    let front = with_memory(100 << 20);
    let mut slow: Vec<_> = (0..10).map(|_| front.connect()).collect();
    for client in &mut slow {
        client.shrink_receive_buffer();
        client.send(format!("GET /bytes/{UNREAD} HTTP/1.1\r\nHost: a\r\n\r\n"));
    }
    let statuses: Vec<_> = slow.iter_mut().map(|client| client.head().status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 2, "{statuses:?}");
    assert!(statuses.iter().all(|status| matches!(status, 200 | 503)), "{statuses:?}");
    // Whatever was refused holds nothing, and neither do the parts of records.
    wait_until("two are held", || front.used(Share::Outgoing) == 2 * UNREAD);
    // A client that reads is served: its smaller response ends one that is not read.
    let reply = front.connect().get("/bytes/9000000");
    assert_eq!((reply.status, reply.body.len()), (200, 9_000_000));
    drop(slow);
    wait_until("nothing is held", || front.used(Share::Outgoing) == 0);
}

#[test]
fn messages_on_their_way_to_a_busy_worker_count_with_all_their_bytes() {
    let front = with_memory(400 << 20);
    let mut socket = front.connect();
    socket.upgrade("/ws");
    let held = front.ask("/hold");
    wait_until("R is busy", || front.workers[0].backend.load().0 == 1);
    let payload = vec![7; 6_000_000];
    let sending = {
        let mut socket = socket.socket.try_clone().unwrap();
        let frame = masked_frame(0x82, &payload);
        std::thread::spawn(move || (0..3).for_each(|_| socket.write_all(&frame).unwrap()))
    };
    wait_until("they are charged", || front.used(Share::Incoming) > 5_000_000);
    front.workers[0].gate.open();
    assert_eq!(held.join().unwrap().status, 200);
    for _ in 0..3 {
        assert!(socket.frame_after_pings() == (2, payload.clone()));
    }
    sending.join().unwrap();
    wait_until("nothing is held", || front.used(Share::Incoming) == 0);
    wait_until("nothing waits", || front.used(Share::Outgoing) == 0);
}

#[test]
fn what_a_worker_has_sent_in_part_is_released_when_the_worker_ends() {
    let mut front = with_memory(400 << 20);
    let mut socket = front.connect();
    socket.upgrade("/ws");
    let held = front.ask("/hold");
    wait_until("R is busy", || front.workers[0].backend.load().0 == 1);
    socket.message(2, &vec![7; 6_000_000]);
    wait_until("it is charged", || front.used(Share::Incoming) > 5_000_000);
    front.kill(0);
    assert!(matches!(held.join().unwrap().status, 200 | 502));
    wait_until("nothing is held", || {
        front.used(Share::Incoming) == 0 && front.used(Share::Outgoing) == 0
    });
}
