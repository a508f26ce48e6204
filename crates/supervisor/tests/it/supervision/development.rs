//! Tests of the supervisor of an app that is being developed.

use std::path::Path;
use std::time::{Duration, Instant};

use rookery_supervisor::SupervisorCommand;
use rookery_test_support::wait_until;

use crate::support::admin::Admin;
use crate::support::running_supervisor::{Running, Wish, is_told, lives, send_signal, while_};

fn develop(mode: fn(usize) -> &'static str) -> Wish {
    Wish { workers: 1, is_dev: true, mode, ..Wish::default() }
}

/// Waits until this many starts of the app have succeeded or failed, and returns them.
fn starts(running: &Running, count: usize) -> Vec<String> {
    wait_until("the app has started", || running.app_starts().len() >= count);
    running.app_starts()
}

#[test]
fn a_failed_start_is_repeated_only_at_a_reload() {
    let mode = |start: usize| ["fails", "explains", "misconfigured", ""][start.min(3)];
    let running = Running::start(develop(mode));
    assert_eq!(starts(&running, 1), ["ended with status 1 "]);
    while_(300);
    running.ask(SupervisorCommand::Reload);
    assert_eq!(starts(&running, 2)[1], "ended with status 1 a mistake");
    running.ask(SupervisorCommand::Reload);
    assert_eq!(starts(&running, 3)[2], "ended with status 78 ");
    running.ask(SupervisorCommand::Reload);
    assert_eq!(starts(&running, 4)[3], "ready");
    assert_eq!(running.get("/environment/ROOKERY_GENERATION").text(), "3");
}

#[test]
fn errors_of_sessions_are_reported_in_development_only() {
    let running = Running::new(develop(|_| "describes errors"));
    assert_eq!(running.get("/errors/3").status, 404);
    wait_until("they have been reported", || running.session_errors().len() == 3);
    let expected = ["4f2a\n<p>error 1", "4f2a\n<p>error 2", "4f2a\n<p>error 3"];
    assert_eq!(running.session_errors(), expected);
    let running = Running::new(Wish { is_dev: false, ..develop(|_| "describes errors") });
    let admin = Admin::of(&running);
    assert_eq!(running.get("/errors/1").status, 404);
    wait_until("it has been reported", || admin.errors().len() == 1);
    assert_eq!(running.session_errors(), Vec::<String>::new());
}

#[test]
fn the_former_worker_stays_if_the_changed_app_cannot_be_started() {
    let running = Running::new(develop(|start| if start == 1 { "fails" } else { "" }));
    let before = running.pids();
    running.ask(SupervisorCommand::Reload);
    assert_eq!(starts(&running, 2), ["ready", "ended with status 1 "]);
    assert_eq!(running.pids(), before);
    running.ask(SupervisorCommand::Reload);
    assert_eq!(starts(&running, 3)[2], "ready");
    wait_until("the former worker has gone", || !lives(before[0]));
}

#[test]
fn a_restarted_worker_that_starts_the_changed_app_is_reported_after_a_failed_reload() {
    let running = Running::new(develop(|start| if start == 1 { "fails" } else { "" }));
    let before = running.pids();
    running.ask(SupervisorCommand::Reload);
    assert_eq!(starts(&running, 2), ["ready", "ended with status 1 "]);
    send_signal(before[0], libc::SIGKILL);
    assert_eq!(starts(&running, 3)[2], "ready");
}

#[test]
fn a_reload_does_not_wait_for_a_worker_that_is_still_starting() {
    let mode = |start: usize| if start == 0 || start == 1 { "never ready" } else { "" };
    let running = Running::start(develop(mode));
    wait_until("it starts", || running.beside.lock().unwrap().len() == 1);
    for start in [2, 3] {
        while_(50);
        running.ask(SupervisorCommand::Reload);
        wait_until("it starts", || running.beside.lock().unwrap().len() >= start);
    }
    // A start that was stopped has not failed.
    assert_eq!(starts(&running, 1), ["ready"]);
    wait_until("the new worker serves", || running.pids().len() == 1);
    assert_eq!(running.get("/environment/ROOKERY_GENERATION").text(), "2");
}

#[test]
fn a_worker_that_a_reload_stops_after_it_has_shown_its_error_has_failed() {
    let mode = |start: usize| if start == 1 { "explains and stays" } else { "" };
    let running = Running::new(develop(mode));
    running.ask(SupervisorCommand::Reload);
    wait_until("it has explained", || {
        running.children().iter().any(|pid| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let environment = String::from_utf8_lossy(&environment);
            let folder = environment.split('\0').find_map(|it| it.strip_prefix("TMPDIR="));
            folder.is_some_and(|it| Path::new(it).join("rookery-start-error.txt").exists())
        })
    });
    running.ask(SupervisorCommand::Reload);
    let reported = starts(&running, 3);
    assert!(reported[1].ends_with("a mistake"), "{reported:?}");
    assert_eq!(reported[2], "ready", "{reported:?}");
}

#[test]
fn a_starting_worker_that_a_reload_stops_is_not_logged_as_failed() {
    let running = Running::new(develop(|start| if start == 1 { "never ready" } else { "" }));
    running.ask(SupervisorCommand::Reload);
    wait_until("it starts", || running.children().len() == 2);
    let old = running.pids()[0];
    let stopped = *running.children().iter().find(|pid| **pid != old).unwrap();
    running.ask(SupervisorCommand::Reload);
    wait_until("it has ended", || is_told(&[&format!("worker 0 ({stopped})"), "as requested"]));
    assert!(!is_told(&[&format!("({stopped})"), "before it was ready"]));
}

#[test]
fn a_reload_uses_the_preloaded_worker_unless_the_configuration_has_changed() {
    let running = Running::new(develop(|_| ""));
    let preload = |count: usize| {
        wait_until("a worker is preloaded", || running.beside.lock().unwrap().len() == count);
    };
    preload(2);
    let began = Instant::now();
    running.ask(SupervisorCommand::Reload);
    assert_eq!(starts(&running, 2), ["ready", "ready"]);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(running.beside.lock().unwrap().len(), 2, "no other worker was started");
    assert_eq!(running.get("/environment/ROOKERY_GENERATION").text(), "1");
    preload(3);
    running.change(develop(|_| ""));
    assert_eq!(starts(&running, 3)[2], "ready");
    assert_eq!(running.get("/environment/ROOKERY_GENERATION").text(), "2");
}

#[test]
fn a_stale_preloaded_worker_is_replaced_at_once() {
    let running = Running::new(develop(|start| if start == 1 { "stale" } else { "" }));
    wait_until("a worker is preloaded", || running.beside.lock().unwrap().len() == 2);
    running.ask(SupervisorCommand::Reload);
    assert_eq!(starts(&running, 2), ["ready", "ready"]);
    assert_eq!(running.beside.lock().unwrap().len(), 3);
    assert_eq!(running.get("/environment/ROOKERY_GENERATION").text(), "1");
}

#[test]
fn the_preloaded_worker_ends_with_the_server() {
    let mut running = Running::new(develop(|_| ""));
    wait_until("a worker is preloaded", || running.beside.lock().unwrap().len() == 2);
    wait_until("both run", || running.children().len() == 2);
    let children = running.children();
    running.stop();
    wait_until("both have ended", || children.iter().all(|pid| !lives(*pid)));
}

#[test]
fn a_worker_that_was_not_preloaded_is_not_stale() {
    let running = Running::start(develop(|_| "stale"));
    assert_eq!(starts(&running, 1), ["ended with status 79 "]);
    while_(300);
    assert_eq!(running.beside.lock().unwrap().len(), 1, "it is not started again");
}

#[test]
fn ctrl_c_does_not_end_the_preloaded_worker() {
    let running = Running::new(develop(|_| ""));
    wait_until("a worker is preloaded", || running.beside.lock().unwrap().len() == 2);
    wait_until("both run", || running.children().len() == 2);
    let serving = running.pids();
    for pid in running.children().into_iter().filter(|pid| !serving.contains(pid)) {
        // SAFETY: the call passes no memory.
        assert_eq!(unsafe { libc::kill(pid as libc::pid_t, libc::SIGINT) }, 0);
    }
    while_(100);
    running.ask(SupervisorCommand::Reload);
    assert_eq!(starts(&running, 2), ["ready", "ready"]);
    assert_eq!(running.beside.lock().unwrap().len(), 2, "no other worker was started");
}

#[test]
fn a_worker_is_preloaded_although_the_serving_one_has_ended_meanwhile() {
    let running = Running::new(develop(|_| ""));
    let serving = running.pids()[0];
    // SAFETY: the call passes no memory.
    assert_eq!(unsafe { libc::kill(serving as libc::pid_t, libc::SIGKILL) }, 0);
    wait_until("another worker and a preloaded one are started", || {
        running.beside.lock().unwrap().len() == 3
    });
}
