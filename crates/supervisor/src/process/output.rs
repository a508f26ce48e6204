//! Forwards the output of workers. Each line that a worker writes to stdout or stderr is written to
//! the same stream of this process, after a prefix with the worker's number and process id.
//!
//! A worker never blocks on its output, even if nothing reads the output of this process. Lines
//! that do not fit in this process's buffer are then dropped and counted.

use rookery_server::output::LineWriter;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

use super::HeldOutput;

/// The maximum length in bytes of a line of a worker's output. A longer line is split.
const MOST_LINE: usize = 64 << 10;

/// Forwards what a worker writes to stdout or stderr. Returns when the worker and its child
/// processes have closed the stream.
pub(crate) async fn pass_on(
    to: LineWriter,
    mut pipe: pipe::Receiver,
    prefix: String,
    mut kept: HeldOutput,
) {
    let mut lines = Lines::new(prefix.into_bytes());
    let mut read = Vec::with_capacity(MOST_LINE);
    loop {
        read.clear();
        let n = tokio::select! {
            // A read error is treated as the end of the stream, because reading again would not
            // help.
            n = pipe.read_buf(&mut read) => n.unwrap_or(0),
            () = kept.over() => {
                to.write(&kept.release());
                continue;
            }
        };
        let whole = if n == 0 {
            let rest = lines.end();
            [kept.take(b"", rest), kept.ended().await].concat()
        } else {
            let whole = lines.take(&read);
            kept.take(&read, whole)
        };
        if !whole.is_empty() {
            to.write(&whole);
        }
        if n == 0 {
            return;
        }
    }
}

/// A converter that splits a worker's output into lines and adds a prefix to each.
#[derive(Debug)]
struct Lines {
    prefix: Vec<u8>,
    /// The beginning of a line of output whose end has not been read yet.
    begun: Vec<u8>,
}

impl Lines {
    fn new(prefix: Vec<u8>) -> Lines {
        Lines { prefix, begun: Vec::new() }
    }

    /// Adds bytes of a worker's output and returns the lines that are now complete.
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

    /// Returns the unfinished last line of a worker's output, with a newline added. Returns nothing
    /// if the output ended with a newline.
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
        // A line that is exactly as long as the maximum is not split.
        lines = Lines::new(Vec::new());
        let exact = [vec![b'y'; MOST_LINE - 1], b"\n".to_vec()].concat();
        assert_eq!(lines.take(&exact), exact);
    }
}
