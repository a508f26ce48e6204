//! The kinds of values, and values before and after they are parsed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The kind of a value, which determines the accepted texts and the form in which a value is shown.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// `yes` or `no`.
    Flag,
    /// A whole number.
    Count,
    /// A number of bytes, which may have a unit such as `MB`.
    Bytes,
    /// A time, in seconds unless it has a unit.
    Seconds,
    /// A whole number of bytes per second.
    Rate,
    /// A whole percentage.
    Percent,
    /// A choice of these words.
    Choice(&'static [&'static str]),
    /// A text of this form.
    Text(&'static Form),
    /// A list of texts of this form; a single text is split at its commas.
    List(&'static Form),
    /// The path of a file or folder. It is relative to the folder of the `_server.yml` or to the
    /// current folder.
    Path,
    /// A list of file paths. A text is not split at commas, because a path may contain a comma.
    Paths,
    /// A value of several fields, which a function parses.
    Composite(&'static Composite),
}

impl Kind {
    /// Returns the name of the kind in documents and in R's table.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Flag => "flag",
            Kind::Count => "count",
            Kind::Bytes => "bytes",
            Kind::Seconds => "seconds",
            Kind::Rate => "rate",
            Kind::Percent => "percent",
            Kind::Choice(_) => "choice",
            Kind::Text(_) => "text",
            Kind::List(_) => "list",
            Kind::Path => "path",
            Kind::Paths => "paths",
            Kind::Composite(_) => "fields",
        }
    }

    /// Returns true if the value is a number.
    pub fn is_number(self) -> bool {
        matches!(self, Kind::Count | Kind::Bytes | Kind::Seconds | Kind::Rate | Kind::Percent)
    }

    /// Returns true if several values may be given.
    pub fn is_list(self) -> bool {
        matches!(self, Kind::List(_) | Kind::Paths)
    }
}

/// The form of a text.
#[derive(Debug)]
pub struct Form {
    /// The text after "must be" in error messages.
    pub wanted: &'static str,
    /// The function that returns true for a text of this form.
    pub accepts: fn(&str) -> bool,
}

/// A value of several fields, such as that of `hsts`.
#[derive(Debug)]
pub struct Composite {
    /// The text after "must be" in error messages.
    pub wanted: &'static str,
    /// The fields of the value as a mapping in `_server.yml`.
    pub fields: &'static [(&'static str, Kind)],
    /// The function that parses the value, given as a text or as fields.
    pub read: fn(&Raw) -> Result<Value, Rejected>,
    /// The function that writes the value as a text, from which it can be parsed again.
    pub show: fn(&Value) -> String,
}

/// The reason why a function rejected a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejected {
    /// The value does not have the expected form.
    Form,
    /// The value has the expected form, but a field is wrong for the reason given.
    Because(String),
}

/// A value as it was given. Scalars stay text until the kind of their setting parses them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Raw {
    /// A text.
    Text(String),
    /// An argument of the command line that is not valid UTF-8, which is accepted for paths only.
    Bytes(OsString),
    /// A list of values.
    List(Vec<Raw>),
    /// A mapping of names to values.
    Fields(Vec<(String, Raw)>),
}

impl Raw {
    /// Returns the value as a path.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Raw::Text(text) => Some(Path::new(text)),
            Raw::Bytes(bytes) => Some(Path::new(bytes)),
            Raw::List(_) | Raw::Fields(_) => None,
        }
    }

    /// Returns the value as a text, if it is one.
    pub fn text(&self) -> Option<&str> {
        if let Raw::Text(text) = self { Some(text) } else { None }
    }

    /// Returns a description of the value for messages.
    pub(crate) fn describe(&self) -> String {
        match self {
            Raw::Text(text) => format!("`{}`", escaped(text)),
            Raw::Bytes(bytes) => Raw::Text(bytes.to_string_lossy().into_owned()).describe(),
            Raw::List(values) => match &values[..] {
                [one] => format!("a list of {}", one.describe()),
                values => format!("a list of {} values", values.len()),
            },
            Raw::Fields(fields) => match &fields[..] {
                [(name, _)] => format!("a field `{}`", escaped(name)),
                fields => format!("{} fields", fields.len()),
            },
        }
    }
}

/// Returns an untrusted text for a message: escape sequences, line ends and other invisible
/// characters are escaped, and a long text is cut.
pub fn escaped(text: &str) -> String {
    /// The maximum number of characters that are shown.
    const MAX_SHOWN: usize = 80;
    let mut shown = String::new();
    for char in text.chars().take(MAX_SHOWN) {
        match char {
            '\'' | '"' => shown.push(char),
            _ => shown.extend(char.escape_debug()),
        }
    }
    if text.chars().nth(MAX_SHOWN).is_some() {
        shown.push_str("...");
    }
    shown
}

impl From<&str> for Raw {
    fn from(text: &str) -> Raw {
        Raw::Text(text.to_owned())
    }
}

impl From<OsString> for Raw {
    fn from(text: OsString) -> Raw {
        text.into_string().map_or_else(Raw::Bytes, Raw::Text)
    }
}

/// A value that has been parsed and checked.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// The value of a flag.
    Flag(bool),
    /// A number of bytes, seconds, bytes per second or percent; infinity means no limit.
    Number(f64),
    /// A word that the row accepts besides its kind, such as `auto`.
    Word(&'static str),
    /// The value of a choice or a text.
    Text(String),
    /// The values of a list.
    List(Vec<String>),
    /// The value of a path.
    Path(PathBuf),
    /// The values of a list of paths.
    Paths(Vec<PathBuf>),
    /// The values of several fields.
    Fields(Vec<(&'static str, Value)>),
}

impl Value {
    /// Returns the value of a flag.
    pub fn flag(&self) -> Option<bool> {
        if let Value::Flag(is_on) = self { Some(*is_on) } else { None }
    }

    /// Returns the value of a number.
    pub fn number(&self) -> Option<f64> {
        if let Value::Number(number) = self { Some(*number) } else { None }
    }

    /// Returns true if the value is this word, which the row accepts besides its kind.
    pub fn is_word(&self, word: &str) -> bool {
        matches!(self, Value::Word(own) if *own == word)
    }

    /// Returns the value of a text.
    pub fn text(&self) -> Option<&str> {
        if let Value::Text(text) = self { Some(text) } else { None }
    }

    /// Returns the path.
    pub fn path(&self) -> Option<&Path> {
        if let Value::Path(path) = self { Some(path) } else { None }
    }

    /// Returns the paths.
    pub fn paths(&self) -> Option<&[PathBuf]> {
        if let Value::Paths(paths) = self { Some(paths) } else { None }
    }

    /// Returns the values of a list.
    pub fn list(&self) -> Option<&[String]> {
        if let Value::List(list) = self { Some(list) } else { None }
    }

    /// Returns the value of a field.
    pub fn field(&self, name: &str) -> Option<&Value> {
        let Value::Fields(fields) = self else { return None };
        fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value)
    }
}
