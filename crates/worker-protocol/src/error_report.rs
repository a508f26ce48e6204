//! The report of an error in R, which a worker sends to its supervisor.

use crate::visible_text::visible_char;

/// The maximum length in bytes of an encoded error report. Of a longer traceback, the end is kept.
pub const MAX_ERROR_REPORT_SIZE: usize = 4 << 10;

/// The byte between two fields of an encoded report (ASCII's unit separator).
const SEPARATOR: char = '\u{1f}';

/// The report of an error that the app's R code raised for a request or WebSocket message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ErrorReport {
    /// The id of the request, as logs and error responses show it.
    pub request_id: String,
    /// The method and path of the request, without secrets.
    pub route: String,
    /// The function in which the error occurred, for example `handler` or `onWSMessage`.
    pub label: String,
    /// The class and the message of the error.
    pub message: String,
    /// The traceback, one line for each call, the outermost first.
    pub trace: String,
}

impl ErrorReport {
    /// Encodes the report for a packet of the control channel, in at most
    /// [`MAX_ERROR_REPORT_SIZE`] bytes. The beginning of each field is kept, except that the last
    /// lines of the traceback are kept, which are the innermost calls.
    pub fn encode(&self) -> Vec<u8> {
        let ErrorReport { request_id, route, label, message, trace } = self;
        let mut text = String::new();
        // A field gets at most half of the remaining space, so the last fields are never lost.
        for field in [request_id, route, label, message] {
            let left = MAX_ERROR_REPORT_SIZE - text.len() - 1;
            text.extend(beginning(field, left / 2).chars().filter(|char| *char != SEPARATOR));
            text.push(SEPARATOR);
        }
        let left = MAX_ERROR_REPORT_SIZE - text.len();
        text.extend(last_lines(trace, left).chars().filter(|char| *char != SEPARATOR));
        text.into_bytes()
    }

    /// Decodes a report. Accepts any bytes: missing fields are empty, and bytes that are not UTF-8
    /// and control characters are replaced.
    pub fn decode(bytes: &[u8]) -> ErrorReport {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_ERROR_REPORT_SIZE)]);
        let mut fields = text.splitn(5, SEPARATOR).map(printable);
        let mut next = || fields.next().unwrap_or_default();
        ErrorReport {
            request_id: next(),
            route: next(),
            label: next(),
            message: next(),
            trace: next(),
        }
    }
}

/// Returns the beginning of a text, at most `most` bytes of it.
fn beginning(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Returns the last lines of a text, at most `most` bytes of them. If the last line is longer,
/// returns its end.
fn last_lines(text: &str, most: usize) -> &str {
    let mut start = text.len().saturating_sub(most);
    if start == 0 {
        return text;
    }
    while !text.is_char_boundary(start) {
        start += 1;
    }
    let end = &text[start..];
    if text[..start].ends_with('\n') {
        return end;
    }
    end.split_once('\n').map_or(end, |(_, lines)| if lines.is_empty() { end } else { lines })
}

/// Returns a text in which all characters are [visible](crate::visible_char) or line breaks.
fn printable(text: &str) -> String {
    text.chars().map(|char| if char == '\n' { char } else { visible_char(char) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(message: &str, trace: &str) -> ErrorReport {
        ErrorReport {
            request_id: "5cf0b3".into(),
            route: "GET /report".into(),
            label: "handler".into(),
            message: message.into(),
            trace: trace.into(),
        }
    }

    #[test]
    fn a_report_arrives_as_it_was_sent() {
        for report in [report("no döner", "f()\ng()"), report("", ""), ErrorReport::default()] {
            assert_eq!(ErrorReport::decode(&report.encode()), report);
        }
    }

    #[test]
    fn a_long_report_is_truncated_and_keeps_every_field() {
        let long = "ä".repeat(MAX_ERROR_REPORT_SIZE);
        let bytes = report(&long, &long).encode();
        assert!(bytes.len() <= MAX_ERROR_REPORT_SIZE, "{}", bytes.len());
        let ErrorReport { route, message, trace, .. } = ErrorReport::decode(&bytes);
        assert_eq!(route, "GET /report");
        assert!(message.len() > 1900 && trace.len() > 1900);
        assert!(long.starts_with(&message) && long.ends_with(&trace));
        let all = ErrorReport {
            request_id: long.clone(),
            route: long.clone(),
            label: long.clone(),
            ..report(&long, &long)
        };
        assert!(all.encode().len() <= MAX_ERROR_REPORT_SIZE);
    }

    #[test]
    fn the_innermost_calls_of_a_long_traceback_are_kept_as_whole_lines() {
        let lines: Vec<String> = (0..1000).map(|number| format!("call_{number}()")).collect();
        let decoded = ErrorReport::decode(&report("failed", &lines.join("\n")).encode());
        assert!(decoded.trace.ends_with("\ncall_998()\ncall_999()"), "{}", decoded.trace);
        let first = decoded.trace.lines().next().unwrap();
        assert!(lines.iter().any(|line| line == first), "{first}");
        assert!(decoded.trace.len() > MAX_ERROR_REPORT_SIZE - 100);
        for (text, most, kept) in
            [("ab\ncd", 2, "cd"), ("ab\ncd", 3, "cd"), ("abcd\n", 3, "cd\n"), ("ä\nö", 1, "")]
        {
            assert_eq!(last_lines(text, most), kept);
        }
    }

    #[test]
    fn any_bytes_are_accepted_and_shown_safely() {
        let report = ErrorReport::decode(b"\xff\x1fGET /\x1b[31m\x1f\x1fa\nb");
        assert_eq!(report.request_id, "\u{fffd}");
        assert_eq!(report.route, "GET /\u{fffd}[31m");
        assert_eq!((report.message.as_str(), report.trace.as_str()), ("a\nb", ""));
        let separated = self::report("a\u{1f}b", "c");
        let decoded = ErrorReport::decode(&separated.encode());
        assert_eq!((decoded.message.as_str(), decoded.trace.as_str()), ("ab", "c"));
        assert!(
            ErrorReport::decode(&vec![b'x'; 1 << 20]).request_id.len() <= MAX_ERROR_REPORT_SIZE
        );
    }
}
