//! Lines on their way to a file, a pipe or a terminal that may stop taking them.
//!
//! A call that writes a line only appends it to a buffer in memory; a thread of the writer writes
//! the buffer to the output. A disk that hangs, a terminal after Ctrl-S or a pipe that nobody
//! reads therefore blocks that thread and no other. Past [`BUFFER_BYTES`] lines are dropped, and so
//! are lines that the output refuses, as a full disk does. Dropped lines are counted, and the count
//! is written once the output takes lines again.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use rookery_system::signals::with_signals_blocked;

/// How many bytes may wait to be written: about 10,000 lines, a tenth of a second under full load.
pub(crate) const BUFFER_BYTES: usize = 1 << 20;
/// The writer gathers lines for this long before it writes again: at most 100 writes (and wake-ups)
/// a second.
const GATHER: Duration = Duration::from_millis(10);

/// Lines that all writers of this process have dropped.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Returns how many lines this process has dropped, whichever writer they were for.
pub fn lines_lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// A bounded buffer of lines and the thread that writes them. Clones share both; the thread writes
/// what is left and ends when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct LineWriter(Arc<Handle>);

impl LineWriter {
    /// Starts the thread that writes to `out`. `prefix` begins the line that tells how many were
    /// dropped.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(out: impl Write + Send + 'static, prefix: &'static str) -> io::Result<LineWriter> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        with_signals_blocked(|| {
            let named = thread::Builder::new().name("rookery-log".into());
            named.spawn(move || write_lines(&theirs, out, prefix))
        })?;
        Ok(LineWriter(Arc::new(Handle(shared))))
    }

    /// Returns a writer that drops every line, for a system that starts no more threads.
    pub(super) fn without_output() -> LineWriter {
        let shared = Shared::default();
        lock(&shared.state).is_closed = true;
        LineWriter(Arc::new(Handle(Arc::new(shared))))
    }

    /// Queues `lines`, each with its end. Never blocks on the output.
    pub fn write(&self, lines: &[u8]) {
        if !self.push(|buffer| buffer.extend_from_slice(lines)) {
            self.lose(lines.split(|byte| *byte == b'\n').count() as u64 - 1);
        }
    }

    /// Queues one line that `write` appends to the buffer. Never blocks on the output.
    ///
    /// # Allocation
    /// None once the buffers have grown.
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

    /// Waits until the output has taken or refused what was queued before this call, but no longer
    /// than `within`. Returns whether it has.
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

    /// Returns how many lines this writer has dropped.
    pub fn lines_lost(&self) -> u64 {
        self.0.0.lost.load(Ordering::Relaxed)
    }
}

/// Closes the buffer when the last clone of a writer is dropped.
#[derive(Debug)]
struct Handle(Arc<Shared>);

impl Drop for Handle {
    /// Makes the thread write the buffered lines, and does not wait for that.
    fn drop(&mut self) {
        lock(&self.0.state).is_closed = true;
        self.0.changed.notify_all();
    }
}

/// The buffer, between those who queue lines and the thread that writes them.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// All lines that this writer has dropped.
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
    /// Dropped lines of which the thread does not know yet.
    lost: u64,
    /// How often lines were queued, and how many of these calls have been written.
    pushed: u64,
    written: u64,
    /// Downstream of `flush` that wait.
    flushing: u32,
    is_closed: bool,
    /// The thread sleeps until it is notified: while it writes or gathers, nobody has to wake it.
    is_idle: bool,
}

/// Runs the thread of a writer.
fn write_lines(shared: &Shared, mut out: impl Write, prefix: &str) {
    let mut lines = Vec::new();
    // Lines that are missing from the output, which does not say so yet.
    let mut missing = 0;
    // Whether the output accepted only a part of the last line; the next write starts after the end
    // of that line.
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
            let _ = writeln!(
                lines,
                "{prefix}{missing} lines were lost: the log could not be written, or not fast enough"
            );
        }
        is_cut = is_cut && write_some(&mut out, b"\n") == 0;
        // An output that cannot be written (a full disk, a reader that has gone) does not end the
        // server.
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
            // Cut short by `flush` and by the last drop only: `is_idle` is false.
            drop(shared.changed.wait_timeout(state, GATHER));
        }
    }
}

/// Writes `lines`, and returns how many bytes the output took.
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded is whole at every point where a panic could happen.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// An output that hands each write to the test and takes it when the test says so.
    struct Gate {
        written: mpsc::Sender<Vec<u8>>,
        go_on: mpsc::Receiver<()>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.written.send(bytes.to_vec());
            // Once the test has dropped its end, writes pass.
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
        // The thread is in its write now, and stays there.
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
        assert!(rest.ends_with(
            b"\ntold: 2 lines were lost: the log could not be written, or not fast enough\n"
        ));
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
        // What is queued before the flush begins would be waited for as well.
        while lock(&writer.0.0.state).flushing == 0 {
            thread::yield_now();
        }
        writer.write(b"later\n");
        go.send(()).unwrap();
        assert!(flushing.join().unwrap());
        // The line that came later is written, but its write has not returned.
        assert_eq!(reads.recv().unwrap(), b"later\n");
        assert!(!writer.flush(Duration::from_millis(20)));
        drop(go);
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
        // The channel closes with the thread.
        assert_eq!(reads.iter().collect::<Vec<_>>(), [b"last\n"]);
    }
}
