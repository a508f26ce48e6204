//! A filter for the output of workers until the first worker is ready. If several workers fail to
//! start, they usually fail for the same reason, so the same output is written only once.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

use tokio::sync::watch;
use tokio::time::{Duration, Instant, timeout_at};

/// The maximum number of bytes of a starting worker's output that are held back. If the output is
/// longer, it is written immediately.
const MOST_HELD: usize = 64 << 10;

/// The maximum time for which the output of a starting worker is held back, so that users see the
/// output even if the start hangs.
const HELD_WITHIN: Duration = Duration::from_secs(10);

/// The maximum time for which a failed worker's output waits until the first worker's output is
/// complete. The outputs are then compared, because equal outputs are written only once.
const FIRST_WITHIN: Duration = Duration::from_millis(1500);
/// The interval between two checks whether the first worker's output has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The maximum length of the app's error message in characters. A longer message is truncated.
const MOST_MESSAGE: usize = 500;

/// The filter for the output of starting workers, which drops the output of a failed start that
/// repeats an earlier one. All tasks that read output share the filter.
#[derive(Debug, Clone, Default)]
pub(crate) struct StartOutput(Rc<Shared>);

#[derive(Debug)]
struct Shared {
    is_over: watch::Sender<bool>,
    starts: RefCell<Starts>,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared { is_over: watch::Sender::new(false), starts: RefCell::default() }
    }
}

#[derive(Debug, Default)]
struct Starts {
    /// Whether the first worker has been started. Its output is never held back.
    is_begun: bool,
    /// Whether the stdout and the stderr of the first worker have been closed.
    has_first_ended: [bool; 2],
    /// The outputs of the failed starts. Digits are removed, so that outputs that differ only in a
    /// process id or a time are recognized as equal.
    said: HashSet<Vec<u8>>,
    message: Option<String>,
}

impl StartOutput {
    /// Returns the two filters for the stdout and stderr of a new worker. They hold the output
    /// back, unless the worker is the first one.
    pub(crate) fn begin(&self) -> [HeldOutput; 2] {
        let is_held = std::mem::replace(&mut self.0.starts.borrow_mut().is_begun, true);
        [false, true].map(|is_stderr| HeldOutput {
            starts: self.clone(),
            over: self.0.is_over.subscribe(),
            is_stderr,
            is_held,
            is_first: !is_held,
            until: Instant::now() + HELD_WITHIN,
            lines: Vec::new(),
            text: Vec::new(),
        })
    }

    /// Stops holding back the output of workers, because a worker is ready.
    pub(crate) fn end(&self) {
        self.0.is_over.send_replace(true);
    }

    /// Returns the app's error message from the last failed start that had one.
    pub(crate) fn message(&self) -> Option<String> {
        self.0.starts.borrow().message.clone()
    }
}

/// The output of one starting worker on stdout or stderr, which is held back until it is known
/// whether it repeats earlier output.
#[derive(Debug)]
pub(crate) struct HeldOutput {
    starts: StartOutput,
    over: watch::Receiver<bool>,
    is_stderr: bool,
    is_held: bool,
    is_first: bool,
    until: Instant,
    /// The worker's output that is held back, as lines with the prefix that the supervisor adds.
    lines: Vec<u8>,
    /// The first [`MOST_HELD`] bytes of the output as the worker wrote it, without the prefix that
    /// the supervisor adds to each line.
    text: Vec<u8>,
}

impl HeldOutput {
    fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Waits until the worker's output need not be held back any longer. Never completes if the
    /// output is not held back.
    pub(crate) async fn over(&mut self) {
        if !self.is_held {
            std::future::pending::<()>().await;
        }
        let _ = timeout_at(self.until, self.over.wait_for(|is_over| *is_over)).await;
    }

    /// Adds bytes that were read from the worker (`read`) and the lines that they complete
    /// (`lines`). Returns the lines that are to be written now.
    pub(crate) fn take(&mut self, read: &[u8], lines: Vec<u8>) -> Vec<u8> {
        if self.is_over() {
            self.text = Vec::new();
            return [self.release(), lines].concat();
        }
        let room = MOST_HELD.saturating_sub(self.text.len());
        self.text.extend_from_slice(&read[..read.len().min(room)]);
        if !self.is_held {
            return lines;
        }
        self.lines.extend_from_slice(&lines);
        if read.len() > room { self.release() } else { Vec::new() }
    }

    /// Returns the worker's output that was held back. Later output is not held back.
    pub(crate) fn release(&mut self) -> Vec<u8> {
        self.is_held = false;
        std::mem::take(&mut self.lines)
    }

    /// Handles the end of a stream (stdout or stderr) of a starting worker. Returns the held-back
    /// output that is still to be written, or nothing if another worker has failed with the same
    /// output. Waits up to [`FIRST_WITHIN`] until the first worker's stream has ended too, so that
    /// the outputs can be compared.
    pub(crate) async fn ended(&mut self) -> Vec<u8> {
        let until = Instant::now() + FIRST_WITHIN;
        while self.is_held && !self.is_over() && Instant::now() < until {
            if self.starts.0.starts.borrow().has_first_ended[usize::from(self.is_stderr)] {
                break;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.end()
    }

    fn end(&mut self) -> Vec<u8> {
        if !self.is_over() {
            let mut starts = self.starts.0.starts.borrow_mut();
            starts.has_first_ended[usize::from(self.is_stderr)] |= self.is_first;
            if self.is_stderr {
                let message = message_of(&String::from_utf8_lossy(&self.text));
                starts.message = message.or(starts.message.take());
            }
            // Process ids, times and addresses differ from start to start.
            let text = self.text.iter().copied().filter(|byte| !byte.is_ascii_digit()).collect();
            if !starts.said.insert(text) && self.is_held {
                self.lines.clear();
            }
        }
        self.release()
    }
}

/// Returns the app's error message in a worker's output on stderr: R's last error, or else the last
/// line.
fn message_of(text: &str) -> Option<String> {
    let lines: Vec<&str> =
        text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let is_error = |line: &&str| line.starts_with("Error") || line.starts_with("rookery: ");
    let message = match lines.iter().rposition(is_error) {
        Some(at) => {
            let behind = [
                "Calls:",
                "Execution halted",
                "In addition:",
                "Backtrace:",
                "Called from:",
                "  at ",
                "  (",
            ];
            let is_behind = |line: &&&str| behind.iter().any(|word| line.starts_with(word));
            // A message of rookery itself has all information in its first line, and the next lines
            // list alternatives. A first line that ends with a colon introduces an error of R.
            let is_ours = lines[at].starts_with("rookery: ") && !lines[at].ends_with(':');
            let most = if is_ours { 1 } else { 4 };
            let all = lines[at..].iter().take_while(|line| !is_behind(line)).take(most);
            let all: Vec<&str> = all.copied().collect();
            // R breaks the line after a long call.
            all.join("\n").replace(" : \n  ", ": ").replace(" :\n  ", ": ")
        }
        None => lines.last()?.to_string(),
    };
    let message = message.strip_prefix("rookery: ").unwrap_or(&message);
    Some(message.chars().take(MOST_MESSAGE).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a failed start whose worker wrote `text` to stderr. Returns the lines that are
    /// written for it.
    fn failed(starts: &StartOutput, text: &str) -> String {
        let [_, mut kept] = starts.begin();
        let mut all = kept.take(text.as_bytes(), text.as_bytes().to_vec());
        all.extend(kept.end());
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn a_failure_is_written_once_however_many_starts_it_ends() {
        let starts = StartOutput::default();
        let text = "12:00 loading\nError in f() : no database\nCalls: f\nExecution halted\n";
        assert_eq!(failed(&starts, text), text);
        for _ in 0..3 {
            assert_eq!(failed(&starts, &text.replace("12:00", "13:07")), "");
        }
        assert_eq!(starts.message().unwrap(), "Error in f() : no database");
        assert_eq!(failed(&starts, "Error: another\n"), "Error: another\n");
        assert_eq!(starts.message().unwrap(), "Error: another");
        // A start without output does not change the message.
        assert_eq!(failed(&starts, ""), "");
        assert_eq!(starts.message().unwrap(), "Error: another");
    }

    #[test]
    fn what_is_held_back_is_written_when_a_worker_is_ready() {
        let starts = StartOutput::default();
        let [_first, mut kept] = [starts.begin(), starts.begin()].map(|[_, kept]| kept);
        assert!(kept.take(b"a\n", b"[1 2] a\n".to_vec()).is_empty());
        starts.end();
        assert_eq!(kept.take(b"b\n", b"[1 2] b\n".to_vec()), b"[1 2] a\n[1 2] b\n");
        assert!(kept.end().is_empty() && kept.text.is_empty());
        let [_, mut late] = starts.begin();
        assert_eq!(late.take(b"c\n", b"c\n".to_vec()), b"c\n");
    }

    #[test]
    fn no_more_than_a_limit_is_held_back() {
        let starts = StartOutput::default();
        let [_first, mut kept] = [starts.begin(), starts.begin()].map(|[_, kept]| kept);
        let much = vec![b'x'; MOST_HELD];
        assert!(kept.take(&much, much.clone()).is_empty());
        assert_eq!(kept.take(b"y", b"y".to_vec()).len(), MOST_HELD + 1);
        assert_eq!(kept.take(b"z", b"z".to_vec()), b"z");
        assert_eq!(kept.text.len(), MOST_HELD);
    }

    #[test]
    fn the_message_is_rs_last_error_or_else_the_last_line() {
        for (text, message) in [
            ("", None),
            ("\n\n", None),
            ("starting\nno such file\n", Some("no such file")),
            (
                "Error in library(x) : \n  no package\nExecution halted\n",
                Some("Error in library(x): no package"),
            ),
            ("Error: a\nb\nCalls: f -> g\n", Some("Error: a\nb")),
            ("Error: first\nError: second\n", Some("Error: second")),
            ("rookery: `x` cannot be served.\nLooked for:\n", Some("`x` cannot be served.")),
            (
                "rookery: `x` is not valid R:\n1: a(\n   ^\n",
                Some("`x` is not valid R:\n1: a(\n   ^"),
            ),
            (
                "Error in f(): no\n  (3 calls that have led to the app are not shown)\n",
                Some("Error in f(): no"),
            ),
        ] {
            assert_eq!(message_of(text).as_deref(), message, "{text:?}");
        }
        assert_eq!(message_of(&"x".repeat(9000)).unwrap().len(), MOST_MESSAGE);
    }
}
