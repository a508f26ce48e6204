//! The fuzz target of `_server.yml`.

use std::path::Path;

use rookery_settings::yaml::{Content, MAX_DEPTH, Node, parse};
use rookery_settings::{Raw, Value, server_yml};

/// Reads a file of any bytes.
///
/// A document must be within its limits, an error must have a position in the file, and every value
/// that is read must be shown as text that is read as the same value.
pub fn settings_file(data: &[u8]) {
    let text = &*String::from_utf8_lossy(data);
    match parse(text) {
        Ok(node) => {
            let depth = depth_of(&node);
            assert!(depth <= MAX_DEPTH + 1, "{depth} levels");
        }
        Err(problem) => assert_is_in(text, problem.at.line),
    }
    match server_yml::read(data, Path::new("/srv/_server.yml")) {
        Ok(None) => {}
        Ok(Some(file)) => {
            for given in file.given {
                let row = given.setting;
                if let Value::Number(number) = given.value {
                    assert!((row.min..=row.max).contains(&number), "{}: {number}", row.name);
                }
                let shown = given.value.show(row.kind);
                // A path may begin or end with commas and spaces.
                if given.value.path().is_none() && given.value.paths().is_none() {
                    let again = row
                        .read(&Raw::Text(shown.clone()))
                        .unwrap_or_else(|error| panic!("{shown}: {error}"));
                    assert_eq!(again, given.value, "{}: {shown}", row.name);
                }
            }
        }
        Err(problem) => assert_is_in(text, problem.at.line),
    }
}

fn assert_is_in(text: &str, line: usize) {
    let lines = text.split(['\n', '\r']).count();
    assert!((1..=lines + 1).contains(&line), "line {line} of {lines}");
}

fn depth_of(node: &Node) -> usize {
    let below = match &node.content {
        Content::Null | Content::Text(_) => None,
        Content::List(items) => items.iter().map(depth_of).max(),
        Content::Fields(fields) => fields.iter().map(|field| depth_of(&field.value)).max(),
    };
    1 + below.unwrap_or(0)
}
