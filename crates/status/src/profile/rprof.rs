//! The files that R's profiler writes: reading them, and joining those of several R processes.
//!
//! The first line contains the interval of the samples in microseconds. Each further line is a
//! sample, with the innermost function first, or the name of a source file:
//!
//! ```text
//! GC profiling: line profiling: sample.interval=10000
//! #File 1: app.R
//! "sort" 1#8 "g" 1#4 "GET:/report"
//! ```

use std::collections::HashMap;

use super::summary::{Summary, SummaryBuilder};

/// The maximum length of a line. R writes at most 10,500 bytes.
const MAX_LINE: usize = 16 << 10;

/// The maximum number of source files. R writes the names of 500 files.
const MAX_FILES: usize = 10_000;

/// A part of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    /// The name of a function.
    Name(&'a [u8]),
    /// A file, by its number, and a line in it.
    Place(u32, u32),
}

/// Divides a sample into its parts. Returns `None` if it is not a sample.
fn tokens(line: &[u8]) -> Option<Vec<Token<'_>>> {
    let (mut found, mut rest) = (Vec::new(), line);
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Some(found);
        }
        if let Some(name) = rest.strip_prefix(b"\"") {
            // R does not escape names. The quote that ends a name is followed by a space.
            let is_end =
                |at: &usize| name[*at] == b'"' && matches!(name.get(at + 1), None | Some(b' '));
            let end = (0..name.len()).find(is_end)?;
            found.push(Token::Name(&name[..end]));
            rest = &name[end + 1..];
        } else {
            let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
            let (file, line) = std::str::from_utf8(&rest[..end]).ok()?.split_once('#')?;
            found.push(Token::Place(file.parse().ok()?, line.parse().ok()?));
            rest = &rest[end..];
        }
    }
}

/// Returns the interval of the samples in microseconds from the first line of a file.
fn interval_of(line: &[u8]) -> Option<u64> {
    let (_, interval) = std::str::from_utf8(line).ok()?.rsplit_once("sample.interval=")?;
    interval.parse().ok().filter(|interval| *interval > 0)
}

/// The result of adding one file to a joined profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Added {
    /// The number of samples.
    pub samples: u64,
    /// The number of lines that are neither samples nor names of source files.
    pub malformed: u64,
    /// Whether samples were left out because the joined file would have become too large.
    pub is_cut: bool,
}

/// A profile that is joined from the files of several R processes, whose samples have the same
/// interval.
#[derive(Debug)]
pub struct JoinedProfile {
    text: Vec<u8>,
    max_size: usize,
    /// The numbers of the source files in the joined file, by path.
    files: HashMap<Vec<u8>, usize>,
    summary: SummaryBuilder,
    interval: u64,
}

impl JoinedProfile {
    /// Begins a joined profile of at most `max_size` bytes. `interval` is the interval of the
    /// samples in microseconds.
    pub fn new(interval: u64, max_size: usize) -> JoinedProfile {
        let head = format!("GC profiling: line profiling: sample.interval={interval}\n");
        JoinedProfile {
            text: head.into_bytes(),
            max_size,
            files: HashMap::new(),
            summary: SummaryBuilder::default(),
            interval,
        }
    }

    /// Adds the samples of a file, of which only complete lines are read. The file may have any
    /// contents. A file with another interval is left out, because each of its samples stands for
    /// another time.
    pub fn add(&mut self, file: &[u8]) -> Added {
        let mut added = Added::default();
        let mut lines = file.split_inclusive(|byte| *byte == b'\n').map_while(|line| {
            // The process may have ended within the last line.
            line.strip_suffix(b"\n")
        });
        match lines.next().map(interval_of) {
            None => return added,
            Some(Some(interval)) if interval == self.interval => {}
            Some(_) => {
                added.malformed = 1;
                return added;
            }
        }
        let mut own_files = HashMap::new();
        for line in lines {
            let is_read = if line.starts_with(b"#File ") {
                self.add_file_name(line, &mut own_files)
            } else {
                self.add_sample(line, &own_files)
            };
            match is_read {
                Read::Malformed => added.malformed += 1,
                Read::File => {}
                Read::Sample => added.samples += 1,
                Read::TooLarge => {
                    added.is_cut = true;
                    break;
                }
            }
        }
        added
    }

    fn add_file_name(&mut self, line: &[u8], own: &mut HashMap<u32, usize>) -> Read {
        let Some((number, path)) = file_name(line) else { return Read::Malformed };
        let next = self.files.len() + 1;
        let known = self.files.get(path).copied();
        if known.is_none() && (next > MAX_FILES || !self.write_file_name(next, path)) {
            return Read::TooLarge;
        }
        let joined = *self.files.entry(path.to_vec()).or_insert(next);
        own.insert(number, joined);
        Read::File
    }

    fn write_file_name(&mut self, number: usize, path: &[u8]) -> bool {
        let line = [format!("#File {number}: ").as_bytes(), path, b"\n"].concat();
        self.write(&line)
    }

    fn add_sample(&mut self, line: &[u8], files: &HashMap<u32, usize>) -> Read {
        let Some(tokens) = Some(line).filter(|it| it.len() <= MAX_LINE).and_then(tokens) else {
            return Read::Malformed;
        };
        let mut text = Vec::with_capacity(line.len());
        for token in &tokens {
            match token {
                Token::Name(name) => {
                    text.push(b'"');
                    text.extend_from_slice(readable(name).as_bytes());
                    text.extend_from_slice(b"\" ");
                }
                Token::Place(file, line) => {
                    if let Some(file) = files.get(file) {
                        text.extend_from_slice(format!("{file}#{line} ").as_bytes());
                    }
                }
            }
        }
        text.push(b'\n');
        if !self.write(&text) {
            return Read::TooLarge;
        }
        let names = tokens.iter().filter_map(|token| match token {
            Token::Name(name) => Some(readable(name)),
            Token::Place(..) => None,
        });
        self.summary.add_sample(names);
        Read::Sample
    }

    fn write(&mut self, line: &[u8]) -> bool {
        let fits = self.text.len() + line.len() <= self.max_size;
        if fits {
            self.text.extend_from_slice(line);
        }
        fits
    }

    /// Returns the joined file and its summary.
    pub fn finish(self) -> (Vec<u8>, Summary) {
        (self.text, self.summary.finish(self.interval))
    }
}

/// The result of reading a line.
enum Read {
    File,
    Sample,
    Malformed,
    TooLarge,
}

/// Returns the number and the path of a line `#File 1: path`.
fn file_name(line: &[u8]) -> Option<(u32, &[u8])> {
    let rest = line.strip_prefix(b"#File ")?;
    let colon = rest.iter().position(|byte| *byte == b':')?;
    let number = std::str::from_utf8(&rest[..colon]).ok()?.parse().ok()?;
    let path = rest[colon + 1..].strip_prefix(b" ")?;
    (!path.is_empty() && path.len() <= MAX_LINE).then_some((number, path))
}

/// Returns a name as text: invalid UTF-8 and control characters, which could change the state of a
/// terminal, become U+FFFD.
fn readable(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    text.chars()
        .map(|char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "GC profiling: line profiling: sample.interval=10000\n#File 1: app.R\n\
        \"sort\" 1#8 \"g\" 1#4 \"GET:/report\" \"service\" \n#File 2: b.R\n2#1 \"h\" \n";
    const SECOND: &str = "sample.interval=10000\n#File 1: b.R\n#File 2: app.R\n\
        \"a b\\\"c\" 1#3 \"f\" 9#9 \n\"half";

    #[test]
    fn source_files_of_several_processes_are_renumbered() {
        let mut joined = JoinedProfile::new(10_000, 1 << 20);
        assert_eq!(joined.add(FIRST.as_bytes()), Added { samples: 2, ..Added::default() });
        assert_eq!(joined.add(SECOND.as_bytes()), Added { samples: 1, ..Added::default() });
        let (text, summary) = joined.finish();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "GC profiling: line profiling: sample.interval=10000\n#File 1: app.R\n\
             \"sort\" 1#8 \"g\" 1#4 \"GET:/report\" \"service\" \n#File 2: b.R\n2#1 \"h\" \n\
             \"a b\\\"c\" 2#3 \"f\" \n"
        );
        assert_eq!(summary.samples, 3);
    }

    #[test]
    fn lines_that_are_no_samples_are_counted_and_left_out() {
        let mut joined = JoinedProfile::new(10_000, 1 << 20);
        let long = format!("\"{}\" ", "x".repeat(MAX_LINE));
        for wrong in
            ["\"open", "f", "1#x \"f\"", "-1#2", "#File x: a", "#File 1:a", "#File 1: ", &long]
        {
            let text = format!("sample.interval=10000\n{wrong}\n");
            let expected = Added { malformed: 1, ..Added::default() };
            assert_eq!(joined.add(text.as_bytes()), expected, "{wrong:.20}");
        }
        for file in ["", "sample.interval=10000", "x\n\"f\" \n", "sample.interval=20000\n\"f\" \n"]
        {
            assert_eq!(joined.add(file.as_bytes()).samples, 0, "{file}");
        }
        assert_eq!(joined.add(b"sample.interval=10000\n\"\x1b[2J\" \n").samples, 1);
        let (text, _) = joined.finish();
        assert!(String::from_utf8(text).unwrap().ends_with("\n\"\u{fffd}[2J\" \n"));
    }

    #[test]
    fn the_joined_file_stays_below_its_maximum_size() {
        let mut joined = JoinedProfile::new(10_000, 100);
        let many = format!("sample.interval=10000\n{}", "\"f\" \n".repeat(50));
        let added = joined.add(many.as_bytes());
        assert!(added.is_cut && added.samples > 0 && added.samples < 50, "{added:?}");
        let (text, summary) = joined.finish();
        assert!(text.len() <= 100 && text.ends_with(b"\n"));
        assert_eq!(summary.samples, added.samples);
    }
}
