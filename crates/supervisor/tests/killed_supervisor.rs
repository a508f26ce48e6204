//! Kills a supervisor with SIGKILL while clients send requests. The supervisor is a process of its
//! own, which runs this program.

#![allow(clippy::disallowed_methods, reason = "a test may panic")]
#![cfg(target_os = "linux")]

#[allow(dead_code, unused_imports, reason = "the tests of `it` use the rest")]
#[path = "it/support/mod.rs"]
mod support;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rookery_test_support::client::Client;
use rookery_test_support::wait_until;

use crate::support::running_supervisor::{Running, Wish, lives};

/// The environment variable that makes this program serve.
const SERVES: &str = "SERVES_UNTIL_KILLED";

#[test]
fn serves_if_started_as_a_supervisor() {
    if std::env::var_os(SERVES).is_none() {
        return;
    }
    let running = Running::new(Wish::default());
    println!("\nserves {} {:?}", running.address, running.children());
    std::thread::sleep(Duration::from_secs(120));
}

#[test]
fn clients_and_workers_end_when_the_supervisor_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut supervisor = Command::new(std::env::current_exe().unwrap())
        .args(["serves_if_started_as_a_supervisor", "--exact", "--nocapture"])
        .env(SERVES, "1")
        .env("TMPDIR", folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(supervisor.stdout.take().unwrap()).lines();
    let line =
        said.map_while(Result::ok).find_map(|it| Some(it.strip_prefix("serves ")?.to_owned()));
    let line = line.expect("the supervisor says where it serves");
    let (address, workers) = line.split_once(' ').unwrap();
    let workers = workers.trim_matches(['[', ']']).split(", ").map(|pid| pid.parse().unwrap());
    let workers: Vec<i32> = workers.collect();
    assert!(workers.len() >= 2, "{line}");
    let address = address.parse().unwrap();
    let answered = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..8)
        .map(|number| {
            let answered = Arc::clone(&answered);
            std::thread::spawn(move || {
                let path = ["/slot", "/bytes/200000", "/flood/60", "/sleep/5"][number % 4];
                // Until the supervisor is killed. If no connection can be opened, the thread
                // panics, which is an end as well.
                loop {
                    let mut client = Client::connect(address);
                    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
                    let Some((response, true)) = client.partial_response_to("GET") else { return };
                    assert_eq!(response.status, 200);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    std::thread::sleep(Duration::from_secs(1));
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    let killed_at = Instant::now();
    wait_until("no worker is left", || !workers.iter().any(|pid| lives(*pid)));
    wait_until("no client waits", || clients.iter().all(JoinHandle::is_finished));
    assert!(killed_at.elapsed() < Duration::from_secs(15), "{:?}", killed_at.elapsed());
    assert!(answered.load(Ordering::Relaxed) > 8);
}
