//! Tests of starting workers, and of the environment that workers get.

use std::sync::Arc;
use std::time::Duration;

use rookery_supervisor::{Outcome, RecyclePolicy, SupervisorCommand, Timeouts};
use rookery_test_support::collector::Collector;
use rookery_test_support::wait_until;
use rookery_trace::{FLUSH_TIMEOUT, Settings, Tracer};

use crate::support::running_supervisor::{Running, Wish, how_often, is_told, send_signal, while_};

#[test]
fn workers_inherit_only_their_own_descriptors() {
    let mut running = Running::new(Wish::default());
    let mut client = running.connect();
    let pid = client.get("/pid").text();
    assert!(running.pids().contains(&pid.parse().unwrap()));
    for (name, values) in [
        ("ROOKERY_WORKER", &["0", "1"][..]),
        ("ROOKERY_WORKER_COUNT", &["2"]),
        ("ROOKERY_GENERATION", &["0"]),
        ("ROOKERY_INTERNAL_RINGS_FDS", &[""]),
        ("ROOKERY_INTERNAL_CONTROL_FD", &[""]),
    ] {
        let value = client.get(&format!("/environment/{name}")).text();
        assert!(values.contains(&value.as_str()), "{name}={value}");
    }
    let identity = client.get("/environment/OTEL_RESOURCE_ATTRIBUTES").text();
    assert!(identity.starts_with("service.instance.id="), "{identity}");
    let temporary = client.get("/environment/TMPDIR").text();
    assert!(temporary.starts_with(running.folder.path().to_str().unwrap()), "{temporary}");
    assert_eq!(client.get("/environment/OMP_NUM_THREADS").status, 200);
    // The standard streams, and the descriptor of the program that lists the folder.
    let listed = client.get("/descriptors").text();
    assert_eq!(listed.lines().filter(|line| line.contains("->")).count(), 3, "{listed}");
    drop(client);
    assert_eq!(running.stop(), Outcome::Stopped);
    assert_eq!(std::fs::read_dir(running.folder.path()).unwrap().count(), 0);
}

#[test]
fn the_server_ends_if_no_worker_becomes_ready() {
    let mut running = Running::start(Wish { mode: |_| "fails", ..Wish::default() });
    assert_eq!(running.outcome(), Outcome::NeverReady);
    assert!(is_told(&["no worker became ready after 1 start: worker"]));
}

#[test]
fn an_app_whose_first_starts_fail_is_served_when_a_retry_succeeds() {
    // The app fails at first, like one whose database is not running yet.
    let mode = |start| if start < 3 { "fails" } else { "" };
    let wish = Wish { workers: 1, start_retries: 3, mode, ..Wish::default() };
    let running = Running::new(wish);
    assert!(
        running.has_told(&["ended with status 1 before it was ready; it is started again in "])
    );
    assert_eq!(running.get("/pid").status, 200);
}

#[test]
fn a_start_is_retried_up_to_the_configured_number() {
    let mut running =
        Running::start(Wish { workers: 1, start_retries: 2, mode: |_| "fails", ..Wish::default() });
    assert_eq!(running.outcome(), Outcome::NeverReady);
    assert_eq!(running.beside.lock().unwrap().len(), 3);
}

#[test]
fn a_worker_that_exceeds_the_start_timeout_is_restarted() {
    let times = Timeouts { start: Duration::from_secs(3), ..Timeouts::default() };
    // The second start never becomes ready, and the next one does.
    let mode = |start| if start == 1 { "never ready" } else { "" };
    let running = Running::new(Wish { times, mode, ..Wish::default() });
    assert!(is_told(&["was not ready within 3 s"]));
    assert_eq!(running.get("/pid").status, 200);
}

#[test]
fn a_crash_loop_is_logged_and_other_workers_serve() {
    let mode = |start| if start == 0 { "" } else { "fails" };
    let running = Running::start(Wish { mode, ..Wish::default() });
    wait_until("one is ready", || running.registry.backends().len() == 1);
    wait_until("the loop is told", || is_told(&["worker 1 ends repeatedly"]));
    assert_eq!(running.get("/environment/ROOKERY_WORKER").text(), "0");
    running.ask(SupervisorCommand::Stop);
}

#[test]
fn the_loop_iterates_in_the_heartbeat_interval() {
    let running = Running::new(Wish { turns_every: Duration::from_millis(100), ..Wish::default() });
    while_(1000);
    // The expected number is thirty. With one iteration per second, and those that messages of
    // workers cause, there would be six. A busy machine may delay iterations.
    wait_until("it turns so often", || {
        let before = running.turns();
        while_(3000);
        running.turns() - before >= 12
    });
}

#[test]
fn failed_replacements_are_retried_after_growing_pauses() {
    let recycle = RecyclePolicy { age: Some(Duration::from_millis(1)), ..RecyclePolicy::default() };
    let mode = |start| if start == 0 { "" } else { "fails" };
    let running = Running::new(Wish { workers: 1, recycle, mode, ..Wish::default() });
    let pid = running.pids()[0];
    while_(12_000);
    // The attempts follow pauses of 1, 1, 2, 4 and 8 s.
    let tried = how_often(&format!("worker 0 ({pid}) is replaced: "));
    assert!((1..=6).contains(&tried), "{tried}");
    assert_eq!(running.get("/pid").text(), pid.to_string());
}

#[test]
fn with_fails_fast_a_crash_loop_of_all_workers_ends_the_server() {
    // The first two starts succeed.
    let mode = |start| if start < 2 { "" } else { "fails" };
    let mut running = Running::new(Wish { workers: 2, mode, fails_fast: true, ..Wish::default() });
    for pid in running.pids() {
        send_signal(pid, libc::SIGKILL);
    }
    assert_eq!(running.outcome(), Outcome::CrashLoop);
}

#[test]
fn a_stop_before_the_first_ready_worker_has_no_delay() {
    let times = Timeouts { delay: Duration::from_secs(3600), ..Timeouts::default() };
    let mut running = Running::start(Wish { mode: |_| "never ready", times, ..Wish::default() });
    assert_eq!(running.stop(), Outcome::Stopped);
}

#[test]
fn each_start_of_a_worker_has_a_span() {
    let collector = Collector::start(&[]);
    let url = collector.url();
    let get = |name: &str| (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| url.clone());
    let settings = Settings::from_environment(&get, "app", &[]).settings.unwrap();
    let tracer = Tracer::start(settings, |_| {}).unwrap();
    let mut running = Running::new(Wish {
        workers: 1,
        start_retries: 3,
        times: Timeouts { start: Duration::from_secs(3), ..Timeouts::default() },
        mode: |start| ["fails", "never ready", ""][start.min(2)],
        tracer: Some(Arc::clone(&tracer)),
        ..Wish::default()
    });
    assert_eq!(running.get("/pid").status, 200);
    running.stop();
    tracer.shut_down(FLUSH_TIMEOUT);
    let spans = collector.spans();
    let seen: Vec<_> = spans
        .iter()
        .map(|span| {
            let attribute = |name: &str| span.attributes.get(name).map_or("-", String::as_str);
            let epoch = attribute("rookery.worker.epoch");
            (&*span.name, epoch, span.status, attribute("error.type"))
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("rookery.worker.start", "1", 2, "crash"),
            ("rookery.worker.start", "2", 2, "start"),
            ("rookery.worker.start", "3", 0, "-"),
        ]
    );
    assert!(spans.iter().all(|span| span.end > span.start && span.parent_span_id.is_empty()));
}

#[test]
fn a_cancelled_start_has_no_span_and_a_failed_warm_up_has_one() {
    let collector = Collector::start(&[]);
    let url = collector.url();
    let get = |name: &str| (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| url.clone());
    let settings = Settings::from_environment(&get, "app", &[]).settings.unwrap();
    let tracer = Tracer::start(settings, |_| {}).unwrap();
    let wish = |mode, warmup| Wish {
        workers: 1,
        mode,
        warmup,
        tracer: Some(Arc::clone(&tracer)),
        ..Wish::default()
    };
    let mut running = Running::start(wish(|_| "never ready", Vec::new()));
    wait_until("the worker has started", || running.beside.lock().unwrap().len() == 1);
    running.stop();
    let mut running = Running::start(wish(|_| "", vec!["/status/500".to_owned()]));
    assert_eq!(running.outcome(), Outcome::NeverReady);
    tracer.shut_down(FLUSH_TIMEOUT);
    let spans = collector.spans();
    let errors: Vec<_> = spans.iter().map(|span| span.attributes.get("error.type")).collect();
    assert_eq!(errors, [Some(&"warmup".to_owned())]);
}
