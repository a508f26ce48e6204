//! Back-pressure on streamed responses: high and low marks, limits, and the charges for what waits
//! to be written.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rookery_exchange::{ChunkAdmission, Command, HIGH_MARK, Share};
use rookery_server::Limits;

use super::{GET, ask, departures, ends_with, pulling, pushing};
use crate::support::wait_until;

#[test]
fn who_is_pulled_is_not_asked_while_64_kib_wait() {
    const PIECES: usize = 600;
    let (app, _opened) = pulling(Limits::default(), |open, n| {
        if n < PIECES {
            open.give(vec![n as u8; HIGH_MARK]);
        } else {
            open.end();
        }
    });
    let mut client = app.connect();
    client.send(GET);
    let wants = || app.log.lock().unwrap().iter().filter(|line| *line == "want").count();
    // Once the sockets' buffers of some megabytes are full, the server pulls no more chunks.
    let mut before = 0;
    wait_until("it stops asking", || {
        std::thread::sleep(Duration::from_millis(100));
        std::mem::replace(&mut before, wants()) == wants()
    });
    assert!(wants() < PIECES / 2, "{}", wants());
    let body = client.response().unwrap().body;
    assert_eq!(body.len(), PIECES * HIGH_MARK);
    assert!(
        body.chunks(HIGH_MARK)
            .enumerate()
            .all(|(n, piece)| piece.iter().all(|byte| *byte == n as u8))
    );
}

#[test]
fn who_goes_on_by_itself_is_not_asked_meanwhile() {
    let (app, opened) = pulling(Limits::default(), |open, n| match n {
        0 => drop(open.give_and("a", true)),
        1 => {
            // The last chunk says that no more follow, so that the server pulls again.
            open.give_and("d", true);
            open.give("e");
        }
        _ => open.end(),
    });
    let mut client = app.connect();
    client.send(GET);
    let open = opened.recv().unwrap();
    let wants = || app.log.lock().unwrap().iter().filter(|line| *line == "want").count();
    wait_until("it is asked", || wants() == 1);
    for piece in ["b", "c"] {
        assert_eq!(open.give_and(piece, true), ChunkAdmission::Continue);
        // All chunks are written, so that there is capacity.
        wait_until("it is written", || open.stream.flow.waiting() == 0);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(wants(), 1);
    }
    open.tell(Command::ResumePulls { stream: open.id });
    assert_eq!(client.response().unwrap().body, b"abcde");
    assert_eq!(wants(), 3);
}

#[test]
fn marks_tell_the_application_to_wait_and_to_go_on() {
    let (app, opened) = pushing(Limits::default());
    let (mut client, open) = ask(&app, &opened, GET);
    assert_eq!(open.give(vec![1; 1000]), ChunkAdmission::Continue);
    let mut given = 1000;
    // Pushes until neither the sockets nor the server take more. What was pushed at once waits,
    // however much the sockets have taken.
    while open.stream.flow.waiting() < (1 << 20) {
        assert_eq!(open.give(vec![1; 1 << 20]), ChunkAdmission::Pause);
        given += 1 << 20;
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(departures(&app), [""; 0]);
    let rooms = || app.log.lock().unwrap().iter().filter(|line| *line == "room").count();
    let before = rooms();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            app.await_event("room");
            wait_until("there is room again", || rooms() > before);
            open.end();
        });
        assert_eq!(client.response().unwrap().body.len(), given);
    });
    assert_eq!(open.stream.flow.waiting(), 0);
    app.await_event("departed Done");
    assert_eq!(open.give("more"), ChunkAdmission::Ended);
}

#[test]
fn who_takes_less_than_is_made_is_cut() {
    let (app, opened) = pushing(Limits::default());
    let (mut client, open) = ask(&app, &opened, GET);
    while open.give(vec![1; 1 << 20]) != ChunkAdmission::ClientTooSlow {
        assert!(open.stream.flow.waiting() <= 16 << 20);
        std::thread::sleep(Duration::from_millis(1));
    }
    app.await_event("departed Slow");
    let (_, is_fin) = client.read_to_end();
    assert!(!is_fin, "a clean end was faked");
    assert_eq!(app.server.budget().used(Share::Outgoing), 0);
}

#[test]
fn small_pieces_cost_no_more_than_their_bytes() {
    let (app, opened) = pushing(Limits::default());
    let (mut client, open) = ask(&app, &opened, GET);
    // Fills the buffers of the sockets.
    while open.stream.flow.waiting() < (1 << 20) {
        open.give(vec![1; 1 << 20]);
        std::thread::sleep(Duration::from_millis(20));
    }
    for _ in 0..100_000 {
        assert_eq!(open.give("0123456789"), ChunkAdmission::Pause);
    }
    open.end();
    let body = client.response().unwrap().body;
    assert!(ends_with(&body, &"0123456789".repeat(100_000)));
}

#[test]
fn a_piece_that_was_asked_for_is_taken_however_large_it_is() {
    const LARGE: usize = 16 << 20;
    let total = Arc::new(Mutex::new(0));
    let given = Arc::clone(&total);
    let (app, _opened) = pulling(Limits::default(), move |open, n| {
        let waits = open.stream.flow.waiting() > 0;
        let mut total = given.lock().unwrap();
        if *total > LARGE {
            return open.end();
        }
        // The chunks are small until the client is behind.
        let len = if waits && n > 0 { LARGE } else { 40 << 10 };
        assert_ne!(open.give(vec![0; len]), ChunkAdmission::ClientTooSlow);
        *total += len;
    });
    let mut client = app.connect();
    client.send(GET);
    wait_until("it has been given", || *total.lock().unwrap() > LARGE);
    assert_eq!(client.response().unwrap().body.len(), *total.lock().unwrap());
    app.await_event("departed Done");
}

#[test]
fn what_waits_is_charged_and_the_largest_goes_when_there_is_no_room() {
    // The share of what is sent is 12.6 MiB.
    let limits =
        Limits { max_client_memory: Some(28 << 20), max_connections: 9, ..Limits::default() };
    let (app, opened) = pushing(limits);
    let budget = Arc::clone(app.server.budget());
    let (_one, large) = ask(&app, &opened, GET);
    large.give(vec![1; 11 << 20]);
    wait_until("it is charged", || budget.used(Share::Outgoing) > 0);
    let (mut two, small) = ask(&app, &opened, GET);
    for _ in 0..10 {
        assert_eq!(small.give(vec![2; 1 << 20]), ChunkAdmission::Pause);
    }
    small.end();
    app.await_event("departed Slow");
    assert!(budget.used(Share::Outgoing) <= budget.limit(Share::Outgoing));
    assert_eq!(two.response().unwrap().body.len(), 10 << 20, "who holds less goes on");
    app.await_event("departed Done");
    wait_until("nothing is charged", || budget.used(Share::Outgoing) == 0);
}
