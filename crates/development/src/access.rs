//! Distinguishes the files that an app reads from those that it writes, by events of the kernel.
//!
//! An app writes files of the same kinds as its sources, such as images and reports. The kernel
//! reports that a file was opened, but neither by which process nor for what. Since the app starts
//! after the watcher, a file that has been opened before it is written for the first time is a
//! source, and a file that is written first is output of the app. A source stays one when the app
//! is started again, because a server that keeps it in memory does not open it again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind};

/// The maximum number of files about which a log has an entry. Further files count as sources.
const MAX_FILES: usize = 20_000;

/// The accesses to the files of an app.
#[derive(Debug, Default)]
pub(crate) struct AccessLog(HashMap<PathBuf, Access>);

#[derive(Debug, Default, Clone, Copy)]
struct Access {
    /// How often the file was opened, without the completed writes.
    opened: u32,
    /// Whether a change of the file was reported.
    is_written: bool,
    /// Whether the file was written before it was read; `None` before the first completed write.
    is_output: Option<bool>,
}

impl AccessLog {
    /// Adds an event of the kernel.
    pub(crate) fn add(&mut self, event: &Event) {
        for path in &event.paths {
            if self.0.len() >= MAX_FILES && !self.0.contains_key(path) {
                continue;
            }
            let file = self.0.entry(path.clone()).or_default();
            match event.kind {
                EventKind::Access(AccessKind::Open(_)) => {
                    file.opened = file.opened.saturating_add(1);
                }
                EventKind::Access(AccessKind::Close(AccessMode::Write)) => {
                    // The program that has written the file had opened it.
                    file.opened = file.opened.saturating_sub(1);
                    file.complete();
                }
                EventKind::Access(_) | EventKind::Other | EventKind::Any => {}
                // A renamed or deleted file was not opened for this.
                EventKind::Modify(notify::event::ModifyKind::Name(_)) | EventKind::Remove(_) => {
                    file.complete();
                }
                EventKind::Modify(_) | EventKind::Create(_) => file.is_written = true,
            }
        }
    }

    /// Returns true if the file has been written without having been read before.
    pub(crate) fn is_output(&self, path: &Path) -> bool {
        self.0.get(path).is_some_and(|file| {
            // While a file is being written, one of the programs that have opened it is the writer.
            file.is_output.unwrap_or(file.is_written && file.opened <= 1)
        })
    }

    /// Forgets which files were output, because the app is being started again and may read them
    /// now.
    pub(crate) fn on_restart(&mut self) {
        self.0.retain(|_, file| {
            let is_source = file.is_output.map_or(file.opened > 0, |is_output| !is_output);
            if is_source {
                file.is_output = Some(false);
            }
            is_source
        });
    }
}

impl Access {
    fn complete(&mut self) {
        self.is_written = true;
        if self.is_output.is_none() {
            self.is_output = Some(self.opened == 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use notify::event::{CreateKind, DataChange, ModifyKind, RenameMode};

    use super::*;

    const OPEN: EventKind = EventKind::Access(AccessKind::Open(AccessMode::Any));
    const CLOSE: EventKind = EventKind::Access(AccessKind::Close(AccessMode::Write));
    const CREATE: EventKind = EventKind::Create(CreateKind::File);
    const MODIFY: EventKind = EventKind::Modify(ModifyKind::Data(DataChange::Any));
    const RENAME: EventKind = EventKind::Modify(ModifyKind::Name(RenameMode::To));

    #[test]
    fn a_source_stays_one_after_a_restart_and_output_may_become_one() {
        let mut log = AccessLog::default();
        let add = |log: &mut AccessLog, name: &str, events: &[EventKind]| {
            for kind in events {
                log.add(&Event::new(*kind).add_path(name.into()));
            }
        };
        add(&mut log, "source", &[OPEN]);
        add(&mut log, "output", &[CREATE, OPEN, MODIFY, CLOSE]);
        for name in ["source", "output"] {
            assert_eq!(log.is_output(Path::new(name)), name == "output");
        }
        log.on_restart();
        add(&mut log, "source", &[MODIFY, OPEN, MODIFY, CLOSE]);
        add(&mut log, "output", &[OPEN, MODIFY, OPEN, MODIFY, CLOSE]);
        for name in ["source", "output"] {
            assert!(!log.is_output(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn a_file_is_output_if_it_is_written_before_it_is_read() {
        for (events, is_output) in [
            (&[][..], false),
            (&[OPEN], false),
            // A new file, and one that is truncated when it is opened.
            (&[CREATE, OPEN, MODIFY, CLOSE], true),
            (&[MODIFY, OPEN, MODIFY, CLOSE], true),
            (&[CREATE, OPEN, MODIFY], true),
            (&[CREATE, OPEN, MODIFY, CLOSE, OPEN, MODIFY, OPEN, CLOSE], true),
            (&[RENAME], true),
            (&[OPEN, MODIFY, OPEN, MODIFY, CLOSE], false),
            (&[OPEN, MODIFY, OPEN, MODIFY], false),
            (&[OPEN, RENAME], false),
            (&[OPEN, OPEN, MODIFY, CLOSE, MODIFY, OPEN, MODIFY, CLOSE], false),
        ] {
            let mut log = AccessLog::default();
            for kind in events {
                log.add(&Event::new(*kind).add_path("a.png".into()));
            }
            assert_eq!(log.is_output(Path::new("a.png")), is_output, "{events:?}");
            assert!(!log.is_output(Path::new("b.png")));
            log.on_restart();
            assert!(!log.is_output(Path::new("a.png")));
        }
    }
}
