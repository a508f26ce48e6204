//! The start of worker processes.

use std::io;
use std::os::fd::AsFd;

use rookery_status::RunFolder;
use rookery_worker_protocol::PublicDescriptors;
use tokio::sync::mpsc::UnboundedSender;

use super::SupervisorConfig;
use super::worker::{WorkerEvent, WorkerProcess};
use crate::backend_registry::BackendRegistry;
use crate::process::{StartOutput, WorkerStart};

/// The launcher of worker processes, which counts their starts.
pub(super) struct Launcher {
    /// The folder of the sockets and temporary files of workers.
    folder: RunFolder,
    /// The number of starts so far, which is the epoch of the last one.
    starts: u64,
    /// The output of workers that start while no worker has been ready.
    output: StartOutput,
    /// The sender of the events of started workers.
    events: UnboundedSender<WorkerEvent>,
}

/// A description of a worker to start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Launch {
    pub(super) slot: u32,
    pub(super) generation: u64,
    /// The number of workers that serve at the same time.
    pub(super) serving: u32,
    /// The number of spares.
    pub(super) spares: u32,
}

impl Launcher {
    /// Creates a launcher that uses this folder, and sends the events of started workers to
    /// `events`.
    pub(super) fn new(folder: RunFolder, events: UnboundedSender<WorkerEvent>) -> Launcher {
        Launcher { folder, starts: 0, output: StartOutput::default(), events }
    }

    /// Returns the folder of the sockets and temporary files of workers.
    pub(super) fn folder(&self) -> &RunFolder {
        &self.folder
    }

    /// Returns the number of starts so far, which is the epoch of the last one.
    pub(super) fn starts(&self) -> u64 {
        self.starts
    }

    /// Returns the sender of the events of started workers.
    pub(super) fn events(&self) -> &UnboundedSender<WorkerEvent> {
        &self.events
    }

    /// Stops keeping the output of starts, because a worker is ready.
    pub(super) fn on_first_ready(&mut self) {
        self.output.end();
    }

    /// Returns the last error message that a starting worker has written, if no worker has been
    /// ready.
    pub(super) fn error_message(&self) -> Option<String> {
        self.output.message()
    }

    /// Starts a worker process.
    pub(super) fn start(
        &mut self,
        launch: Launch,
        config: &SupervisorConfig,
        registry: &BackendRegistry,
    ) -> io::Result<WorkerProcess> {
        self.starts += 1;
        let epoch = self.starts;
        let Launch { slot, generation, serving, spares } = launch;
        // With several workers, only the front end accepts connections.
        let is_public = serving == 1 && config.public.is_some();
        let workers = serving + spares;
        let start = WorkerStart { slot, workers, serving, epoch, generation, is_public };
        let public = config.public.as_ref().filter(|_| is_public);
        let cookie = public.and_then(|_| registry.cookie(slot, epoch)).map(|cookie| cookie.text());
        let public = public.map_or_else(PublicDescriptors::default, |public| PublicDescriptors {
            sockets: &public.sockets,
            redirects: &public.redirects,
            log: public.log.as_ref().map(AsFd::as_fd),
            cookie: cookie.as_deref(),
        });
        let command = (config.command)(is_public).map_err(io::Error::other)?;
        let kept = self.output.begin();
        WorkerProcess::start(command, &self.folder, start, config, public, kept, &self.events)
    }
}
