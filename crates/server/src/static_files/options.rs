//! The options of static paths (URL paths that are mapped to files): the server-wide options, and
//! the options of a single path, which override them.

use std::fmt;
use std::path::PathBuf;

use http::HeaderName;

use super::header::{Header, InvalidHeader};

/// The file or directory that a static path is mapped to, and the options of the static path that
/// differ from the server-wide ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StaticPath {
    /// The absolute path of the file or directory on disk. It is empty if `overrides.exclude` is
    /// `Some(true)`.
    pub path: PathBuf,
    /// The options of this static path.
    pub overrides: Overrides,
}

/// The options of one static path. An option that is `None` is inherited from the server-wide
/// options, and never from a shorter static path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Whether the response to a request for a directory is the file `index.html` in it. Replaces
    /// the server-wide [`StaticOptions::index`].
    pub index: Option<bool>,
    /// Whether requests for missing files are passed to the application. Replaces the server-wide
    /// [`StaticOptions::fallthrough`].
    pub fallthrough: Option<bool>,
    /// The charset of HTML files. Replaces the server-wide [`StaticOptions::html_charset`].
    pub html_charset: Option<Charset>,
    /// The headers that are added to responses. Replaces the whole server-wide list
    /// [`StaticOptions::headers`].
    pub headers: Option<Vec<Header>>,
    /// The header that requests must have. Replaces the server-wide [`StaticOptions::validation`].
    pub validation: Option<Validation>,
    /// Whether requests for this static path are passed to the application, even if a shorter
    /// static path matches them. Replaces the server-wide [`StaticOptions::exclude`].
    pub exclude: Option<bool>,
    /// Whether the static path is a web site of its own. Replaces the server-wide
    /// [`StaticOptions::site`].
    pub site: Option<bool>,
}

/// The server-wide options of static paths, which apply unless a static path has an option of its
/// own.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "the options are independent of each other")]
pub struct StaticOptions {
    /// Whether the response to a request for a directory is the file `index.html` in it. True by
    /// default.
    pub index: bool,
    /// Whether requests for missing files are passed to the application, instead of a 404 response.
    /// False by default.
    pub fallthrough: bool,
    /// The charset in the Content-Type of HTML files, by default `utf-8`.
    pub html_charset: Charset,
    /// The headers that are added to every 200 and 206 response with a static file, and to a 304
    /// response if RFC 9110 (15.4.5) requires them. A `Content-Type`, `Last-Modified`, `ETag` or
    /// `Accept-Ranges` in this list replaces the server's own header. Empty by default.
    pub headers: Vec<Header>,
    /// The header that a request for a static file must have. By default, no header is required.
    pub validation: Validation,
    /// Whether requests for a static path are passed to the application, even if a shorter static
    /// path matches them. False by default.
    pub exclude: bool,
    /// Whether the static path is a web site of its own, where the server responds as other web
    /// servers do and not as httpuv does: a request for a directory without the final slash is
    /// redirected to the URL with the slash, so that relative links in its index work, the response
    /// to POST is 405 instead of 400, `/page` finds `page.html`, the response to a request for a
    /// missing file is the `404.html` of the directory, and settings and source code of R are never
    /// served. False by default.
    pub site: bool,
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
            site: false,
        }
    }
}

/// The charset that the header Content-Type states for HTML files. If it is empty, the header
/// states no charset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charset(Box<str>);

impl Charset {
    /// Validates and copies the name of a charset. An empty name means no charset.
    ///
    /// # Errors
    /// Returns [`InvalidHeader::Value`] for a name that is not a token (RFC 9110, 5.6.2).
    pub fn new(name: &str) -> Result<Charset, InvalidHeader> {
        // The name of a header must be a token too, so its parser serves as the check.
        if name.is_empty() || HeaderName::from_bytes(name.as_bytes()).is_ok() {
            Ok(Charset(name.into()))
        } else {
            Err(InvalidHeader::Value)
        }
    }

    /// Returns the name of the charset, which is empty if there is no charset.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The header that requests for a static file must have, if there is one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Validation {
    /// Requests for static files need no special header.
    #[default]
    Off,
    /// Requests for static files must have this header. The response to requests without it is 403.
    Require(RequiredHeader),
}

/// The name of the header that requests for static files must have, and the value that it must
/// have.
#[derive(Clone, PartialEq, Eq)]
pub struct RequiredHeader {
    name: Box<str>,
    lower_name: Box<str>,
    value: Box<[u8]>,
}

impl RequiredHeader {
    /// Validates and copies the name and value of a header that requests must have. Names are
    /// compared without regard to case, and values byte by byte.
    ///
    /// # Errors
    /// Returns [`InvalidHeader::Name`] for an invalid name.
    pub fn new(name: &str, value: &[u8]) -> Result<RequiredHeader, InvalidHeader> {
        let lower = HeaderName::from_bytes(name.as_bytes()).map_err(|_| InvalidHeader::Name)?;
        Ok(RequiredHeader {
            name: name.into(),
            lower_name: lower.as_str().into(),
            value: value.into(),
        })
    }

    /// Returns the name of the required header in its original spelling.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the value that the required header must have.
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    pub(crate) fn lower_name(&self) -> &str {
        &self.lower_name
    }

    /// Returns true if `given`, the header's value in a request, equals the required value. The
    /// time that the comparison takes depends only on the length of `given`, so that a client
    /// cannot find out the value by measuring.
    pub(crate) fn is_met_by(&self, given: Option<&[u8]>) -> bool {
        let Some(given) = given else { return false };
        let mut difference = u8::from(given.len() != self.value.len());
        for (index, byte) in given.iter().enumerate() {
            // Bytes past the end of the required value are compared with themselves, because the
            // comparison of lengths has already decided the result.
            difference |= byte ^ self.value.get(index).unwrap_or(byte);
        }
        std::hint::black_box(difference) == 0
    }
}

impl fmt::Debug for RequiredHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The value is a secret that must not appear in logs.
        write!(f, "RequiredHeader({})", self.name)
    }
}

/// The reason why a static path was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathError {
    /// The URL path of the static path is invalid. It may lack the `/` at its start or have one at
    /// its end. Or it has a segment that no request can match, because the segment is empty, is `.`
    /// or `..`, or contains a backslash or a NUL.
    Key,
    /// The URL path of the static path is longer than 4,096 bytes.
    KeyLength,
    /// The path of the file or directory on disk is relative or contains a NUL.
    Path,
    /// The static path has more headers than a response can have.
    Headers,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PathError::Key => {
                "a static path must start with `/`, not end with one, and have no empty, `.` or `..` segment, backslash or NUL"
            }
            PathError::KeyLength => "a static path must not be longer than 4096 bytes",
            PathError::Path => "the file or directory of a static path must be absolute",
            PathError::Headers => "a static path must not have more than 10,000 headers",
        })
    }
}

impl std::error::Error for PathError {}

/// The file or directory of a static path, with the options that apply to it. Options that the
/// static path does not set have their server-wide values.
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
                site: own.site.unwrap_or(defaults.site),
            },
        }
    }

    /// Returns true if the static path restricts which requests get the files under it.
    pub(crate) fn is_protected(&self) -> bool {
        self.options.exclude || self.options.validation != Validation::Off
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
