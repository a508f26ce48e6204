//! The kinds of values that settings accept (`Kind`), and the values themselves before and after
//! parsing (`Raw` and `Value`).

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The kind of a setting's value. It determines which texts the setting accepts, and how messages
/// show the value.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A flag, which is `yes` or `no`.
    Flag,
    /// A whole number.
    Count,
    /// A number of bytes, which may have a unit such as `MB`.
    Bytes,
    /// A time, in seconds unless it has a unit.
    Seconds,
    /// One of the words in this list.
    Choice(&'static [&'static str]),
    /// A text that must have this form, such as that of a host name.
    Text(&'static Form),
    /// A list of texts, each of which must have this form. A single text is split at its commas.
    List(&'static Form),
    /// The path of a file or folder. A relative path is relative to the folder of the
    /// `_server.yml`, or to the current folder.
    Path,
    /// A list of file paths. Unlike other lists, a single text is not split at commas, because a
    /// path may contain a comma.
    Paths,
    /// A value with several fields, for which the setting has a parsing function of its own.
    Composite(&'static Composite),
}

impl Kind {
    /// Returns the name of this kind of value in the documentation and in R's table of settings.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Flag => "flag",
            Kind::Count => "count",
            Kind::Bytes => "bytes",
            Kind::Seconds => "seconds",
            Kind::Choice(_) => "choice",
            Kind::Text(_) => "text",
            Kind::List(_) => "list",
            Kind::Path => "path",
            Kind::Paths => "paths",
            Kind::Composite(_) => "fields",
        }
    }

    /// Returns true if values of this kind are numbers.
    pub fn is_number(self) -> bool {
        matches!(self, Kind::Count | Kind::Bytes | Kind::Seconds)
    }

    /// Returns true if a setting of this kind accepts several values.
    pub fn is_list(self) -> bool {
        matches!(self, Kind::List(_) | Kind::Paths)
    }
}

/// The form that a text value must have, such as that of a host name.
#[derive(Debug)]
pub struct Form {
    /// The description of the form, which follows "must be" in error messages.
    pub wanted: &'static str,
    /// The function that returns true if a text has this form.
    pub accepts: fn(&str) -> bool,
}

/// The kind of a value that has several fields, such as the value of `hsts`.
#[derive(Debug)]
pub struct Composite {
    /// The description of the expected value, which follows "must be" in error messages.
    pub wanted: &'static str,
    /// The name and kind of each field. In `_server.yml`, the value is a mapping with these fields.
    pub fields: &'static [(&'static str, Kind)],
    /// The function that parses the value from one text or from separate fields.
    pub read: fn(&Raw) -> Result<Value, Rejected>,
    /// The function that formats the value as a text that can be parsed again.
    pub show: fn(&Value) -> String,
}

/// The reason why a setting's own parsing function rejected a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejected {
    /// The value does not have the expected form.
    Form,
    /// The value has the expected form, but one of its fields is wrong. The text says why.
    Because(String),
}

/// An unparsed value of a setting. Numbers and flags in it are still text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Raw {
    /// A single text.
    Text(String),
    /// An argument of the command line that is not valid UTF-8, which is accepted for paths only.
    Bytes(OsString),
    /// A list of values.
    List(Vec<Raw>),
    /// A mapping of names to values.
    Fields(Vec<(String, Raw)>),
}

impl Raw {
    /// Returns the unparsed value as a path, if it is a single value.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Raw::Text(text) => Some(Path::new(text)),
            Raw::Bytes(bytes) => Some(Path::new(bytes)),
            Raw::List(_) | Raw::Fields(_) => None,
        }
    }

    /// Returns the unparsed value as a text, if it is a single text.
    pub fn text(&self) -> Option<&str> {
        if let Raw::Text(text) = self { Some(text) } else { None }
    }

    /// Returns a description of the unparsed value for error messages.
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

/// Makes an untrusted text safe for a message: escapes control sequences, line ends and other
/// invisible characters, and truncates a long text.
pub fn escaped(text: &str) -> String {
    /// The maximum number of characters of an untrusted text that a message shows.
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

/// A setting's value after it was parsed and checked.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// The value of a flag.
    Flag(bool),
    /// A number of bytes or seconds, or another number; infinity means no limit.
    Number(f64),
    /// A special word that the setting accepts besides values of its kind, such as `auto` for a
    /// number.
    Word(&'static str),
    /// A text, or the chosen word of a setting that accepts one of several words.
    Text(String),
    /// A list of texts.
    List(Vec<String>),
    /// The path of a file or folder.
    Path(PathBuf),
    /// A list of paths.
    Paths(Vec<PathBuf>),
    /// A value with several fields, each with its name.
    Fields(Vec<(&'static str, Value)>),
}

impl Value {
    /// Returns true or false if the value is a flag.
    pub fn flag(&self) -> Option<bool> {
        if let Value::Flag(is_on) = self { Some(*is_on) } else { None }
    }

    /// Returns the number if the value is a number.
    pub fn number(&self) -> Option<f64> {
        if let Value::Number(number) = self { Some(*number) } else { None }
    }

    /// Returns true if the value is this special word, which the setting accepts besides values of
    /// its kind.
    pub fn is_word(&self, word: &str) -> bool {
        matches!(self, Value::Word(own) if *own == word)
    }

    /// Returns the text if the value is a text or a chosen word.
    pub fn text(&self) -> Option<&str> {
        if let Value::Text(text) = self { Some(text) } else { None }
    }

    /// Returns the path if the value is a path.
    pub fn path(&self) -> Option<&Path> {
        if let Value::Path(path) = self { Some(path) } else { None }
    }

    /// Returns the paths if the value is a list of paths.
    pub fn paths(&self) -> Option<&[PathBuf]> {
        if let Value::Paths(paths) = self { Some(paths) } else { None }
    }

    /// Returns the texts if the value is a list of texts.
    pub fn list(&self) -> Option<&[String]> {
        if let Value::List(list) = self { Some(list) } else { None }
    }

    /// Returns the value of the field `name` if the value has fields.
    pub fn field(&self, name: &str) -> Option<&Value> {
        let Value::Fields(fields) = self else { return None };
        fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value)
    }
}
