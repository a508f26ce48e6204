//! A parser of the header `Sec-WebSocket-Extensions` (RFC 6455, 9.1) that allocates nothing.
//!
//! ```text
//! extension-list = 1#( token *( ";" token [ "=" ( token | quoted-string ) ] ) )
//! ```
//! Empty elements of a list are skipped, as RFC 9110, 5.6.1.2 requires of a recipient. The value of
//! a quoted string must itself be a token after its backslashes are removed.

use std::fmt;

/// An error: the header `Sec-WebSocket-Extensions` does not follow its grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malformed list of extensions")
    }
}

impl std::error::Error for Malformed {}

/// An iterator over the extensions in one `Sec-WebSocket-Extensions` header line, in order.
///
/// After a syntax error, the iterator ends.
///
/// ```
/// use rookery_websocket::protocol::Extensions;
/// let mut list = Extensions::parse(b"permessage-deflate; client_max_window_bits; x=\"1\", other");
/// let first = list.next().unwrap()?;
/// assert_eq!(first.name(), "permessage-deflate");
/// let (name, value) = first.params().nth(1).unwrap();
/// assert!(name == "x" && value.unwrap() == "1");
/// assert_eq!(list.next().unwrap()?.name(), "other");
/// # Ok::<(), rookery_websocket::protocol::Malformed>(())
/// ```
#[derive(Debug, Clone)]
pub struct Extensions<'a> {
    rest: &'a [u8],
}

/// A WebSocket extension with its parameters, as written in the header.
#[derive(Debug, Clone, Copy)]
pub struct Extension<'a> {
    name: &'a str,
    /// The text of the extension's parameters, from the first `;` on. It was already parsed once
    /// without error.
    params: &'a [u8],
}

/// The value of an extension's parameter.
#[derive(Debug, Clone, Copy)]
pub struct Value<'a> {
    /// The text of the value without its quotes, but with its backslashes.
    raw: &'a str,
}

/// An iterator over the parameters of an [`Extension`].
#[derive(Debug, Clone)]
pub struct Params<'a> {
    rest: &'a [u8],
}

impl<'a> Extensions<'a> {
    /// Returns an iterator over the extensions in one `Sec-WebSocket-Extensions` header line.
    pub fn parse(line: &'a [u8]) -> Extensions<'a> {
        Extensions { rest: line }
    }

    fn read(&mut self) -> Result<Option<Extension<'a>>, Malformed> {
        loop {
            self.rest = skip_space(self.rest);
            match self.rest {
                [] => return Ok(None),
                [b',', rest @ ..] => self.rest = rest,
                _ => break,
            }
        }
        let (name, rest) = token(self.rest)?;
        let params = rest;
        let mut rest = skip_space(rest);
        while let Some((_, after)) = param(rest)? {
            rest = skip_space(after);
        }
        let params = &params[..params.len() - rest.len()];
        match rest {
            [] => self.rest = rest,
            [b',', after @ ..] => self.rest = after,
            _ => return Err(Malformed),
        }
        Ok(Some(Extension { name, params }))
    }
}

impl<'a> Iterator for Extensions<'a> {
    type Item = Result<Extension<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read();
        if read.is_err() {
            self.rest = &[];
        }
        read.transpose()
    }
}

impl<'a> Extension<'a> {
    /// Returns the extension's name in the spelling of the header. Compare it without regard to
    /// case.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Returns an iterator over the extension's parameters in their order, including repeated ones.
    pub fn params(&self) -> Params<'a> {
        Params { rest: self.params }
    }
}

impl<'a> Iterator for Params<'a> {
    type Item = (&'a str, Option<Value<'a>>);

    fn next(&mut self) -> Option<Self::Item> {
        let (found, rest) = param(skip_space(self.rest)).ok().flatten()?;
        self.rest = rest;
        Some(found)
    }
}

impl<'a> Value<'a> {
    /// Returns the characters of the parameter's value, without backslashes.
    pub fn chars(&self) -> impl Iterator<Item = char> + 'a {
        let mut raw = self.raw.chars();
        std::iter::from_fn(move || match raw.next() {
            Some('\\') => raw.next(),
            other => other,
        })
    }

    /// Returns the parameter's value if it is a decimal number of at most 255, without sign and
    /// leading zero.
    pub fn to_number(&self) -> Option<u8> {
        let mut number: Option<u8> = None;
        for digit in self.chars() {
            let digit = digit.to_digit(10)? as u8;
            number = match number {
                None => Some(digit),
                Some(0) => return None,
                Some(so_far) => Some(so_far.checked_mul(10)?.checked_add(digit)?),
            };
        }
        number
    }
}

impl PartialEq<&str> for Value<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.chars().eq(other.chars())
    }
}

type Param<'a> = (&'a str, Option<Value<'a>>);

/// Parses a parameter of the form `; name [= value]` at the start of `bytes`, and returns it with
/// the bytes after it. Returns `None` if there is no semicolon.
fn param(bytes: &[u8]) -> Result<Option<(Param<'_>, &[u8])>, Malformed> {
    let [b';', rest @ ..] = bytes else { return Ok(None) };
    let (name, rest) = token(skip_space(rest))?;
    let after_space = skip_space(rest);
    let [b'=', value @ ..] = after_space else { return Ok(Some(((name, None), rest))) };
    let value = skip_space(value);
    let (raw, rest) = match value {
        [b'"', inside @ ..] => quoted(inside)?,
        _ => token(value)?,
    };
    Ok(Some(((name, Some(Value { raw })), rest)))
}

fn token(bytes: &[u8]) -> Result<(&str, &[u8]), Malformed> {
    let end = bytes.iter().position(|byte| !is_token(*byte)).unwrap_or(bytes.len());
    let (token, rest) = bytes.split_at(end);
    match std::str::from_utf8(token) {
        Ok(token) if !token.is_empty() => Ok((token, rest)),
        _ => Err(Malformed),
    }
}

/// Parses a quoted string, given the bytes after its opening quote. Returns its contents and the
/// bytes after the closing quote.
fn quoted(bytes: &[u8]) -> Result<(&str, &[u8]), Malformed> {
    let mut at = 0;
    loop {
        match bytes.get(at) {
            Some(b'"') => break,
            Some(b'\\') if bytes.get(at + 1).is_some_and(|byte| is_token(*byte)) => at += 2,
            Some(byte) if is_token(*byte) => at += 1,
            _ => return Err(Malformed),
        }
    }
    if at == 0 {
        return Err(Malformed);
    }
    let inside = std::str::from_utf8(&bytes[..at]).map_err(|_| Malformed)?;
    Ok((inside, &bytes[at + 1..]))
}

fn skip_space(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    bytes
}

/// Returns true if `byte` may occur in a token of HTTP (RFC 9110, 5.6.2).
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(line: &str) -> Result<Vec<String>, Malformed> {
        Extensions::parse(line.as_bytes())
            .map(|extension| {
                let extension = extension?;
                let mut shown = extension.name().to_owned();
                for (name, value) in extension.params() {
                    shown.extend(["|", name]);
                    if let Some(value) = value {
                        shown.extend(['='].into_iter().chain(value.chars()));
                    }
                }
                Ok(shown)
            })
            .collect()
    }

    #[test]
    fn parses_what_browsers_and_libraries_send() {
        let table: &[(&str, &[&str])] = &[
            (
                "permessage-deflate; client_max_window_bits",
                &["permessage-deflate|client_max_window_bits"],
            ),
            (
                "permessage-deflate,x-webkit-deflate-frame",
                &["permessage-deflate", "x-webkit-deflate-frame"],
            ),
            ("a; b=1; c=\"2\"\t;d , e;f", &["a|b=1|c=2|d", "e|f"]),
            ("a;b=\"1\\5\"", &["a|b=15"]),
            (" , ,a, ", &["a"]),
            ("", &[]),
            ("a ; b = 1", &["a|b=1"]),
        ];
        for (line, expected) in table {
            assert_eq!(
                show(line).as_deref(),
                Ok(expected.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>().as_slice()),
                "{line}"
            );
        }
    }

    #[test]
    fn malformed_lists_are_refused() {
        for line in [
            ";",
            "a;",
            "a;;b",
            "a b",
            "a;b=",
            "a;b=\"",
            "a;b=\"\"",
            "a;b=\"x y\"",
            "a;b=\"\\",
            "=1",
            "a;=1",
            "a\u{e9}",
            "a;b=\"1\"x",
            "a=1",
            "a;b=1=2",
            "\u{0}",
        ] {
            assert!(show(line).is_err(), "{line}");
        }
    }

    #[test]
    fn numbers_have_one_spelling() {
        let number = |text| Value { raw: text }.to_number();
        assert_eq!((number("15"), number("8"), number("0")), (Some(15), Some(8), Some(0)));
        for bad in ["08", "+8", "256", "1.5", "a", "999999999999"] {
            assert_eq!(number(bad), None, "{bad}");
        }
    }
}
