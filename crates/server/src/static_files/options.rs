//! What a static path is mapped to, and how it is served.

use std::fmt;
use std::path::PathBuf;

use http::HeaderName;

use super::header::{Header, InvalidHeader};

/// A file or a directory, and what is different about it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StaticPath {
    /// Absolute; empty where `overrides.exclude` is `Some(true)`.
    pub path: PathBuf,
    /// Options of this path alone.
    pub overrides: Overrides,
}

/// Options of one path. `None` is inherited from the server-wide options, never from a shorter path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// See [`StaticOptions::index`].
    pub index: Option<bool>,
    /// See [`StaticOptions::fallthrough`].
    pub fallthrough: Option<bool>,
    /// See [`StaticOptions::html_charset`].
    pub html_charset: Option<Charset>,
    /// See [`StaticOptions::headers`]; replaces the server-wide ones as a whole.
    pub headers: Option<Vec<Header>>,
    /// See [`StaticOptions::validation`].
    pub validation: Option<Validation>,
    /// See [`StaticOptions::exclude`].
    pub exclude: Option<bool>,
}

/// The server-wide options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticOptions {
    /// Whether a directory is served by its `index.html`. Default true.
    pub index: bool,
    /// Whether the application gets requests for what is not there, instead of a 404. Default false.
    pub fallthrough: bool,
    /// The charset of `text/html`. Default `utf-8`.
    pub html_charset: Charset,
    /// Added to every 200, 206 and, where RFC 9110 (15.4.5) names them, 304. A `Content-Type`, `Last-Modified`, `ETag` or
    /// `Accept-Ranges` among them stands instead of ours. Default none.
    pub headers: Vec<Header>,
    /// What a request must carry. Default nothing.
    pub validation: Validation,
    /// Whether requests go to the application although a shorter path is served. Default false.
    pub exclude: bool,
}

impl Default for StaticOptions {
    fn default() -> StaticOptions {
        StaticOptions {
            index: true,
            fallthrough: false,
            html_charset: Charset("utf-8".into()),
            headers: Vec::new(),
            validation: Validation::Off,
            exclude: false,
        }
    }
}

/// The charset named with `text/html`, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charset(Box<str>);

impl Charset {
    /// Takes a charset's name; `""` is none.
    ///
    /// # Errors
    /// [`InvalidHeader::Value`] for what is not a token (RFC 9110, 5.6.2).
    pub fn new(name: &str) -> Result<Charset, InvalidHeader> {
        // A header's name is a token too, so its parser is the check.
        if name.is_empty() || HeaderName::from_bytes(name.as_bytes()).is_ok() {
            Ok(Charset(name.into()))
        } else {
            Err(InvalidHeader::Value)
        }
    }

    /// The name; `""` for none.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether requests must carry a certain header.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Validation {
    /// They need not.
    #[default]
    Off,
    /// They must; others get 403.
    Require(RequiredHeader),
}

/// A header and the value it must have.
#[derive(Clone, PartialEq, Eq)]
pub struct RequiredHeader {
    name: Box<str>,
    lower_name: Box<str>,
    value: Box<[u8]>,
}

impl RequiredHeader {
    /// Takes the name, of which the case does not matter, and the value, byte for byte.
    ///
    /// # Errors
    /// [`InvalidHeader::Name`] for a name no header can have.
    pub fn new(name: &str, value: &[u8]) -> Result<RequiredHeader, InvalidHeader> {
        let lower = HeaderName::from_bytes(name.as_bytes()).map_err(|_| InvalidHeader::Name)?;
        Ok(RequiredHeader {
            name: name.into(),
            lower_name: lower.as_str().into(),
            value: value.into(),
        })
    }

    /// The name as it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value.
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    pub(crate) fn lower_name(&self) -> &str {
        &self.lower_name
    }

    /// Whether `given` is the value, in time that depends on the length of `given` alone.
    pub(crate) fn is_met_by(&self, given: Option<&[u8]>) -> bool {
        let Some(given) = given else { return false };
        let mut difference = u8::from(given.len() != self.value.len());
        for (index, byte) in given.iter().enumerate() {
            // Past the end of the value it is compared with itself: the lengths have decided already.
            difference |= byte ^ self.value.get(index).unwrap_or(byte);
        }
        std::hint::black_box(difference) == 0
    }
}

impl fmt::Debug for RequiredHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The value is a secret: it does not get into logs.
        write!(f, "RequiredHeader({})", self.name)
    }
}

/// Why a static path was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathError {
    /// The key does not begin with `/`, ends with one, or has a segment that no request can name: empty, `.`, `..`, or
    /// with a backslash or NUL.
    Key,
    /// The key is longer than 4,096 bytes.
    KeyLength,
    /// The path on disk is relative, or has a NUL.
    Path,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PathError::Key => {
                "a static path must start with `/`, not end with one, and have no empty, `.` or `..` segment, backslash or NUL"
            }
            PathError::KeyLength => "a static path must not be longer than 4096 bytes",
            PathError::Path => "the file or directory of a static path must be absolute",
        })
    }
}

impl std::error::Error for PathError {}

/// Options after inheritance, as requests meet them.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) root: PathBuf,
    pub(crate) options: StaticOptions,
}

impl Mapping {
    pub(crate) fn resolve(path: &StaticPath, defaults: &StaticOptions) -> Mapping {
        let own = &path.overrides;
        Mapping {
            root: path.path.clone(),
            options: StaticOptions {
                index: own.index.unwrap_or(defaults.index),
                fallthrough: own.fallthrough.unwrap_or(defaults.fallthrough),
                html_charset: own.html_charset.as_ref().unwrap_or(&defaults.html_charset).clone(),
                headers: own.headers.as_ref().unwrap_or(&defaults.headers).clone(),
                validation: own.validation.as_ref().unwrap_or(&defaults.validation).clone(),
                exclude: own.exclude.unwrap_or(defaults.exclude),
            },
        }
    }

    pub(crate) fn has_header(&self, lower_name: &str) -> bool {
        self.options.headers.iter().any(|header| header.is(lower_name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_required_value_is_compared_byte_for_byte() {
        let secret = RequiredHeader::new("X-Shiny-Shared-Secret", b"abc").unwrap();
        assert_eq!(secret.lower_name(), "x-shiny-shared-secret");
        for (given, met) in [
            (&b"abc"[..], true),
            (b"abC", false),
            (b"ab", false),
            (b"abcd", false),
            (b"abca", false),
            (b"", false),
        ] {
            assert_eq!(secret.is_met_by(Some(given)), met, "{given:?}");
        }
        assert!(!secret.is_met_by(None));
        let empty = RequiredHeader::new("x", b"").unwrap();
        assert!(
            empty.is_met_by(Some(b"")) && !empty.is_met_by(Some(b"a")) && !empty.is_met_by(None)
        );
        assert_eq!(RequiredHeader::new("a b", b""), Err(InvalidHeader::Name));
        assert!(!format!("{secret:?}").contains("abc"));
    }

    #[test]
    fn a_charset_is_a_token_or_nothing() {
        assert_eq!(Charset::new("").unwrap().as_str(), "");
        assert_eq!(Charset::new("ISO-8859-1").unwrap().as_str(), "ISO-8859-1");
        for bad in ["utf 8", "utf-8\r\nX: y", "a;b", "\u{e9}"] {
            assert_eq!(Charset::new(bad), Err(InvalidHeader::Value), "{bad:?}");
        }
    }
}
