//! The output of an R process on its stdout or stderr, as lines that name the process.

use super::json_lines::{Level, MAX_MESSAGE, Origin, piece_len, write_message};

/// The maximum length in bytes of a line of text. A longer line is split.
const MAX_LINE: usize = 64 << 10;

/// The form of the lines of an R process's output.
#[derive(Debug)]
pub enum LineStyle {
    /// The lines as the process has written them, after a prefix.
    Prefixed(Vec<u8>),
    /// JSON objects that name the process.
    Json(Origin),
}

impl LineStyle {
    /// Returns the length in bytes at which an unfinished line is split.
    fn max_len(&self) -> usize {
        match self {
            LineStyle::Prefixed(_) => MAX_LINE,
            // A character may be needed to see where the maximum length splits a line.
            LineStyle::Json(_) => MAX_MESSAGE + 4,
        }
    }
}

/// A converter that splits a process's output into lines and adds to each line the name of the
/// process.
#[derive(Debug)]
pub struct OutputLines {
    style: LineStyle,
    /// The level of the last line.
    level: Level,
    /// Whether `begun` is the rest of a line that was split.
    is_cut: bool,
    /// The beginning of a line of output whose end has not been read yet.
    begun: Vec<u8>,
}

impl OutputLines {
    /// Creates a converter whose lines have this form.
    pub fn new(style: LineStyle) -> OutputLines {
        OutputLines { style, level: Level::Info, is_cut: false, begun: Vec::new() }
    }

    /// Adds bytes of a process's output and returns the lines that are now complete.
    pub fn take(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut whole = Vec::new();
        while !bytes.is_empty() {
            let room = self.style.max_len() - self.begun.len();
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
            self.finish(line, end.is_none(), &mut whole);
        }
        whole
    }

    /// Returns the unfinished last line of a process's output, with a newline added. Returns
    /// nothing if the output ended with a newline.
    pub fn end(&mut self) -> Vec<u8> {
        let mut whole = Vec::new();
        if !self.begun.is_empty() {
            self.finish(b"", false, &mut whole);
        }
        whole
    }

    /// Ends the line that has begun with `line`. If it is cut, it goes on as another line.
    fn finish(&mut self, line: &[u8], is_cut: bool, whole: &mut Vec<u8>) {
        match &self.style {
            LineStyle::Prefixed(prefix) => {
                for part in [prefix, &self.begun, line, b"\n"] {
                    whole.extend_from_slice(part);
                }
                self.begun.clear();
            }
            LineStyle::Json(origin) => {
                self.begun.extend_from_slice(line);
                while !self.begun.is_empty() {
                    let piece = &self.begun[..piece_len(&self.begun)];
                    let piece_len = piece.len();
                    let piece = piece.trim_ascii_end();
                    if !piece.is_empty() {
                        if !self.is_cut {
                            self.level = Level::of_line(piece, self.level);
                        }
                        write_message(self.level, Some(origin), piece, whole);
                    }
                    self.begun.drain(..piece_len);
                    self.is_cut = true;
                    if is_cut {
                        return;
                    }
                }
                self.is_cut = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> OutputLines {
        OutputLines::new(LineStyle::Prefixed(b"[1] ".to_vec()))
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
        let all = lines.take(&vec![b'x'; 2 * MAX_LINE + 5]);
        assert_eq!(all.len(), 2 * (MAX_LINE + 5));
        assert!(lines.begun.len() == 5 && all.ends_with(b"x\n"));
        // A line that is exactly as long as the maximum is not split.
        lines = OutputLines::new(LineStyle::Prefixed(Vec::new()));
        let exact = [vec![b'y'; MAX_LINE - 1], b"\n".to_vec()].concat();
        assert_eq!(lines.take(&exact), exact);
    }

    #[test]
    fn json_lines_are_objects_whatever_the_worker_writes() {
        let origin = Origin { worker: Some(1), pid: 47, stream: "stderr" };
        let long = "\u{20ac}".repeat(MAX_MESSAGE);
        let text = format!("Error in f() : \n  no \"db\"\x1b[0m\r\n\n{long}\nno end");
        let text = [text.as_bytes(), b" \xff"].concat();
        for step in [1, 5, 1 << 20] {
            let mut lines = OutputLines::new(LineStyle::Json(origin));
            let mut all: Vec<u8> = text.chunks(step).flat_map(|bytes| lines.take(bytes)).collect();
            all.extend(lines.end());
            let all = String::from_utf8(all).unwrap();
            let objects: Vec<serde_json::Value> =
                all.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let of = |at: usize| (objects[at]["level"].as_str(), objects[at]["message"].as_str());
            assert_eq!(of(0), (Some("error"), Some("Error in f() :")));
            assert_eq!(of(1), (Some("error"), Some("  no \"db\"\u{1b}[0m")));
            assert_eq!(of(objects.len() - 1), (Some("info"), Some("no end \u{fffd}")));
            let pieces = &objects[2..objects.len() - 1];
            let pieces = pieces.iter().map(|line| line["message"].as_str().unwrap());
            assert!(pieces.collect::<String>() == long, "{step}");
            assert!(objects.iter().all(|it| it["worker"] == 1 && it["stream"] == "stderr"));
        }
    }
}
