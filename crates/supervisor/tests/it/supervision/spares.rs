//! Tests of spare workers, and of the warm-up of new workers.

use rookery_supervisor::{Outcome, SupervisorCommand};
use rookery_test_support::wait_until;

use crate::support::running_supervisor::{
    Load, Running, Wish, is_told, lives, send_signal, while_,
};

#[test]
fn a_spare_replaces_a_worker_that_ends() {
    let running = Running::new(Wish { workers: 1, spares: 1, ..Wish::default() });
    let mut seen = running.pids();
    for _ in 0..4 {
        let serving = running.pids()[0];
        while_(300);
        send_signal(serving, libc::SIGKILL);
        wait_until("another serves", || {
            let pids = running.pids();
            pids.len() == 1 && pids[0] != serving
        });
        let pid = running.pids()[0];
        assert_eq!(running.get("/pid").text(), pid.to_string());
        assert!(!seen.contains(&pid), "each is a new one");
        seen.push(pid);
    }
    assert!(is_told(&["a spare, now serves requests"]));
    assert_eq!(running.get("/environment/ROOKERY_WORKER_COUNT").text(), "2");
}

#[test]
fn with_a_spare_no_request_waits_for_a_start() {
    // All starts after the first two never become ready.
    let mode = |start| if start < 2 { "" } else { "never ready" };
    let running = Running::new(Wish { workers: 1, spares: 1, mode, ..Wish::default() });
    let serving = running.pids()[0];
    // Waits until the spare has been started.
    wait_until("there is a spare", || {
        children().iter().filter(|pid| is_of(**pid, &running)).count() >= 2
    });
    while_(1000);
    send_signal(serving, libc::SIGKILL);
    let next = running.get("/pid");
    assert!(next.status == 200 && next.text() != serving.to_string());
}

#[test]
fn a_suspended_spare_serves_once_it_responds() {
    let mode = |start| if start < 2 { "" } else { "never ready" };
    let running = Running::new(Wish { workers: 1, spares: 1, mode, ..Wish::default() });
    let serving = running.pids()[0];
    let spare = || children().into_iter().find(|pid| *pid != serving && is_of(*pid, &running));
    wait_until("there is a spare", || spare().is_some());
    while_(1000);
    let spare = spare().unwrap();
    send_signal(spare, libc::SIGSTOP);
    wait_until("it is known", || is_told(&[&format!("({spare}) has been stopped")]));
    send_signal(serving, libc::SIGKILL);
    wait_until("none serves", || running.pids().is_empty());
    send_signal(spare, libc::SIGCONT);
    assert_eq!(running.get("/pid").text(), spare.to_string());
}

/// Returns true if a process is a worker of this supervisor, because its temporary files are in the
/// supervisor's folder.
fn is_of(pid: i32, running: &Running) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let folder = running.folder.path().to_str().unwrap().as_bytes();
    environment.windows(folder.len()).any(|window| window == folder)
}

/// Returns the child processes of this process.
fn children() -> Vec<i32> {
    let own = std::process::id().to_string();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &i32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let rest = stat
                .rsplit_once(')')
                .map(|(_, rest)| rest.trim_start().to_owned())
                .unwrap_or_default();
            rest.split(' ').nth(1) == Some(own.as_str())
        })
        .collect()
}

#[test]
fn a_reload_replaces_spares() {
    let running = Running::new(Wish { workers: 2, spares: 1, ..Wish::default() });
    let before = running.pids();
    let load = Load::start(running.address, 4, "/sleep/1");
    running.ask(SupervisorCommand::Reload);
    wait_until("it is told", || {
        running.has_told(&["reloaded: all workers are of generation 1"])
            && running.pids().iter().all(|pid| !before.contains(pid))
    });
    wait_until("they have gone", || before.iter().all(|pid| !lives(*pid)));
    assert_eq!(running.pids().len(), 2);
    send_signal(running.pids()[0], libc::SIGKILL);
    wait_until("the spare serves", || running.pids().len() == 2);
    for _ in 0..10 {
        assert_eq!(running.get("/environment/ROOKERY_GENERATION").text(), "1");
    }
    let seen = load.end();
    assert!(seen.iter().all(|status| matches!(status, 200 | 502)), "{seen:?}");
    // The killed worker had begun one request. Since its handlers are quick, the response to
    // another one may also have been unsent.
    assert!(
        seen.iter().filter(|status| **status == 502).count() <= 2,
        "of the one that was killed"
    );
}

fn warm(paths: &[&str]) -> Wish {
    Wish {
        workers: 1,
        warmup: paths.iter().map(|&path| path.to_owned()).collect(),
        ..Wish::default()
    }
}

#[test]
fn a_new_worker_is_warmed_up_before_it_serves() {
    let paths = ["/slot?a=b", "/flood/9", "/pulled/9", "/bytes/200000", "/slot"];
    let running = Running::new(warm(&paths));
    assert_eq!(running.get("/begun").text(), "6");
    running.ask(SupervisorCommand::Reload);
    wait_until("the next serves", || running.get("/environment/ROOKERY_GENERATION").text() == "1");
    assert!(running.get("/begun").text().parse::<u32>().unwrap() >= 7);
}

#[test]
fn a_worker_whose_warm_up_fails_does_not_serve() {
    let mut running = Running::start(warm(&["/slot", "/status/500"]));
    assert_eq!(running.outcome(), Outcome::NeverReady);
    assert!(is_told(&[
        "the warm-up of worker 0",
        "has failed: `/status/500` returned status 500. The worker is stopped"
    ]));
    // The warm-up takes longer than a start may take.
    let times = rookery_supervisor::Timeouts {
        start: std::time::Duration::from_secs(2),
        ..Default::default()
    };
    let mut running = Running::start(Wish { times, ..warm(&["/sleep/600000"]) });
    assert_eq!(running.outcome(), Outcome::NeverReady);
}

#[test]
fn a_missing_warm_up_path_is_a_warning() {
    let running = Running::new(warm(&["/status/404"]));
    assert_eq!(running.get("/slot").status, 200);
    assert!(is_told(&["the warm-up of worker 0", "`/status/404` returned status 404"]));
}
