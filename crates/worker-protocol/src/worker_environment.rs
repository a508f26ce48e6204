//! What a supervisor gives a worker that it starts.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rookery_system::descriptor;

use crate::{PublicDescriptors, variables};

/// The descriptors of a worker that is to be started, and what it is told of itself.
///
/// ```no_run
/// use std::os::fd::AsFd as _;
/// use std::os::unix::net::UnixListener;
/// use std::process::Command;
///
/// use rookery_worker_protocol::{ControlChannel, WorkerEnvironment, PublicDescriptors, SharedScoreboard};
///
/// let listener = UnixListener::bind("/run/rookery/0.sock")?;
/// let (control, their_control) = ControlChannel::pair()?;
/// let (scoreboard, their_scoreboard) = SharedScoreboard::create()?;
/// let hand_over = WorkerEnvironment {
///     listener: listener.as_fd(),
///     control: their_control.as_fd(),
///     scoreboard: their_scoreboard.as_fd(),
///     worker: 0,
///     workers: 4,
///     generation: 0,
///     id: "0123456789abcdef0123456789abcdef",
///     public: PublicDescriptors::default(),
/// };
/// let mut command = Command::new("R");
/// hand_over.apply(&mut command);
/// let worker = command.spawn()?;
/// // Otherwise the channel does not end with the worker.
/// drop(their_control);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct WorkerEnvironment<'fd> {
    /// A Unix socket that listens. It may be handed over again, to the next process of its slot.
    pub listener: BorrowedFd<'fd>,
    /// The worker's end of [`ControlChannel::pair`](crate::ControlChannel::pair).
    pub control: BorrowedFd<'fd>,
    /// What [`SharedScoreboard::create`](crate::SharedScoreboard::create) gave.
    pub scoreboard: BorrowedFd<'fd>,
    /// The number of the worker's slot, from 0.
    pub worker: u32,
    /// How many slots there are.
    pub workers: u32,
    /// How often the application has been reloaded.
    pub generation: u64,
    /// What its clients call it in URLs.
    pub id: &'fd str,
    /// The public listeners, if the worker may be told to accept on them.
    pub public: PublicDescriptors<'fd>,
}

impl WorkerEnvironment<'_> {
    /// Has a process that `command` starts be given all of it, and no other descriptor above the standard three. They must be open
    /// until it has been started, and be above these three.
    pub fn apply(&self, command: &mut Command) {
        let descriptors = [self.listener, self.control, self.scoreboard].map(|fd| fd.as_raw_fd());
        for (name, fd) in [variables::LISTEN_FD, variables::CONTROL_FD, variables::SCOREBOARD_FD]
            .into_iter()
            .zip(descriptors)
        {
            command.env(name, fd.to_string());
        }
        command.env(variables::WORKER, self.worker.to_string());
        command.env(variables::WORKERS, self.workers.to_string());
        command.env(variables::FORMER_WORKERS, self.workers.to_string());
        command.env(variables::GENERATION, self.generation.to_string());
        command.env(variables::WORKER_ID, self.id);
        if let Some(text) = self.public.text() {
            command.env(variables::PUBLIC_FDS, text);
        }
        if let Some(cookie) = self.public.cookie {
            command.env(variables::COOKIE, cookie);
        }
        if let Some(log) = self.public.log {
            command.env(variables::LOG_FD, log.as_raw_fd().to_string());
        }
        let public: Vec<_> = self.public.all().map(|fd| fd.as_raw_fd()).collect();
        let give = move || -> io::Result<()> {
            // Those that the supervisor was itself started with may not be set so.
            descriptor::close_on_exec_from(3);
            for fd in descriptors.iter().chain(&public).copied() {
                // SAFETY: open until the process has been started, as documented; else this is an error.
                descriptor::set_close_on_exec(unsafe { BorrowedFd::borrow_raw(fd) }, false)?;
            }
            Ok(())
        };
        // SAFETY: `give` makes system calls alone, on descriptors; it takes no lock and allocates nothing.
        unsafe { command.pre_exec(give) };
    }
}
