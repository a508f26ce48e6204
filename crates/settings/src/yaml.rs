//! Parses YAML into a tree in which each node has its position in the file. Scalars, such as
//! numbers, are kept as text.
//!
//! The size of a document ([`MAX_FILE_SIZE`]) and its depth ([`MAX_DEPTH`]) are limited. Aliases
//! and merge keys, which `_server.yml` does not need, are refused.

use std::fmt;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, StrInput, Tag};

use crate::kind::{Raw, escaped};

/// The maximum size of a YAML document in bytes. A long `_server.yml` has a few thousand bytes.
pub const MAX_FILE_SIZE: usize = 64 << 10;
/// The maximum depth of nested nodes in a YAML document. For example, the list in `options: {tls:
/// {acme: [a, b]}}` has the depth 4.
pub const MAX_DEPTH: usize = 16;

/// The beginning of the messages about mistakes in the syntax.
pub(crate) const NOT_VALID: &str = "this is not valid YAML";

/// A position in a YAML file. Lines and columns are counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The line number, counted from 1.
    pub line: usize,
    /// The column number in characters, counted from 1.
    pub column: usize,
}

impl Position {
    pub(crate) const START: Position = Position { line: 1, column: 1 };

    /// Returns the position after the last character of a text that begins at line 1, column 1.
    pub(crate) fn end_of(text: &str) -> Position {
        let line = text.matches('\n').count() + 1;
        let last = text.rsplit('\n').next().unwrap_or_default();
        Position { line, column: last.chars().count() + 1 }
    }

    fn of(mark: &Marker) -> Position {
        Position { line: mark.line().max(1), column: mark.col() + 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A mistake in a YAML file, and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    /// The position of the mistake in the file.
    pub at: Position,
    /// A sentence that describes the mistake to the user.
    pub message: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.message)
    }
}

impl std::error::Error for FileError {}

pub(crate) fn file_error<T>(at: Position, message: impl Into<String>) -> Result<T, FileError> {
    Err(FileError { at, message: message.into() })
}

/// A node of a YAML document: a value, with its position in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The position of the first character of the node.
    pub at: Position,
    /// The content of the node.
    pub content: Content,
}

/// The content of a node in a YAML document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A null value: an empty value, `~` or `null`.
    Null,
    /// A scalar, which is kept as text.
    Text(String),
    /// A sequence of nodes.
    List(Vec<Node>),
    /// A mapping, whose fields are in the order of the file.
    Fields(Vec<Field>),
}

/// A field of a YAML mapping: a key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The key of the field.
    pub key: String,
    /// The position of the key in the file.
    pub at: Position,
    /// The value of the field.
    pub value: Node,
}

impl Node {
    /// Converts the node to the raw value of a setting, which is still to be parsed. Returns `None`
    /// for a null value, and leaves out null values in lists and mappings.
    pub fn to_raw(&self) -> Option<Raw> {
        match &self.content {
            Content::Null => None,
            Content::Text(text) => Some(Raw::Text(text.clone())),
            Content::List(items) => {
                Some(Raw::List(items.iter().filter_map(Node::to_raw).collect()))
            }
            Content::Fields(fields) => {
                let pairs = fields
                    .iter()
                    .filter_map(|field| Some((field.key.clone(), field.value.to_raw()?)));
                Some(Raw::Fields(pairs.collect()))
            }
        }
    }
}

/// Parses the text of a YAML document.
///
/// # Errors
/// Fails if the text is not valid YAML, contains more than one document, or exceeds a limit.
pub fn parse(text: &str) -> Result<Node, FileError> {
    if text.len() > MAX_FILE_SIZE {
        return file_error(
            Position::START,
            format!("the file has more than {} KiB.", MAX_FILE_SIZE >> 10),
        );
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader(Parser::new_from_str(text));
    let (event, at) = loop {
        match reader.next()? {
            (Event::StreamStart | Event::DocumentStart(_) | Event::Nothing, _) => {}
            other => break other,
        }
    };
    if matches!(event, Event::StreamEnd) {
        return Ok(Node { at, content: Content::Null });
    }
    let node = reader.node(event, at, 0)?;
    loop {
        match reader.next()? {
            (Event::StreamEnd, _) => return Ok(node),
            (Event::DocumentStart(_), at) => {
                return file_error(at, "a second document begins here, but only one is allowed.");
            }
            _ => {}
        }
    }
}

struct Reader<'input>(Parser<'input, StrInput<'input>>);

impl<'input> Reader<'input> {
    fn next(&mut self) -> Result<(Event<'input>, Position), FileError> {
        match self.0.next_event() {
            Some(Ok((event, span))) => Ok((event, Position::of(&span.start))),
            Some(Err(error)) => {
                let message = error.info().trim_end_matches('.');
                file_error(
                    Position::of(error.marker()),
                    format!("{NOT_VALID}: {}.", escaped(message)),
                )
            }
            None => Ok((Event::StreamEnd, Position::START)),
        }
    }

    /// Reads one node of the YAML document. `event` is the first parser event of the node.
    fn node(
        &mut self,
        event: Event<'input>,
        at: Position,
        depth: usize,
    ) -> Result<Node, FileError> {
        if depth > MAX_DEPTH {
            return file_error(at, format!("values are nested more than {MAX_DEPTH} levels deep."));
        }
        let content = match event {
            Event::Alias(_) => {
                return file_error(at, "aliases are not supported here: write the value itself.");
            }
            Event::Scalar(text, style, _, tag) => {
                check_tag(tag.as_deref(), at)?;
                let is_null = style == ScalarStyle::Plain
                    && tag.is_none()
                    && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                if is_null { Content::Null } else { Content::Text(text.into_owned()) }
            }
            Event::SequenceStart(_, tag) => {
                check_tag(tag.as_deref(), at)?;
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => break,
                        (event, at) => items.push(self.node(event, at, depth + 1)?),
                    }
                }
                Content::List(items)
            }
            Event::MappingStart(_, tag) => {
                check_tag(tag.as_deref(), at)?;
                Content::Fields(self.fields(depth)?)
            }
            _ => return file_error(at, format!("{NOT_VALID}: a value is missing.")),
        };
        Ok(Node { at, content })
    }

    fn fields(&mut self, depth: usize) -> Result<Vec<Field>, FileError> {
        let mut fields: Vec<Field> = Vec::new();
        loop {
            let (event, at) = self.next()?;
            let key = match event {
                Event::MappingEnd => break,
                Event::Scalar(key, _, _, tag) => {
                    check_tag(tag.as_deref(), at)?;
                    key.into_owned()
                }
                _ => return file_error(at, "a key must be text."),
            };
            let (event, value_at) = self.next()?;
            let value = self.node(event, value_at, depth + 1)?;
            if let Some(before) = fields.iter().find(|field| field.key == key) {
                return file_error(
                    at,
                    format!(
                        "`{}:` is given twice, first in line {}.",
                        escaped(&key),
                        before.at.line
                    ),
                );
            }
            fields.push(Field { key, at, value });
        }
        Ok(fields)
    }
}

/// Rejects a tag that is not part of standard YAML. Such a tag is dangerous in R, which evaluates
/// the code after `!expr`.
fn check_tag(tag: Option<&Tag>, at: Position) -> Result<(), FileError> {
    match tag {
        Some(tag) if !tag.is_yaml_core_schema() => {
            let tag = escaped(&format!("{}{}", tag.handle, tag.suffix));
            file_error(at, format!("the tag `{tag}` is not supported here; leave it out."))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(text: &str) -> String {
        fn show(node: &Node) -> String {
            match &node.content {
                Content::Null => "null".to_owned(),
                Content::Text(text) => format!("{text:?}"),
                Content::List(items) => {
                    format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(", "))
                }
                Content::Fields(fields) => {
                    let pairs =
                        fields.iter().map(|field| format!("{}: {}", field.key, show(&field.value)));
                    format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
                }
            }
        }
        match parse(text) {
            Ok(node) => show(&node),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn scalars_stay_text() {
        assert_eq!(
            content(
                "a: yes\nb: 010\nc: 'x'\nd: |\n  two\n  lines\ne: ~\nf:\ng: \"\"\nh: !!str 1\n"
            ),
            r#"{a: "yes", b: "010", c: "x", d: "two\nlines\n", e: null, f: null, g: "", h: "1"}"#
        );
        assert_eq!(
            content("{\"a\": [1, 'b', null], \"b\": {\"c\": true}}"),
            r#"{a: ["1", "b", null], b: {c: "true"}}"#
        );
        for text in ["", "# a comment\n", "---\n", "\u{feff}"] {
            assert_eq!(content(text), "null", "{text:?}");
        }
        assert_eq!(content("\u{feff}a: 1\r\nb: 2\r\n"), r#"{a: "1", b: "2"}"#);
    }

    #[test]
    fn aliases_are_refused() {
        for text in ["a: &x {p: 1}\nb: *x\n", "a: &a [*a]\n", "a: &x {p: 1}\nb: {<<: *x}\n"] {
            assert!(
                content(text).ends_with("aliases are not supported here: write the value itself.")
            );
        }
        assert_eq!(content("a: &x {p: 1}\n"), r#"{a: {p: "1"}}"#);
    }

    #[test]
    fn reports_mistakes_with_their_position() {
        assert_eq!(
            content("a: 1\nb: 2\na: 3\n"),
            "line 3, column 1: `a:` is given twice, first in line 1."
        );
        assert_eq!(
            content("a: !expr system('id')\n"),
            "line 1, column 4: the tag `!expr` is not supported here; leave it out."
        );
        assert_eq!(
            content("a: 1\n---\nb: 2\n"),
            "line 2, column 1: a second document begins here, but only one is allowed."
        );
        assert_eq!(content("[1]: 2\n"), "line 1, column 1: a key must be text.");
        assert_eq!(
            content("!expr a: 1\n"),
            "line 1, column 1: the tag `!expr` is not supported here; leave it out."
        );
        assert_eq!(content("!!str a: 1\n\"b\": 2\n"), r#"{a: "1", b: "2"}"#);
        assert_eq!(content("!!str <<: 1\n"), r#"{<<: "1"}"#);
        for text in ["a: [1, 2\n", "a: 'b\n", "a: *none\n", "a: b: c\n", "a:\n\t- b\n"] {
            assert!(content(text).contains("not valid YAML"), "{text:?}: {}", content(text));
        }
    }

    #[test]
    fn limits_the_size_of_a_document() {
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(parse(&deep(MAX_DEPTH)).is_ok());
        for levels in [MAX_DEPTH + 2, 200, 300, 100_000] {
            assert!(parse(&deep(levels)).is_err(), "{levels}");
        }
        assert!(content(&"a".repeat(MAX_FILE_SIZE + 1)).contains("more than 64 KiB"));
    }
}
