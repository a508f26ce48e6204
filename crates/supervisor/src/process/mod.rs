//! The parts of the supervisor that concern one worker process: its start, output, memory limit and
//! end.

mod cgroup;
mod exit;
mod output;
mod spawn;
mod start_output;
mod state;

pub(crate) use cgroup::ControlGroups;
pub use cgroup::memory_limit;
#[cfg(test)]
pub(crate) use cgroup::stand_in;
pub use exit::Exit;
pub(crate) use exit::{ProcessEnd, reap};
pub(crate) use output::pass_on;
pub(crate) use spawn::{Spawned, WorkerStart, spawn};
pub(crate) use start_output::{HeldOutput, StartOutput};
pub(crate) use state::{is_stopped, wait};
