//! The access log, which has one record for each request.
//!
//! The records are either written to an output as lines, or read one by one by the application.
//! Lines are written through a [`LineWriter`], so that a blocked output does not block the server.

mod combined;
mod fields;
mod file;
pub(crate) mod pending_record;
mod record;
pub(crate) mod session_record;
mod terminal;

use std::collections::VecDeque;
use std::io;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rookery_system::lock;

pub use self::file::{LogFile, Reopener};
pub use self::record::{Format, OwnedRecord, Protocol, Record};
pub use super::line_writer::LineWriter;
use super::output;

/// The maximum number of access-log records that wait until the application reads them. With paths
/// of ordinary length, so many records use about 1 MiB.
pub const QUEUE_RECORDS: usize = 4096;

/// An access log, which is either written to an output as lines, or read by the application record
/// by record.
#[derive(Debug)]
pub struct AccessLog {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Written { writer: LineWriter, format: Format, app: Box<str>, is_closed: AtomicBool },
    Read(Mutex<Queue>),
}

impl AccessLog {
    /// Makes an access log that is written to `out` by a thread of its own.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub fn written(out: impl Write + Send + 'static, format: Format) -> io::Result<AccessLog> {
        let writer = match format {
            Format::Json => LineWriter::start_json(out),
            _ => LineWriter::start(out, "# "),
        };
        Ok(AccessLog::to(writer?, format))
    }

    /// Makes an access log that is written by `writer`. Other code may write lines to the same
    /// output through this writer.
    pub fn to(writer: LineWriter, format: Format) -> AccessLog {
        let (app, is_closed) = (Box::default(), AtomicBool::new(false));
        AccessLog { kind: Kind::Written { writer, format, app, is_closed } }
    }

    /// Makes an access log whose records are not written to an output. The application reads them
    /// with [`take`](Self::take) instead.
    pub fn read() -> AccessLog {
        AccessLog { kind: Kind::Read(Mutex::default()) }
    }

    /// Sets the name of the app, which is part of each line in JSON.
    #[must_use]
    pub fn with_app(mut self, name: &str) -> AccessLog {
        if let Kind::Written { app, .. } = &mut self.kind {
            *app = name.into();
        }
        self
    }

    /// Returns the name of the app, or an empty text.
    pub(crate) fn app(&self) -> &str {
        match &self.kind {
            Kind::Written { app, .. } => app,
            Kind::Read(_) => "",
        }
    }

    /// Returns true if the log consists of JSON objects.
    pub(crate) fn is_json(&self) -> bool {
        matches!(&self.kind, Kind::Written { format: Format::Json, .. })
    }

    /// Adds a line to a log that is written to an output. Never waits for the output.
    fn write_line(&self, write: impl FnOnce(&mut Vec<u8>)) {
        if let Kind::Written { writer, is_closed, .. } = &self.kind {
            if !is_closed.load(Ordering::Relaxed) {
                writer.write_line(write);
            }
        }
    }

    /// Returns true if the log has the `Referer` and the `User-Agent` of requests.
    pub(crate) fn names_client(&self) -> bool {
        matches!(&self.kind, Kind::Written { format, .. } if format.names_client())
    }

    /// Adds the record of a request to the access log. Never waits for the output.
    ///
    /// # Allocation
    /// A log that is written to an output does not allocate once its buffers have grown. A log that
    /// the application reads allocates a copy of the record.
    pub fn record(&self, record: &Record<'_>) {
        match &self.kind {
            Kind::Written { format, .. } => {
                self.write_line(|line| record.write_line(*format, line));
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

    /// Closes the output of the access log after its queued lines have been written, but at the
    /// latest after [`FLUSH_TIME`](output::FLUSH_TIME). Later records are lost.
    pub fn close(&self) {
        self.close_until(Instant::now() + output::FLUSH_TIME);
    }

    /// Closes the output of the access log after its queued lines have been written, but at the
    /// latest at `deadline`, which all outputs of the process share. Later records are lost.
    pub fn close_until(&self, deadline: Instant) {
        if let Kind::Written { writer, is_closed, .. } = &self.kind {
            is_closed.store(true, Ordering::Relaxed);
            writer.flush(output::left(deadline));
        }
    }

    /// Returns the number of lines that could not be written to the log's output since the log was
    /// opened.
    pub fn lines_lost(&self) -> u64 {
        match &self.kind {
            Kind::Written { writer, .. } => writer.lines_lost(),
            Kind::Read(_) => 0,
        }
    }

    /// Returns the next record of an access log that the application [reads](Self::read), or `None`
    /// if no record is waiting.
    pub fn take(&self) -> Option<OwnedRecord> {
        match &self.kind {
            Kind::Read(queue) => lock(queue).records.pop_front(),
            Kind::Written { .. } => None,
        }
    }

    /// Returns the number of access-log records that were lost since the last call, because the
    /// application did not read them fast enough.
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

#[cfg(test)]
mod tests;
