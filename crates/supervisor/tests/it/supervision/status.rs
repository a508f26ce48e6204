//! Tests of the admin listener's reports about workers that run, are busy or have crashed.

use std::sync::Arc;
use std::time::Duration;

use rookery_server::Rejection;
use rookery_supervisor::{Outcome, SupervisorCommand, Timeouts};
use rookery_test_support::wait_until;

use crate::support::admin::Admin;
use crate::support::running_supervisor::{Load, Running, Wish, is_told, send_signal};

#[test]
fn the_documentation_lists_every_metric_and_no_other() {
    let page = include_str!("../../../../../docs/metrics.md");
    let rows = page
        .split_once("\n## All metrics\n")
        .and_then(|(_, rest)| rest.split_once("\n## "))
        .unwrap()
        .0;
    let first = |row: &'static str| row.strip_prefix("| `").and_then(|row| row.split(" | ").next());
    let mut named: Vec<&str> =
        rows.lines().filter_map(first).flat_map(|names| names.split(", ")).collect();
    for name in &mut named {
        *name = name.trim_matches('`').split('{').next().unwrap();
    }
    named.sort_unstable();
    let text = Admin::of_registry(&Arc::default()).get("/metrics").text();
    let mut told: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE rookery_")?.split(' ').next())
        .collect();
    told.sort_unstable();
    // This metric exists only once the supervisor has started.
    named.retain(|name| *name != "start_time_seconds");
    assert_eq!(named, told);
}

#[test]
fn counters_start_at_zero_for_every_reason() {
    let admin = Admin::of_registry(&Arc::default());
    for name in [
        "requests_total{class=\"5xx\"}",
        "queue_rejected_total{reason=\"full\"}",
        "rejections_total{reason=\"body_too_large\"}",
        "worker_exits_total{reason=\"crash\"}",
        "worker_exits_total{reason=\"oom\"}",
        "sessions_lost_total{reason=\"stuck\"}",
        "reloads_total{result=\"failed\"}",
    ] {
        assert_eq!(admin.metric(&format!("rookery_{name}")), Some(0.0), "{name}");
    }
}

#[test]
fn the_names_of_counters_and_only_of_counters_end_with_total() {
    let text = Admin::of_registry(&Arc::default()).get("/metrics").text();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
    }
    let info = text.lines().find(|line| line.starts_with("rookery_build_info{")).unwrap();
    assert!(info.contains(concat!("version=\"", env!("CARGO_PKG_VERSION"), "\"")), "{info}");
    assert!(info.ends_with("} 1"), "{info}");
}

#[test]
fn the_documentation_lists_every_reason_of_a_rejection() {
    let page = include_str!("../../../../../docs/metrics.md");
    let section = page.split_once("\n## Rejections\n").unwrap().1.split_once("\n## ").unwrap().0;
    let documented: Vec<&str> =
        section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let reasons: Vec<&str> = Rejection::all().iter().map(|rejection| rejection.name()).collect();
    assert_eq!(documented, reasons);
}

#[test]
fn status_shows_the_activity_of_a_busy_r() {
    let running = Running::new(Wish { workers: 2, ..Wish::default() });
    let admin = Admin::of(&running);
    let mut client = running.connect();
    let busy = std::thread::spawn(move || client.get("/sleep/1500?secret=1"));
    wait_until("one is busy", || {
        admin.json()["workers"]
            .as_array()
            .unwrap()
            .iter()
            .any(|it| it["route"] == "GET /sleep/1500")
    });
    let status = admin.json();
    assert_eq!(
        (status["state"].as_str(), status["generation"].as_u64()),
        (Some("serving"), Some(0))
    );
    assert_eq!(status["pid"], std::process::id());
    assert_eq!(status["queue"]["limit"], 1024);
    let workers = status["workers"].as_array().unwrap();
    assert_eq!(workers.len(), 2);
    let one = workers.iter().find(|it| it["in_flight"] == 1).unwrap();
    assert_eq!((one["r_state"].as_str(), one["state"].as_str()), (Some("busy"), Some("ready")));
    assert!(
        one["busy_ms"].as_u64().unwrap() < 60_000 && one["memory"].as_u64().unwrap() > 100_000,
        "{one}"
    );
    assert!(
        one["cpu_s"].is_number() && one["last_exit"].is_null() && one["restarts"] == 0,
        "{one}"
    );
    assert!(running.pids().contains(&i32::try_from(one["pid"].as_i64().unwrap()).unwrap()));
    let other = workers.iter().find(|it| it["in_flight"] == 0).unwrap();
    assert!(other["route"].is_null() && other["busy_ms"].is_null(), "{other}");
    let table = admin.get("/status.txt").text();
    assert!(table.contains("/srv/app is at http://127.0.0.1:8000\n2 ready, "), "{table}");
    assert!(
        table.lines().any(|line| line.contains("busy") && line.ends_with("  GET /sleep/1500")),
        "{table}"
    );
    assert!(table.lines().all(|line| line.trim_end() == line), "{table}");
    assert_eq!(busy.join().unwrap().status, 200);
    wait_until("it is answered", || {
        admin.json()["workers"].as_array().unwrap().iter().all(|it| it["in_flight"] == 0)
    });
    assert_eq!(admin.metric("rookery_requests_total{class=\"2xx\"}"), Some(1.0));
    assert_eq!(admin.metric("rookery_upstream_seconds_bucket{le=\"0.5\"}"), Some(0.0));
    assert_eq!(admin.metric("rookery_upstream_seconds_count"), Some(1.0));
    assert_eq!(admin.metric("rookery_request_seconds_bucket{le=\"0.5\"}"), Some(0.0));
    assert_eq!(admin.metric("rookery_request_seconds_count"), Some(1.0));
    assert_eq!(admin.metric("rookery_sessions_limit{slot=\"1\"}"), Some(f64::INFINITY));
    assert_eq!(admin.metric("rookery_workers{state=\"ready\"}"), Some(2.0));
}

#[test]
fn status_shows_the_busy_ratio_of_r() {
    let running = Running::new(Wish { workers: 1, ..Wish::default() });
    let admin = Admin::of(&running);
    let share =
        || admin.metric("rookery_worker_busy_ratio{slot=\"0\"}").filter(|share| *share <= 1.0);
    assert!(share().is_some());
    let load = Load::start(running.address, 1, "/sleep/50");
    wait_until("it is busy for most of the time", || share() > Some(0.5));
    assert!(admin.worker(0)["busy_ratio"].as_f64().is_some());
    assert!(load.end().iter().all(|status| *status == 200));
    wait_until("it is not", || share() < Some(0.5));
}

#[test]
fn readiness_needs_one_worker_and_ends_with_the_shutdown() {
    let mode = |start| if start < 1 { "" } else { "never ready" };
    let times = Timeouts { delay: Duration::from_secs(600), ..Timeouts::default() };
    let running = Running::start(Wish { workers: 2, mode, times, ..Wish::default() });
    let admin = Admin::of(&running);
    wait_until("one of two is ready", || admin.get("/-/ready").status == 200);
    running.ask(SupervisorCommand::Stop);
    wait_until("it says that it ends", || admin.get("/-/ready").status == 503);
    assert!(admin.get("/-/ready").text().ends_with(": the server is shutting down\n"));
    assert_eq!((admin.get("/-/live").status, running.get("/pid").status), (200, 200));
}

#[test]
fn metrics_count_spares_separately() {
    let running = Running::new(Wish { workers: 1, spares: 2, ..Wish::default() });
    let admin = Admin::of(&running);
    wait_until("there are two", || admin.metric("rookery_workers{state=\"spare\"}") == Some(2.0));
    assert_eq!(admin.metric("rookery_workers{state=\"ready\"}"), Some(1.0));
    // Each process is counted in exactly one state.
    let text = admin.get("/metrics").text();
    let values =
        text.lines().filter_map(|line| line.strip_prefix("rookery_workers{")?.split_once("} "));
    assert_eq!(values.map(|(_, value)| value.parse::<u32>().unwrap()).sum::<u32>(), 3, "{text}");
}

#[test]
fn status_shows_exit_reasons_and_suspended_workers() {
    let running = Running::new(Wish { workers: 2, ..Wish::default() });
    let admin = Admin::of(&running);
    let first = admin.worker(0)["pid"].as_i64().unwrap();
    send_signal(i32::try_from(first).unwrap(), libc::SIGKILL);
    wait_until("another has come", || {
        admin.worker(0)["restarts"] == 1 && admin.worker(0)["state"] == "ready"
    });
    let last = &admin.worker(0)["last_exit"];
    assert_eq!(
        (last["signal"].as_i64(), last["reason"].as_str()),
        (Some(9), Some("killed")),
        "{last}"
    );
    assert!(last["code"].is_null(), "{last}");
    assert_eq!(admin.metric("rookery_worker_exits_total{reason=\"killed\"}"), Some(1.0));
    assert_eq!(admin.metric("rookery_worker_starts_total"), Some(3.0));
    assert_eq!(admin.metric("rookery_log_lines_lost_total"), Some(3.0));
    let text = admin.get("/status.txt").text();
    assert!(text.contains("the previous process was ended by SIGKILL (killed), "), "{text}");
    let second = i32::try_from(admin.worker(1)["pid"].as_i64().unwrap()).unwrap();
    send_signal(second, libc::SIGSTOP);
    wait_until("it is known", || admin.worker(1)["state"] == "suspended");
    // A suspended worker does not make the server fail its readiness probe.
    assert_eq!(admin.get("/-/ready").status, 200);
    send_signal(second, libc::SIGCONT);
    wait_until("it is back", || admin.worker(1)["state"] == "ready");
}

#[test]
fn status_shows_reloads_and_the_last_error() {
    let running = Running::new(Wish {
        mode: |start| if start < 4 { "" } else { "fails" },
        ..Wish::default()
    });
    let admin = Admin::of(&running);
    let load = Load::start(running.address, 2, "/slot");
    running.ask(SupervisorCommand::Reload);
    wait_until("it is over", || admin.json()["reload"]["succeeded"] == 1);
    assert_eq!(admin.json()["generation"], 1);
    wait_until("those before have gone", || admin.json()["workers"].as_array().unwrap().len() == 2);
    assert_eq!(admin.worker(0)["last_exit"]["reason"], "reload");
    running.ask(SupervisorCommand::Reload);
    wait_until("it has failed", || admin.json()["reload"]["failed"] == 1);
    let status = admin.json();
    assert_eq!(status["reload"]["state"], "idle");
    assert!(
        status["reload"]["last_error"].as_str().unwrap().contains("ended with status 1"),
        "{status}"
    );
    assert!(admin.get("/status.txt").text().contains("\nthe last reload failed: the new worker 0"));
    assert!(load.end().iter().all(|status| *status == 200));
}

#[test]
fn a_refused_reload_counts_as_failed_and_replaces_no_worker() {
    let running = Running::new(Wish::default());
    let (admin, before) = (Admin::of(&running), running.pids());
    running.ask(SupervisorCommand::RefuseReload("line 3 is wrong".to_owned()));
    wait_until("it has failed", || admin.json()["reload"]["failed"] == 1);
    let status = admin.json();
    assert_eq!((&status["reload"]["state"], &status["generation"]), (&"idle".into(), &0.into()));
    assert_eq!(status["reload"]["last_error"], "line 3 is wrong");
    assert!(is_told(&["the reload is refused", "no worker is replaced: line 3 is wrong"]));
    assert_eq!(running.pids(), before);
}

#[test]
fn a_crash_loop_fails_readiness_and_not_liveness() {
    let mut running = Running::start(Wish {
        workers: 1,
        mode: |start| if start == 0 { "" } else { "fails" },
        ..Wish::default()
    });
    let admin = Admin::of(&running);
    wait_until("it has started", || admin.get("/-/startup").status == 200);
    wait_until("it is ready", || admin.get("/-/ready").status == 200);
    send_signal(running.pids()[0], libc::SIGKILL);
    wait_until("it waits", || {
        admin.worker(0)["state"] == "backing_off" && admin.worker(0)["starts_in_ms"].is_number()
    });
    let probes = ["/-/live", "/-/startup", "/-/ready"].map(|path| admin.get(path).status);
    assert_eq!(probes, [200, 200, 503]);
    assert!(admin.get("/status.txt").text().contains("starts in "));
    assert_eq!(admin.metric("rookery_workers{state=\"ready\"}"), Some(0.0));
    wait_until("it is a loop", || {
        is_told(&["worker 0 ends repeatedly"]) || admin.worker(0)["restarts"].as_u64() > Some(2)
    });
    running.stop();
    assert_eq!(admin.get("/-/ready").status, 503);
}

#[test]
fn status_shows_a_spare_until_it_serves() {
    let running = Running::new(Wish { workers: 1, spares: 1, ..Wish::default() });
    let admin = Admin::of(&running);
    wait_until("there is one", || admin.metric("rookery_workers{state=\"spare\"}") == Some(1.0));
    assert_eq!(admin.metric("rookery_workers{state=\"ready\"}"), Some(1.0));
    let spare = (0..2).find(|slot| admin.worker(*slot)["state"] == "spare").unwrap();
    send_signal(running.pids()[0], libc::SIGKILL);
    wait_until("it serves", || admin.worker(spare)["state"] == "ready");
    wait_until("the other is one", || admin.worker(1 - spare)["state"] == "spare");
}

#[test]
fn status_shows_the_exit_of_an_unresponsive_worker() {
    let times = Timeouts { busy: Some(Duration::from_millis(300)), ..Timeouts::default() };
    let running = Running::new(Wish { workers: 1, times, ..Wish::default() });
    let admin = Admin::of(&running);
    assert_eq!(running.get("/sleep/600000").status, 504);
    wait_until("it is ended", || {
        admin.metric("rookery_worker_exits_total{reason=\"stuck\"}") == Some(1.0)
    });
}

#[test]
fn the_server_serves_and_is_not_ready_during_the_shutdown_delay() {
    let times = Timeouts { delay: Duration::from_secs(8), ..Timeouts::default() };
    let mut running = Running::new(Wish { workers: 1, times, ..Wish::default() });
    let admin = Admin::of(&running);
    wait_until("it is ready", || admin.get("/-/ready").status == 200);
    running.ask(SupervisorCommand::Stop);
    wait_until("it is ready no more", || admin.get("/-/ready").status == 503);
    // A load balancer that has not noticed the probe may still open a connection.
    assert_eq!(running.get("/slot").status, 200);
    assert_eq!(running.outcome(), Outcome::Stopped);
    // A second request to stop skips the delay.
    let times = Timeouts { delay: Duration::from_secs(1000), ..Timeouts::default() };
    let mut running = Running::new(Wish { workers: 1, times, ..Wish::default() });
    running.ask(SupervisorCommand::Stop);
    assert_eq!(running.stop(), Outcome::Stopped);
}

#[test]
fn the_last_errors_of_all_workers_are_kept() {
    let running = Running::new(Wish { workers: 2, ..Wish::default() });
    let admin = Admin::of(&running);
    assert_eq!(admin.errors(), Vec::<serde_json::Value>::new());
    assert_eq!(running.get("/errors/2").status, 404);
    wait_until("they have been reported", || admin.errors().len() == 2);
    let last = &admin.errors()[0];
    assert_eq!((&last["message"], &last["route"]), (&"error 2".into(), &"GET /errors".into()));
    let pid = i32::try_from(last["pid"].as_i64().unwrap()).unwrap();
    assert!(running.pids().contains(&pid), "{last}");
    assert_eq!(admin.worker(last["slot"].as_u64().unwrap() as usize)["pid"], pid);
    // A worker that reports without end fills no memory, and stays in service.
    assert_eq!(running.get("/errors/1000").status, 404);
    wait_until("the list is full", || admin.errors().len() == 50);
    let bytes: usize = admin.errors().iter().map(|error| error.to_string().len()).sum();
    assert!(bytes < 50 * 8192, "{bytes}");
    assert_eq!(running.get("/pid").status, 200);
    assert!(running.pids().contains(&pid));
}
