//! Compares how this crate's parser and R's package yaml read lists, mappings and mistakes.
//!
//! The tests pass without comparing if R or its package yaml is not installed.

mod support;

use rookery_settings::yaml::{Content, Node, parse};

/// Documents that both parsers read in the same way. Scalars are compared as text.
const SAME: [&str; 29] = [
    "a: [x, w, z]\n",
    "a:\n  - x\n  - w\n",
    "a:\n- x\n- w\n",
    "a: [x]\n",
    "a: []\n",
    "- x\n- [w, z]\n",
    "a: [[x, w], [z]]\n",
    "a: ['x, w', \"z\"]\n",
    "a: [x,\n  w,\n  z]\n",
    "a: {}\n",
    "a: {b: x, c: w}\n",
    "a: {b: {c: {d: x}}}\n",
    "a:\n  b:\n    c:\n      d: x\n  e: w\n",
    "a:\n  - b: x\n    c: w\n  - b: z\n",
    "{\"a\": {\"b\": [\"x\", \"w\"]}}\n",
    "'a b': x\n\"c\": w\n",
    "? a\n: x\n",
    "a: x # note\n# note\nb: w\n",
    "a: '<<'\n'<<': x\n",
    "a: \"x\\ny\\\\z\\u00e9\"\n",
    "a: 'it''s'\nb: \"\"\nc: ''\n",
    "a: |\n  x\n  w\nb: z\n",
    "a: |-\n  x\n   w\n",
    "a: >-\n  x\n  w\n\n  z\n",
    "a: x\n  w\n",
    "a: \"x\n  w\"\n",
    "a: [x, \"\u{e9}\", \u{65e5}\u{672c}]\n\u{e9}: w\n",
    "---\na: x\n",
    "%YAML 1.1\n---\na: x\n...\n",
];

/// Documents that both parsers reject.
const REJECTED: [&str; 16] = [
    "a: x\na: y\n",
    "a: {b: x, b: y}\n",
    "a:\n\tb: x\n",
    "a:\n  - x\n\t- y\n",
    "a: [x, y\n",
    "a: {b: x\n",
    "a: 'x\n",
    "a: \"x\n",
    "a: \"\\q\"\n",
    "a: b: c\n",
    "a: x\n b: y\n",
    "a:\n  b: x\n c: y\n",
    "a: @x\n",
    "a: `x`\n",
    "a: x\nb\n",
    "a: ]\n",
];

/// Documents that the parsers read differently: the result of R's package, and that of this parser.
const DIFFERENT: [(&str, &str, &str); 1] = [
    // YAML 1.2 allows a tab where no indentation is needed.
    ("\ta: x\n", "refused", "{a: \"x\"}"),
];

/// Documents that only this parser rejects, with a part of its message.
const REJECTED_HERE: [(&str, &str); 8] = [
    // R's package returns the text `_yaml.bad-anchor_`.
    ("a: *none\n", "not valid YAML"),
    ("a: x\n---\nb: y\n", "a second document begins here"),
    ("a: !expr 1 + 1\n", "the tag `!expr` is not supported here"),
    ("a: !own x\n", "the tag `!own` is not supported here"),
    ("[a, b]: x\n", "a key must be text"),
    ("{a: b}: x\n", "a key must be text"),
    ("a: &n x\nb: *n\n", "aliases are not supported here"),
    ("a: [[[[[[[[[[[[[[[[[[x]]]]]]]]]]]]]]]]]]\n", "values are nested more than 16 levels deep"),
];

const SCRIPT: &str = r#"
if (!requireNamespace("yaml", quietly = TRUE)) quit(status = 77)
show <- function(x) {
  if (inherits(x, "sequence")) {
    return(paste0("[", paste(vapply(x$items, show, ""), collapse = ", "), "]"))
  }
  if (is.list(x)) {
    fields <- vapply(seq_along(x), function(at) paste0(names(x)[[at]], ": ", show(x[[at]])), "")
    return(paste0("{", paste(sort(fields, method = "radix"), collapse = ", "), "}"))
  }
  if (is.null(x)) "null" else paste0("\"", as.character(x), "\"")
}
sequence <- function(x) structure(list(items = as.list(x)), class = "sequence")
for (file in commandArgs(TRUE)) {
  text <- rawToChar(readBin(file, "raw", 1e6))
  Encoding(text) <- "UTF-8"
  shown <- tryCatch(
    show(suppressWarnings(
      yaml::yaml.load(text, handlers = list(seq = sequence), eval.expr = FALSE)
    )),
    error = function(e) "refused"
  )
  cat(utf8ToInt(enc2utf8(shown)), "\n")
}
"#;

/// Returns the documents as R reads them, in the notation of `show`.
fn read_by_r<'a>(documents: impl Iterator<Item = &'a str>) -> Option<Vec<String>> {
    let lines = support::run_r(SCRIPT, documents)?;
    let letters = |line: &str| {
        let codes =
            line.split_whitespace().map(|code| char::from_u32(code.parse().unwrap()).unwrap());
        codes.collect::<String>()
    };
    Some(lines.lines().map(letters).collect())
}

fn show(node: &Node) -> String {
    match &node.content {
        Content::Null => "null".to_owned(),
        Content::Text(text) => format!("\"{text}\""),
        Content::List(items) => {
            format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(", "))
        }
        Content::Fields(fields) => {
            let fields =
                fields.iter().map(|field| format!("{}: {}", field.key, show(&field.value)));
            // The order of fields is not significant, and R puts merged fields in other places.
            let mut fields: Vec<String> = fields.collect();
            fields.sort();
            format!("{{{}}}", fields.join(", "))
        }
    }
}

fn compare(documents: &[&str], check: impl Fn(&str, String, Result<String, String>)) {
    let Some(found) = read_by_r(documents.iter().copied()) else {
        eprintln!("skipped: R, or its package yaml, is not installed");
        return;
    };
    assert_eq!(found.len(), documents.len());
    for (document, in_r) in documents.iter().zip(found) {
        let own = parse(document).map(|node| show(&node)).map_err(|problem| problem.to_string());
        check(document, in_r, own);
    }
}

#[test]
fn parses_structures_like_the_yaml_package_of_r() {
    compare(&SAME, |document, in_r, own| assert_eq!(own, Ok(in_r), "{document}"));
}

#[test]
fn rejects_mistakes_like_the_yaml_package_of_r() {
    compare(&REJECTED, |document, in_r, own| {
        assert_eq!(in_r, "refused", "{document}");
        assert!(own.is_err(), "{document}: {own:?}");
    });
}

#[test]
fn rejects_yaml_that_settings_do_not_need() {
    let documents = REJECTED_HERE.map(|(document, _)| document);
    compare(&documents, |document, _, own| {
        let (_, says) = REJECTED_HERE.iter().find(|(own, _)| *own == document).unwrap();
        assert!(own.as_ref().is_err_and(|message| message.contains(says)), "{document}: {own:?}");
    });
}

#[test]
fn differs_from_the_yaml_package_of_r_only_as_listed() {
    compare(&DIFFERENT.map(|(document, ..)| document), |document, in_r, own| {
        let (_, of_r, here) = DIFFERENT.iter().find(|(own, ..)| *own == document).unwrap();
        assert_eq!((in_r.as_str(), own.as_deref()), (*of_r, Ok(*here)), "{document}");
    });
}
