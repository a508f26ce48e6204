//! The access log: one line per answered request.
//!
//! Lines go through a [`LineWriter`], so an output that does not take them holds up nobody. A log
//! may instead be read by the application, record by record: then nothing is formatted here.

mod file;
pub(crate) mod pending_record;
mod record;

use std::collections::VecDeque;
use std::io;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

pub use self::file::{LogFile, Reopener};
pub use self::record::{Format, OwnedRecord, Protocol, Record};
use super::line_writer::LineWriter;
use super::output;

/// What records may wait for an application that reads them itself; about 1 MiB with ordinary paths.
pub const QUEUE_RECORDS: usize = 4096;

/// Where records go.
#[derive(Debug)]
pub struct AccessLog {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Written { writer: LineWriter, format: Format, is_closed: AtomicBool },
    Read(Mutex<Queue>),
}

impl AccessLog {
    /// A log whose lines are written to `out` by a thread of its own.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn written(out: impl Write + Send + 'static, format: Format) -> io::Result<AccessLog> {
        Ok(AccessLog::to(LineWriter::start(out, "# ")?, format))
    }

    /// A log whose lines are written to an output that others may write to as well.
    pub fn to(writer: LineWriter, format: Format) -> AccessLog {
        AccessLog { kind: Kind::Written { writer, format, is_closed: AtomicBool::new(false) } }
    }

    /// A log that the application reads with [`take`](Self::take).
    pub fn read() -> AccessLog {
        AccessLog { kind: Kind::Read(Mutex::default()) }
    }

    /// Takes a record. Never blocks on the output.
    ///
    /// # Allocation
    /// None for a written log once its buffers have grown; a record that is read is copied.
    pub fn record(&self, record: &Record<'_>) {
        match &self.kind {
            Kind::Written { writer, format, is_closed } => {
                if !is_closed.load(Ordering::Relaxed) {
                    writer.write_line(|line| record.write_line(*format, line));
                }
            }
            Kind::Read(queue) => {
                let mut queue = lock(queue);
                if queue.records.len() < QUEUE_RECORDS {
                    queue.records.push_back(record.to_owned());
                } else {
                    queue.lost += 1;
                }
            }
        }
    }

    /// Ends a written log when what waits has been written, or when the output has stood still for
    /// [`FLUSH_TIME`](output::FLUSH_TIME). Later records are lost.
    pub fn close(&self) {
        self.close_until(Instant::now() + output::FLUSH_TIME);
    }

    /// Ends a written log when what waits has been written, or at a deadline that all outputs of the
    /// process share. Later records are lost.
    pub fn close_until(&self, deadline: Instant) {
        if let Kind::Written { writer, is_closed, .. } = &self.kind {
            is_closed.store(true, Ordering::Relaxed);
            writer.flush(output::left(deadline));
        }
    }

    /// Lines of a written log that were lost since it was opened.
    pub fn lines_lost(&self) -> u64 {
        match &self.kind {
            Kind::Written { writer, .. } => writer.lines_lost(),
            Kind::Read(_) => 0,
        }
    }

    /// The next record of a log that is [`read`](Self::read); `None` when there is none.
    pub fn take(&self) -> Option<OwnedRecord> {
        match &self.kind {
            Kind::Read(queue) => lock(queue).records.pop_front(),
            Kind::Written { .. } => None,
        }
    }

    /// Records lost since this was last asked, because nobody read them fast enough.
    pub fn take_lost(&self) -> u64 {
        match &self.kind {
            Kind::Read(queue) => std::mem::take(&mut lock(queue).lost),
            Kind::Written { .. } => 0,
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    records: VecDeque<OwnedRecord>,
    lost: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded is whole at every point where a panic could happen.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
