//! What kind of file a name stands for.

use std::path::Path;

use bytes::Bytes;

/// The Content-Type of a file by its extension, in any case; a name that is all extension (`.html`) has none. HTML gets
/// the charset, if there is one.
pub(crate) fn media_type(path: &Path, html_charset: &str) -> Bytes {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let known =
        OURS.iter().find(|(ours, _)| ours.eq_ignore_ascii_case(extension)).map(|(_, kind)| *kind);
    let kind = known.or_else(|| mime_guess::from_ext(extension).first_raw()).unwrap_or(UNKNOWN);
    if kind == "text/html" && !html_charset.is_empty() {
        return Bytes::from(format!("text/html; charset={html_charset}"));
    }
    Bytes::from_static(kind.as_bytes())
}

const UNKNOWN: &str = "application/octet-stream";

/// Where `mime_guess` differs from what httpuv sends and web content relies on.
const OURS: &[(&str, &str)] = &[
    ("bib", "text/x-bibtex"),
    ("diff", "text/x-diff"),
    ("ico", "image/vnd.microsoft.icon"),
    ("js", "text/javascript"),
    ("map", UNKNOWN),
    ("mjs", "text/javascript"),
    ("otf", "font/otf"),
    ("parquet", UNKNOWN),
    ("patch", "text/x-diff"),
    ("ts", "video/mp2t"),
    ("woff", "font/woff"),
    ("xml", "application/xml"),
];
