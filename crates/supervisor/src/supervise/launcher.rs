//! The launcher, which starts worker processes.

use std::io;

use rookery_status::RunFolder;
use rookery_worker_protocol::Gate;
use tokio::sync::mpsc::UnboundedSender;

use super::SupervisorConfig;
use super::worker::{WorkerEvent, WorkerProcess};
use crate::process::{StartOutput, WorkerStart};

/// The launcher of worker processes, which counts their starts.
pub(super) struct Launcher {
    /// The folder of the temporary files of workers.
    folder: RunFolder,
    /// The number of worker starts so far.
    starts: u64,
    /// The filter for the output of workers that are started before any worker has been ready.
    output: StartOutput,
    /// The channel to which the events of started workers are sent.
    events: UnboundedSender<WorkerEvent>,
}

/// The description of a worker that is to be started.
#[derive(Debug, Clone, Copy)]
pub(super) struct Launch {
    pub(super) slot: u32,
    pub(super) generation: u64,
    /// The number of workers that serve at the same time, including the one to start.
    pub(super) serving: u32,
    /// The number of spares, which are started workers held in reserve.
    pub(super) spares: u32,
}

impl Launcher {
    /// Creates a launcher of worker processes. The workers' temporary files are created in
    /// `folder`, and their events are sent to `events`.
    pub(super) fn new(folder: RunFolder, events: UnboundedSender<WorkerEvent>) -> Launcher {
        Launcher { folder, starts: 0, output: StartOutput::default(), events }
    }

    /// Returns the folder of the temporary files of workers.
    pub(super) fn folder(&self) -> &RunFolder {
        &self.folder
    }

    /// Returns the number of worker starts so far, which is also the epoch of the last started
    /// worker.
    pub(super) fn starts(&self) -> u64 {
        self.starts
    }

    /// Returns the channel to which the events of started workers are sent.
    pub(super) fn events(&self) -> &UnboundedSender<WorkerEvent> {
        &self.events
    }

    /// Stops holding back the output of starting workers, because the first worker is ready.
    pub(super) fn on_first_ready(&mut self) {
        self.output.end();
    }

    /// Returns the last error message that a worker wrote when its start failed. Messages are
    /// recorded only while no worker has ever been ready.
    pub(super) fn error_message(&self) -> Option<String> {
        self.output.message()
    }

    /// Starts the worker process that `launch` describes. With a `gate`, the worker is preloaded.
    pub(super) fn start(
        &mut self,
        launch: Launch,
        gate: Option<Gate<'_>>,
        config: &SupervisorConfig,
    ) -> io::Result<WorkerProcess> {
        self.starts += 1;
        let epoch = self.starts;
        let Launch { slot, generation, serving, spares } = launch;
        let start = WorkerStart { slot, workers: serving + spares, serving, epoch, generation };
        let command = (config.command)().map_err(io::Error::other)?;
        let kept = self.output.begin();
        let (folder, events) = (&self.folder, &self.events);
        WorkerProcess::start(command, folder, start, config, gate, kept, events)
    }
}
