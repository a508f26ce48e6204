//! Tests of a server with one worker: no connection is lost when R is replaced or crashes.

use rookery_supervisor::{SupervisorCommand, Timeouts};
use rookery_test_support::client::{Client, Response};
use rookery_test_support::wait_until;

use crate::support::running_supervisor::{Load, Running, Wish, lives, send_signal};

fn one() -> Wish {
    Wish { workers: 1, ..Wish::default() }
}

/// The number of times that a test kills the worker.
const KILLS: usize = 5;

/// Waits until one worker serves that is not the one with this process id.
fn wait_for_other(running: &Running, old: i32) {
    wait_until("another serves", || {
        let pids = running.pids();
        pids.len() == 1 && pids[0] != 0 && pids[0] != old
    });
}

/// Waits for the close frame of a WebSocket, and returns its code.
fn close_code(client: &mut Client) -> u16 {
    let (opcode, payload) = client.frame_after_pings();
    assert_eq!(opcode, 8);
    u16::from_be_bytes([payload[0], payload[1]])
}

#[test]
fn twenty_reloads_of_the_only_worker_fail_no_request() {
    let running = Running::new(one());
    let load = Load::start(running.address, 8, "/sleep/1");
    for _ in 0..20 {
        let old = running.pids()[0];
        running.ask(SupervisorCommand::Reload);
        wait_for_other(&running, old);
        wait_until("the old one has gone", || !lives(old));
    }
    let seen = load.end();
    assert!(seen.len() > 100 && seen.iter().all(|status| *status == 200), "{seen:?}");
}

#[test]
fn a_kill_of_the_only_worker_fails_only_the_request_that_r_had_begun() {
    let running = Running::new(one());
    let load = Load::start(running.address, 8, "/sleep/1");
    let mut kept = running.connect();
    for _ in 0..KILLS {
        let old = running.pids()[0];
        let mut socket = running.connect();
        assert_eq!(socket.upgrade("/ws").status, 101);
        send_signal(old, libc::SIGKILL);
        assert_eq!(close_code(&mut socket), 1012);
        wait_for_other(&running, old);
        // The connection to the front end outlives the worker.
        assert_eq!(kept.get("/slot").status, 200);
    }
    let seen = load.end();
    let failed: Vec<_> = seen.iter().filter(|status| **status != 200).collect();
    assert!(
        failed.len() <= KILLS && failed.iter().all(|status| **status == 502),
        "{failed:?} of {}",
        seen.len()
    );
}

#[test]
fn a_kill_at_any_step_of_a_reload_fails_no_request_that_r_had_not_begun() {
    let running = Running::new(one());
    for step in 0..12_u64 {
        let old = running.pids()[0];
        running.ask(SupervisorCommand::Reload);
        std::thread::sleep(std::time::Duration::from_millis(step * 15));
        // The victim is the old worker, or the worker that was started last.
        let victim = match running.pids().last() {
            Some(last) if step % 2 == 1 => *last,
            _ => old,
        };
        if lives(victim) {
            send_signal(victim, libc::SIGKILL);
        }
        for _ in 0..5 {
            // R may have begun the first request when it is killed.
            assert!(matches!(running.get("/slot").status, 200 | 502), "step {step}");
        }
        wait_until("the reload is over", || running.pids().len() == 1 && running.pids()[0] != 0);
        assert_eq!(running.get("/slot").status, 200, "step {step}");
    }
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
fn a_session_stays_with_the_only_worker_that_drains() {
    let sessions = Some(std::time::Duration::from_secs(600));
    let times = Timeouts { sessions, ..Timeouts::default() };
    let running = Running::new(Wish { times, mode: |_| "sticky", ..one() });
    let old = running.pids()[0];
    let given = cookie(&running.get("/pid")).expect("a client is given a cookie");
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
    wait_until("a new page comes from the new worker", || {
        running.get("/pid").text() != old.to_string()
    });
    // Requests that belong to the page still go to the worker that rendered it.
    assert_eq!(ask_with(&running, "/pid", &given).text(), old.to_string());
}
