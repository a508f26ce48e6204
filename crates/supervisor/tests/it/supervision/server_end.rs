//! Tests of ends of workers that end the server.

use std::time::Duration;

use rookery_supervisor::{Exit, Outcome, SupervisorCommand, Timeouts};
use rookery_test_support::wait_until;

use crate::support::running_supervisor::{Running, Wish, is_told, lives, send_signal};

#[test]
fn a_worker_that_finishes_ends_the_server_after_its_response() {
    for workers in [1, 3] {
        let mut running = Running::new(Wish {
            workers,
            mode: |_| "finishes later",
            start_retries: 3,
            ..Wish::default()
        });
        assert_eq!(running.get("/slot").status, 200);
        assert_eq!(running.outcome(), Outcome::Ended(Exit::Status(0)));
    }
    assert!(is_told(&["has finished: it ended with status 0"]));
}

#[test]
fn a_worker_that_starts_another_server_keeps_serving() {
    let mut running =
        Running::new(Wish { workers: 1, mode: |_| "starts another", ..Wish::default() });
    let first = running.get("/pid").text();
    for _ in 0..3 {
        // The request waits until the worker has started the other server.
        assert_eq!(running.get("/pid").text(), first);
    }
    assert_eq!(running.stop(), Outcome::Stopped);
    assert_eq!(running.beside.lock().unwrap().len(), 1);
}

#[test]
fn a_failure_of_the_io_thread_ends_the_server_and_its_heartbeat() {
    let mut running = Running::new(Wish::default());
    let pids = running.pids();
    running.server.panic_io_thread();
    // The workers take a moment to end.
    wait_until("it ends", || running.has_told(&["broken for a test", "it ends"]));
    let turns = running.turns();
    assert_eq!(running.outcome(), Outcome::ThreadFailed);
    assert_eq!(running.turns(), turns);
    assert!(!pids.into_iter().any(lives));
}

#[test]
fn a_script_that_finishes_without_serving_is_no_failure() {
    let mut running =
        Running::start(Wish { mode: |_| "finishes", start_retries: 3, ..Wish::default() });
    assert_eq!(running.outcome(), Outcome::Ended(Exit::Status(0)));
}

#[test]
fn requests_of_other_workers_are_finished_when_a_worker_ends_the_server() {
    let mode = |start| if start == 0 { "finishes later" } else { "" };
    let mut running = Running::new(Wish { mode, ..Wish::default() });
    let mut client = running.connect();
    let begun = std::thread::spawn(move || client.get("/sleep/1500"));
    wait_until("a worker has it", || {
        running.registry.backends().iter().any(|backend| backend.load().0 == 1)
    });
    // Either worker may have been ready first. If the request went to the other one, the worker
    // that finishes after its first request is idle, and gets this request.
    let backends = running.registry.backends();
    if backends.iter().any(|backend| backend.slot == 0 && backend.load().0 == 0) {
        running.get("/slot");
    }
    assert_eq!(running.outcome(), Outcome::Ended(Exit::Status(0)));
    assert_eq!(begun.join().unwrap().status, 200);
}

/// Sends the request `first` to the only worker of `running`, and then requests that R does not
/// begin before the server ends. Calls `end`, and returns the statuses of the later requests.
fn statuses_of_waiting(running: &Running, first: &str, end: impl FnOnce()) -> Vec<u16> {
    let mut busy = running.connect();
    busy.send(format!("GET {first} HTTP/1.1\r\nHost: a\r\n\r\n"));
    wait_until("R is busy", || running.registry.backends()[0].load().0 == 1);
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let mut client = running.connect();
            std::thread::spawn(move || client.get("/slot").status)
        })
        .collect();
    std::thread::sleep(Duration::from_millis(200));
    end();
    clients.into_iter().map(|client| client.join().unwrap()).collect()
}

#[test]
fn requests_that_wait_when_the_time_to_drain_is_over_get_503() {
    let times = Timeouts { drain: Duration::from_millis(300), ..Timeouts::default() };
    let running = Running::new(Wish { workers: 1, times, ..Wish::default() });
    let stop = || running.ask(SupervisorCommand::Stop);
    assert_eq!(statuses_of_waiting(&running, "/sleep/5000", stop), [503; 8]);
}

#[test]
fn requests_that_wait_when_the_only_worker_ends_the_server_get_503() {
    let mut running = Running::new(Wish { workers: 1, restarts: false, ..Wish::default() });
    let pid = running.pids()[0];
    let kill = || send_signal(pid, libc::SIGKILL);
    assert_eq!(statuses_of_waiting(&running, "/sleep/60000", kill), [503; 8]);
    assert_eq!(running.outcome(), Outcome::Ended(Exit::Signal(libc::SIGKILL)));
}

#[test]
fn without_restarts_the_server_ends_with_the_status_of_the_worker() {
    let wish = Wish { workers: 1, restarts: false, start_retries: 3, ..Wish::default() };
    let mut running = Running::new(wish.clone());
    send_signal(running.pids()[0], libc::SIGKILL);
    assert_eq!(running.outcome(), Outcome::Ended(Exit::Signal(libc::SIGKILL)));
    let mut running = Running::start(Wish { mode: |_| "fails", ..wish });
    assert_eq!(running.outcome(), Outcome::Ended(Exit::Status(1)));
    assert_eq!(running.beside.lock().unwrap().len(), 1);
}

#[test]
fn without_restarts_workers_are_recycled() {
    let mut running = Running::new(Wish { workers: 1, restarts: false, ..Wish::default() });
    let pid = running.pids()[0];
    running.ask(SupervisorCommand::Reload);
    wait_until("another serves", || running.pids().first().is_some_and(|other| *other != pid));
    wait_until("the first has ended", || is_told(&["as requested"]));
    assert_eq!(running.get("/pid").status, 200);
    assert_eq!(running.stop(), Outcome::Stopped);
}

#[test]
fn a_start_with_a_configuration_error_is_not_retried() {
    let mut running =
        Running::start(Wish { mode: |_| "misconfigured", start_retries: 3, ..Wish::default() });
    assert_eq!(running.outcome(), Outcome::NeverReady);
    assert!(running.beside.lock().unwrap().len() <= 2);
}

#[test]
fn equal_start_failures_are_logged_once_per_round() {
    let mut running =
        Running::start(Wish { workers: 4, mode: |_| "fails", start_retries: 1, ..Wish::default() });
    wait_until("it has given up", || running.has_told(&["no worker became ready after 2 starts"]));
    assert_eq!(running.times_told(&["before it was ready; it is started again"]), 1);
    assert_eq!(running.outcome(), Outcome::NeverReady);
}
