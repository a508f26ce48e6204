//! The access log: one line per answered request.
//!
//! The I/O thread formats a line into a buffer in memory and goes on; a thread of the log's own writes what has come
//! together. So a disk or a terminal that does not take lines (Ctrl-S, a full pipe) holds up nobody: past
//! [`BUFFER_BYTES`] lines are lost, and so are those that a full disk refuses. They are counted, and the count is written when the log
//! moves again.
//!
//! A log may instead be read by the application, record by record: then nothing is formatted here.

pub(crate) mod entry;
mod record;

use std::collections::VecDeque;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

pub use self::record::{Format, OwnedRecord, Protocol, Record};
use crate::blocking::thread::with_signals_blocked;

/// What lines may wait to be written: about 10,000 of them, a tenth of a second under full load.
pub const BUFFER_BYTES: usize = 1 << 20;
/// What records may wait for an application that reads them itself; about 1 MiB with ordinary paths.
pub const QUEUE_RECORDS: usize = 4096;
/// The writer gathers lines for this long before it writes again: at most 100 writes (and wake-ups) a second.
const GATHER: Duration = Duration::from_millis(10);
/// How long closing waits for an output that stands still; then what waits is given up.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// Where records go.
#[derive(Debug)]
pub struct AccessLog {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Written { shared: Arc<Shared>, format: Format },
    Read(Mutex<Queue>),
}

impl AccessLog {
    /// A log whose lines are written to `out` by a thread of its own.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn written(out: impl Write + Send + 'static, format: Format) -> io::Result<AccessLog> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        with_signals_blocked(|| {
            thread::Builder::new().name("rookery-log".into()).spawn(move || write_lines(&theirs, out))
        })?;
        Ok(AccessLog { kind: Kind::Written { shared, format } })
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
            Kind::Written { shared, format } => shared.push(record, *format),
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

    /// Ends a written log when what waits has been written, or when the output has stood still for a second. Later
    /// records are lost.
    pub fn close(&self) {
        let Kind::Written { shared, .. } = &self.kind else { return };
        let mut state = lock(&shared.state);
        state.is_closed = true;
        shared.changed.notify_all();
        let deadline = Instant::now() + CLOSE_TIME;
        while !state.is_done {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            (state, _) = shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lines of a written log that were lost since it was opened.
    pub fn lines_lost(&self) -> u64 {
        match &self.kind {
            Kind::Written { shared, .. } => shared.lost.load(Ordering::Relaxed),
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

impl Drop for AccessLog {
    /// What waits is written, but not waited for.
    fn drop(&mut self) {
        if let Kind::Written { shared, .. } = &self.kind {
            lock(&shared.state).is_closed = true;
            shared.changed.notify_all();
        }
    }
}

/// Lines on their way to the writer.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// All lines that were lost.
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<u8>,
    /// Those that the writer has not been told of.
    lost: u64,
    is_closed: bool,
    /// The writer has written its last.
    is_done: bool,
    /// The writer sleeps until it is told: while it writes or gathers, nobody has to wake it.
    is_idle: bool,
}

impl Shared {
    fn push(&self, record: &Record<'_>, format: Format) {
        let mut state = lock(&self.state);
        if state.is_closed {
            return;
        }
        if state.lines.len() >= BUFFER_BYTES {
            state.lost += 1;
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        record.write_line(format, &mut state.lines);
        if std::mem::take(&mut state.is_idle) {
            drop(state);
            self.changed.notify_all();
        }
    }
}

/// The writer's thread.
fn write_lines(shared: &Shared, mut out: impl Write) {
    let mut lines = Vec::new();
    // Lines that are missing, and the log does not say so yet.
    let mut missing = 0;
    // The output took a part of a line: the next begins behind its end.
    let mut is_cut = false;
    loop {
        let mut state = lock(&shared.state);
        while state.lines.is_empty() && state.lost == 0 && !state.is_closed {
            state.is_idle = true;
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_idle = false;
        std::mem::swap(&mut lines, &mut state.lines);
        missing += std::mem::take(&mut state.lost);
        let is_last = state.is_closed;
        drop(state);
        let note = lines.len();
        if missing > 0 {
            let _ = writeln!(
                lines,
                "# {missing} lines were lost: the log could not be written, or not fast enough"
            );
        }
        is_cut = is_cut && write_some(&mut out, b"\n") == 0;
        // A log that cannot be written (a full disk, a reader that has gone) must not end the server.
        let written = if is_cut { 0 } else { write_some(&mut out, &lines) };
        if written == lines.len() {
            missing = 0;
        } else {
            let refused = lines[written.min(note)..note].split(|byte| *byte == b'\n').count() as u64 - 1;
            shared.lost.fetch_add(refused, Ordering::Relaxed);
            missing += refused;
            is_cut |= written > 0 && lines[written - 1] != b'\n';
        }
        lines.clear();
        let mut state = lock(&shared.state);
        if is_last {
            state.is_done = true;
            shared.changed.notify_all();
            return;
        }
        if !state.is_closed {
            // Woken early only by closing: `is_idle` is false.
            drop(shared.changed.wait_timeout(state, GATHER));
        }
    }
}

/// How much of it the output took.
fn write_some(out: &mut impl Write, lines: &[u8]) -> usize {
    let mut written = 0;
    while written < lines.len() {
        match out.write(&lines[written..]) {
            Ok(0) => break,
            Ok(some) => written += some,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    // What it has taken is on its way.
    let _ = out.flush();
    written
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
