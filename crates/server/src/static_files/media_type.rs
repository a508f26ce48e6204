//! Derives the media type (Content-Type) of a file from the extension of its name.

use std::path::Path;

use bytes::Bytes;

/// Returns the Content-Type of a file, derived from its extension in upper or lower case. A name
/// such as `.html` has no extension. For HTML files, `html_charset` is added, unless it is empty.
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

/// The file extensions whose media type in the crate `mime_guess` is not the usual one on the web,
/// each with the type that is used instead. These types are those of httpuv.
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
