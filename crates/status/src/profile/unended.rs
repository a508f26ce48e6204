//! Files of profiles that R processes have not ended.

use std::fs::File;

use rookery_worker_protocol::ProfileProgress;

use super::ProfiledProcess;

/// A profile that is over and whose R process has not ended it, because R has not checked for
/// interrupts since. R's profiler writes to the file until then.
#[derive(Debug)]
pub(super) struct Unended {
    pub(super) number: u32,
    pub(super) process: ProfiledProcess,
    pub(super) file: File,
}

impl Unended {
    /// Returns true if the R process may still write. `running` are the R processes of the server.
    pub(super) fn is_written(&self, running: &[ProfiledProcess]) -> bool {
        running.iter().any(|process| process.key == self.process.key)
            && (*self.process.scoreboard).as_ref().profile_progress(self.number)
                == ProfileProgress::Running
    }
}

/// Frees the space of a file after its first `most` bytes. R goes on writing at its position in the
/// file, so a hole lies between.
pub(super) fn limit_size(file: &File, most: u64) {
    if file.metadata().is_ok_and(|found| found.len() > most) {
        // If the file cannot be shortened, the next attempt follows soon.
        let _ = file.set_len(most);
    }
}
