//! Tests of the supervisor's log lines about its workers.

use std::time::Duration;

use rookery_supervisor::{Outcome, RecyclePolicy, SupervisorCommand, Timeouts};
use rookery_test_support::wait_until;

use crate::support::running_supervisor::{Running, Wish, is_told, lives, send_signal};

#[test]
fn logs_starts_and_ends_with_resource_usage() {
    let recycle = RecyclePolicy { requests: Some(50), ..RecyclePolicy::default() };
    let running = Running::new(Wish { workers: 1, recycle, ..Wish::default() });
    let first = running.pids()[0];
    wait_until("it is told", || is_told(&[&format!("worker 0 ({first}) is ready, ")]));
    let mut client = running.connect();
    wait_until("it is another", || client.get("/pid").text() != first.to_string());
    wait_until("its end is told", || {
        is_told(&[&format!("worker 0 ({first}) ended with status 0 as requested; it ran for ")])
    });
    let second = running.pids()[0];
    send_signal(second, libc::SIGKILL);
    wait_until("a death is", || {
        is_told(&[&format!("worker 0 ({second}) was ended by SIGKILL"), "MB of memory and"])
    });
}

#[test]
fn logs_a_long_task_of_r_and_its_end() {
    let times = Timeouts { slow: Some(Duration::from_secs(2)), ..Timeouts::default() };
    let running = Running::new(Wish { workers: 1, times, ..Wish::default() });
    let pid = running.pids()[0];
    let mut client = running.connect();
    let begun = std::thread::spawn(move || client.get("/sleep/5000"));
    let said = format!("the R process of worker 0 ({pid}) has been busy for ");
    wait_until("it is told", || is_told(&[&said, "with GET /sleep/5000"]));
    assert_eq!(begun.join().unwrap().status, 200);
    wait_until("its end is", || {
        is_told(&[&format!("the R process of worker 0 ({pid}) is no longer busy")])
    });
}

#[test]
fn logs_what_a_drain_waits_for() {
    let times = Timeouts { drain: Duration::from_secs(120), ..Timeouts::default() };
    let mut running = Running::new(Wish { workers: 1, times, ..Wish::default() });
    let first = running.pids()[0];
    let mut client = running.connect();
    assert_eq!(client.upgrade("/ws").status, 101);
    running.ask(SupervisorCommand::Reload);
    let said = format!("worker 0 ({first}) is draining: waiting for 0 requests and 1 WebSocket, ");
    wait_until("it is told of a worker", || is_told(&[&said]));
    running.ask(SupervisorCommand::Stop);
    wait_until("it is told of all", || is_told(&["stopping: waiting for 1 connection, "]));
    running.ask(SupervisorCommand::Stop);
    assert_eq!(running.outcome(), Outcome::Stopped);
    assert!(!lives(first));
}

#[test]
fn a_worker_that_misses_a_wake_up_is_killed_and_another_one_answers() {
    let mode = |start| if start == 0 { "stalls" } else { "" };
    // The request waits in the worker until the supervisor notices that R does not take it.
    let queue_timeout = Duration::from_secs(120);
    let running = Running::new(Wish { workers: 1, mode, queue_timeout, ..Wish::default() });
    let first = running.pids()[0];
    let reply = running.get("/pid");
    assert_eq!((reply.status, reply.text() == first.to_string()), (200, false));
    assert!(is_told(&[&format!(
        "the R process of worker 0 ({first}) is idle with 1 request waiting for it (passed to it: 1, taken: 0)"
    )]));
}
