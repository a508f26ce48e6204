//! The tasks that read the remaining output of workers after these have ended.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

/// The maximum time for which the output of an ended worker is still read. Without this limit, the
/// reading would never end if another process holds the output open.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(2);

/// The tasks that read the last output of ended workers.
#[derive(Debug, Default)]
pub(crate) struct OutputTasks {
    /// The tasks that read output, each with the time of its worker's end.
    tasks: Vec<(JoinHandle<()>, Instant)>,
}

impl OutputTasks {
    /// Adds the tasks that read the last output of a worker, which has ended at `now`.
    pub(crate) fn add(&mut self, tasks: Vec<JoinHandle<()>>, now: Instant) {
        self.tasks.extend(tasks.into_iter().map(|task| (task, now)));
    }

    /// Forgets the tasks that have read all output, and cancels those whose worker ended more than
    /// [`OUTPUT_TIMEOUT`] ago.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.tasks.retain(|(task, since)| {
            if now.duration_since(*since) > OUTPUT_TIMEOUT {
                task.abort();
            }
            !task.is_finished()
        });
    }

    /// Waits until the output of all ended workers has been read, for at most [`OUTPUT_TIMEOUT`].
    pub(crate) async fn finish(&mut self) {
        let all = async {
            for (task, _) in &mut self.tasks {
                let _ = task.await;
            }
        };
        let _ = tokio::time::timeout(OUTPUT_TIMEOUT, all).await;
    }
}
