//! Log lines as JSON objects: the switch for them, the levels of messages, and the parts that all
//! lines share.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use super::civil::Civil;
use super::digits::{push_number, put_two_digits};

/// The maximum number of bytes of the text of one message. A longer text is split. With all
/// characters escaped, a line has at most six times as many bytes.
pub const MAX_MESSAGE: usize = 8 << 10;

static IS_ON: AtomicBool = AtomicBool::new(false);

/// Makes the process write messages as JSON objects, or as plain text.
pub fn set_json(is_on: bool) {
    IS_ON.store(is_on, Ordering::Relaxed);
}

/// Returns true if the process writes messages as JSON objects.
pub fn is_json() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// The level of a message in a log of JSON objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// A message about the normal course of the server.
    Info,
    /// A message about a failure that the server has dealt with.
    Warning,
    /// A message about an error of the app, or about the reason why the server ends.
    Error,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Info => "info",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }

    /// Returns the level of a line that an R process has printed. R begins conditions with their
    /// class. A line that continues a condition has the level of the line before it: an indented
    /// line, and a line with one of the words by which R and the package rlang list the causes and
    /// the calls. The R package begins its reports about errors of the app with `rookery: `, and
    /// indents the other lines of the reports.
    pub fn of_line(line: &[u8], before: Level) -> Level {
        let begins = |words: &[&[u8]]| words.iter().any(|word| line.starts_with(word));
        if begins(&[b"Error", b"rookery: ", b"Fatal error", b" *** caught "]) {
            Level::Error
        } else if begins(&[b"Warning", b"In addition: Warning"]) {
            Level::Warning
        } else if begins(&CONTINUATIONS) {
            before
        } else {
            Level::Info
        }
    }
}

/// The beginnings of lines that continue a condition of R.
const CONTINUATIONS: [&[u8]; 10] = [
    b" ",
    b"\t",
    b"Calls: ",
    b"Execution halted",
    b"Backtrace:",
    b"Caused by ",
    b"! ",
    b"\xe2\x84\xb9 ",
    b"\xe2\x9c\x96 ",
    b"\xe2\x96\x86",
];

/// The process that has printed a message: the worker's slot and process id, and the stream.
#[derive(Debug, Clone, Copy)]
pub struct Origin {
    /// The number of the worker's slot. `None` for an R process without a supervisor.
    pub worker: Option<u32>,
    /// The process id.
    pub pid: u32,
    /// The name of the standard stream.
    pub stream: &'static str,
}

/// Appends one message as a line, including the line feed. `text` has at most [`MAX_MESSAGE`]
/// bytes. Messages of the server itself have no origin.
pub fn write_message(level: Level, origin: Option<&Origin>, text: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"time\":");
    push_timestamp(SystemTime::now(), out);
    out.extend_from_slice(b",\"level\":\"");
    out.extend_from_slice(level.name().as_bytes());
    out.push(b'"');
    if let Some(origin) = origin {
        if let Some(worker) = origin.worker {
            out.extend_from_slice(b",\"worker\":");
            push_number(worker.into(), out);
        }
        out.extend_from_slice(b",\"pid\":");
        push_number(origin.pid.into(), out);
        out.extend_from_slice(b",\"stream\":\"");
        out.extend_from_slice(origin.stream.as_bytes());
        out.push(b'"');
    }
    out.extend_from_slice(b",\"message\":\"");
    escape_json(text, out);
    out.extend_from_slice(b"\"}\n");
}

/// Appends the lines of a text as messages of the server itself. Leaves out empty lines.
pub(super) fn write_messages(level: Level, text: &str, out: &mut Vec<u8>) {
    for line in text.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            let (piece, others) = rest.split_at(piece_len(rest));
            write_message(level, None, piece, out);
            rest = others;
        }
    }
}

/// Returns the length of the first piece of a line: at most [`MAX_MESSAGE`] bytes, and not within a
/// character of UTF-8.
pub fn piece_len(line: &[u8]) -> usize {
    if line.len() <= MAX_MESSAGE {
        return line.len();
    }
    let is_within = |at: &usize| line[*at] & 0xc0 == 0x80;
    // A character has at most four bytes. Bytes that are not UTF-8 are split anywhere.
    (MAX_MESSAGE - 3..=MAX_MESSAGE).rev().find(|at| !is_within(at)).unwrap_or(MAX_MESSAGE)
}

/// Appends a time in UTC as a JSON string, in the notation of RFC 3339 with milliseconds.
pub(super) fn push_timestamp(time: SystemTime, out: &mut Vec<u8>) {
    let civil = Civil::of(time);
    let mut text = *b"\"0000-00-00T00:00:00.000Z\"";
    put_two_digits(&mut text, 1, civil.year / 100);
    put_two_digits(&mut text, 3, civil.year);
    put_two_digits(&mut text, 6, civil.month.into());
    put_two_digits(&mut text, 9, civil.day.into());
    put_two_digits(&mut text, 12, civil.hour.into());
    put_two_digits(&mut text, 15, civil.minute.into());
    put_two_digits(&mut text, 18, civil.second.into());
    text[21] = b'0' + (civil.milli / 100) as u8;
    put_two_digits(&mut text, 22, civil.milli.into());
    out.extend_from_slice(&text);
}

/// Appends bytes as the content of a JSON string. Bytes that are not UTF-8 become U+FFFD, because
/// JSON cannot represent them.
pub(super) fn escape_json(bytes: &[u8], out: &mut Vec<u8>) {
    // All bytes are examined, which the compiler does several at a time.
    let has_special = bytes.iter().fold(false, |found, byte| {
        found | !matches!(byte, b' '..=b'~') | matches!(byte, b'"' | b'\\')
    });
    if !has_special {
        out.extend_from_slice(bytes);
        return;
    }
    for char in String::from_utf8_lossy(bytes).chars() {
        match char {
            '"' | '\\' => out.extend_from_slice(&[b'\\', char as u8]),
            ' '..='\u{7e}' => out.push(char as u8),
            _ if char.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(char));
            }
            _ => {
                let _ = write!(out, "{char}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &[u8]) -> String {
        let mut out = Vec::new();
        let origin = Origin { worker: Some(3), pid: 47, stream: "stderr" };
        write_message(Level::Warning, Some(&origin), text, &mut out);
        let line = String::from_utf8(out).unwrap();
        let (start, rest) = line.split_at("{\"time\":\"0000-00-00T00:00:00.000Z\"".len());
        assert!(start.starts_with("{\"time\":\"2") && start.ends_with("Z\""), "{line}");
        rest.to_owned()
    }

    #[test]
    fn a_message_is_one_line_of_json_whatever_it_contains() {
        let fields = ",\"level\":\"warning\",\"worker\":3,\"pid\":47,\"stream\":\"stderr\"";
        for (text, shown) in [
            (&b"caf\xc3\xa9 \"a\\\""[..], "caf\u{e9} \\\"a\\\\\\\""),
            (b"\x1b[31m\r\n\x00\t", "\\u001b[31m\\u000d\\u000a\\u0000\\u0009"),
            (b"\xff\xc3", "\u{fffd}\u{fffd}"),
            (b"", ""),
        ] {
            assert_eq!(message(text), format!("{fields},\"message\":\"{shown}\"}}\n"));
        }
    }

    #[test]
    fn a_long_line_is_split_between_characters() {
        let text = "x\u{20ac}".repeat(MAX_MESSAGE);
        let mut out = Vec::new();
        write_messages(Level::Info, &format!("{text}\n\n"), &mut out);
        let out = String::from_utf8(out).unwrap();
        let pieces = out.lines().map(|line| {
            let (_, rest) = line.split_once("\"message\":\"").unwrap();
            let piece = rest.strip_suffix("\"}").unwrap();
            assert!(piece.len() <= MAX_MESSAGE);
            piece
        });
        assert_eq!(pieces.collect::<String>(), text);
        assert_eq!(piece_len(&[0x80; 2 * MAX_MESSAGE]), MAX_MESSAGE);
    }

    #[test]
    fn the_level_of_a_line_of_r_is_that_of_its_condition() {
        let mut level = Level::Info;
        for (line, expected) in [
            ("Loading required package: shiny", Level::Info),
            ("Error in f() : ", Level::Error),
            ("  no database", Level::Error),
            ("Calls: f", Level::Error),
            ("Execution halted", Level::Error),
            ("cars", Level::Info),
            ("Calls: of what the app prints", Level::Info),
            ("Error in `f()`:", Level::Error),
            ("! no database", Level::Error),
            ("\u{2139} start it", Level::Error),
            ("Caused by error in `g()`:", Level::Error),
            ("Backtrace:", Level::Error),
            ("    \u{2586}", Level::Error),
            (" 1. \u{2514}\u{2500}global f()", Level::Error),
            ("Listening", Level::Info),
            ("rookery: GET /report (call): no database [7f]", Level::Error),
            ("    base::stop(\"no database\") at app.R:8", Level::Error),
            ("Warning message:", Level::Warning),
            ("In addition: Warning message:", Level::Warning),
        ] {
            level = Level::of_line(line.as_bytes(), level);
            assert_eq!(level, expected, "{line}");
        }
    }
}
