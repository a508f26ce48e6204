//! Parses and formats the values of settings. The row of a setting in the table of settings
//! determines which values the setting accepts.

use std::fmt;
use std::path::PathBuf;

use crate::kind::{Composite, Form, Kind, Raw, Rejected, Value};
use crate::setting::{Places, Setting};
use crate::units;

/// The maximum size in bytes of a setting's value. It suffices for every path, because a path has
/// at most 4,096 bytes.
const MAX_VALUE_SIZE: usize = 8192;
/// The maximum number of values in a setting that is a list.
const MAX_LIST_LENGTH: usize = 1000;

/// The error for a value that a setting does not accept.
#[derive(Debug, Clone)]
pub struct InvalidValue {
    /// The setting that rejected the value.
    pub setting: &'static Setting,
    reason: Reason,
}

#[derive(Debug, Clone)]
enum Reason {
    Form { wanted: String, given: String },
    Because(String),
}

impl InvalidValue {
    fn form(setting: &'static Setting, given: String) -> InvalidValue {
        InvalidValue { setting, reason: Reason::Form { wanted: expected_form(setting), given } }
    }

    /// Returns a description of the expected value, for use after the words "must be" in an error
    /// message. Returns `None` if the value has the right form but is invalid for another reason.
    pub fn wanted(&self) -> Option<&str> {
        if let Reason::Form { wanted, .. } = &self.reason { Some(wanted) } else { None }
    }

    /// Returns the error message. `place` is the name of the setting as the user wrote it, such as
    /// `--port`.
    pub fn at(&self, place: &str) -> String {
        match &self.reason {
            Reason::Form { wanted, given } => format!("{place} must be {wanted}, not {given}."),
            Reason::Because(why) => format!("{place}: {why}."),
        }
    }
}

impl fmt::Display for InvalidValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.at(&format!("`{}`", self.setting.name)))
    }
}

impl std::error::Error for InvalidValue {}

impl Setting {
    /// Parses a value of the setting.
    ///
    /// # Errors
    /// Fails if the setting does not accept the value.
    pub fn read(&'static self, raw: &Raw) -> Result<Value, InvalidValue> {
        let form = || InvalidValue::form(self, raw.describe());
        let text = raw.text().map(str::trim);
        if text.is_some_and(|text| {
            text.is_empty() || text.len() > MAX_VALUE_SIZE || text.contains('\0')
        }) {
            return Err(form());
        }
        if let Some(word) = text.and_then(|text| self.words.iter().find(|word| **word == text)) {
            return Ok(Value::Word(word));
        }
        if let Some(([yes, no], is_on)) = self.flag_words.zip(text.and_then(flag_word)) {
            return Ok(Value::Word(if is_on { yes } else { no }));
        }
        match self.kind {
            Kind::Flag => text.and_then(flag).map(Value::Flag).ok_or_else(form),
            Kind::Count | Kind::Bytes | Kind::Seconds => {
                let number = text.and_then(|text| units::read(text, self.kind));
                number.filter(|number| self.accepts(*number)).map(Value::Number).ok_or_else(form)
            }
            Kind::Choice(choices) => {
                let found = text.and_then(|text| choices.iter().find(|choice| **choice == text));
                found.map(|choice| Value::Text((*choice).to_owned())).ok_or_else(form)
            }
            Kind::Text(Form { accepts, .. }) => text
                .filter(|text| accepts(text))
                .map(|text| Value::Text(text.to_owned()))
                .ok_or_else(form),
            // Paths may begin and end with spaces.
            Kind::Path => path(raw).map(Value::Path).ok_or_else(form),
            Kind::Paths => paths(raw).map(Value::Paths).ok_or_else(form),
            Kind::List(Form { accepts, .. }) => self.list(raw, *accepts).map(Value::List),
            Kind::Composite(Composite { read, .. }) => read(raw).map_err(|refused| match refused {
                Rejected::Form => form(),
                Rejected::Because(why) => {
                    InvalidValue { setting: self, reason: Reason::Because(why) }
                }
            }),
        }
    }

    fn list(
        &'static self,
        raw: &Raw,
        accepts: fn(&str) -> bool,
    ) -> Result<Vec<String>, InvalidValue> {
        let given: Option<Vec<&str>> = match raw {
            Raw::Text(text) => Some(text.split(',').collect()),
            // An option may be repeated, and each value may contain commas as well.
            Raw::List(values) => values
                .iter()
                .map(|value| value.text().map(|text| text.split(',')))
                .collect::<Option<Vec<_>>>()
                .map(|texts| texts.into_iter().flatten().collect()),
            Raw::Bytes(_) | Raw::Fields(_) => None,
        };
        let parts = given.into_iter().flatten().map(str::trim).filter(|part| !part.is_empty());
        let list: Vec<String> = parts.map(str::to_owned).collect();
        if list.is_empty() || list.len() > MAX_LIST_LENGTH {
            return Err(InvalidValue::form(self, raw.describe()));
        }
        match list.iter().find(|part| !accepts(part)) {
            Some(wrong) => Err(InvalidValue::form(self, Raw::Text(wrong.clone()).describe())),
            None => Ok(list),
        }
    }

    fn accepts(&self, number: f64) -> bool {
        let is_whole = match self.kind {
            Kind::Bytes | Kind::Seconds => true,
            _ => number.is_infinite() || number.fract() == 0.0,
        };
        is_whole && number >= self.min && number <= self.max
    }
}

impl Value {
    /// Formats the value as a text that can be parsed again.
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
}

fn paths(raw: &Raw) -> Option<Vec<PathBuf>> {
    match raw {
        Raw::List(values) if (1..=MAX_LIST_LENGTH).contains(&values.len()) => {
            values.iter().map(path).collect()
        }
        Raw::List(_) => None,
        one => path(one).map(|path| vec![path]),
    }
}

fn path(raw: &Raw) -> Option<PathBuf> {
    let path = raw.path()?;
    let bytes = path.as_os_str().as_encoded_bytes();
    ((1..=MAX_VALUE_SIZE).contains(&bytes.len()) && !bytes.contains(&0)).then(|| path.to_owned())
}

/// Parses a yes-or-no value in any spelling that shells, YAML or R use, such as `yes`, `true` or
/// `on`. Returns `None` if the text is something else.
pub(crate) fn flag(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "yes" | "on" | "true" | "1" | "y" | "t" => Some(true),
        "no" | "off" | "false" | "0" | "n" | "f" => Some(false),
        _ => None,
    }
}

/// Parses a word for a yes-or-no value, such as `yes`. Rejects texts of one character, such as `0`
/// and `1`, because the settings that use this function also accept numbers.
fn flag_word(text: &str) -> Option<bool> {
    flag(text).filter(|_| text.len() > 1)
}

/// Returns a description of the values that a setting accepts, for use after the words "must be" in
/// an error message.
pub fn expected_form(setting: &Setting) -> String {
    let form = match setting.kind {
        Kind::Flag => "yes or no".to_owned(),
        Kind::Count => bounded(setting, "a whole number"),
        Kind::Bytes => bounded(setting, "a size such as 512KB or 10MB (without a unit: bytes)"),
        Kind::Seconds => {
            bounded(setting, "a time such as 500ms, 30s, 5m or 2h (without a unit: seconds)")
        }
        Kind::Choice(choices) => one_of(choices),
        Kind::Text(form) | Kind::List(form) => form.wanted.to_owned(),
        Kind::Path if setting.places.has(Places::FILE) => "the path of a file or folder".to_owned(),
        Kind::Path => "a path".to_owned(),
        Kind::Paths => "the path of a file, or a list of paths".to_owned(),
        Kind::Composite(composite) => composite.wanted.to_owned(),
    };
    if setting.words.is_empty() { form } else { format!("{}, or {form}", setting.words.join(", ")) }
}

fn bounded(setting: &Setting, what: &str) -> String {
    /// The number from which on a setting's maximum is only a technical limit. Error messages do
    /// not mention so large a maximum.
    const PLAUSIBLE: f64 = 1e15;
    let show = |number| units::show(number, setting.kind);
    if setting.max < PLAUSIBLE {
        return format!("{what} from {} to {}", show(setting.min), show(setting.max));
    }
    let least =
        if setting.min > 0.0 { format!(", at least {}", show(setting.min)) } else { String::new() };
    let none = if setting.max.is_infinite() { ", or none" } else { "" };
    format!("{what}{least}{none}")
}

fn one_of(choices: &[&str]) -> String {
    match choices {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => choices.join(""),
    }
}
