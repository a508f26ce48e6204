//! The standard output and the standard error of this process. Their readers may stop reading, so
//! each stream has one [`LineWriter`], through which this process writes everything.

use std::io::{self, Write};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant};

pub use super::line_writer::{LineWriter, lines_lost};

/// How long a process waits at its end for outputs that accept no data.
pub const FLUSH_TIME: Duration = Duration::from_secs(1);
/// How long an output is waited for when that time is over: one that accepts data needs no longer.
const LEAST_TIME: Duration = Duration::from_millis(50);
/// How long a panic waits until it has been written, since an abort may follow.
const PANIC_TIME: Duration = Duration::from_millis(200);

static STDOUT: Stream = Stream::new(libc::STDOUT_FILENO, "# ");
static STDERR: Stream = Stream::new(libc::STDERR_FILENO, "rookery: ");

/// Returns the writer of the standard output.
pub fn stdout() -> &'static LineWriter {
    STDOUT.writer()
}

/// Returns the writer of the standard error.
pub fn stderr() -> &'static LineWriter {
    STDERR.writer()
}

/// Waits until both streams have taken what was written to them, for a second in all at most. To be
/// called before the process ends or becomes another program.
pub fn flush() {
    flush_until(Instant::now() + FLUSH_TIME);
}

/// Waits until both streams have taken what was written to them, until a deadline that all outputs
/// of the process share.
pub fn flush_until(deadline: Instant) {
    for stream in [&STDOUT, &STDERR] {
        if let Some(writer) = stream.started() {
            writer.flush(left(deadline));
        }
    }
}

/// Returns how long an output is waited for until a deadline that several share: one that stands
/// still uses up all of the time, and the next one gets a moment nevertheless.
pub(super) fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(LEAST_TIME)
}

/// Has panics written through [`stderr`], so that a panic does not block on its message either.
pub fn write_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("<unnamed>");
        stderr().write(format!("thread '{name}' {panic}\n").as_bytes());
        let trace = std::backtrace::Backtrace::capture();
        if trace.status() == std::backtrace::BacktraceStatus::Captured {
            stderr().write(format!("{trace}\n").as_bytes());
        }
        stderr().flush(PANIC_TIME);
    }));
}

/// One of the standard streams, whose writer is started when it is first used.
struct Stream {
    descriptor: libc::c_int,
    prefix: &'static str,
    current: AtomicPtr<Started>,
}

/// A writer, and the process that has its thread: a forked child has the memory without the thread.
struct Started {
    process: u32,
    /// `false` for a writer that drops every line because its thread could not be started.
    has_thread: bool,
    writer: LineWriter,
}

impl Stream {
    const fn new(descriptor: libc::c_int, prefix: &'static str) -> Stream {
        Stream { descriptor, prefix, current: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Returns what this process has started.
    fn current(&self) -> Option<&'static Started> {
        // SAFETY: null, or what `writer_from` has leaked, which stays for ever.
        let started: &'static Started = unsafe { self.current.load(Ordering::Acquire).as_ref() }?;
        (started.process == std::process::id()).then_some(started)
    }

    /// Returns the writer of this process, if it has been started.
    fn started(&self) -> Option<&'static LineWriter> {
        self.current().filter(|started| started.has_thread).map(|started| &started.writer)
    }

    fn writer(&self) -> &'static LineWriter {
        self.writer_from(|| LineWriter::start(Descriptor(self.descriptor), self.prefix))
    }

    /// Returns the writer of this process, which `start` starts if there is none. If the thread
    /// cannot be started now, lines are dropped, and the next use tries again.
    fn writer_from(&self, start: impl Fn() -> io::Result<LineWriter>) -> &'static LineWriter {
        loop {
            let before = self.current.load(Ordering::Acquire);
            let known = self.current();
            if let Some(Started { has_thread: true, writer, .. }) = known {
                return writer;
            }
            let (writer, has_thread) = match (start(), known) {
                (Ok(writer), _) => (writer, true),
                (Err(_), Some(known)) => return &known.writer,
                (Err(_), None) => (LineWriter::without_output(), false),
            };
            let started = Started { process: std::process::id(), has_thread, writer };
            let new = Box::into_raw(Box::new(started));
            match self.current.compare_exchange(before, new, Ordering::AcqRel, Ordering::Acquire) {
                // At most two are leaked for each process that has forked from this one without
                // becoming a program.
                // SAFETY: it was leaked above, and nobody frees it.
                Ok(_) => return unsafe { &(*new).writer },
                // SAFETY: another thread was first, so nobody else has seen this one.
                Err(_) => drop(unsafe { Box::from_raw(new) }),
            }
        }
    }
}

/// A file descriptor that is written to, and that is not closed on drop.
struct Descriptor(libc::c_int);

impl Write for Descriptor {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            // SAFETY: the pointer and the length are those of `bytes`. A closed descriptor is an
            // error.
            let written = unsafe { libc::write(self.0, bytes.as_ptr().cast(), bytes.len()) };
            if let Ok(written) = usize::try_from(written) {
                return Ok(written);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::WouldBlock {
                return Err(error);
            }
            // Another process may have made the terminal or pipe that both have non-blocking.
            let mut room = libc::pollfd { fd: self.0, events: libc::POLLOUT, revents: 0 };
            // SAFETY: one descriptor to wait for.
            unsafe { libc::poll(&raw mut room, 1, -1) };
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::*;

    /// An output that hands what is written to the test.
    struct Lines(std::sync::mpsc::Sender<Vec<u8>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.send(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_writer_whose_thread_could_not_be_started_is_started_at_a_later_use() {
        // Writers live as long as the process, so that a leak checker has to find them from a static.
        static STREAM: Stream = Stream::new(-1, "");
        static FIRST: OnceLock<&LineWriter> = OnceLock::new();
        let stream = &STREAM;
        let fails = || Err(io::ErrorKind::WouldBlock.into());
        let first = *FIRST.get_or_init(|| stream.writer_from(fails));
        first.write(b"one\ntwo\n");
        assert_eq!(first.lines_lost(), 2);
        // Nothing is leaked for each failure.
        assert!(std::ptr::eq(first, stream.writer_from(fails)));
        assert!(stream.started().is_none());
        let (taken, lines) = std::sync::mpsc::channel();
        stream.writer_from(|| LineWriter::start(Lines(taken.clone()), "")).write(b"three\n");
        assert_eq!(lines.recv().unwrap(), b"three\n");
        // From now on it is the writer.
        let known: *const LineWriter = stream.started().unwrap();
        assert!(std::ptr::eq(known, stream.writer_from(fails)));
    }
}
