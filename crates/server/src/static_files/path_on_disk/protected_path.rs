//! Other spellings of static paths that are excluded or require a header.
//!
//! On a file system that ignores case, such as a mounted FAT, NTFS or SMB volume or a folder of
//! ext4 with the attribute `casefold`, several URL paths lead to the same file. The server cannot
//! find out which file systems do so, because each folder can be on another one. It therefore
//! treats every such spelling as the protected path itself.

use std::borrow::Cow;

use super::name_rules::{caseless, is_ignored};

/// The key (the URL path) of a static path that is excluded or requires a header, in a form that is
/// compared with other spellings.
#[derive(Debug)]
pub(crate) struct ProtectedPath {
    /// The segments of the key without regard to case, as [`loose`] returns them.
    segments: Vec<Box<[u8]>>,
}

impl ProtectedPath {
    pub(crate) fn new(key: &str) -> ProtectedPath {
        let segments = segments(key.as_bytes()).map(|segment| loose(segment).into()).collect();
        ProtectedPath { segments }
    }

    /// Returns true if a file system could find the file with the URL path `path` under this key.
    /// `rest` is the part of `path` after the static path that matches it. That static path takes
    /// precedence, so the result is false, if it has at least as many segments as this key.
    pub(crate) fn may_contain(&self, path: &[u8], rest: &[u8]) -> bool {
        let count = |path| segments(path).count();
        let mut compared = segments(path);
        self.segments
            .iter()
            .all(|own| compared.next().is_some_and(|segment| may_be_same_name(own, segment)))
            && self.segments.len() > count(path) - count(rest)
    }
}

/// Returns true if a file system could find a file with settings or source code of R by the last
/// name of `path`: a `_server.yml`, or a file with the extension `R`, `Rmd` or `qmd`.
pub(crate) fn is_source(path: &[u8]) -> bool {
    let Some(name) = segments(path).last() else { return false };
    let name = if is_plain(name) { Cow::Borrowed(name) } else { Cow::Owned(loose(name)) };
    let is = |own: &&str| name.eq_ignore_ascii_case(own.as_bytes());
    let extension = name.rsplit(|byte| *byte == b'.').next().unwrap_or_default();
    // A short name begins with the first two letters of the long one, and keeps an extension of up
    // to three letters.
    let has_short_name = || name.starts_with(b"_s") && name.contains(&b'~');
    SETTINGS_NAMES.iter().any(is)
        || extension.len() < name.len()
            && SOURCE_EXTENSIONS.iter().any(|own| extension.eq_ignore_ascii_case(own.as_bytes()))
        || has_short_name()
}

/// The names of files with settings of Rookery.
const SETTINGS_NAMES: [&str; 2] = ["_server.yml", "_server.yaml"];

/// The extensions of files with source code of R.
const SOURCE_EXTENSIONS: [&str; 3] = ["r", "rmd", "qmd"];

fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|segment| !segment.is_empty())
}

/// Returns true if a file system could find the file `own`, which is in the form of [`loose`], by
/// the name `name`.
fn may_be_same_name(own: &[u8], name: &[u8]) -> bool {
    if is_plain(name) {
        return own.eq_ignore_ascii_case(name);
    }
    *own == *loose(name) || is_short_name(own, name)
}

/// Returns true if all names by which a file system could find the file `name` are equal to this
/// name without regard to the case of ASCII letters.
fn is_plain(name: &[u8]) -> bool {
    name.is_ascii()
        && !name.iter().any(|byte| matches!(byte, b'~' | b':'))
        && !name.ends_with(b".")
        && !name.ends_with(b" ")
}

/// Converts a file name to a form that is equal for all names by which a file system could find the
/// file, apart from short names: without regard to case and the normal form of Unicode, and without
/// dots and spaces at the end (FAT), a stream (NTFS), and characters without a width (HFS+).
fn loose(name: &[u8]) -> Vec<u8> {
    let end = name.iter().position(|byte| *byte == b':').unwrap_or(name.len());
    let name = name[..end].trim_ascii_end();
    let dots = name.iter().rev().take_while(|byte| matches!(byte, b'.' | b' ')).count();
    let name = caseless(&name[..name.len() - dots]).into_owned();
    match String::from_utf8(name) {
        Ok(text) => text.replace(is_ignored, "").into_bytes(),
        Err(error) => error.into_bytes(),
    }
}

/// Returns true if `name` could be the short name of the file `own` in a FAT or NTFS file system,
/// such as `SECRET~1.TXT`. Short names begin with at least one character of the long name, and the
/// characters that they cannot contain are replaced.
fn is_short_name(own: &[u8], name: &[u8]) -> bool {
    let Some(tilde) = name.iter().position(|byte| *byte == b'~') else { return false };
    let is_numbered = name.get(tilde + 1).is_some_and(u8::is_ascii_digit);
    let is_replaced = |first: u8| !first.is_ascii_alphanumeric();
    let first = own.iter().find(|byte| !matches!(byte, b'.' | b' '));
    is_numbered
        && first
            .zip(name.first())
            .is_some_and(|(own, name)| own.eq_ignore_ascii_case(name) || is_replaced(*own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_source_file_is_detected() {
        for path in [
            "_server.yml",
            "a/_SERVER.yaml",
            "_server.yaml/",
            "_\u{17f}erver.yml",
            "_SERVE~1.YML",
            "a/_S1A2B~1.YAM",
            "_server.yml::$DATA",
            "index.Rmd",
            "a/b.qmd",
            "INDEX~1.RMD",
            "setup.r. .",
            "r\u{e9}sum\u{e9}.R",
        ] {
            assert!(is_source(path.as_bytes()), "{path}");
        }
        for path in
            ["", "r", "rmd", "index.html", "_server.yml.html", "a.R/b.png", "x~1.html", "_s.css"]
        {
            assert!(!is_source(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn every_spelling_of_a_protected_path_is_detected() {
        let protected = ProtectedPath::new("/s/secret-folder/\u{e9}.yaml");
        for path in [
            "/s/secret-folder/\u{e9}.yaml",
            "/S/SECRET-Folder/E\u{301}.YAML",
            "/s/secret-folder./\u{e9}.yaml. .",
            "/s/SECRET~1/\u{e9}.yaml/x",
            "/s/secret-folder/\u{e9}.yaml::$DATA",
            "/s/sec\u{200c}ret-folder/\u{e9}.yaml",
            "/s/secret-folder/E~12.YAM",
        ] {
            assert!(protected.may_contain(path.as_bytes(), &path.as_bytes()[3..]), "{path}");
        }
        for path in ["/s", "/s/secret-folder", "/s/secret-folder/e.yaml", "/s/secret/\u{e9}.yaml"] {
            assert!(!protected.may_contain(path.as_bytes(), &path.as_bytes()[2..]), "{path}");
        }
        // A static path that is as long as the protected one matches exactly.
        assert!(!ProtectedPath::new("/a").may_contain(b"/A/x", b"x"));
        assert!(ProtectedPath::new("/a/x").may_contain(b"/a/X", b"X"));
    }
}
