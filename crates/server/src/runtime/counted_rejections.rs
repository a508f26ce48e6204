//! The counts of a server's rejections in the memory from which the metrics are read.

use std::sync::{Arc, Mutex, PoisonError};

use rookery_error::Kind as _;
use rookery_worker_protocol::SharedScoreboard;

use crate::rejection::{Rejection, RejectionReports};

/// The scoreboard (memory that outlives a worker) in which rejections are counted by reason, if the
/// server has one.
#[derive(Debug, Clone, Default)]
pub(super) struct CountedRejections(Arc<Mutex<Option<Arc<SharedScoreboard>>>>);

impl CountedRejections {
    /// Returns error reports whose errors are also counted in the scoreboard.
    pub(super) fn reports(&self) -> RejectionReports {
        let counted = self.clone();
        RejectionReports::new().with_observer(move |_, error| {
            let scoreboard = counted.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(scoreboard) = &*scoreboard {
                scoreboard.rejections().add(Rejection::of(error).index(), 1);
            }
        })
    }

    /// Sets the scoreboard in which further rejections are counted.
    pub(super) fn set_scoreboard(&self, scoreboard: Option<Arc<SharedScoreboard>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = scoreboard;
    }
}
