//! The conversion of this process's output into JSON objects, for a log of JSON objects without a
//! supervisor. The supervisor converts the output of its workers itself.
//!
//! The standard output and the standard error of the process become pipes, whose other ends a
//! thread reads. The thread never waits for the actual outputs, so printing does not block. When
//! the conversion ends, the thread continues with the output of processes that this process has
//! started and that still have the pipes open. Otherwise, a signal (SIGPIPE) would end them.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError, mpsc};

use rookery_system::signals::with_signals_blocked;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::fcntl_dupfd_cloexec;

use super::json_lines::Origin;
use super::line_writer::LineWriter;
use super::output::FLUSH_TIME;
use super::output_lines::{LineStyle, OutputLines};
use super::standard_stream::StandardStream;

const STREAMS: [StandardStream; 2] = [StandardStream::Output, StandardStream::Error];

/// The number of bytes that are read at once.
const READ_BYTES: usize = 64 << 10;

/// The maximum number of reads of a stream between two checks whether the thread must end. A pipe
/// holds at most 1 MiB by default.
const READS_PER_TURN: usize = 16;

static CAPTURED: Mutex<Option<CapturedOutput>> = Mutex::new(None);

/// The captured output of this process.
struct CapturedOutput {
    process: u32,
    /// The descriptors to which the standard streams referred before.
    saved: [OwnedFd; 2],
    /// The end of a pipe to which a byte is written when the conversion ends. Closing it would not
    /// suffice, because forked processes have copies.
    stop: OwnedFd,
    /// Disconnected by the thread once it has written all that this process has printed.
    written: mpsc::Receiver<()>,
}

/// One captured stream.
struct Stream {
    pipe: File,
    lines: OutputLines,
    to: LineWriter,
    is_open: bool,
}

/// Begins to convert what this process prints, unless that has begun.
///
/// # Errors
/// Returns the system's error if a pipe or the thread cannot be made. The output then stays as it
/// is.
pub fn begin() -> io::Result<()> {
    let mut captured = CAPTURED.lock().unwrap_or_else(PoisonError::into_inner);
    if captured.as_ref().is_some_and(|captured| captured.process == std::process::id()) {
        return Ok(());
    }
    let (mut streams, mut writers, mut saved) = (Vec::new(), Vec::new(), Vec::new());
    for stream in STREAMS {
        let before = duplicate(stream.descriptor())?;
        let to = LineWriter::start_json(File::from(before.try_clone()?))?;
        let (reader, writer) = pipe()?;
        set_nonblocking(&reader)?;
        let origin = Origin { worker: None, pid: std::process::id(), stream: stream.name() };
        let lines = OutputLines::new(LineStyle::Json(origin));
        streams.push(Stream { pipe: File::from(reader), lines, to, is_open: true });
        writers.push(writer);
        saved.push(before);
    }
    let saved = saved.try_into().expect("there are two streams");
    let (stopped, stop) = pipe()?;
    let (is_writing, written) = mpsc::channel();
    with_signals_blocked(|| {
        let named = std::thread::Builder::new().name("rookery-output".to_owned());
        named.spawn(move || {
            pass_on(&mut streams, Some(&stopped));
            flush(&mut streams);
            drop(is_writing);
            pass_on(&mut streams, None);
            flush(&mut streams);
        })
    })?;
    flush_stdio();
    for (writer, stream) in writers.iter().zip(STREAMS) {
        stream.redirect(writer);
    }
    *captured = Some(CapturedOutput { process: std::process::id(), saved, stop, written });
    Ok(())
}

/// Stops the conversion, and waits until all output has been written, for at most two seconds.
pub fn end() {
    let captured = CAPTURED.lock().unwrap_or_else(PoisonError::into_inner).take();
    // A forked process has no thread, and leaves the streams to its parent.
    let Some(captured) = captured.filter(|captured| captured.process == std::process::id()) else {
        return;
    };
    flush_stdio();
    for (before, stream) in captured.saved.iter().zip(STREAMS) {
        stream.redirect(before);
    }
    let _ = File::from(captured.stop).write_all(&[0]);
    // The thread sends nothing.
    let _ = captured.written.recv_timeout(2 * FLUSH_TIME);
}

/// Writes the output of the streams as lines, until `stopped` is readable, or without `stopped`
/// until no process can write to a stream any more.
fn pass_on(streams: &mut [Stream], stopped: Option<&OwnedFd>) {
    let mut buffer = vec![0; READ_BYTES];
    while stopped.is_some() || streams.iter().any(|stream| stream.is_open) {
        let mut polled: Vec<PollFd<'_>> = stopped
            .into_iter()
            .map(AsFd::as_fd)
            .chain(streams.iter().filter(|stream| stream.is_open).map(|stream| stream.pipe.as_fd()))
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let _ = poll(&mut polled, None);
        let has_stopped = stopped.is_some() && !polled[0].revents().is_empty();
        for stream in &mut *streams {
            stream.read_some(&mut buffer);
        }
        if has_stopped {
            break;
        }
    }
}

/// Writes what the streams hold, also an unfinished line, for at most one second each.
fn flush(streams: &mut [Stream]) {
    for stream in streams {
        stream.to.write(&stream.lines.end());
        stream.to.flush(FLUSH_TIME);
    }
}

impl Stream {
    /// Reads what there is, at most [`READS_PER_TURN`] times, and writes the lines that are
    /// complete.
    fn read_some(&mut self, buffer: &mut [u8]) {
        if !self.is_open {
            return;
        }
        for _ in 0..READS_PER_TURN {
            match self.pipe.read(buffer) {
                Ok(0) => return self.is_open = false,
                Ok(n) => {
                    let lines = self.lines.take(&buffer[..n]);
                    if !lines.is_empty() {
                        self.to.write(&lines);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.is_open = false,
            }
        }
    }
}

fn flush_stdio() {
    // SAFETY: a null pointer stands for all output streams of the C library.
    unsafe { libc::fflush(std::ptr::null_mut()) };
}

/// Returns a new descriptor for the open file of a standard stream. It is not inherited by programs
/// that this process starts.
fn duplicate(descriptor: impl AsFd) -> io::Result<OwnedFd> {
    Ok(fcntl_dupfd_cloexec(descriptor, 3)?)
}

/// Returns the reading and the writing end of a new pipe.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = rustix::pipe::pipe()?;
    // A standard stream may have been closed, so that a pipe would get its number.
    Ok((duplicate(reader)?, duplicate(writer)?))
}

fn set_nonblocking(pipe: &OwnedFd) -> io::Result<()> {
    Ok(fcntl_setfl(pipe, OFlags::NONBLOCK)?)
}
