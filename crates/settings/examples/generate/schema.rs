//! Writes the JSON schema of `_server.yml`, with which editors complete and check the file.

use rookery_settings::{Kind, Places, Section, Setting, table};
use serde_json::{Map, Value, json};

/// A number with a unit of size or time.
const AMOUNT: &str = "^[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?[ _]*[A-Za-z]+$";

/// Returns the schema as text.
pub(crate) fn document() -> String {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "_server.yml with engine: rookery",
        "type": "object",
        "properties": {
            "engine": { "const": "rookery" },
            "app": { "type": "string", "description": "The file or folder to serve, relative to \
                                                       this file" },
            "options": object(Section::Options),
        },
        "required": ["engine", "app"],
        "additionalProperties": false,
    });
    let mut text = serde_json::to_string_pretty(&schema).expect("it has only texts as keys");
    text.push('\n');
    text
}

fn object(section: Section) -> Value {
    let mut properties = Map::new();
    for row in table::all().filter(|row| row.places.has(Places::FILE)) {
        if row.section == section {
            properties.insert(row.key().to_owned(), described(row));
        }
    }
    for inner in Section::ALL.into_iter().filter(|inner| inner.parent() == Some(section)) {
        let schema = match properties.remove(inner.key()) {
            Some(scalar) => json!({ "anyOf": [scalar, object(inner)] }),
            None => object(inner),
        };
        properties.insert(inner.key().to_owned(), schema);
    }
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn described(row: &Setting) -> Value {
    let mut schema = value(row);
    schema["description"] = json!(format!("{}. {}", row.help, row.paragraph));
    schema
}

fn value(row: &Setting) -> Value {
    let mut alternatives = of_kind(row);
    if !row.words.is_empty() {
        // YAML reads an unquoted `0` as a number.
        let words = row.words.iter().filter(|word| **word != "0");
        let words: Vec<&str> = words.copied().collect();
        if !words.is_empty() {
            alternatives.push(json!({ "enum": words }));
        }
        if row.words.contains(&"0") {
            alternatives.push(json!({ "const": 0 }));
        }
    }
    if row.flag_words.is_some() {
        alternatives.push(json!({ "type": "boolean" }));
    }
    match alternatives.len() {
        1 => alternatives.remove(0),
        _ => json!({ "anyOf": alternatives }),
    }
}

fn of_kind(row: &Setting) -> Vec<Value> {
    let string = || json!({ "type": "string" });
    match row.kind {
        Kind::Flag => {
            vec![json!({ "type": "boolean" }), json!({ "enum": ["yes", "no", "on", "off"] })]
        }
        Kind::Count => {
            let mut all = vec![number(row, "integer")];
            if row.max.is_infinite() {
                all.push(unlimited());
            }
            all
        }
        Kind::Bytes | Kind::Seconds => {
            let mut all =
                vec![number(row, "number"), json!({ "type": "string", "pattern": AMOUNT })];
            if row.max.is_infinite() {
                all.push(unlimited());
            }
            all
        }
        Kind::Choice(choices) => {
            let numbers: Vec<Value> = choices
                .iter()
                .filter_map(|choice| serde_json::from_str::<Value>(choice).ok())
                .collect();
            let words: Vec<Value> = choices.iter().map(|choice| json!(choice)).collect();
            let all = [words, numbers].concat();
            vec![json!({ "enum": all })]
        }
        Kind::Text(_) | Kind::Path => vec![string()],
        Kind::List(_) | Kind::Paths => {
            vec![string(), json!({ "type": "array", "items": string(), "minItems": 1 })]
        }
        Kind::Composite(composite) => {
            let fields: Map<String, Value> = composite
                .fields
                .iter()
                .map(|(name, kind)| {
                    let schema = match kind {
                        Kind::Flag => json!({ "type": "boolean" }),
                        Kind::Count => json!({ "type": "integer" }),
                        _ => json!({ "type": ["number", "string"] }),
                    };
                    ((*name).to_owned(), schema)
                })
                .collect();
            let object =
                json!({ "type": "object", "properties": fields, "additionalProperties": false });
            vec![json!({ "type": ["boolean", "number", "string"] }), object]
        }
    }
}

fn number(row: &Setting, kind: &str) -> Value {
    let mut schema = json!({ "type": kind, "minimum": plain(row.min) });
    if row.max.is_finite() {
        schema["maximum"] = plain(row.max);
    }
    schema
}

/// Writes a whole number without a fraction.
#[expect(clippy::cast_sign_loss, reason = "bounds are not negative")]
fn plain(number: f64) -> Value {
    if number.fract() == 0.0 && number < 1e18 { json!(number as u64) } else { json!(number) }
}

fn unlimited() -> Value {
    json!({ "enum": ["none", "Inf", ".inf"] })
}
