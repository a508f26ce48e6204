//! Tests of workers that end, by themselves or at the supervisor's request.

use std::time::{Duration, Instant};

use rookery_supervisor::{Outcome, RecyclePolicy, SupervisorCommand, Timeouts};
use rookery_test_support::{TEST_TIMEOUT, wait_until};

use crate::support::frontend::get_at_rest;
use crate::support::running_supervisor::{
    Load, Running, Wish, is_told, lives, send_signal, while_,
};

#[test]
fn a_killed_worker_is_restarted_and_only_its_request_fails() {
    let running = Running::new(Wish { workers: 3, ..Wish::default() });
    // The requests take long enough for a worker to get the next request when it has responded to
    // the last.
    let load = Load::start(running.address, 8, "/sleep/5");
    let mut kills = 0;
    for _ in 0..6 {
        while_(300);
        let pid = running.pids()[0];
        send_signal(pid, libc::SIGKILL);
        kills += 1;
        wait_until("three are there again", || {
            running.registry.backends().len() == 3 && !running.pids().contains(&pid)
        });
    }
    let seen = load.end();
    let failed: Vec<_> = seen.iter().filter(|status| **status != 200).collect();
    assert!(seen.len() > 100, "{}", seen.len());
    // Only the request that R had begun fails at each kill.
    assert!(
        failed.len() <= kills && failed.iter().all(|status| **status == 502),
        "{failed:?} of {}",
        seen.len()
    );
    assert!(is_told(&["was ended by SIGKILL, which the supervisor did not send"]));
}

#[test]
fn a_request_that_crashes_r_crashes_only_one_worker() {
    let running = Running::new(Wish::default());
    let reply = running.get("/die");
    wait_until("it is told what R was at", || {
        is_told(&["; its R process had begun with GET /die; it is started again"])
    });
    assert_eq!(reply.status, 502, "{}", reply.text());
    wait_until("it is there again", || running.registry.backends().len() == 2);
    assert_eq!(running.get("/pid").status, 200);
}

#[test]
fn a_stop_finishes_requests_in_progress() {
    let mut running = Running::new(Wish::default());
    let mut client = running.connect();
    let begun = std::thread::spawn(move || client.get("/sleep/700"));
    while_(200);
    let pids = running.pids();
    assert_eq!(running.stop(), Outcome::Stopped);
    assert_eq!(begun.join().unwrap().status, 200);
    assert!(pids.iter().all(|pid| !lives(*pid)));
}

#[test]
fn a_worker_that_exceeds_the_stop_timeout_is_killed() {
    let times = Timeouts { stop: Duration::from_millis(500), ..Timeouts::default() };
    let mut running = Running::new(Wish { times, mode: |_| "deaf", ..Wish::default() });
    let pids = running.pids();
    assert_eq!(running.stop(), Outcome::Stopped);
    assert!(pids.iter().all(|pid| !lives(*pid)));
}

#[test]
fn a_worker_without_clients_has_time_until_the_drain_is_over() {
    let (drain, stop) = (Duration::from_millis(300), TEST_TIMEOUT);
    let times = Timeouts { drain, stop, ..Timeouts::default() };
    let mut running = Running::new(Wish { times, mode: |_| "busy", ..Wish::default() });
    let began = Instant::now();
    assert_eq!(running.stop(), Outcome::Stopped);
    let time = began.elapsed();
    assert!(time >= drain && time < stop, "{time:?}");
}

#[test]
fn streams_are_cut_when_the_drain_is_over_even_if_their_workers_continue() {
    let (drain, stop) = (Duration::from_millis(300), 10 * TEST_TIMEOUT);
    let times = Timeouts { drain, stop, ..Timeouts::default() };
    let mut running = Running::new(Wish { times, mode: |_| "deaf", ..Wish::default() });
    let mut client = running.connect();
    client.send("GET /pulled/2000 HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the stream begins", || client.socket.peek(&mut [0]).is_ok_and(|read| read > 0));
    running.ask(SupervisorCommand::Stop);
    // Without the cut, the client would get the whole response now.
    std::thread::sleep(drain);
    assert!(!client.read_to_end().1);
    running.ask(SupervisorCommand::Stop);
    assert_eq!(running.outcome(), Outcome::Stopped);
}

#[test]
fn a_second_stop_ends_the_server_at_once() {
    let long = 10 * TEST_TIMEOUT;
    let times = Timeouts { drain: long, stop: long, ..Timeouts::default() };
    let mut running = Running::new(Wish { times, mode: |_| "deaf", ..Wish::default() });
    let mut client = running.connect();
    let held = std::thread::spawn(move || client.get("/sleep/6000000").status);
    wait_until("it has begun", || {
        running.registry.backends().iter().any(|backend| backend.load().0 == 1)
    });
    let began = Instant::now();
    running.ask(SupervisorCommand::Stop);
    while_(100);
    running.ask(SupervisorCommand::Stop);
    assert_eq!(running.outcome(), Outcome::Stopped);
    assert!(began.elapsed() < 5 * TEST_TIMEOUT);
    assert_eq!(held.join().unwrap(), 502);
}

#[test]
fn child_processes_of_a_killed_worker_are_killed() {
    let running = Running::new(Wish { workers: 1, ..Wish::default() });
    let child: i32 = running.get("/child").text().parse().unwrap();
    assert!(lives(child));
    let pid = running.pids()[0];
    send_signal(pid, libc::SIGKILL);
    wait_until("the worker's child has gone", || !lives(child));
}

#[test]
fn a_stopped_worker_gets_no_requests_and_is_not_killed() {
    let running = Running::new(Wish::default());
    let pid = running.pids()[0];
    send_signal(pid, libc::SIGSTOP);
    wait_until("it is known", || is_told(&[&format!("({pid}) has been stopped")]));
    let mut client = running.connect();
    for _ in 0..50 {
        assert_ne!(client.get("/pid").text(), pid.to_string());
    }
    send_signal(pid, libc::SIGCONT);
    wait_until("it answers again", || {
        is_told(&[&format!("({pid}) responds to health checks again")])
    });
    wait_until("it is given work again", || {
        get_at_rest(&mut client, "/pid").text() == pid.to_string()
    });
}

#[test]
fn workers_are_replaced_at_the_request_limit() {
    let recycle = RecyclePolicy { requests: Some(100), ..RecyclePolicy::default() };
    let running = Running::new(Wish { recycle, ..Wish::default() });
    let first = running.pids();
    let load = Load::start(running.address, 4, "/sleep/1");
    wait_until("both are others", || running.pids().iter().all(|pid| !first.contains(pid)));
    wait_until("the first have gone", || first.iter().all(|pid| !lives(*pid)));
    let seen = load.end();
    assert!(seen.iter().all(|status| *status == 200), "{seen:?}");
    assert!(is_told(&["is replaced: it has answered"]));
}

#[test]
fn workers_are_replaced_at_the_age_limit() {
    let recycle = RecyclePolicy { age: Some(Duration::from_secs(2)), ..RecyclePolicy::default() };
    let mut running = Running::new(Wish { recycle, ..Wish::default() });
    let first = running.pids();
    wait_until("both are others", || running.pids().iter().all(|pid| !first.contains(pid)));
    assert_eq!(running.stop(), Outcome::Stopped);
}

#[test]
fn a_worker_that_stops_its_server_is_replaced_and_the_log_says_why() {
    let times = Timeouts { start: Duration::from_secs(8), ..Timeouts::default() };
    let mode = |start| if start == 0 { "stops its server" } else { "" };
    let running = Running::new(Wish { workers: 1, times, mode, ..Wish::default() });
    let first = running.get("/pid").text();
    wait_until("what to do is told", || {
        running.has_told(&[
            &format!("the app in worker 0 ({first}) has stopped its server"),
            "`stopAllServers()`",
            "must not stop its server",
        ])
    });
    // The request waits for the next worker.
    assert_ne!(running.get("/pid").text(), first);
    assert!(running.has_told(&["has started no other within 8 s: it is replaced"]));
    assert!(running.has_told(&[&format!("worker 0 ({first}) "), "it is started again in 0.1 s"]));
}

#[test]
fn files_of_ended_workers_are_removed() {
    let mut running = Running::new(Wish::default());
    for at in 0..12 {
        let pid = running.pids()[at % 2];
        send_signal(pid, libc::SIGKILL);
        wait_until("it is there again", || {
            let pids = running.pids();
            pids.len() == 2 && !pids.contains(&pid)
        });
        assert_eq!(running.get("/pid").status, 200);
    }
    let folder = running.folder.path().join(run_folder(&running));
    // The lock file, and a folder for each of two workers.
    wait_until("what ended has been removed", || std::fs::read_dir(&folder).unwrap().count() == 3);
    assert_eq!(running.stop(), Outcome::Stopped);
}

fn run_folder(running: &Running) -> std::ffi::OsString {
    std::fs::read_dir(running.folder.path()).unwrap().next().unwrap().unwrap().file_name()
}
