//! Compares the values that this crate's parser and R's package yaml read from `_server.yml`. R's
//! package read these files in earlier releases.
//!
//! If both accept a value, they must read the same. Values that only R's package accepts are
//! listed. The test passes without comparing if R or its package yaml is not installed.

mod support;

use rookery_settings::yaml::{Content, parse};
use rookery_settings::{Raw, Value, table};

/// Values of the key `x:` in a file.
const SCALARS: [&str; 78] = [
    "yes",
    "no",
    "Yes",
    "NO",
    "on",
    "off",
    "On",
    "OFF",
    "true",
    "false",
    "True",
    "FALSE",
    "y",
    "n",
    "Y",
    "N",
    "t",
    "T",
    "'yes'",
    "\"no\"",
    "0",
    "1",
    "8000",
    "10000",
    "65535",
    "4294967296",
    "9007199254740992",
    "1.5",
    "0.5",
    "1e3",
    "1e+3",
    "1.5e3",
    "1E3",
    ".inf",
    ".Inf",
    "-.inf",
    ".nan",
    "~",
    "null",
    "Null",
    "",
    "''",
    "\"\"",
    "'null'",
    "010",
    "0x10",
    "0o10",
    "1_000",
    "1:30",
    "-5",
    "+5",
    "'10'",
    "\"10\"",
    "10MB",
    "10 MB",
    "\"10 MiB\"",
    "30s",
    "2 min",
    "Inf",
    "none",
    "auto",
    "same",
    "*.example.org",
    "\"*.example.org\"",
    "unix:/run/s",
    "127.0.0.1:9100",
    "\"[::1]:80\"",
    "10.0.0.0/8",
    "/a/b c # comment",
    "a#b",
    "'it''s'",
    "\"a\\tb\\u00e9\"",
    "|\n  two\n  lines",
    ">\n  folded\n  text",
    "2001-01-01",
    "1.2",
    "1.3",
    "é",
];

/// Values that R's package reads as a number or NULL, and that this parser reads as a text, which
/// settings reject. Readers disagree about other bases and digits with `_`, and no setting is
/// negative or not a number.
const REFUSED: [&str; 8] = ["010", "0x10", "0o10", "1_000", "1:30", "-5", "+5", "-.inf"];

const SCRIPT: &str = r#"
if (!requireNamespace("yaml", quietly = TRUE)) quit(status = 77)
for (file in commandArgs(TRUE)) {
  x <- tryCatch(
    yaml::yaml.load(rawToChar(readBin(file, "raw", 1e6)))$x,
    error = function(e) structure(1, class = "error")
  )
  if (inherits(x, "error")) { cat("error\n"); next }
  if (is.null(x)) { cat("null\n"); next }
  number <- function() format(x, digits = 17, scientific = FALSE, trim = TRUE)
  text <- if (is.numeric(x)) number() else as.character(x)
  cat(typeof(x), " ", paste(utf8ToInt(enc2utf8(text)), collapse = ","), "\n", sep = "")
}
"#;

/// Returns the type and the text of each value that R reads.
fn read_by_r(documents: &[String]) -> Option<Vec<(String, String)>> {
    let lines = support::run_r(SCRIPT, documents.iter().map(String::as_str))?;
    let found = lines.lines().map(|line| {
        let (kind, codes) = line.split_once(' ').unwrap_or((line, ""));
        let codes = codes.split(',').filter(|code| !code.is_empty());
        let text = codes.map(|code| char::from_u32(code.parse().unwrap()).unwrap()).collect();
        (kind.to_owned(), text)
    });
    Some(found.collect())
}

#[test]
fn parses_scalars_like_the_yaml_package_of_r() {
    let documents: Vec<String> = SCALARS.iter().map(|scalar| format!("x: {scalar}\n")).collect();
    let Some(found) = read_by_r(&documents) else {
        eprintln!("skipped: R, or its package yaml, is not installed");
        return;
    };
    assert_eq!(found.len(), SCALARS.len());
    for ((scalar, document), (kind, text)) in SCALARS.iter().zip(&documents).zip(found) {
        let node = match parse(document) {
            Ok(node) => node,
            Err(problem) => {
                assert!(
                    kind == "error",
                    "{scalar}: R reads {kind} {text}, and this reader says {problem}"
                );
                continue;
            }
        };
        let Content::Fields(fields) = &node.content else { panic!("{scalar}: {node:?}") };
        let own = match &fields[0].value.content {
            Content::Null => None,
            Content::Text(own) => Some(own.as_str()),
            other => panic!("{scalar}: {other:?}"),
        };
        let read = |name: &str| table::row(name).read(&Raw::from(own.unwrap_or_default()));
        match kind.as_str() {
            "null" => assert_eq!(own, None, "{scalar}"),
            "logical" => {
                assert_eq!(read("fail_fast").unwrap(), Value::Flag(text == "TRUE"), "{scalar}");
            }
            "integer" | "double" => {
                // `NA` is an integer that R cannot represent.
                let Ok(expected) = text.parse::<f64>() else { continue };
                match read("max_body_size") {
                    Ok(Value::Number(number)) => {
                        // A size is rounded down to whole bytes.
                        let expected = expected.trunc();
                        assert!(
                            number.total_cmp(&expected).is_eq(),
                            "{scalar}: {number}, {expected} in R"
                        );
                    }
                    other => {
                        assert!(
                            REFUSED.contains(scalar) || expected.is_nan(),
                            "{scalar}: {other:?}, {expected} in R"
                        );
                    }
                }
            }
            "character" => assert_eq!(own, Some(text.as_str()), "{scalar}"),
            other => panic!("{scalar}: {other} {text}"),
        }
    }
}
