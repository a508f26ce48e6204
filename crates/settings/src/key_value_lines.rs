//! The format in which the program and R pass settings to each other. Each line is `key=value`, in
//! which `%` and line ends are percent-encoded.

use crate::combined::Source;
use crate::kind::{Raw, Value};

/// Settings for R, as lines of the form `key=value`. Each key begins with the type of the value, as
/// in `number:port=8000`. A list has one line for each of its values. The R functions `cli_read()`
/// and `typed_values()` parse the lines.
#[derive(Debug, Clone, Default)]
pub struct Lines(Vec<u8>);

impl Lines {
    /// Adds a line `key=value`, in which `%` and line ends are percent-encoded.
    pub fn line(&mut self, key: &str, value: &[u8]) {
        self.0.extend_from_slice(key.as_bytes());
        self.0.push(b'=');
        for byte in value {
            match byte {
                b'%' => self.0.extend_from_slice(b"%25"),
                b'\n' => self.0.extend_from_slice(b"%0A"),
                other => self.0.push(*other),
            }
        }
        self.0.push(b'\n');
    }

    /// Adds a line with the value of the setting `name`, or one line for each value of a list. The
    /// key begins with the source and the type of the value, as in `cli:number:port=8000`.
    pub fn value(&mut self, source: &str, name: &str, value: &Value) {
        let mut add = |kind: &str, text: &[u8]| self.line(&format!("{source}{kind}:{name}"), text);
        match value {
            Value::Flag(is_on) => add("flag", if *is_on { b"TRUE" } else { b"FALSE" }),
            Value::Number(number) if number.is_infinite() => add("number", b"Inf"),
            Value::Number(number) => add("number", number.to_string().as_bytes()),
            Value::Word(word) => add("word", word.as_bytes()),
            Value::Text(text) => add("text", text.as_bytes()),
            Value::Path(path) => add("text", path.as_os_str().as_encoded_bytes()),
            Value::List(list) => list.iter().for_each(|one| add("text", one.as_bytes())),
            Value::Paths(paths) => {
                for path in paths {
                    add("text", path.as_os_str().as_encoded_bytes());
                }
            }
            Value::Fields(fields) => {
                for (field, value) in fields {
                    self.value(source, &format!("{name}.{field}"), value);
                }
            }
        }
    }

    /// Returns true if there are no lines.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the text that R parses: all lines `key=value` that were added, one after the other.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// The unparsed value that a source gives to a setting. `None` stands for a value that no setting
/// accepts, such as an empty vector of R.
pub type GivenLines = (Source, String, Option<Raw>);

/// Reads the lines `source:name=value` in which R passes what its sources give to settings. The
/// source is `cli`, `environment`, `file` or `option`; without a source, the value is an argument.
/// A line without `=` has a value that no setting accepts.
pub fn read_given(text: &str) -> Vec<GivenLines> {
    let mut found: Vec<(Source, &str, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        let (key, value) =
            line.split_once('=').map_or((line, None), |(key, value)| (key, Some(value)));
        let (source, name) = match key.split_once(':') {
            Some(("cli", name)) => (Source::CommandLine, name),
            Some(("environment", name)) => (Source::Environment, name),
            Some(("file", name)) => (Source::File, name),
            Some(("option", name)) => (Source::Option, name),
            _ => (Source::Argument, key),
        };
        match found.iter_mut().find(|(from, own, _)| *own == name && *from == source) {
            Some((.., values)) => values.extend(value),
            None => found.push((source, name, value.into_iter().collect())),
        }
    }
    found.into_iter().map(|(source, name, values)| (source, name.to_owned(), raw(values))).collect()
}

/// Returns the unparsed value of a setting from the lines that R wrote for it. A list has one line
/// for each of its values. Returns `None` if there are no lines.
pub fn raw<'a>(lines: impl IntoIterator<Item = &'a str>) -> Option<Raw> {
    let decoded = |line: &str| Raw::Text(line.replace("%0A", "\n").replace("%25", "%"));
    let mut values: Vec<Raw> = lines.into_iter().map(decoded).collect();
    if values.len() > 1 { Some(Raw::List(values)) } else { values.pop() }
}
