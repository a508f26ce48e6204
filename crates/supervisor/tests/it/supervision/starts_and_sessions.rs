//! Tests of the order in which workers start, of failed reloads, and of the end of sessions.

use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use rookery_supervisor::{SupervisorCommand, Timeouts};
use rookery_test_support::client::Client;
use rookery_test_support::wait_until;

use crate::support::running_supervisor::{Running, Wish, lives};

/// Returns the number of starts of workers once the supervisor has had several occasions for
/// further starts.
fn starts_after_some_turns(running: &Running, at_least: usize) -> usize {
    let starts = || running.beside.lock().unwrap().len();
    wait_until("the first starts have begun", || starts() >= at_least);
    let before = running.turns();
    wait_until("the loop has iterated", || running.turns() >= before + 5);
    starts()
}

/// Opens a WebSocket.
fn session(running: &Running) -> Client {
    let mut client = running.connect();
    assert_eq!(client.upgrade("/ws").status, 101);
    client
}

/// Waits for the close frame of a WebSocket, and returns its code.
fn close_code(client: &mut Client) -> u16 {
    let (opcode, payload) = client.frame_after_pings();
    assert_eq!(opcode, 8);
    u16::from_be_bytes([payload[0], payload[1]])
}

/// Otherwise an app whose start needs much processor time would exceed the start timeout in all
/// workers.
#[test]
fn the_first_worker_starts_alone() {
    let running = Running::start(Wish { workers: 3, mode: |_| "never ready", ..Wish::default() });
    let starts = starts_after_some_turns(&running, 1);
    assert_eq!(starts, 1);
}

#[test]
fn at_most_one_worker_per_processor_starts_at_a_time() {
    let processors = available_parallelism().unwrap().get();
    let mode = |start| if start == 0 { "" } else { "never ready" };
    let workers = u32::try_from(processors).unwrap() + 2;
    let running = Running::start(Wish { workers, mode, ..Wish::default() });
    let starts = starts_after_some_turns(&running, 1 + processors);
    assert_eq!(starts, 1 + processors);
}

/// The log has a line about the worker and one about the reload.
#[test]
fn a_reload_that_cannot_start_its_worker_is_logged_as_failed() {
    let mode = |start| if start == 0 { "" } else { "no command" };
    let running = Running::new(Wish { workers: 1, mode, ..Wish::default() });
    running.ask(SupervisorCommand::Reload);
    wait_until("the start has failed", || running.has_told(&["worker 0 cannot be started"]));
    wait_until("the reload has failed", || running.has_told(&["the reload has failed"]));
}

/// The second reload gives the sessions of the oldest generation only the drain timeout of
/// requests, although `drain_sessions` is longer, and says so.
#[test]
fn a_second_reload_reports_that_it_closes_the_older_generation() {
    let drain = Duration::from_millis(500);
    let sessions = Some(Duration::from_secs(4 * 3600));
    let times = Timeouts { drain, sessions, ..Timeouts::default() };
    let running = Running::new(Wish { workers: 1, times, ..Wish::default() });
    let mut clients = Vec::new();
    for _ in 0..2 {
        let own = running.get("/pid").text();
        clients.push(session(&running));
        running.ask(SupervisorCommand::Reload);
        wait_until("another serves", || running.get("/pid").text() != own);
    }
    let is_reported = running.has_told(&["generation 0", "session"]);
    assert_eq!(close_code(&mut clients[0]), 1012);
    assert!(is_reported);
}

/// Otherwise all pages would reconnect at once.
#[test]
fn a_stop_closes_sessions_one_after_the_other() {
    let times = Timeouts { drain: Duration::from_secs(10), ..Timeouts::default() };
    let running = Running::new(Wish { workers: 1, times, ..Wish::default() });
    let clients: Vec<Client> = (0..10).map(|_| session(&running)).collect();
    let closed = clients.into_iter().map(|mut client| {
        std::thread::spawn(move || {
            close_code(&mut client);
            Instant::now()
        })
    });
    let closed: Vec<_> = closed.collect();
    running.ask(SupervisorCommand::Stop);
    let mut closed: Vec<Instant> = closed.into_iter().map(|it| it.join().unwrap()).collect();
    closed.sort();
    let time = closed[9].duration_since(closed[0]);
    assert!(time >= times.drain / 5, "{time:?}");
}

#[test]
fn a_stop_without_sessions_ends_early() {
    let times = Timeouts { drain: Duration::from_secs(3600), ..Timeouts::default() };
    let mut running = Running::new(Wish { workers: 2, times, ..Wish::default() });
    let pids = running.pids();
    // This connection stays open after its response.
    let mut idle = running.connect();
    assert_eq!(idle.get("/pid").status, 200);
    running.stop();
    assert!(pids.into_iter().all(|pid| !lives(pid)));
}
