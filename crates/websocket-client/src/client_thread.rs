//! The thread on which the tasks of all WebSocket clients run.

use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use rookery_system::blocking::BlockingPool;
use rookery_system::signals::with_signals_blocked;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinSet;

use crate::client_task::{ClientTask, run};

/// The time that WebSocket clients have to send their close frames when all clients are stopped.
/// The R process waits for up to this time when it exits or unloads the package.
pub const STOP_TIMEOUT: Duration = Duration::from_millis(500);

/// The maximum number of threads for name lookups, which block. Further lookups wait. The wait
/// counts towards the connect timeout of their clients.
const MAX_LOOKUPS: usize = 4;

/// A handle of the thread that runs all WebSocket clients. The thread ends when the handle is
/// dropped.
#[derive(Debug)]
pub(crate) struct ClientThread {
    tasks: Option<UnboundedSender<ClientTask>>,
    handle: Option<JoinHandle<()>>,
}

impl ClientThread {
    pub(crate) fn start() -> io::Result<ClientThread> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (tasks, receiver) = mpsc::unbounded_channel();
        let handle = with_signals_blocked(|| {
            std::thread::Builder::new().name("rookery-client".to_owned()).spawn(move || {
                // The thread does not wait for a name lookup when it ends, because the lookup may
                // block for any length of time.
                let lookups = BlockingPool::on_demand("rookery-lookup", MAX_LOOKUPS);
                let _entered = lookups.enter();
                runtime.block_on(run_tasks(receiver));
            })
        })?;
        Ok(ClientThread { tasks: Some(tasks), handle: Some(handle) })
    }

    pub(crate) fn spawn(&self, task: ClientTask) {
        if let Some(tasks) = &self.tasks {
            let _ = tasks.send(task);
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for ClientThread {
    fn drop(&mut self) {
        self.tasks = None;
        if let Some(handle) = self.handle.take() {
            // The thread returns nothing, and a panic has already been printed.
            let _ = handle.join();
        }
    }
}

async fn run_tasks(mut tasks: UnboundedReceiver<ClientTask>) {
    let mut clients = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            task = tasks.recv() => match task {
                Some(task) => drop(clients.spawn(run(task))),
                None => break,
            },
            // A panic of a task has already been printed, and the application receives an event
            // about the end.
            Some(_) = clients.join_next(), if !clients.is_empty() => {}
        }
    }
    let all = async { while clients.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(STOP_TIMEOUT, all).await;
}
