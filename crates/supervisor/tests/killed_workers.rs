//! Kills workers with SIGKILL at arbitrary moments while clients send requests of all kinds, and
//! while the workers warm up. The tests count the descriptors of this process. So they are a
//! program of their own, and only one of them runs at a time.

#![allow(clippy::disallowed_methods, reason = "a test may panic")]
#![cfg(target_os = "linux")]

#[allow(dead_code, unused_imports, reason = "the tests of `it` use the rest")]
#[path = "it/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rookery_supervisor::Outcome;
use rookery_test_support::client::Client;
use rookery_test_support::wait_until;

use crate::support::fake_worker::flood_body;
use crate::support::running_supervisor::{Running, Wish, lives, send_signal};

/// Locked by the test that runs.
static ALONE: Mutex<()> = Mutex::new(());

/// How a request has ended for its client.
type Outcomes = BTreeMap<(&'static str, u16, bool), usize>;

const KINDS: [&str; 7] = ["short", "file", "body", "stream", "pulled", "head", "websocket"];

/// The time within which each request must have an outcome.
const LIMIT: Duration = Duration::from_secs(15);

/// Sends a request of this kind, and checks that a complete response is the right one.
fn ask(address: SocketAddr, kind: &'static str, outcomes: &mut Outcomes) {
    let began = Instant::now();
    let mut client = Client::connect(address);
    let body: Vec<u8> = (0..100_000_u32).map(|at| (at % 253) as u8).collect();
    let path = match kind {
        "short" => "/slot",
        "file" => "/bytes/200000",
        "body" => "/echo",
        "stream" => "/flood/60",
        "pulled" => "/pulled/60",
        "head" => "/heads/90000",
        _ => "/ws",
    };
    if kind == "websocket" {
        let status = client.upgrade(path).status;
        let mut is_whole = status != 101;
        if status == 101 {
            // The worker echoes messages until it is killed. Each message crosses whole.
            for round in 0..20_usize {
                client.message(2, &body[..=round * 5000]);
                match client.frame() {
                    Some((2, echo)) => assert!(echo == body[..=round * 5000]),
                    Some((8, reason)) => {
                        assert_eq!(reason[..2], 1012_u16.to_be_bytes());
                        break;
                    }
                    other => panic!("{other:?}"),
                }
                is_whole = round == 19;
            }
        }
        *outcomes.entry((kind, status, is_whole)).or_default() += 1;
    } else {
        let (method, body) = if kind == "body" { ("POST", &body[..]) } else { ("GET", &b""[..]) };
        let length = format!("Content-Length: {}\r\n", body.len());
        client.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{length}\r\n"));
        client.send(body);
        let (response, is_whole) = client.partial_response_to(method).expect("a response");
        if response.status == 200 && is_whole {
            assert!(
                match kind {
                    "short" => response.body.len() == 1,
                    "file" => response.body == vec![b'x'; 200_000],
                    "body" => response.body == body,
                    "head" => response.header("x-long").unwrap().len() == 90_000,
                    _ => response.body == flood_body(60),
                },
                "{kind}: {} bytes",
                response.body.len()
            );
        }
        assert!(is_whole || matches!(kind, "stream" | "pulled"), "{kind} was cut off");
        *outcomes.entry((kind, response.status, is_whole)).or_default() += 1;
    }
    assert!(began.elapsed() < LIMIT, "{kind} took {:?}", began.elapsed());
}

/// Returns what the open descriptors of this process refer to.
fn descriptors() -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let target = std::fs::read_link(entry.path()).unwrap_or_default().display().to_string();
        // Without the numbers of sockets and pipes.
        let kind = target.split(":[").next().unwrap_or_default().to_owned();
        *all.entry(kind).or_default() += 1;
    }
    all
}

#[test]
fn every_request_has_one_outcome_while_workers_are_killed_and_nothing_is_left_behind() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = descriptors();
    let mut running = Running::new(Wish { workers: 3, ..Wish::default() });
    let address = running.address;
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..8)
        .map(|first| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                let mut outcomes = Outcomes::new();
                for kind in KINDS.into_iter().cycle().skip(first) {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    ask(address, kind, &mut outcomes);
                }
                outcomes
            })
        })
        .collect();
    let (mut killed, until) = (Vec::new(), Instant::now() + Duration::from_secs(8));
    while Instant::now() < until {
        // Not in step with anything.
        std::thread::sleep(Duration::from_micros(60_000 + 7919 * (killed.len() as u64 % 13)));
        let pids = running.pids();
        if pids.len() > 1 {
            let pid = pids[killed.len() % pids.len()];
            send_signal(pid, libc::SIGKILL);
            killed.push(pid);
        }
    }
    // Each kind of request succeeds once no worker is killed any more. On a machine with other
    // load, a long one might not succeed before.
    std::thread::sleep(Duration::from_secs(2));
    is_over.store(true, Ordering::Relaxed);
    let mut outcomes = Outcomes::new();
    for client in clients {
        for (outcome, count) in client.join().unwrap() {
            *outcomes.entry(outcome).or_default() += count;
        }
    }
    println!("{} kills: {outcomes:?}", killed.len());
    assert!(killed.len() > 10, "{}", killed.len());
    for kind in KINDS {
        let succeeded = if kind == "websocket" { 101 } else { 200 };
        assert!(outcomes.contains_key(&(kind, succeeded, true)), "{kind}: {outcomes:?}");
    }
    // A begun request fails. One that was not begun goes to another worker, at most twice.
    let is_known = |status: u16| matches!(status, 101 | 200 | 502 | 503);
    assert!(outcomes.keys().all(|(_, status, _)| is_known(*status)), "{outcomes:?}");

    wait_until("three are there again", || running.registry.backends().len() == 3);
    wait_until("nothing counts any more", || {
        running.registry.backends().iter().all(|backend| backend.load() == (0, 0))
    });
    // Each worker has one memory for its scoreboard, and one for its rings.
    let memories = || descriptors().into_iter().filter(|(name, _)| name.contains("memfd"));
    let open = || memories().map(|(_, count)| count).sum::<usize>();
    wait_until("the memory of ended workers is closed", || open() <= 3 * 2);
    let last = running.pids();
    assert_eq!(running.stop(), Outcome::Stopped);
    killed.extend(last);
    wait_until("no process is left", || !killed.iter().any(|pid| lives(*pid)));
    let left: Vec<_> = std::fs::read_dir(running.folder.path()).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    drop(running);
    let is_left = |(kind, count): &(String, usize)| *count > before.get(kind).copied().unwrap_or(0);
    wait_until("all descriptors are closed", || !descriptors().into_iter().any(|it| is_left(&it)));
}

#[test]
fn nothing_is_left_behind_by_workers_that_end_during_their_warm_up() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let warmup = ["/slot", "/die"].map(str::to_owned).to_vec();
    let wish = Wish { workers: 1, warmup, start_retries: u32::MAX, ..Wish::default() };
    let running = Running::start(wish);
    let wait_for_starts = |count: usize| {
        wait_until("workers start and end", || running.beside.lock().unwrap().len() >= count);
    };
    wait_for_starts(2);
    let open = || descriptors().values().sum::<usize>();
    let first = open();
    // More starts would take longer, because the pauses grow.
    wait_for_starts(6);
    // If descriptors leaked, each of the four further workers would leave four of them behind.
    wait_until("the descriptors of ended workers are closed", || open() <= first + 4);
}
