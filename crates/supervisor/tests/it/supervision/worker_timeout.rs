//! Tests of workers whose R process is busy with one task for too long.

use std::time::{Duration, Instant};

use rookery_supervisor::Timeouts;
use rookery_test_support::wait_until;

use crate::support::running_supervisor::{Running, Wish, is_told, lives};

fn patient_for(milliseconds: u64) -> Timeouts {
    Timeouts { busy: Some(Duration::from_millis(milliseconds)), ..Timeouts::default() }
}

fn interrupting_after(milliseconds: u64) -> Timeouts {
    Timeouts { interrupts: true, ..patient_for(milliseconds) }
}

#[test]
fn a_worker_that_exceeds_the_timeout_is_stopped() {
    let running = Running::new(Wish { times: patient_for(2000), ..Wish::default() });
    let before = running.pids();
    let reply = running.connect().get("/sleep/600000");
    assert_eq!((reply.status, reply.text().contains("took too long")), (504, true));
    wait_until("it is ended", || before.iter().any(|pid| !lives(*pid)));
    wait_until("another serves", || {
        running.pids().len() == 2 && running.pids().iter().all(|pid| lives(*pid))
    });
    let gone = before.iter().find(|pid| !lives(**pid)).unwrap().to_string();
    assert!(is_told(&[&gone, "busy with one task", "ending it"]));
    assert!(!is_told(&[&gone, "interrupted"]));
}

/// The time within which a worker ends and another one serves in its place. The worker would have
/// had more time to end before it was killed.
const SOON: Duration = Duration::from_secs(4);

#[test]
fn a_worker_whose_task_does_not_end_is_killed_soon_and_the_next_request_is_answered() {
    // The time limit of the stop has no influence.
    let times = Timeouts { stop: Duration::from_secs(60), ..patient_for(500) };
    for workers in [1, 2] {
        let running = Running::new(Wish { workers, times, ..Wish::default() });
        let before = running.pids();
        assert_eq!(running.get("/sleep/600000").status, 504);
        let answered = Instant::now();
        wait_until("it is ended", || before.iter().any(|pid| !lives(*pid)));
        assert!(answered.elapsed() < SOON, "{workers}: {:?}", answered.elapsed());
        wait_until("another serves", || {
            let pids = running.pids();
            pids.len() == workers as usize && pids != before && pids.iter().all(|pid| lives(*pid))
        });
        assert_eq!(running.get("/slot").status, 200, "{workers}");
    }
}

#[test]
fn the_time_for_which_the_server_was_frozen_does_not_count() {
    let running = Running::new(Wish {
        workers: 1,
        times: patient_for(1000),
        turns_every: Duration::from_millis(50),
        ..Wish::default()
    });
    let mut client = running.connect();
    let response = std::thread::spawn(move || client.get("/sleep/1500").status);
    wait_until("the worker has it", || running.registry.backends()[0].load().0 == 1);
    // This stands for a process that is frozen together with its workers.
    running.freeze(Duration::from_millis(1300));
    assert_eq!(response.join().unwrap(), 200);
}

#[test]
fn a_worker_that_ignores_the_interrupt_is_stopped_and_its_client_gets_504() {
    let running = Running::new(Wish { times: interrupting_after(2000), ..Wish::default() });
    let before = running.pids();
    let mut client = running.connect();
    let reply = client.get("/sleep/600000");
    assert_eq!((reply.status, reply.text().contains("took too long")), (504, true));
    // The other worker responds meanwhile, and no request waits for the worker that does not
    // respond.
    for _ in 0..20 {
        assert_eq!(running.get("/slot").status, 200);
    }
    wait_until("it is ended", || before.iter().any(|pid| !lives(*pid)));
    wait_until("another serves", || {
        running.pids().len() == 2 && running.pids().iter().all(|pid| lives(*pid))
    });
    let gone = before.iter().find(|pid| !lives(**pid)).unwrap().to_string();
    for said in ["interrupting it", "is still busy with the same task: ending it"] {
        assert!(is_told(&[&gone, said]), "{said}");
    }
    assert!(!is_told(&[&gone, "out of memory"]));
}

#[test]
fn a_worker_that_reacts_to_the_interrupt_keeps_serving() {
    let running =
        Running::new(Wish { workers: 1, times: interrupting_after(500), ..Wish::default() });
    let before = running.pids();
    assert_eq!(running.get("/sleep/3000").status, 504);
    // The request waits for this worker, since there is no other.
    assert_eq!(running.get("/pid").text(), before[0].to_string());
    wait_until("it is told", || {
        is_told(&[&before[0].to_string(), "has finished the task that took too long"])
    });
    assert_eq!(running.pids(), before);
}

#[test]
fn requests_within_the_timeout_are_answered() {
    let running = Running::new(Wish { workers: 1, times: patient_for(20_000), ..Wish::default() });
    assert_eq!(running.get("/sleep/1500").status, 200);
}
