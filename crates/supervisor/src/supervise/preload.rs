//! The preloaded worker: during development, a spare R process that has loaded the packages of the
//! app and waits for the next change of the app's files. A reload then need not start R and load
//! the packages.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use tokio::net::unix::pipe;

use super::Timeouts;
use super::worker::WorkerProcess;

/// The time after which a worker is preloaded once the app is ready. The page is rendered first, so
/// that it need not share the processors. The list of the packages is complete only then.
const DELAY: Duration = Duration::from_millis(2500);

/// The exit status of a preloaded worker whose packages have been installed again since it has
/// loaded them.
pub(super) const STALE_STATUS: i32 = 79;

/// The preloaded worker, if there is one.
#[derive(Debug, Default)]
pub(super) struct Preload {
    worker: Option<(WorkerProcess, File)>,
    /// The time at which a worker is to be preloaded, and the generation (the number of reloads) of
    /// the app that is ready.
    due: Option<(Instant, u64)>,
}

impl Preload {
    /// Schedules the start of a preloaded worker, because the app of this generation is
    /// ready.
    pub(super) fn schedule(&mut self, now: Instant, generation: u64) {
        self.due = Some((now + DELAY, generation));
    }

    /// Returns true if the start of a preloaded worker is due. Returns true only once.
    pub(super) fn take_due(&mut self, now: Instant) -> bool {
        self.worker.is_none() && self.due.take_if(|due| now >= due.0).is_some()
    }

    /// Returns the two ends of the pipe that is a worker's gate: the supervisor's and the worker's.
    pub(super) fn gate() -> io::Result<(File, OwnedFd)> {
        let (sender, receiver) = pipe::pipe()?;
        Ok((sender.into_blocking_fd()?.into(), receiver.into_blocking_fd()?))
    }

    pub(super) fn set(&mut self, worker: WorkerProcess, gate: File) {
        self.worker = Some((worker, gate));
    }

    /// Takes the preloaded worker for a slot (a worker's numbered place) in this generation (the
    /// number of reloads), and lets it read the app. Returns `None` if no worker is preloaded
    /// for them. Ends a preloaded worker of an older generation, because no reload can use it any
    /// more.
    pub(super) fn take(
        &mut self,
        slot: u32,
        generation: u64,
        times: Timeouts,
    ) -> Option<WorkerProcess> {
        // A worker that only replaces one that has ended does not change the schedule.
        self.due.take_if(|due| due.1 < generation);
        if self.worker.as_ref().is_some_and(|it| it.0.start.generation < generation) {
            self.end_worker();
        }
        let fits = |it: &mut (WorkerProcess, _)| {
            (it.0.start.slot, it.0.start.generation) == (slot, generation)
        };
        let (mut worker, gate) = self.worker.take_if(fits)?;
        worker.begin(&gate, times);
        Some(worker)
    }

    /// Ends the preloaded worker, because it cannot be used.
    pub(super) fn discard(&mut self) {
        self.due = None;
        self.end_worker();
    }

    fn end_worker(&mut self) {
        if let Some((mut worker, _)) = self.worker.take() {
            worker.kill();
            worker.clean_up();
        }
    }

    /// Forgets the preloaded worker if it is the one with this epoch (the number of its start),
    /// which has ended.
    pub(super) fn on_exit(&mut self, epoch: u64) {
        if let Some((mut worker, _)) = self.worker.take_if(|it| it.0.start.epoch == epoch) {
            worker.clean_up();
        }
    }
}
