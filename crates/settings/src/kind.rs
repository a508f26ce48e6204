//! What a setting's value can be, before and after it has been read.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::units;

/// The kind of a setting's value, which decides what is accepted and how it is shown.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Yes or no.
    Flag,
    /// A whole number.
    Count,
    /// A number of bytes, perhaps with a unit such as `MB`.
    Bytes,
    /// A time, in seconds unless it has a unit.
    Seconds,
    /// Whole bytes per second.
    Rate,
    /// A whole number of percent.
    Percent,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// One text of a form.
    Text(&'static Form),
    /// Texts of a form; a single text is split at its commas.
    List(&'static Form),
    /// The path of a file or folder, relative to where it was given.
    Path,
    /// Paths of files; each is given by itself, because a path may contain a comma.
    Paths,
    /// A value of several fields, which a function reads.
    Composite(&'static Composite),
}

impl Kind {
    /// Returns the name of the kind, as documents and R's tables have it.
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

    /// Returns true for kinds whose value is a number.
    pub fn is_number(self) -> bool {
        matches!(self, Kind::Count | Kind::Bytes | Kind::Seconds | Kind::Rate | Kind::Percent)
    }

    /// Returns true for kinds of which several may be given.
    pub fn is_list(self) -> bool {
        matches!(self, Kind::List(_) | Kind::Paths)
    }
}

/// The form of a text.
#[derive(Debug)]
pub struct Form {
    /// The completion of "must be".
    pub wanted: &'static str,
    /// Returns true for a text of this form.
    pub accepts: fn(&str) -> bool,
}

/// A value of several fields, such as that of `hsts`.
#[derive(Debug)]
pub struct Composite {
    /// The completion of "must be".
    pub wanted: &'static str,
    /// Its fields as a file has them.
    pub fields: &'static [(&'static str, Kind)],
    /// Reads the value, given as a text or as fields.
    pub read: fn(&Raw) -> Result<Value, Rejected>,
    /// Writes the value as a text that is read as the same value.
    pub show: fn(&Value) -> String,
}

/// Why a function did not read a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejected {
    /// The value does not have the form that is wanted.
    Form,
    /// The value has the form, and one of its fields must be something else.
    Because(String),
}

/// A value as it was given. Scalars are text until the kind of their setting reads them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Raw {
    /// One text.
    Text(String),
    /// A text of the command line that is not UTF-8, which only a path may be.
    Bytes(OsString),
    /// Several values.
    List(Vec<Raw>),
    /// Named values.
    Fields(Vec<(String, Raw)>),
}

impl Raw {
    /// Returns the path that the value is.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Raw::Text(text) => Some(Path::new(text)),
            Raw::Bytes(bytes) => Some(Path::new(bytes)),
            Raw::List(_) | Raw::Fields(_) => None,
        }
    }

    /// Returns the text of a value that is one.
    pub fn text(&self) -> Option<&str> {
        if let Raw::Text(text) = self { Some(text) } else { None }
    }

    /// Describes the value for a message.
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

/// Returns a text that others wrote as a message shows it: escape sequences, line ends and whatever
/// else is not printed as itself are escaped, and a long text is cut.
pub fn escaped(text: &str) -> String {
    /// The most characters that are shown.
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

/// A value that has been read and checked.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Of a flag.
    Flag(bool),
    /// Of a number, in bytes, seconds, bytes per second or percent; infinity is no limit.
    Number(f64),
    /// One of the words that the row lists besides its kind, such as `auto`.
    Word(&'static str),
    /// Of a choice or a text.
    Text(String),
    /// Of a list.
    List(Vec<String>),
    /// Of a path.
    Path(PathBuf),
    /// Of paths.
    Paths(Vec<PathBuf>),
    /// Of several fields.
    Fields(Vec<(&'static str, Value)>),
}

impl Value {
    /// Writes the value as a text that is read as the same value.
    pub fn show(&self, kind: Kind) -> String {
        match (self, kind) {
            (value @ Value::Fields(_), Kind::Composite(composite)) => (composite.show)(value),
            (Value::Flag(is_on), _) => if *is_on { "on" } else { "off" }.to_owned(),
            (Value::Number(number), _) => units::show(*number, kind),
            (Value::Word(word), _) => (*word).to_owned(),
            (Value::Text(text), _) => text.clone(),
            (Value::List(list), _) => list.join(", "),
            (Value::Path(path), _) => path.display().to_string(),
            (Value::Paths(paths), _) => {
                paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
            }
            (Value::Fields(fields), _) => format!("{fields:?}"),
        }
    }

    /// Returns the value of a flag.
    pub fn flag(&self) -> Option<bool> {
        if let Value::Flag(is_on) = self { Some(*is_on) } else { None }
    }

    /// Returns the value of a number.
    pub fn number(&self) -> Option<f64> {
        if let Value::Number(number) = self { Some(*number) } else { None }
    }

    /// Returns true when the value is this word of the row's.
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
