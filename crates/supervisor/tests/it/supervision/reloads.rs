//! Tests of rolling reloads.

use std::time::Duration;

use rookery_supervisor::{Outcome, RecyclePolicy, SupervisorCommand, Timeouts};
use rookery_test_support::client::Client;
use rookery_test_support::wait_until;

use crate::support::running_supervisor::{Load, Running, Wish, lives, send_signal, while_};

#[test]
fn a_reload_replaces_all_workers_and_fails_no_request() {
    let running = Running::new(Wish { workers: 3, ..Wish::default() });
    let load = Load::start(running.address, 8, "/sleep/1");
    for generation in 1..=20 {
        let before = running.pids();
        running.ask(SupervisorCommand::Reload);
        wait_until("all are others", || {
            running.pids().len() == 3 && running.pids().iter().all(|pid| !before.contains(pid))
        });
        wait_until("the others have gone", || before.iter().all(|pid| !lives(*pid)));
        assert_eq!(running.get("/environment/ROOKERY_GENERATION").text(), generation.to_string());
    }
    let seen = load.end();
    let failed: Vec<_> = seen.iter().filter(|status| **status != 200).collect();
    assert!(failed.is_empty() && seen.len() > 100, "{failed:?} of {}", seen.len());
}

#[test]
fn after_a_failed_reload_the_old_workers_serve() {
    let running = Running::new(Wish {
        mode: |start| if start < 2 { "" } else { "fails" },
        ..Wish::default()
    });
    let before = running.pids();
    let load = Load::start(running.address, 4, "/sleep/1");
    running.ask(SupervisorCommand::Reload);
    wait_until("it is told", || {
        running.times_told(&["the reload has failed: the new worker 0", "ended with status 1"]) > 0
    });
    while_(200);
    assert!(load.end().iter().all(|status| *status == 200));
    assert_eq!(running.pids(), before);
}

#[test]
fn without_overlap_a_reload_drains_each_worker_before_the_next_starts() {
    let running = Running::new(Wish { workers: 2, surges: false, ..Wish::default() });
    let load = Load::start(running.address, 4, "/sleep/1");
    for generation in 1..=3 {
        let before = running.pids();
        running.ask(SupervisorCommand::Reload);
        wait_until("all are others", || {
            running.pids().len() == 2 && running.pids().iter().all(|pid| !before.contains(pid))
        });
        let told = format!("reloaded: all workers are of generation {generation}");
        wait_until("it is told", || running.times_told(&[&told]) > 0);
        assert_eq!(running.get("/environment/ROOKERY_GENERATION").text(), generation.to_string());
    }
    let seen = load.end();
    assert!(seen.iter().all(|status| *status == 200) && !seen.is_empty(), "{seen:?}");
    assert_eq!(*running.beside.lock().unwrap(), [0, 1, 1, 1, 1, 1, 1, 1]);
}

#[test]
fn without_overlap_a_reload_stops_at_the_first_failed_start() {
    let mode = |start| if start == 2 { "fails" } else { "" };
    let running = Running::new(Wish { workers: 2, surges: false, mode, ..Wish::default() });
    let before = running.pids();
    running.ask(SupervisorCommand::Reload);
    wait_until("it is told", || {
        running.times_told(&[
            "the reload has failed: the new worker",
            "The workers that were not replaced keep serving",
        ]) > 0
    });
    // The worker that failed to start is started again, and the other old worker stays.
    wait_until("both serve", || running.pids().len() == 2);
    let kept = running.pids().iter().filter(|pid| before.contains(pid)).count();
    assert_eq!(kept, 1);
    running.ask(SupervisorCommand::Reload);
    wait_until("both are others", || {
        running.pids().len() == 2 && running.pids().iter().all(|pid| !before.contains(pid))
    });
}

/// Returns the mode of a start, which fails if there were two starts before it.
fn only_two_start(starts: usize) -> &'static str {
    if starts < 2 { "" } else { "fails" }
}

/// Sends requests, which must succeed, until two more starts have failed.
fn answers_while_starts_fail(running: &Running) {
    let most = running.beside.lock().unwrap().len() + 2;
    wait_until("others have failed", || {
        assert_eq!(running.get("/pid").status, 200);
        running.beside.lock().unwrap().len() >= most
    });
}

#[test]
fn without_overlap_reloads_of_a_broken_app_leave_the_last_worker() {
    let running =
        Running::new(Wish { workers: 2, surges: false, mode: only_two_start, ..Wish::default() });
    let before = running.pids();
    for _ in 0..2 {
        running.ask(SupervisorCommand::Reload);
        answers_while_starts_fail(&running);
        // After this time, the last failed start has ended, and the next one is not due.
        while_(300);
    }
    let pids = running.pids();
    assert!(pids.len() == 1 && before.contains(&pids[0]), "{pids:?} of {before:?}");
}

#[test]
fn without_overlap_the_last_serving_worker_is_not_recycled() {
    let recycle = RecyclePolicy { requests: Some(5), ..RecyclePolicy::default() };
    let running = Running::new(Wish {
        workers: 2,
        surges: false,
        recycle,
        mode: only_two_start,
        ..Wish::default()
    });
    let before = running.pids();
    wait_until("one has ended", || {
        assert_eq!(running.get("/pid").status, 200);
        running.pids().len() == 1
    });
    answers_while_starts_fail(&running);
    let pids = running.pids();
    assert!(pids.len() == 1 && before.contains(&pids[0]), "{pids:?} of {before:?}");
}

#[test]
fn a_replaced_worker_answers_its_request_in_progress() {
    let running = Running::new(Wish { workers: 1, ..Wish::default() });
    let before = running.pids();
    let mut client = running.connect();
    let begun = std::thread::spawn(move || client.get("/sleep/1500"));
    while_(200);
    running.ask(SupervisorCommand::Reload);
    wait_until("another serves", || running.get("/pid").text() != before[0].to_string());
    assert_eq!(begun.join().unwrap().status, 200);
    wait_until("the first has gone", || !lives(before[0]));
}

#[test]
fn a_websocket_delays_the_exit_of_a_worker_up_to_the_drain_timeout() {
    let times = Timeouts { drain: Duration::from_secs(10), ..Timeouts::default() };
    let running = Running::new(Wish { workers: 1, times, ..Wish::default() });
    let before = running.pids();
    let mut client = running.connect();
    assert_eq!(client.upgrade("/ws").status, 101);
    running.ask(SupervisorCommand::Reload);
    wait_until("another serves", || running.get("/pid").text() != before[0].to_string());
    client.message(1, b"still there");
    assert_eq!(client.frame_after_pings(), (1, b"still there".to_vec()));
    let (opcode, payload) = client.frame_after_pings();
    assert_eq!((opcode, u16::from_be_bytes([payload[0], payload[1]])), (8, 1012));
    wait_until("the first has gone", || !lives(before[0]));
}

/// A time that no test reaches, even on a slow machine.
const HOURS: Option<Duration> = Some(Duration::from_secs(4 * 3600));

/// Returns true if a WebSocket is open, so that the worker returns a message.
fn echoes(client: &mut Client) -> bool {
    client.message(1, b"still there");
    client.frame_after_pings() == (1, b"still there".to_vec())
}

fn is_told_to_come_back(client: &mut Client) -> bool {
    let (opcode, payload) = client.frame_after_pings();
    (opcode, u16::from_be_bytes([payload[0], payload[1]])) == (8, 1012)
}

#[test]
fn websockets_can_have_a_longer_drain_timeout_than_requests() {
    let drain = Duration::from_millis(200);
    let times = Timeouts { drain, sessions: HOURS, ..Timeouts::default() };
    let running = Running::new(Wish { workers: 1, times, ..Wish::default() });
    let before = running.pids();
    let mut client = running.connect();
    assert_eq!(client.upgrade("/ws").status, 101);
    running.ask(SupervisorCommand::Reload);
    wait_until("another serves", || running.get("/pid").text() != before[0].to_string());
    // Without a WebSocket, the worker would have ended by now.
    std::thread::sleep(drain * 5);
    assert!(echoes(&mut client) && lives(before[0]));
    // The worker ends as soon as its last WebSocket is closed.
    drop(client);
    wait_until("the first has gone", || !lives(before[0]));
}

#[test]
fn one_worker_per_slot_waits_for_its_websockets() {
    let times = Timeouts { drain: Duration::from_secs(2), sessions: HOURS, ..Timeouts::default() };
    let running = Running::new(Wish { workers: 1, times, ..Wish::default() });
    let mut pids = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..2 {
        let own = running.get("/pid").text();
        let mut client = running.connect();
        assert_eq!(client.upgrade("/ws").status, 101);
        running.ask(SupervisorCommand::Reload);
        wait_until("another serves", || running.get("/pid").text() != own);
        pids.push(own.parse().unwrap());
        clients.push(client);
    }
    assert!(is_told_to_come_back(&mut clients[0]));
    wait_until("the first has gone", || !lives(pids[0]));
    assert!(echoes(&mut clients[1]) && lives(pids[1]));
}

#[test]
fn the_websocket_drain_timeout_can_be_shorter_and_needs_a_replacement() {
    let short = Some(Duration::from_secs(1));
    let long = HOURS.unwrap();
    for (drain, sessions, surges) in [(long, short, true), (Duration::from_secs(1), HOURS, false)] {
        let times = Timeouts { drain, sessions, ..Timeouts::default() };
        let running = Running::new(Wish { workers: 1, times, surges, ..Wish::default() });
        let before = running.pids();
        let mut client = running.connect();
        assert_eq!(client.upgrade("/ws").status, 101);
        running.ask(SupervisorCommand::Reload);
        assert!(is_told_to_come_back(&mut client));
        drop(client);
        wait_until("the first has gone", || !lives(before[0]));
    }
}

#[test]
fn a_stop_does_not_wait_for_websockets_longer_than_for_requests() {
    let times = Timeouts { drain: Duration::from_secs(2), sessions: HOURS, ..Timeouts::default() };
    let mut running = Running::new(Wish { workers: 1, times, ..Wish::default() });
    let mut client = running.connect();
    assert_eq!(client.upgrade("/ws").status, 101);
    assert_eq!(running.stop(), Outcome::Stopped);
}

#[test]
fn websockets_are_closed_before_a_replaced_worker_exits() {
    let times = Timeouts { drain: Duration::from_secs(6), ..Timeouts::default() };
    let running = Running::new(Wish { workers: 1, times, ..Wish::default() });
    let before = running.pids();
    let clients: Vec<_> = (0..30)
        .map(|_| {
            let mut client = running.connect();
            assert_eq!(client.upgrade("/ws").status, 101);
            std::thread::spawn(move || {
                let (opcode, payload) = client.frame_after_pings();
                assert_eq!((opcode, u16::from_be_bytes([payload[0], payload[1]])), (8, 1012));
            })
        })
        .collect();
    running.ask(SupervisorCommand::Reload);
    for client in clients {
        client.join().unwrap();
    }
    wait_until("the first has gone", || !lives(before[0]));
}

#[test]
fn overlapping_reloads_and_a_stop_during_a_reload_succeed() {
    let mut running = Running::new(Wish::default());
    let before = running.pids();
    running.ask(SupervisorCommand::Reload);
    running.ask(SupervisorCommand::Reload);
    wait_until("both are others", || {
        let pids = running.pids();
        pids.len() == 2 && pids.iter().all(|pid| !before.contains(pid))
    });
    running.ask(SupervisorCommand::Reload);
    let pids = running.pids();
    assert_eq!(running.stop(), Outcome::Stopped);
    wait_until("all have gone", || pids.iter().all(|pid| !lives(*pid)));
}

#[test]
fn a_later_reload_continues_when_the_earlier_one_fails() {
    let times = Timeouts { start: Duration::from_secs(3), ..Timeouts::default() };
    let mode = |start| if start == 2 { "never ready" } else { "" };
    let running = Running::new(Wish { times, mode, ..Wish::default() });
    let before = running.pids();
    running.ask(SupervisorCommand::Reload);
    while_(500);
    // From now on, starts of the app succeed.
    running.ask(SupervisorCommand::Reload);
    wait_until("both are others", || {
        let pids = running.pids();
        pids.len() == 2 && pids.iter().all(|pid| !before.contains(pid))
    });
    assert_eq!(running.get("/environment/ROOKERY_GENERATION").text(), "2");
}

#[test]
fn a_reload_can_change_the_configuration() {
    let wish = || Wish { workers: 1, spares: 1, ..Wish::default() };
    let running = Running::new(wish());
    let before = running.pids();
    let busy = Timeouts { busy: Some(Duration::from_millis(500)), ..Timeouts::default() };
    running.change(Wish { workers: 3, spares: 0, times: busy, ..Wish::default() });
    wait_until("there are three others", || {
        running.pids().len() == 3 && running.pids().iter().all(|pid| !before.contains(pid))
    });
    wait_until("it is told", || {
        running.times_told(&["reloaded: all workers are of generation 1"]) > 0
    });
    assert_eq!(running.get("/environment/ROOKERY_WORKER_COUNT").text(), "3");
    // The timeouts of the new configuration apply.
    assert_eq!(running.get("/sleep/600000").status, 504);
    // A number of workers that was set by a signal stays, unless the configured number changes.
    running.ask(SupervisorCommand::AddWorker);
    wait_until("there are four", || running.pids().len() == 4);
    running.change(Wish { workers: 3, ..Wish::default() });
    wait_until("it is told", || running.times_told(&["reloading: 4 workers"]) > 0);
    running.change(wish());
    wait_until("one is left", || running.pids().len() == 1);
}

#[test]
fn a_failed_reload_does_not_change_the_number_of_workers() {
    for workers in [1, 4] {
        let running = Running::new(Wish { workers: 3, ..Wish::default() });
        let before = running.pids();
        running.change(Wish { workers, mode: |_| "fails", ..Wish::default() });
        wait_until("it has failed", || running.has_told(&["the reload has failed"]));
        // Another start would be logged within this time.
        while_(300);
        assert_eq!(running.pids(), before, "{workers}");
        assert!(!running.has_told(&["one worker"]), "{workers}");
        // The next change counts from the unchanged number of workers.
        running.change(Wish { workers, ..Wish::default() });
        wait_until("there are as many", || {
            running.pids().len() == workers as usize
                && running.pids().iter().all(|pid| !before.contains(pid))
        });
        // Each worker was started once.
        let started = 3 + 3 + workers.saturating_sub(3) as usize;
        wait_until("all are ready", || running.times_told(&["is ready"]) >= started);
        assert_eq!(running.times_told(&["is ready"]), started, "{workers}");
    }
}

#[test]
fn a_reload_continues_when_the_old_worker_is_killed() {
    let running = Running::new(Wish {
        workers: 1,
        mode: |starts| if starts == 1 { "slow" } else { "" },
        ..Wish::default()
    });
    let old = running.pids()[0];
    running.ask(SupervisorCommand::Reload);
    wait_until("it has begun", || running.has_told(&["reloading"]));
    while_(50);
    send_signal(old, libc::SIGKILL);
    wait_until("it is told", || running.has_told(&["was ended by SIGKILL", "is already starting"]));
    wait_until("the reload is over", || {
        running.has_told(&["reloaded: all workers are of generation 1"])
    });
    assert_eq!(running.get("/slot").status, 200);
}

#[test]
fn logs_a_reload_that_repairs_a_failing_app() {
    let mode = |starts| if starts < 2 { "" } else { "fails" };
    let running = Running::new(Wish { workers: 2, mode, ..Wish::default() });
    for pid in running.pids() {
        send_signal(pid, libc::SIGKILL);
    }
    wait_until("both have failed again", || {
        running.pids().is_empty() && running.times_told(&["ended with status 1"]) >= 2
    });
    running.change(Wish { workers: 2, ..Wish::default() });
    wait_until("both serve", || running.pids().len() == 2);
    wait_until("it is told", || running.has_told(&["reloaded: all workers are of generation 1"]));
    // The reload is reported only once.
    while_(200);
    assert_eq!(running.times_told(&["reloaded: "]), 1);
}
