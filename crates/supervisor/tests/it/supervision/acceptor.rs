//! Tests of accepting connections: a single worker accepts them itself, and the front end accepts
//! them while there is another number of workers.

use std::time::Duration;

use rookery_supervisor::{Availability, Outcome, RecyclePolicy, SupervisorCommand, Timeouts};
use rookery_test_support::client::{Client, Response};
use rookery_test_support::wait_until;

use crate::support::admin::Admin;

use crate::support::running_supervisor::{Running, Wish, is_told, lives, send_signal, while_};

fn direct() -> Wish {
    Wish { workers: 1, is_direct: true, ..Wish::default() }
}

/// Sends a request on a new connection and returns the body of the response.
fn ask(running: &Running, path: &str) -> String {
    running.get(path).text()
}

#[test]
fn the_only_worker_accepts_all_connections() {
    let mut running = Running::new(direct());
    let pid = running.until_worker_accepts();
    let mut client = running.connect();
    // The worker never gets a request from the front end here, since such a request would count in
    // the backend's load.
    for _ in 0..50 {
        assert_eq!(client.get("/pid").text(), pid.to_string());
    }
    let backend = &running.registry.backends()[0];
    assert_eq!(backend.load().0, 0);
    assert!(backend.responses() >= 50);
    wait_until("its connections are counted", || backend.connections() >= 1);
    drop(client);
    wait_until("its connections have gone", || backend.connections() == 0);
    assert_eq!(running.stop(), Outcome::Stopped);
    assert!(!lives(pid));
}

#[test]
fn the_routes_of_a_worker_that_accepts_are_reported_and_survive_it() {
    let running = Running::new(direct());
    let admin = Admin::of(&running);
    let pid = running.until_worker_accepts();
    let users = || {
        let requests = "rookery_route_requests_total{route=\"/users/<id>\"}";
        let r = "rookery_route_r_seconds_sum{route=\"/users/<id>\"}";
        (admin.metric(requests), admin.metric(r))
    };
    for id in 1..=4 {
        running.get(&format!("/users/{id}?token=secret"));
    }
    wait_until("all requests are counted", || users() == (Some(4.0), Some(12.0)));
    send_signal(pid, libc::SIGKILL);
    wait_until("another accepts", || {
        running.pids().first().is_some_and(|other| *other != pid) && !running.front_end_accepts()
    });
    running.get("/users/5");
    wait_until("all requests are counted", || users() == (Some(5.0), Some(15.0)));
    assert!(!admin.get("/metrics").text().contains("secret"));
}

#[test]
fn no_connection_is_refused_when_the_accepting_worker_crashes() {
    let running = Running::new(direct());
    let pid = running.until_worker_accepts();
    let mut client = running.connect();
    assert_eq!(client.get("/slot").text(), "0");
    send_signal(pid, libc::SIGKILL);
    assert!(!client.fill(), "its own connection ends with it");
    // A new connection waits for the next worker.
    for _ in 0..20 {
        assert_eq!(running.get("/slot").status, 200);
    }
    wait_until("another accepts", || {
        running.pids().first().is_some_and(|other| *other != pid) && !running.front_end_accepts()
    });
    assert_ne!(ask(&running, "/pid"), pid.to_string());
}

#[test]
fn reloading_the_only_worker_fails_no_request() {
    let running = Running::new(direct());
    running.until_worker_accepts();
    let is_over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let address = running.address;
    let clients: Vec<_> = (0..6)
        .map(|number| {
            let is_over = std::sync::Arc::clone(&is_over);
            std::thread::spawn(move || {
                let mut asked = 0;
                let mut client = None;
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    // Half of the clients keep their connections, and the others connect again for
                    // each request.
                    let open = client.get_or_insert_with(|| Client::connect(address));
                    let reply = open.get("/sleep/1");
                    assert_eq!(reply.status, 200, "{reply:?}");
                    asked += 1;
                    if number % 2 == 0 || reply.header("connection") == Some("close") {
                        client = None;
                    }
                }
                asked
            })
        })
        .collect();
    for _ in 0..8 {
        let before = running.pids();
        running.ask(SupervisorCommand::Reload);
        wait_until("another serves", || {
            running.pids().len() == 1 && running.pids().iter().all(|pid| !before.contains(pid))
        });
        wait_until("the old one has gone", || before.iter().all(|pid| !lives(*pid)));
        wait_until("the new one accepts", || !running.front_end_accepts());
    }
    is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    let asked: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
    assert!(asked > 40, "{asked}");
}

#[test]
fn the_front_end_accepts_while_the_old_worker_drains() {
    let times = Timeouts { sessions: Some(Duration::from_secs(600)), ..Timeouts::default() };
    let running = Running::new(Wish { times, ..direct() });
    let old = running.until_worker_accepts();
    let mut socket = running.connect();
    assert_eq!(socket.upgrade("/ws").status, 101);
    running.ask(SupervisorCommand::Reload);
    wait_until("another serves", || {
        running.registry.backends().iter().any(|it| {
            it.availability() == Availability::Ready && i64::from(it.pid) != i64::from(old)
        })
    });
    assert!(running.front_end_accepts());
    assert_ne!(ask(&running, "/pid"), old.to_string());
    socket.message(1, b"still");
    assert_eq!(socket.frame_after_pings(), (1, b"still".to_vec()));
    while_(300);
    assert!(running.front_end_accepts(), "two generations live");
    // A second reload would close the WebSockets of the old worker. Here the client closes its
    // WebSocket itself.
    drop(socket);
    wait_until("the old one has gone", || !lives(old));
    wait_until("the new one accepts", || !running.front_end_accepts());
    assert_ne!(ask(&running, "/pid"), old.to_string());
}

#[test]
fn websockets_of_a_replaced_worker_are_closed_with_1012() {
    let times = Timeouts { drain: Duration::from_secs(1), ..Timeouts::default() };
    let running = Running::new(Wish { times, ..direct() });
    let old = running.until_worker_accepts();
    let mut socket = running.connect();
    assert_eq!(socket.upgrade("/ws").status, 101);
    running.ask(SupervisorCommand::Reload);
    let (opcode, payload) = socket.frame_after_pings();
    assert_eq!((opcode, &payload[..2]), (8, &1012_u16.to_be_bytes()[..]));
    wait_until("the old one has gone", || !lives(old));
}

#[test]
fn the_front_end_accepts_while_there_is_a_second_worker() {
    let running = Running::new(direct());
    let first = running.until_worker_accepts();
    let mut kept = running.connect();
    assert_eq!(kept.get("/slot").text(), "0");
    running.ask(SupervisorCommand::AddWorker);
    wait_until("the front end accepts", || running.front_end_accepts());
    // A connection stays with the worker that accepted it.
    assert_eq!(kept.get("/pid").text(), first.to_string());
    wait_until("both serve", || running.pids().len() == 2);
    running.ask(SupervisorCommand::RemoveWorker);
    wait_until("one is left", || running.pids().len() == 1);
    wait_until("it accepts", || !running.front_end_accepts());
    assert_eq!(ask(&running, "/pid"), first.to_string());
}

#[test]
fn the_front_end_accepts_if_the_worker_is_suspended() {
    let running = Running::new(direct());
    let pid = running.until_worker_accepts();
    send_signal(pid, libc::SIGSTOP);
    // A stopped worker does not acknowledge that it stops accepting.
    wait_until("the front end accepts", || running.front_end_accepts());
    let mut client = running.connect();
    client.send("GET /pid HTTP/1.1\r\nHost: a\r\n\r\n");
    while_(100);
    send_signal(pid, libc::SIGCONT);
    assert_eq!(client.response_to("GET").unwrap().text(), pid.to_string());
}

#[test]
fn a_stop_finishes_the_workers_connections_and_frees_the_address() {
    let mut running = Running::new(direct());
    let pid = running.until_worker_accepts();
    let mut client = running.connect();
    client.send("GET /sleep/500 HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut idle = running.connect();
    assert_eq!(idle.get("/slot").status, 200);
    running.ask(SupervisorCommand::Stop);
    assert_eq!(client.response_to("GET").unwrap().status, 200);
    assert!(!idle.fill() && !client.fill());
    assert_eq!(running.outcome(), Outcome::Stopped);
    assert!(!lives(pid));
    // No process has the listening socket any more.
    assert!(std::net::TcpListener::bind(running.address).is_ok());
}

#[test]
fn after_a_failed_reload_the_worker_accepts() {
    let running =
        Running::new(Wish { mode: |start| if start == 1 { "fails" } else { "" }, ..direct() });
    let pid = running.until_worker_accepts();
    running.ask(SupervisorCommand::Reload);
    wait_until("it is told", || is_told(&["the reload has failed: the new worker 0"]));
    wait_until("the worker accepts again", || !running.front_end_accepts());
    assert_eq!(ask(&running, "/pid"), pid.to_string());
}

#[test]
fn without_overlap_the_front_end_queues_requests_during_a_reload() {
    let running = Running::new(Wish { surges: false, ..direct() });
    let old = running.until_worker_accepts();
    let mut kept = running.connect();
    assert_eq!(kept.get("/pid").text(), old.to_string());
    running.ask(SupervisorCommand::Reload);
    wait_until("the old one has gone", || !lives(old));
    assert_ne!(ask(&running, "/pid"), old.to_string());
    wait_until("the new one accepts", || !running.front_end_accepts());
}

#[test]
fn a_worker_left_after_scaling_down_accepts_once_it_is_replaced() {
    let running = Running::new(Wish { workers: 2, is_direct: true, ..Wish::default() });
    assert!(running.front_end_accepts());
    running.ask(SupervisorCommand::RemoveWorker);
    wait_until("one is left", || running.pids().len() == 1);
    while_(200);
    assert!(running.front_end_accepts(), "it was not given the listeners");
    running.ask(SupervisorCommand::Reload);
    wait_until("the new one accepts", || !running.front_end_accepts());
}

#[test]
fn a_spare_does_not_prevent_the_worker_from_accepting() {
    let running = Running::new(Wish { spares: 1, ..direct() });
    let pid = running.until_worker_accepts();
    send_signal(pid, libc::SIGKILL);
    for _ in 0..10 {
        assert_eq!(running.get("/slot").status, 200);
    }
    wait_until("the spare accepts", || !running.front_end_accepts());
    assert_ne!(ask(&running, "/pid"), pid.to_string());
}

fn cookie(reply: &Response) -> Option<String> {
    Some(reply.header("set-cookie")?.split(';').next().unwrap().to_owned())
}

fn ask_with(running: &Running, path: &str, cookie: &str) -> Response {
    let mut client = running.connect();
    client.send(format!(
        "GET {path} HTTP/1.1\r\nHost: a\r\nAccept: */*\r\nCookie: a=b; {cookie}\r\n\r\n"
    ));
    client.response_to("GET").unwrap()
}

#[test]
fn a_session_stays_with_its_worker_when_the_front_end_accepts() {
    let times = Timeouts { sessions: Some(Duration::from_secs(600)), ..Timeouts::default() };
    let running = Running::new(Wish { times, mode: |_| "sticky", ..direct() });
    let old = running.until_worker_accepts();
    let page = running.get("/pid");
    let given = cookie(&page).expect("a client is given a cookie");
    // The cookie is set only once, and is hidden from the app.
    let again = ask_with(&running, "/headers", &given);
    assert_eq!(cookie(&again), None);
    assert!(
        again.text().contains("cookie: a=b\n") && !again.text().contains("rookery"),
        "{}",
        again.text()
    );
    let mut socket = running.connect();
    assert_eq!(socket.upgrade_with("/ws", &format!("Cookie: {given}\r\n"), b"").status, 101);
    running.ask(SupervisorCommand::Reload);
    wait_until("another serves", || running.registry.backends().len() == 2);
    wait_until("the front end accepts", || running.front_end_accepts());
    // Requests that belong to the page still go to the worker that rendered it, and a new page
    // comes from the new worker.
    wait_until("the old one drains", || {
        running.registry.backends().iter().any(|it| it.availability() == Availability::Draining)
    });
    assert_eq!(ask_with(&running, "/pid", &given).text(), old.to_string());
    let other = running.get("/pid");
    assert_ne!(other.text(), old.to_string());
    let of_front_end = cookie(&other).expect("a client is given a cookie");
    drop(socket);
    wait_until("the new one accepts", || !running.front_end_accepts());
    // A worker that accepts ignores the cookie of the front end, and that of a worker that has
    // ended.
    for cookie_before in [of_front_end, given] {
        let reply = ask_with(&running, "/headers", &cookie_before);
        assert!(!reply.text().contains("rookery"), "{}", reply.text());
        assert!(cookie(&reply).is_some_and(|now| now != cookie_before));
    }
}

#[test]
fn metrics_count_requests_of_the_front_end_and_of_workers_that_have_ended() {
    let running = Running::new(direct());
    let pid = running.until_worker_accepts();
    let mut client = running.connect();
    for _ in 0..7 {
        assert_eq!(client.get("/status/404").status, 404);
    }
    let admin = Admin::of_registry(&running.registry);
    let count = || admin.metric("rookery_requests_total{class=\"4xx\"}").unwrap().to_string();
    assert_eq!(count(), "7");
    assert!(admin.metric("rookery_request_seconds_count").unwrap() >= 7.0);
    // The worker itself rejects this request, which has no Host header.
    let rejected = || admin.metric("rookery_rejections_total{reason=\"invalid_host\"}").unwrap();
    assert_eq!(rejected().to_string(), "0");
    client.send("GET / HTTP/1.1\r\n\r\n");
    assert_eq!(client.response().unwrap().status, 400);
    wait_until("it has been counted", || rejected().to_string() == "1");
    send_signal(pid, libc::SIGKILL);
    assert!(!client.fill());
    wait_until("the count survives the worker", || rejected().to_string() == "1");
    assert_eq!(running.get("/status/404").status, 404);
    wait_until("it has been counted", || count() == "8");
}

#[test]
fn requests_on_connections_of_the_worker_count_for_recycling() {
    let recycle = RecyclePolicy { requests: Some(20), ..RecyclePolicy::default() };
    let running = Running::new(Wish { recycle, ..direct() });
    let pid = running.until_worker_accepts();
    let mut client = running.connect();
    let mut asked = 0;
    wait_until("it is replaced", || {
        if client.get("/slot").header("connection") == Some("close") {
            client = running.connect();
        }
        asked += 1;
        !lives(pid)
    });
    assert!(asked >= 15, "{asked}");
    wait_until("the new one accepts", || !running.front_end_accepts());
}

#[test]
fn a_kill_at_any_step_of_a_reload_leaves_an_accepting_worker() {
    let running = Running::new(direct());
    for step in 0..12_u64 {
        running.until_worker_accepts();
        let old = running.pids()[0];
        running.ask(SupervisorCommand::Reload);
        // The steps cover the time from before the front end accepts until after the new worker
        // does.
        while_(step * 15);
        // The victim is the old worker, or the worker that was started last.
        let victim = match running.pids().last() {
            Some(last) if step % 2 == 1 => *last,
            _ => old,
        };
        if lives(victim) {
            send_signal(victim, libc::SIGKILL);
        }
        for _ in 0..5 {
            assert_eq!(running.get("/slot").status, 200, "step {step}");
        }
        wait_until("the reload is over", || {
            running.pids().len() == 1 && running.pids()[0] != 0 && !running.front_end_accepts()
        });
    }
}
