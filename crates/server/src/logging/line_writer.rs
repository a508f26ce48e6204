//! A writer of lines to a file, pipe or terminal that may stop accepting data.
//!
//! - Writing a line only appends it to a buffer in memory. A separate thread writes the buffer to
//!   the output. If a disk hangs, a terminal is stopped with Ctrl-S, or no process reads a pipe,
//!   only that thread blocks.
//! - Lines are dropped when more than [`BUFFER_BYTES`] are buffered, or when the output refuses
//!   them, as a full disk does. Once the output accepts lines again, the number of dropped lines is
//!   written to it.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use rookery_system::lock;
use rookery_system::signals::with_signals_blocked;

use super::json_lines::{Level, is_json, write_messages};

/// The maximum number of bytes that a [`LineWriter`] buffers. They are about 10,000 lines, as many
/// as a server under full load logs in a tenth of a second.
pub(crate) const BUFFER_BYTES: usize = 1 << 20;
/// The time for which a [`LineWriter`] collects lines between two writes to its output. It limits
/// the number of writes and wake-ups to 100 per second.
const GATHER: Duration = Duration::from_millis(10);

/// The number of log lines that all [`LineWriter`]s of this process have dropped.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Returns the number of log lines that all [`LineWriter`]s of this process have dropped.
pub fn lines_lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// A writer with a bounded buffer of lines and a thread that writes them to an output. Clones share
/// the buffer and the thread. When the last clone is dropped, the thread writes the remaining lines
/// and ends.
#[derive(Debug, Clone)]
pub struct LineWriter(Arc<Handle>);

impl LineWriter {
    /// Makes a line writer and starts its thread, which writes the lines to `out`. If lines have
    /// been dropped, the thread also writes a line that begins with `prefix` and reports their
    /// number.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub fn start(out: impl Write + Send + 'static, prefix: &'static str) -> io::Result<LineWriter> {
        LineWriter::start_with(out, Some(prefix))
    }

    /// Makes a line writer whose line about dropped lines is a JSON object.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub fn start_json(out: impl Write + Send + 'static) -> io::Result<LineWriter> {
        LineWriter::start_with(out, None)
    }

    fn start_with(
        out: impl Write + Send + 'static,
        prefix: Option<&'static str>,
    ) -> io::Result<LineWriter> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        with_signals_blocked(|| {
            let named = thread::Builder::new().name("rookery-log".into());
            named.spawn(move || write_lines(&theirs, out, prefix))
        })?;
        Ok(LineWriter(Arc::new(Handle(shared))))
    }

    /// Returns a writer that drops every line, for use when no thread can be started.
    pub(super) fn without_output() -> LineWriter {
        let shared = Shared::default();
        lock(&shared.state).is_closed = true;
        LineWriter(Arc::new(Handle(Arc::new(shared))))
    }

    /// Queues complete lines, each of which ends in a line feed, for writing. Never blocks on the
    /// output.
    pub fn write(&self, lines: &[u8]) {
        // An empty batch does not wake the thread, so a flush would wait for it in vain.
        if lines.is_empty() {
            return;
        }
        if !self.push(|buffer| buffer.extend_from_slice(lines)) {
            self.lose(lines.split(|byte| *byte == b'\n').count() as u64 - 1);
        }
    }

    /// Queues one line for writing. `write` appends the line to the buffer that it is called with.
    /// Never blocks on the output.
    ///
    /// # Allocation
    /// No memory is allocated once the buffers have grown.
    pub fn write_line(&self, write: impl FnOnce(&mut Vec<u8>)) {
        if !self.push(write) {
            self.lose(1);
        }
    }

    fn push(&self, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        let shared = &self.0.0;
        let mut state = lock(&shared.state);
        if state.is_closed || state.lines.len() >= BUFFER_BYTES {
            return false;
        }
        write(&mut state.lines);
        state.pushed += 1;
        if std::mem::take(&mut state.is_idle) {
            drop(state);
            shared.changed.notify_all();
        }
        true
    }

    fn lose(&self, count: u64) {
        self.0.0.lose(count);
        lock(&self.0.0.state).lost += count;
    }

    /// Waits until the output has accepted or refused all lines that were queued before this call,
    /// but no longer than `within`. Returns false if the time was not enough.
    pub fn flush(&self, within: Duration) -> bool {
        let shared = &self.0.0;
        let deadline = Instant::now() + within;
        let mut state = lock(&shared.state);
        let wanted = state.pushed;
        state.flushing += 1;
        shared.changed.notify_all();
        let is_flushed = loop {
            if state.written >= wanted {
                break true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break false;
            }
            (state, _) =
                shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        };
        state.flushing -= 1;
        is_flushed
    }

    /// Returns the number of lines that this writer has dropped.
    pub fn lines_lost(&self) -> u64 {
        self.0.0.lost.load(Ordering::Relaxed)
    }
}

/// The handle that all clones of a [`LineWriter`] share. When the last clone is dropped, this
/// handle closes the buffer.
#[derive(Debug)]
struct Handle(Arc<Shared>);

impl Drop for Handle {
    /// Tells the writer's thread to write the buffered lines and end. Does not wait for the thread.
    fn drop(&mut self) {
        lock(&self.0.state).is_closed = true;
        self.0.changed.notify_all();
    }
}

/// The state that the callers of a [`LineWriter`] share with its thread, including the buffer.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// The number of lines that this writer has dropped.
    lost: AtomicU64,
}

impl Shared {
    fn lose(&self, count: u64) {
        self.lost.fetch_add(count, Ordering::Relaxed);
        LOST.fetch_add(count, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<u8>,
    /// The number of dropped lines that the writer's thread does not know of yet.
    lost: u64,
    /// The number of calls of [`LineWriter::write`] and [`LineWriter::write_line`] whose lines were
    /// queued.
    pushed: u64,
    /// The number of write calls whose queued lines the output has accepted or refused. Refused
    /// lines count too, because [`LineWriter::flush`] must not wait for them.
    written: u64,
    /// The number of calls of [`LineWriter::flush`] that are waiting now.
    flushing: u32,
    is_closed: bool,
    /// True if the writer's thread sleeps until it is notified.
    is_idle: bool,
}

/// Runs the thread of a [`LineWriter`], which writes queued lines to `out`.
fn write_lines(shared: &Shared, mut out: impl Write, prefix: Option<&str>) {
    let mut lines = Vec::new();
    // The number of dropped lines that have not been reported in the output yet.
    let mut missing = 0;
    // True if the output accepted only a part of the last line. The next write begins with a line
    // feed to end that line.
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
        let (is_last, pushed) = (state.is_closed, state.pushed);
        drop(state);
        let note = lines.len();
        if missing > 0 {
            let note = format!("{missing} lines were lost: the output failed or was too slow");
            match prefix {
                Some(prefix) if !is_json() => {
                    let _ = writeln!(lines, "{prefix}{note}");
                }
                _ => write_messages(Level::Warning, &note, &mut lines),
            }
        }
        is_cut = is_cut && write_some(&mut out, b"\n") == 0;
        // The server continues if the output cannot be written, for example because a disk is full
        // or a pipe has no reader.
        let written = if is_cut { 0 } else { write_some(&mut out, &lines) };
        if written == lines.len() {
            missing = 0;
        } else {
            let refused =
                lines[written.min(note)..note].split(|byte| *byte == b'\n').count() as u64 - 1;
            shared.lose(refused);
            missing += refused;
            is_cut |= written > 0 && lines[written - 1] != b'\n';
        }
        lines.clear();
        let mut state = lock(&shared.state);
        state.written = pushed;
        if state.flushing > 0 {
            shared.changed.notify_all();
        }
        if is_last {
            return;
        }
        if !state.is_closed && state.flushing == 0 {
            // Only `flush` and the drop of the last clone end this wait early, because `is_idle` is
            // false.
            drop(shared.changed.wait_timeout(state, GATHER));
        }
    }
}

/// Writes `lines` to the output, and returns the number of bytes that the output accepted.
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
    // An error is ignored, because the number of accepted bytes is already known.
    let _ = out.flush();
    written
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// The test's simulated log output. Each write sends its bytes to the test, and then blocks
    /// until the test lets it return.
    struct Gate {
        written: mpsc::Sender<Vec<u8>>,
        go_on: mpsc::Receiver<()>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.written.send(bytes.to_vec());
            // `recv` fails once the test has dropped its end of the channel. From that time, writes
            // succeed at once.
            let _ = self.go_on.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn writing_to_an_output_that_stands_still_drops_whole_lines_and_counts_them() {
        let (written, reads) = mpsc::channel();
        let (go, go_on) = mpsc::channel();
        let writer = LineWriter::start(Gate { written, go_on }, "told: ").unwrap();
        writer.write(b"first\n");
        // The thread is now blocked in the write.
        assert_eq!(reads.recv().unwrap(), b"first\n");
        let before = lines_lost();
        let kilobyte = [&[b'x'; 1023][..], b"\n"].concat();
        for _ in 0..BUFFER_BYTES / kilobyte.len() {
            writer.write(&kilobyte);
        }
        writer.write(b"two\nlines\n");
        assert_eq!(writer.lines_lost(), 2);
        assert!(lines_lost() >= before + 2);
        assert!(!writer.flush(Duration::from_millis(20)));
        drop(go);
        assert!(writer.flush(Duration::from_secs(60)));
        let rest: Vec<u8> = reads.try_iter().flatten().collect();
        assert!(rest.starts_with(&kilobyte));
        assert!(rest.ends_with(b"\ntold: 2 lines were lost: the output failed or was too slow\n"));
        assert_eq!(rest.len() / kilobyte.len(), BUFFER_BYTES / kilobyte.len());
    }

    #[test]
    fn a_flush_waits_for_what_was_queued_before_it_and_for_nothing_that_comes_later() {
        let (written, reads) = mpsc::channel();
        let (go, go_on) = mpsc::channel();
        let writer = LineWriter::start(Gate { written, go_on }, "").unwrap();
        assert!(writer.flush(Duration::ZERO), "nothing was queued");
        writer.write(b"before\n");
        let flushing = thread::spawn({
            let writer = writer.clone();
            move || writer.flush(Duration::from_secs(60))
        });
        assert_eq!(reads.recv().unwrap(), b"before\n");
        // The test waits until the flush has begun, because a flush also waits for all lines that
        // were queued before it.
        while lock(&writer.0.0.state).flushing == 0 {
            thread::yield_now();
        }
        writer.write(b"later\n");
        go.send(()).unwrap();
        assert!(flushing.join().unwrap());
        // The thread is writing the line that was queued later, and the write has not returned.
        assert_eq!(reads.recv().unwrap(), b"later\n");
        assert!(!writer.flush(Duration::from_millis(20)));
        drop(go);
    }

    #[test]
    fn a_flush_does_not_wait_after_no_lines() {
        let writer = LineWriter::start(io::sink(), "").unwrap();
        writer.write(b"line\n");
        assert!(writer.flush(Duration::from_secs(60)));
        writer.write(b"");
        assert!(writer.flush(Duration::ZERO));
    }

    #[test]
    fn the_last_clone_leaves_a_thread_that_writes_what_waits_and_ends() {
        let (written, reads) = mpsc::channel();
        let (go, go_on) = mpsc::channel();
        let writer = LineWriter::start(Gate { written, go_on }, "").unwrap();
        writer.write(b"first\n");
        assert_eq!(reads.recv().unwrap(), b"first\n");
        writer.write(b"last\n");
        drop(writer);
        drop(go);
        // The channel closes when the thread ends.
        assert_eq!(reads.iter().collect::<Vec<_>>(), [b"last\n"]);
    }
}
