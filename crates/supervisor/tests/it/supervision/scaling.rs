//! Tests of adding and removing a worker while the server runs.

use rookery_supervisor::{Availability, SupervisorCommand};
use rookery_test_support::wait_until;

use crate::support::running_supervisor::{Load, Running, Wish, lives, send_signal};

/// Returns the epochs of the workers that get requests, in order.
fn epochs(running: &Running) -> Vec<u64> {
    let mut epochs: Vec<u64> =
        running.registry.backends().iter().map(|backend| backend.epoch).collect();
    epochs.sort_unstable();
    epochs
}

/// Returns the number of WebSockets of the worker with this epoch.
fn sessions(running: &Running, epoch: u64) -> usize {
    running.registry.backends().iter().find(|it| it.epoch == epoch).map_or(0, |it| it.load().1)
}

#[test]
fn adding_and_removing_workers_fails_no_request() {
    let running = Running::new(Wish { workers: 2, ..Wish::default() });
    let load = Load::start(running.address, 4, "/pid");
    running.ask(SupervisorCommand::AddWorker);
    wait_until("there are three", || running.registry.backends().len() == 3);
    let before = running.pids();
    assert_eq!(running.get("/environment/ROOKERY_WORKER_COUNT").status, 200);
    running.ask(SupervisorCommand::RemoveWorker);
    // The youngest worker is removed, since none has a session.
    wait_until("there are two", || epochs(&running) == [1, 2]);
    running.ask(SupervisorCommand::RemoveWorker);
    wait_until("there is one", || epochs(&running) == [1]);
    running.ask(SupervisorCommand::RemoveWorker);
    wait_until("the last stays", || {
        running.has_told(&["no worker is removed: one worker is the minimum"])
    });
    let last = running.pids();
    wait_until("the others have ended", || {
        before.iter().all(|pid| last.contains(pid) || !lives(*pid))
    });
    // The slot of a removed worker is used again.
    running.ask(SupervisorCommand::AddWorker);
    wait_until("there are two again", || epochs(&running) == [1, 4]);
    running.ask(SupervisorCommand::Reload);
    wait_until("both are new", || epochs(&running) == [5, 6]);
    let seen = load.end();
    assert!(seen.iter().all(|status| *status == 200), "{seen:?}");
}

#[test]
fn scaling_down_removes_the_worker_with_the_fewest_sessions() {
    let running = Running::new(Wish { workers: 2, ..Wish::default() });
    let open = || {
        let mut page = running.connect();
        assert_eq!(page.upgrade("/ws").status, 101);
        page
    };
    // The second WebSocket goes to the other worker.
    let all = || sessions(&running, 1) + sessions(&running, 2);
    let first = open();
    wait_until("it is counted", || all() == 1);
    let is_of_oldest = sessions(&running, 1) == 1;
    let second = open();
    wait_until("it is counted", || all() == 2);
    assert_eq!((sessions(&running, 1), sessions(&running, 2)), (1, 1));
    let (of_oldest, _of_youngest) = if is_of_oldest { (first, second) } else { (second, first) };
    drop(of_oldest);
    wait_until("it is gone", || sessions(&running, 1) == 0);
    running.ask(SupervisorCommand::RemoveWorker);
    wait_until("the one without a session goes", || epochs(&running) == [2]);
    assert_eq!(sessions(&running, 2), 1);
}

#[test]
fn scaling_up_uses_a_spare_and_keeps_the_number_of_spares() {
    let running = Running::new(Wish { workers: 1, spares: 1, ..Wish::default() });
    running.ask(SupervisorCommand::AddWorker);
    wait_until("there are two", || running.registry.backends().len() == 2);
    running.ask(SupervisorCommand::RemoveWorker);
    wait_until("there is one", || running.registry.backends().len() == 1);
    running.ask(SupervisorCommand::RemoveWorker);
    running.ask(SupervisorCommand::AddWorker);
    wait_until("there are two again", || running.registry.backends().len() == 2);
}

#[test]
fn scaling_down_removes_a_starting_worker_first() {
    let mode = |start| if start < 2 { "" } else { "never ready" };
    let running = Running::new(Wish { workers: 2, mode, ..Wish::default() });
    running.ask(SupervisorCommand::AddWorker);
    wait_until("it is told", || running.has_told(&["added one worker: 3 in total"]));
    running.ask(SupervisorCommand::RemoveWorker);
    wait_until("it is ended", || running.has_told(&["removed one worker: 2 in total"]));
    assert_eq!(epochs(&running), [1, 2]);
    assert_eq!(running.get("/pid").status, 200);
}

#[test]
fn scaling_down_removes_a_suspended_worker_first() {
    let running = Running::new(Wish { workers: 2, ..Wish::default() });
    let oldest = running.registry.backends().iter().find(|it| it.epoch == 1).cloned().unwrap();
    let pid = i32::try_from(oldest.scoreboard.read().pid).unwrap();
    send_signal(pid, libc::SIGSTOP);
    wait_until("it is known", || oldest.availability() != Availability::Ready);
    running.ask(SupervisorCommand::RemoveWorker);
    wait_until("it is told", || running.has_told(&["removed one worker: 1 in total"]));
    send_signal(pid, libc::SIGCONT);
    wait_until("it goes", || epochs(&running) == [2]);
    assert_eq!(running.get("/slot").status, 200);
}
