//! The descriptors and environment variables that a supervisor gives to a worker when it starts the
//! worker.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rookery_system::descriptor;

use crate::rings::RingHandles;
use crate::variables;

/// The descriptors and environment variables that a worker process is started with.
///
/// ```no_run
/// use std::os::fd::AsFd as _;
/// use std::process::Command;
///
/// use rookery_worker_protocol::rings::RingEnd;
/// use rookery_worker_protocol::{ControlChannel, SharedScoreboard, WorkerEnvironment};
///
/// let (control, their_control) = ControlChannel::pair()?;
/// let (scoreboard, their_scoreboard) = SharedScoreboard::create()?;
/// let (rings, wakers, their_rings) = RingEnd::create()?;
/// let environment = WorkerEnvironment {
///     control: their_control.as_fd(),
///     scoreboard: their_scoreboard.as_fd(),
///     worker: 0,
///     workers: 4,
///     generation: 0,
///     id: "0123456789abcdef0123456789abcdef",
///     gate: None,
///     rings: &their_rings,
/// };
/// let mut command = Command::new("R");
/// environment.apply(&mut command);
/// let worker = command.spawn()?;
/// // Close the worker's end here, so that the channel ends when the worker exits.
/// drop(their_control);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct WorkerEnvironment<'fd> {
    /// The worker's end of the control channel, from
    /// [`ControlChannel::pair`](crate::ControlChannel::pair).
    pub control: BorrowedFd<'fd>,
    /// The descriptor of the scoreboard's memory, which
    /// [`SharedScoreboard::create`](crate::SharedScoreboard::create) returned.
    pub scoreboard: BorrowedFd<'fd>,
    /// The number of the worker's slot (its numbered place among the workers), from 0.
    pub worker: u32,
    /// The number of workers of the supervisor.
    pub workers: u32,
    /// The number of times that the application has been reloaded.
    pub generation: u64,
    /// The identifier of the worker in URLs, which is different for each start of a worker.
    pub id: &'fd str,
    /// The gate of a preloaded worker.
    pub gate: Option<Gate<'fd>>,
    /// The handles of the rings between the front end and the worker.
    pub rings: &'fd RingHandles,
}

/// The gate of a worker that loads packages and then waits before it reads the app.
#[derive(Debug, Clone, Copy)]
pub struct Gate<'fd> {
    /// The end of a pipe from which the worker reads a byte when it may continue.
    pub descriptor: BorrowedFd<'fd>,
    /// The names of the packages that the worker loads, separated by spaces.
    pub packages: &'fd str,
}

impl WorkerEnvironment<'_> {
    /// Configures `command` so that the process that it starts inherits the descriptors of this
    /// environment. Also sets the environment variables that name them. Apart from the standard
    /// streams, the process inherits no other descriptors. The number of each descriptor must be
    /// above 2, and the descriptor must stay open until the process has been started.
    pub fn apply(&self, command: &mut Command) {
        let descriptors = [self.control, self.scoreboard].map(|fd| fd.as_raw_fd());
        for (name, fd) in
            [variables::CONTROL_FD, variables::SCOREBOARD_FD].into_iter().zip(descriptors)
        {
            command.env(name, fd.to_string());
        }
        command.env(variables::WORKER, self.worker.to_string());
        command.env(variables::WORKERS, self.workers.to_string());
        command.env(variables::FORMER_WORKERS, self.workers.to_string());
        command.env(variables::GENERATION, self.generation.to_string());
        command.env(variables::WORKER_ID, self.id);
        if let Some(gate) = self.gate {
            command.env(variables::GATE_FD, gate.descriptor.as_raw_fd().to_string());
            command.env(variables::PRELOAD, gate.packages);
        }
        let gate = self.gate.map(|gate| gate.descriptor.as_raw_fd());
        let rings = self.rings.all().map(|fd| fd.as_raw_fd());
        command.env(variables::RINGS_FDS, rings.map(|fd| fd.to_string()).join(","));
        let others: Vec<_> = gate.into_iter().chain(rings).collect();
        let give = move || -> io::Result<()> {
            // Descriptors that the supervisor itself inherited may lack the close-on-exec flag.
            descriptor::close_on_exec_from(3);
            for fd in descriptors.iter().chain(&others).copied() {
                // SAFETY: the caller keeps the descriptor open until the process has been started;
                // a call on a closed descriptor would return an error.
                descriptor::set_close_on_exec(unsafe { BorrowedFd::borrow_raw(fd) }, false)?;
            }
            Ok(())
        };
        // SAFETY: `give` only makes system calls on descriptors; it takes no lock and allocates no
        // memory.
        unsafe { command.pre_exec(give) };
    }
}
