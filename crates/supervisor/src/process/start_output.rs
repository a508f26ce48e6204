//! The output of workers until one of them is ready. Starts that fail usually fail alike, so what
//! one start has written is not written again for the next.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

use tokio::sync::watch;
use tokio::time::{Duration, Instant, timeout_at};

/// The maximum number of bytes that are held back for a start; output beyond it is passed on at once.
const MOST_HELD: usize = 64 << 10;

/// How long the output of a start is held back at most: one that hangs is to be seen.
const HELD_WITHIN: Duration = Duration::from_secs(10);

/// How long a start that has ended waits for the end of the first one, and the interval of the
/// checks.
const FIRST_WITHIN: Duration = Duration::from_millis(1500);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The maximum of characters of the app's message.
const MOST_MESSAGE: usize = 500;

/// What the starts of workers have written, shared by all of them.
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
    /// Whether a first start has begun, whose output is passed on as it comes; and whether its
    /// stdout and stderr have ended.
    is_begun: bool,
    has_first_ended: [bool; 2],
    /// The outputs of starts that have failed, without their digits.
    said: HashSet<Vec<u8>>,
    message: Option<String>,
}

impl StartOutput {
    /// Returns what keeps the two streams of a new start.
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

    /// A worker is ready: from now on everything is passed on as it comes.
    pub(crate) fn end(&self) {
        self.0.is_over.send_replace(true);
    }

    /// Returns the last message of the app whose starts have failed.
    pub(crate) fn message(&self) -> Option<String> {
        self.0.starts.borrow().message.clone()
    }
}

/// One stream of one start.
#[derive(Debug)]
pub(crate) struct HeldOutput {
    starts: StartOutput,
    over: watch::Receiver<bool>,
    is_stderr: bool,
    is_held: bool,
    is_first: bool,
    until: Instant,
    /// What is held back, in lines as they are to be written.
    lines: Vec<u8>,
    /// All that was written, as it came.
    text: Vec<u8>,
}

impl HeldOutput {
    fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Waits until nothing is to be held back any more; for ever where nothing is.
    pub(crate) async fn over(&mut self) {
        if !self.is_held {
            std::future::pending::<()>().await;
        }
        let _ = timeout_at(self.until, self.over.wait_for(|is_over| *is_over)).await;
    }

    /// Takes bytes that came, and the lines made of them; returns the lines that are to be written
    /// now.
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

    /// Returns what was held back. Nothing is, from now on.
    pub(crate) fn release(&mut self) -> Vec<u8> {
        self.is_held = false;
        std::mem::take(&mut self.lines)
    }

    /// The stream has ended. Waits for that of the first start, which fails at about the same time
    /// if it fails alike, and says the same; then returns what is to be written.
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

/// Returns what an app has said last on stderr: R's last error, else the last line.
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
            // Ours says all in its first line, and lists what else there is; or announces what R says.
            let is_ours = lines[at].starts_with("rookery: ") && !lines[at].ends_with(':');
            let most = if is_ours { 1 } else { 4 };
            let all = lines[at..].iter().take_while(|line| !is_behind(line)).take(most);
            let all: Vec<&str> = all.copied().collect();
            // R breaks the line behind a long call.
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

    /// What is written of a start that writes this to stderr and then fails.
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
        // One that says nothing leaves the message that there was.
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
