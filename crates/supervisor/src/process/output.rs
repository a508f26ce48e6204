//! What workers say: lines of all of them through one writer, each with the worker's slot and process before it.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

/// Bytes of a line; a longer one is told in parts.
const MOST_LINE: usize = 64 << 10;

/// Pieces that wait to be written, each what one read brought: past that they are lost, and counted. A worker whose output is not
/// read would stand still.
const WAITING: usize = 1024;

/// Where lines go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sink {
    /// To this process's standard output.
    Stdout,
    /// To its standard error.
    Stderr,
}

/// Lines, and where they go.
type Lot = (Sink, Vec<u8>);

/// The writer, on a thread of its own, which may have to wait.
#[derive(Debug)]
pub(crate) struct Output {
    lines: Mutex<Option<SyncSender<Lot>>>,
    lost: Arc<AtomicU64>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Output {
    /// A writer to this process's own output.
    pub(crate) fn start() -> io::Result<Arc<Output>> {
        Output::to(|sink, lines| {
            // One that is closed takes nothing; what is served goes on.
            let _ = match sink {
                Sink::Stdout => write_all(io::stdout().lock(), lines),
                Sink::Stderr => write_all(io::stderr().lock(), lines),
            };
        })
    }

    fn to(write: impl Fn(Sink, &[u8]) + Send + 'static) -> io::Result<Arc<Output>> {
        let (lines, waiting) = mpsc::sync_channel(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let theirs = Arc::clone(&lost);
        let writer = std::thread::Builder::new()
            .name("rookery-output".to_owned())
            .spawn(move || run(&waiting, &theirs, &write))?;
        Ok(Arc::new(Output { lines: Mutex::new(Some(lines)), lost, writer: Mutex::new(Some(writer)) }))
    }

    fn send(&self, sink: Sink, lines: Vec<u8>) {
        let count = lines.split(|byte| *byte == b'\n').count() - 1;
        let sender = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let is_lost = sender.as_ref().is_none_or(|sender| sender.try_send((sink, lines)).is_err());
        if is_lost {
            self.lost.fetch_add(count as u64, Ordering::Relaxed);
        }
    }

    /// Writes what waits, and ends.
    pub(crate) fn finish(&self) {
        drop(self.lines.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(writer) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // Its panic has been told.
            let _ = writer.join();
        }
    }
}

fn write_all(mut out: impl Write, lines: &[u8]) -> io::Result<()> {
    out.write_all(lines)?;
    out.flush()
}

fn run(waiting: &Receiver<Lot>, lost: &AtomicU64, write: &impl Fn(Sink, &[u8])) {
    for (sink, lines) in waiting {
        write(sink, &lines);
        let count = lost.swap(0, Ordering::Relaxed);
        if count > 0 {
            write(Sink::Stderr, format!("rookery: {count} lines of workers were lost here\n").as_bytes());
        }
    }
}

/// Passes on what a worker writes until its end, or that of the last that has it.
pub(crate) async fn pass_on(output: Arc<Output>, sink: Sink, mut pipe: pipe::Receiver, prefix: String) {
    let mut lines = Lines::new(prefix.into_bytes());
    let mut read = Vec::with_capacity(MOST_LINE);
    loop {
        read.clear();
        // An error is no end that could be told from one.
        let n = pipe.read_buf(&mut read).await.unwrap_or(0);
        let whole = if n == 0 { lines.end() } else { lines.take(&read) };
        if !whole.is_empty() {
            output.send(sink, whole);
        }
        if n == 0 {
            return;
        }
    }
}

/// Bytes made lines, each with a prefix.
#[derive(Debug)]
struct Lines {
    prefix: Vec<u8>,
    /// The beginning of a line whose end has not come.
    begun: Vec<u8>,
}

impl Lines {
    fn new(prefix: Vec<u8>) -> Lines {
        Lines { prefix, begun: Vec::new() }
    }

    /// The lines that end in `bytes`.
    fn take(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut whole = Vec::new();
        while !bytes.is_empty() {
            let room = MOST_LINE - self.begun.len();
            let end = bytes.iter().take(room).position(|byte| *byte == b'\n');
            let line;
            (line, bytes) = match end {
                Some(end) => (&bytes[..end], &bytes[end + 1..]),
                None if bytes.len() >= room => bytes.split_at(room),
                None => {
                    self.begun.extend_from_slice(bytes);
                    break;
                }
            };
            self.finish(line, &mut whole);
        }
        whole
    }

    /// The line whose end does not come.
    fn end(&mut self) -> Vec<u8> {
        let mut whole = Vec::new();
        if !self.begun.is_empty() {
            self.finish(b"", &mut whole);
        }
        whole
    }

    fn finish(&mut self, line: &[u8], whole: &mut Vec<u8>) {
        for part in [&self.prefix, &self.begun, line, b"\n"] {
            whole.extend_from_slice(part);
        }
        self.begun.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> Lines {
        Lines::new(b"[1] ".to_vec())
    }

    #[test]
    fn lines_are_whole_whatever_comes_at_once() {
        let text = b"a\n\nbc\xff\xfe\nd";
        for step in 1..text.len() {
            let mut lines = lines();
            let mut all: Vec<u8> = text.chunks(step).flat_map(|bytes| lines.take(bytes)).collect();
            all.extend(lines.end());
            assert_eq!(all, b"[1] a\n[1] \n[1] bc\xff\xfe\n[1] d\n", "{step}");
        }
        assert!(lines().end().is_empty());
    }

    #[test]
    fn a_line_without_end_is_told_in_parts() {
        let mut lines = lines();
        let all = lines.take(&vec![b'x'; 2 * MOST_LINE + 5]);
        assert_eq!(all.len(), 2 * (MOST_LINE + 5));
        assert!(lines.begun.len() == 5 && all.ends_with(b"x\n"));
        // One that fits to the last byte is one.
        lines = Lines::new(Vec::new());
        let exact = [vec![b'y'; MOST_LINE - 1], b"\n".to_vec()].concat();
        assert_eq!(lines.take(&exact), exact);
    }

    #[test]
    fn what_a_slow_reader_does_not_take_is_counted() {
        let (go, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let written = Arc::new(Mutex::new(Vec::new()));
        let theirs = Arc::clone(&written);
        let output = Output::to(move |sink, lines| {
            let _ = wait.lock().unwrap().recv();
            theirs.lock().unwrap().push((sink, lines.to_vec()));
        })
        .unwrap();
        // One is being written, and one more than may wait.
        for _ in 0..WAITING + 2 {
            output.send(Sink::Stdout, b"one\ntwo\n".to_vec());
        }
        drop(go);
        output.finish();
        let written = written.lock().unwrap();
        let told: Vec<_> = written.iter().filter(|(sink, _)| *sink == Sink::Stderr).collect();
        assert_eq!(told.len(), 1);
        let lost = String::from_utf8_lossy(&told[0].1);
        // Whether the writer had taken the first by then is not known.
        assert!(lost.contains(": 2 lines") || lost.contains(": 4 lines"), "{lost}");
    }
}
