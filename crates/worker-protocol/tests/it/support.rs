//! Workers for tests: the test program itself, started again to run one function.

use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};

use rookery_worker_protocol::rings::{RingEnd, RingWakers};
use rookery_worker_protocol::{ControlChannel, SharedScoreboard, WorkerEnvironment};

/// A worker process with the supervisor's ends of its descriptors. The process is killed when this
/// value is dropped.
pub(crate) struct Worker {
    pub(crate) process: Child,
    pub(crate) control: ControlChannel,
    pub(crate) scoreboard: SharedScoreboard,
    /// This process's end of the rings.
    pub(crate) rings: Option<(RingEnd, RingWakers)>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts the ignored test with this name as a worker. Its standard output is a pipe, and
/// `argument` is passed to it.
pub(crate) fn start(test: &str, argument: &str) -> Worker {
    let (control, their_control) = ControlChannel::pair().unwrap();
    let (scoreboard, memory) = SharedScoreboard::create().unwrap();
    let (end, wakers, rings) = RingEnd::create().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env("ARGUMENT", argument).stdin(Stdio::null()).stdout(Stdio::piped());
    let hand_over = WorkerEnvironment {
        control: their_control.as_fd(),
        scoreboard: memory.as_fd(),
        worker: 2,
        workers: 4,
        generation: 7,
        id: "00ff",
        gate: None,
        rings: &rings,
    };
    hand_over.apply(&mut command);
    let process = command.spawn().unwrap();
    Worker { process, control, scoreboard, rings: Some((end, wakers)) }
}
