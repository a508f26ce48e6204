//! Tests of the scoreboard between processes, also after a SIGKILL.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rookery_worker_protocol::{Inherited, RState, SharedScoreboard, Ticket, now};

use crate::support::start;

/// The number of workers that are killed.
const KILLS: u32 = 25;

#[test]
fn after_a_kill_the_begun_requests_are_known() {
    let mut begun_but_undone = 0;
    for kill in 0..KILLS {
        let mut worker = start("scoreboard::handles_requests", "");
        let mut lines = BufReader::new(worker.process.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("begins") {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "it ended before");
        }
        // Each request takes a few microseconds, and each kill happens at another moment.
        std::thread::sleep(Duration::from_micros(u64::from(kill) * 137 % 3_000));
        worker.process.kill().unwrap();
        worker.process.wait().unwrap();
        // The last request that the handlers completed.
        let done: u64 = lines
            .lines()
            .map_while(Result::ok)
            .filter_map(|line| line.parse().ok())
            .max()
            .unwrap_or(0);
        let ticket = |sequence: u64| Ticket::new(sequence, (sequence % 5) as usize).unwrap();
        for sequence in done.saturating_sub(4).max(1)..=done {
            assert!(worker.scoreboard.has_begun(ticket(sequence)), "{sequence} of {done}");
        }
        // At most the next request has begun without having been completed.
        begun_but_undone += u32::from(worker.scoreboard.has_begun(ticket(done + 1)));
        assert!(!worker.scoreboard.has_begun(ticket(done + 2)), "{done}");
        let read = worker.scoreboard.read();
        assert!(read.taken >= done && read.taken <= done + 1, "{read:?}, {done}");
        assert_eq!((read.r_state, read.pid), (RState::Busy, worker.process.id()));
    }
    println!("begun and nothing done yet: {begun_but_undone} of {KILLS}");
}

/// Runs in the worker process: handles requests, each with a visible effect.
#[test]
#[ignore = "started by the test above"]
fn handles_requests() {
    // SAFETY: no other thread uses the environment, and the descriptors belong to nothing else.
    let scoreboard = unsafe { Inherited::take() }.unwrap().unwrap().scoreboard;
    scoreboard.set_process(std::process::id(), 0);
    scoreboard.set_r_state(RState::Busy, now());
    // Bypasses the buffer of the test harness, so that each line is written with one system call.
    let mut out = File::from(io::stdout().lock_fd());
    out.write_all(b"\nbegins\n").unwrap();
    for sequence in 1.. {
        scoreboard.count_handed();
        scoreboard.count_taken();
        assert!(scoreboard.begin(Ticket::new(sequence, (sequence % 5) as usize).unwrap()));
        if out.write_all(format!("{sequence}\n").as_bytes()).is_err() {
            return;
        }
        scoreboard.count_done(now());
    }
}

trait LockFd {
    fn lock_fd(&self) -> OwnedFd;
}

impl LockFd for io::Stdout {
    fn lock_fd(&self) -> OwnedFd {
        use std::os::fd::AsFd as _;
        self.as_fd().try_clone_to_owned().unwrap()
    }
}

/// Both mappings are the same memory.
#[test]
fn both_mappings_share_the_memory() {
    let (scoreboard, memory) = SharedScoreboard::create().unwrap();
    let theirs = SharedScoreboard::attach(&memory).unwrap();
    let ticket = Ticket::new(9, 4).unwrap();
    theirs.set_r_state(RState::Busy, 5);
    assert!(theirs.begin(ticket));
    assert_eq!((scoreboard.read().r_state, scoreboard.read().since), (RState::Busy, 5));
    assert!(scoreboard.has_begun(ticket));
    drop(theirs);
    assert!(scoreboard.has_begun(ticket));
}
