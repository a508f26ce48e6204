//! The writers of this process's standard output and standard error. The programs that read these
//! streams may stop reading. Each stream is therefore written only through a [`LineWriter`], which
//! never blocks its callers.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant};

use super::json_lines::write_messages;
pub use super::json_lines::{
    Level, MAX_MESSAGE, Origin, is_json, piece_len, set_json, write_message,
};
pub use super::line_writer::{LineWriter, lines_lost};
pub use super::output_lines::{LineStyle, OutputLines};
use super::standard_stream::StandardStream;

/// The maximum time for which an ending process waits until its log outputs have accepted the
/// remaining lines.
pub const FLUSH_TIME: Duration = Duration::from_secs(1);
/// The minimum time that each log output gets to accept its remaining lines, even if the deadline
/// that all outputs share has passed.
const LEAST_TIME: Duration = Duration::from_millis(50);
/// The maximum time for which a panicking thread waits until its panic message is written. It waits
/// because the process may be aborted afterwards.
const PANIC_TIME: Duration = Duration::from_millis(200);

static STDOUT: Stream = Stream::new(StandardStream::Output, "# ");
static STDERR: Stream = Stream::new(StandardStream::Error, "rookery: ");

/// Returns the line writer of the process's standard output.
pub fn stdout() -> &'static LineWriter {
    STDOUT.writer()
}

/// Returns the line writer of the process's standard error.
pub fn stderr() -> &'static LineWriter {
    STDERR.writer()
}

/// Logs a line to standard error: with the prefix `rookery:`, or as a JSON object. Can be called on
/// any thread, and never blocks, even if standard error is a full pipe.
pub fn log(level: Level, line: &str) {
    if is_json() {
        print(level, line);
    } else {
        stderr().write(format!("rookery: {line}\n").as_bytes());
    }
}

/// Writes the lines of a text to standard error, as they are or as JSON objects. Can be called on
/// any thread, and never blocks, even if standard error is a full pipe.
pub fn print(level: Level, text: &str) {
    if is_json() {
        let mut lines = Vec::new();
        write_messages(level, text, &mut lines);
        stderr().write(&lines);
    } else {
        stderr().write(format!("{text}\n").as_bytes());
    }
}

/// Waits until standard output and standard error have accepted all lines, but at most one second
/// in total. Must be called before the process ends or executes another program.
pub fn flush() {
    flush_until(Instant::now() + FLUSH_TIME);
}

/// Waits until standard output and standard error have accepted all lines, but at most until a
/// deadline that all outputs of the process share.
pub fn flush_until(deadline: Instant) {
    for stream in [&STDOUT, &STDERR] {
        if let Some(writer) = stream.started() {
            writer.flush(left(deadline));
        }
    }
}

/// Returns the time that remains for a log output until `deadline`, which several outputs share. It
/// is at least [`LEAST_TIME`], because an earlier output that accepts no data may have used up the
/// whole time.
pub(super) fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(LEAST_TIME)
}

/// Installs a panic hook that writes panic messages through [`stderr`], so that a panicking thread
/// does not block if standard error accepts no data.
pub fn write_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("<unnamed>");
        print(Level::Error, &format!("thread '{name}' {panic}"));
        let trace = std::backtrace::Backtrace::capture();
        if trace.status() == std::backtrace::BacktraceStatus::Captured {
            print(Level::Error, &trace.to_string());
        }
        stderr().flush(PANIC_TIME);
    }));
}

/// Returns true if text for this output should have colour. JSON has no colour. `NO_COLOR` turns
/// colour off, and otherwise `CLICOLOR_FORCE` turns it on. Without these variables, text has colour
/// if the output is a terminal.
pub fn is_coloured(out: &impl IsTerminal) -> bool {
    is_coloured_if(out.is_terminal())
}

/// Returns true if text for an output should have colour, by the rules of [`is_coloured`].
/// `is_terminal` says whether the output is a terminal.
pub fn is_coloured_if(is_terminal: bool) -> bool {
    !is_json() && is_coloured_in(|name| std::env::var(name).ok(), is_terminal)
}

fn is_coloured_in(variable: impl Fn(&str) -> Option<String>, is_terminal: bool) -> bool {
    let text = |name| variable(name).unwrap_or_default();
    if !text("NO_COLOR").is_empty() {
        return false;
    }
    if !matches!(text("CLICOLOR_FORCE").as_str(), "" | "0") {
        return true;
    }
    is_terminal && text("TERM") != "dumb" && text("CLICOLOR") != "0"
}

/// The standard output or standard error of the process, together with its line writer, which is
/// started when it is first used.
struct Stream {
    output: StandardStream,
    prefix: &'static str,
    current: AtomicPtr<Started>,
}

/// A line writer together with the id of the process that started its thread. A forked process
/// inherits the writer's memory but not its thread, so it must recognize by the id that it needs a
/// writer of its own.
struct Started {
    process: u32,
    /// False if the writer's thread could not be started, so that the writer drops every line.
    has_thread: bool,
    writer: LineWriter,
}

impl Stream {
    const fn new(output: StandardStream, prefix: &'static str) -> Stream {
        Stream { output, prefix, current: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Returns the line writer that this process has made for the stream, even if the writer's
    /// thread could not be started. Returns `None` for a writer that was inherited from a parent
    /// process.
    fn current(&self) -> Option<&'static Started> {
        // SAFETY: the pointer is null or from a box that `writer_from` has leaked and that is never
        // freed.
        let started: &'static Started = unsafe { self.current.load(Ordering::Acquire).as_ref() }?;
        (started.process == std::process::id()).then_some(started)
    }

    /// Returns the stream's line writer if this process has successfully started the writer's
    /// thread.
    fn started(&self) -> Option<&'static LineWriter> {
        self.current().filter(|started| started.has_thread).map(|started| &started.writer)
    }

    fn writer(&self) -> &'static LineWriter {
        self.writer_from(|| LineWriter::start(self.output, self.prefix))
    }

    /// Returns the stream's line writer, which is made with `start` if necessary. If its thread
    /// cannot be started, the writer drops all lines, and the next call tries again to start one.
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
                // At most two boxes are leaked in each process. A forked process also inherits
                // those of its parent.
                //
                // SAFETY: `new` was leaked above and is never freed.
                Ok(_) => return unsafe { &(*new).writer },
                // SAFETY: another thread has stored its writer first, so that no other code has
                // this pointer.
                Err(_) => drop(unsafe { Box::from_raw(new) }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::OnceLock;

    use super::*;

    /// The test's simulated log output, which sends the written lines to the test.
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
        // The stream is a static variable, because writers are never freed and a leak checker must
        // find a pointer to them.
        static STREAM: Stream = Stream::new(StandardStream::Error, "");
        static FIRST: OnceLock<&LineWriter> = OnceLock::new();
        let stream = &STREAM;
        let fails = || Err(io::ErrorKind::WouldBlock.into());
        let first = *FIRST.get_or_init(|| stream.writer_from(fails));
        first.write(b"one\ntwo\n");
        assert_eq!(first.lines_lost(), 2);
        // A failed start leaks nothing.
        assert!(std::ptr::eq(first, stream.writer_from(fails)));
        assert!(stream.started().is_none());
        let (taken, lines) = std::sync::mpsc::channel();
        stream.writer_from(|| LineWriter::start(Lines(taken.clone()), "")).write(b"three\n");
        assert_eq!(lines.recv().unwrap(), b"three\n");
        // The thread was started, so that this is the writer from now on.
        let known: *const LineWriter = stream.started().unwrap();
        assert!(std::ptr::eq(known, stream.writer_from(fails)));
    }

    #[test]
    fn uses_colour_on_terminals_unless_variables_say_otherwise() {
        let is_coloured = |set: &[(&str, &str)], is_terminal| {
            let find = |name: &str| {
                set.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned())
            };
            is_coloured_in(find, is_terminal)
        };
        for (set, on_terminal, elsewhere) in [
            (&[][..], true, false),
            (&[("NO_COLOR", "1")], false, false),
            (&[("NO_COLOR", "")], true, false),
            (&[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")], false, false),
            (&[("CLICOLOR_FORCE", "1")], true, true),
            (&[("CLICOLOR_FORCE", "0")], true, false),
            (&[("CLICOLOR", "0")], false, false),
            (&[("TERM", "dumb")], false, false),
        ] {
            assert_eq!(is_coloured(set, true), on_terminal, "{set:?}");
            assert_eq!(is_coloured(set, false), elsewhere, "{set:?}");
        }
    }
}
