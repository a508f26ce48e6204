//! Tests both ends of the rings in a process that can open no more descriptors. The limit
//! applies to the whole process, so this is a program of its own with one test.

#![cfg(target_os = "linux")]

use std::fs::File;

use rookery_exchange::wire::{RequestForm, Up, write_request};
use rookery_exchange::{
    AppWaker, Command, Event, Exchange, Link, MessageKind, Payload, QueueLimits, ResponseBody,
};
use rookery_server::WorkerRings;
use rookery_worker_protocol::rings::RingEnd;

struct NoWaker;

impl AppWaker for NoWaker {
    fn wake(&self) {}
}

/// Makes this process able to open no more descriptors while the returned files are open.
fn occupy_all() -> Vec<File> {
    let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
    // SAFETY: the limit is valid for the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

#[test]
fn a_response_whose_file_cannot_be_opened_fails_alone() {
    let (mut front, _, handles) = RingEnd::create().unwrap();
    let link = Link::new(QueueLimits::default(), Box::new(NoWaker));
    let mut rings = WorkerRings::new(handles.attach().unwrap(), &link);
    let ask = |front: &mut RingEnd, rings: &mut WorkerRings, id: u64| {
        let mut exchange = Exchange::new();
        exchange.begin(id, 1, 0);
        exchange.end_head(None, None, id == 1);
        let mut record = Vec::new();
        write_request(&exchange, b"", (id << 10, 0), &mut record, &[], |_, _, _| ());
        front.sender.send(RequestForm::Complete.kind(), &record, None).unwrap();
        let event = rings.next(Some(1), &link).unwrap();
        let Some(Event::Request(exchange)) = event else { panic!("{event:?}") };
        exchange
    };
    let long = || Payload::Pooled(vec![b'x'; 100_000]);
    let mut exchange = ask(&mut front, &mut rings, 1);
    let socket = exchange.id();
    exchange.begin_response(101);
    let mut later = ask(&mut front, &mut rings, 2);
    later.begin_response(200);
    later.push_response_header(b"x-long", &vec![b'x'; 100_000]).unwrap();
    let mut now = ask(&mut front, &mut rings, 3);
    now.begin_response(200);
    now.set_response_body(&vec![b'x'; 100_000]);
    let mut with_file = ask(&mut front, &mut rings, 4);
    with_file.begin_response(200);
    let file = File::open("/proc/self/exe").unwrap();
    with_file.response_mut().set_body(ResponseBody::File { file, len: 1, charge: None });

    rings.send(Command::Respond(exchange), &link);
    let message = |payload| Command::Send { socket, kind: MessageKind::Binary, payload };
    for _ in 0..700 {
        rings.send(message(Payload::Pooled(b"short".to_vec())), &link);
    }
    rings.send(message(long()), &link);
    let mut occupied = occupy_all();
    rings.send(Command::Respond(later), &link);
    rings.send(Command::Respond(with_file), &link);
    // The worker has closed the file.
    occupied.extend(occupy_all());
    rings.send(Command::Respond(now), &link);
    assert!(rings.open() > 1);

    let (mut record, mut seen) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        while let Some(arrived) = front.receiver.take(&mut record).unwrap() {
            seen.push(match Up::read(arrived.kind, &record).unwrap() {
                Up::Response { exchange, .. } => {
                    (if arrived.is_descriptor_lost { 3 } else { 1 }, exchange)
                }
                Up::Message { socket, .. } => (2, socket),
                other => panic!("{other:?}"),
            });
        }
        assert!(rings.next(Some(1), &link).unwrap().is_none());
    }
    drop(occupied);
    assert_eq!(seen.len(), 705);
    let messages = seen.iter().filter(|seen| **seen == (2, 1)).count();
    assert_eq!((seen[0], messages), ((1, 1), 701));
    seen.retain(|(what, _)| *what != 2);
    // The front end cannot open the file of a response, and gets all other responses.
    assert_eq!(seen, [(1, 1), (1, 2), (3, 4), (1, 3)]);
    // The WebSocket ends once the front end says so.
    assert_eq!(rings.open(), 1);
}
