//! A supervisor in a process that cannot start further threads, for example because its control
//! group has a limit of processes.

#![allow(clippy::disallowed_methods, reason = "a test may panic")]
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

#[allow(dead_code, unused_imports, reason = "the tests of `it` use the rest")]
#[path = "it/support/mod.rs"]
mod support;

use rookery_test_support::{forbid_new_threads, wait_until};

use crate::support::running_supervisor::{Running, Wish, send_signal};

#[test]
fn the_other_workers_serve_on_after_the_end_of_a_worker() {
    let running = Running::new(Wish::default());
    assert!(forbid_new_threads());
    let ended = running.pids()[0];
    send_signal(ended, libc::SIGKILL);
    wait_until("its end is handled", || {
        running.has_told(&[&ended.to_string(), "was ended by SIGKILL", "it is started again"])
    });
    let turns = running.turns();
    wait_until("the supervisor goes on", || running.turns() > turns + 1);
    assert_eq!(running.get("/slot").status, 200);
}
