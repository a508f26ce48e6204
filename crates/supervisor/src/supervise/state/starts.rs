//! The starts of workers.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rookery_worker_protocol::PublicDescriptors;

use super::super::Outcome;
use super::super::worker_process::WorkerProcess;
use super::{Slot, Supervisor};
use crate::process::WorkerStart;

impl Supervisor<'_> {
    /// Starts the workers whose start time has come.
    pub(super) fn start_due(&mut self, now: Instant) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].start_at.is_some_and(|at| now >= at) {
                self.slots[slot].start_at = None;
                self.slots[slot].current = self.start(slot as u32);
            }
        }
    }

    /// Returns true if no worker has ever been ready and no start is left to try: either every slot
    /// has used up its retries, or a start has failed with an error of the configuration.
    pub(super) fn is_hopeless(&self) -> bool {
        let most = self.plan.start_retries;
        let has_failed = |slot: &Slot| slot.failed_starts > most || slot.is_given_up;
        !self.was_ready
            && (self.slots.iter().all(has_failed)
                || self.slots.iter().any(|slot| slot.is_misconfigured))
    }

    /// Starts a worker in `slot` and returns its epoch. If the start fails, returns `None` and
    /// schedules another start after a pause.
    pub(super) fn start(&mut self, slot: u32) -> Option<u64> {
        self.epochs += 1;
        let epoch = self.epochs;
        let (serving, spares) = self.numbers();
        let (workers, generation) = (serving + spares, self.generation);
        // With several workers, only the front end accepts connections.
        let is_public = serving == 1 && self.plan.public.is_some();
        let start = WorkerStart { slot, workers, serving, epoch, generation, is_public };
        self.history.starts(slot);
        let public = self.plan.public.as_ref().filter(|_| is_public);
        let cookie =
            public.and_then(|_| self.registry.cookie(slot, epoch)).map(|cookie| cookie.text());
        let public = public.map_or_else(PublicDescriptors::default, |public| PublicDescriptors {
            sockets: &public.sockets,
            redirects: &public.redirects,
            log: public.log.as_ref().map(AsFd::as_fd),
            cookie: cookie.as_deref(),
        });
        let started =
            (self.plan.command)(is_public).map_err(io::Error::other).and_then(|command| {
                let kept = self.start_output.begin();
                WorkerProcess::start(
                    command,
                    &self.folder,
                    start,
                    &self.plan,
                    public,
                    kept,
                    &self.events,
                )
            });
        match started {
            Ok(worker) => {
                self.workers.insert(epoch, worker);
                Some(epoch)
            }
            Err(error) => {
                let number = start.slot;
                self.tell(&format!("worker {number} cannot be started: {error}"));
                let now = Instant::now();
                let place = &mut self.slots[slot as usize];
                place.failed_starts += 1;
                let pause = place.backoff.ended(Duration::ZERO, false, now, epoch * 7919);
                place.start_at = Some(now + pause.time);
                if self.is_hopeless() {
                    self.end(Outcome::NeverReady);
                }
                self.end_if_all_loop(now);
                None
            }
        }
    }
}
