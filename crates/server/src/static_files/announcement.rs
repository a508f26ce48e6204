//! The encoding in which a worker announces its static paths (URL paths that are mapped to files)
//! to the supervisor, so that the supervisor's front end can serve the files itself.
//!
//! An announcement contains the following fields of each static path:
//! - the URL path
//! - the path of the file or folder
//! - one byte of flags
//! - the character set of HTML files
//! - the name and value of the required request header, if there is one
//! - the number of response headers, and the name and value of each
//!
//! Each text is preceded by its length. Lengths and the number of headers are 32-bit integers in
//! little-endian order.

use std::collections::BTreeMap;
use std::fmt;

use super::header::Header;
use super::options::{Charset, Mapping, Overrides, RequiredHeader, StaticPath, Validation};
use super::path_map::{StaticFiles, check_key, check_path};
use super::path_on_disk::as_name;

const INDEX: u8 = 1;
const FALLTHROUGH: u8 = 2;
const EXCLUDE: u8 = 4;
const VALIDATION: u8 = 8;
const SITE: u8 = 16;

/// The error for bytes that are not a valid announcement of static paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedAnnouncement;

impl fmt::Display for MalformedAnnouncement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the announcement of static paths is malformed")
    }
}

impl std::error::Error for MalformedAnnouncement {}

impl StaticFiles {
    /// Returns the announcement by which a worker tells its supervisor which static paths it
    /// serves. It contains all paths with all their options, encoded in at most `limit` bytes.
    ///
    /// If a path does not fit, it is left out, together with every shorter path that is a prefix of
    /// it. Otherwise the shorter path would match requests for the longer one. The second value is
    /// true if no path was left out.
    pub fn announcement(&self, limit: usize) -> (Vec<u8>, bool) {
        let (paths, options) = (self.paths(), self.options());
        let mut encoded: Vec<(&str, Vec<u8>)> = Vec::with_capacity(paths.len());
        let mut left_out: Vec<&str> = Vec::new();
        let mut len = 0;
        for (key, path) in &paths {
            let mut bytes = Vec::new();
            write(key, &Mapping::resolve(path, &options), &mut bytes);
            if len + bytes.len() <= limit {
                len += bytes.len();
                encoded.push((key, bytes));
            } else {
                left_out.push(key);
            }
        }
        encoded.retain(|(key, _)| !left_out.iter().any(|below| is_above(key, below)));
        (encoded.into_iter().flat_map(|(_, bytes)| bytes).collect(), left_out.is_empty())
    }
}

/// Returns true if the static path `above` would match the requests for the static path `below` if
/// `below` did not exist.
fn is_above(above: &str, below: &str) -> bool {
    above == "/" || below.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

/// Decodes an announcement of static paths that [`StaticFiles::announcement`] has encoded.
///
/// # Errors
/// Fails if the bytes are incomplete or malformed, or if [`StaticFiles::set`] would refuse one of
/// the keys, paths or headers.
pub fn read_announcement(
    mut bytes: &[u8],
) -> Result<BTreeMap<String, StaticPath>, MalformedAnnouncement> {
    // An announcement contains the value of every option, so no defaults are needed here.
    let mut paths = BTreeMap::new();
    while !bytes.is_empty() {
        let (key, path) = read(&mut bytes).ok_or(MalformedAnnouncement)?;
        check_key(&key).and_then(|()| check_path(&path)).map_err(|_| MalformedAnnouncement)?;
        if paths.insert(key, path).is_some() {
            return Err(MalformedAnnouncement);
        }
    }
    Ok(paths)
}

fn write(key: &str, mapping: &Mapping, out: &mut Vec<u8>) {
    let options = &mapping.options;
    let required = match &options.validation {
        Validation::Off => None,
        Validation::Require(required) => Some(required),
    };
    write_text(key.as_bytes(), out);
    write_text(mapping.root.as_os_str().as_encoded_bytes(), out);
    let flags = [
        (options.index, INDEX),
        (options.fallthrough, FALLTHROUGH),
        (options.exclude, EXCLUDE),
        (options.site, SITE),
        (required.is_some(), VALIDATION),
    ];
    out.push(flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum());
    write_text(options.html_charset.as_str().as_bytes(), out);
    if let Some(required) = required {
        write_text(required.name().as_bytes(), out);
        write_text(required.value(), out);
    }
    write_len(options.headers.len(), out);
    for header in &options.headers {
        write_text(header.name(), out);
        write_text(header.value(), out);
    }
}

/// Appends the length of a string as 32 bits. A length that needs more bits is written as
/// `u32::MAX`.
fn write_len(len: usize, out: &mut Vec<u8>) {
    // Such a string exceeds the limit of every announcement, so its path is left out.
    out.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
}

fn write_text(text: &[u8], out: &mut Vec<u8>) {
    write_len(text.len(), out);
    out.extend_from_slice(text);
}

fn read(bytes: &mut &[u8]) -> Option<(String, StaticPath)> {
    let key = read_string(bytes)?;
    let path = as_name(read_text(bytes)?)?.into();
    let flags = take(bytes, 1)?[0];
    if flags & !(INDEX | FALLTHROUGH | EXCLUDE | VALIDATION | SITE) != 0 {
        return None;
    }
    let html_charset = Charset::new(&read_string(bytes)?).ok()?;
    let validation = if flags & VALIDATION == 0 {
        Validation::Off
    } else {
        let name = read_string(bytes)?;
        Validation::Require(RequiredHeader::new(&name, read_text(bytes)?).ok()?)
    };
    // The capacity is bounded because each header takes at least eight bytes. Otherwise, a forged
    // number of headers could allocate any amount of memory.
    let count = read_len(bytes)?;
    let mut headers = Vec::with_capacity(count.min(bytes.len() / 8));
    for _ in 0..count {
        let name = read_text(bytes)?;
        headers.push(Header::new(name, read_text(bytes)?).ok()?);
    }
    let overrides = Overrides {
        index: Some(flags & INDEX != 0),
        fallthrough: Some(flags & FALLTHROUGH != 0),
        html_charset: Some(html_charset),
        headers: Some(headers),
        validation: Some(validation),
        exclude: Some(flags & EXCLUDE != 0),
        site: Some(flags & SITE != 0),
    };
    Some((key, StaticPath { path, overrides }))
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(taken)
}

fn read_len(bytes: &mut &[u8]) -> Option<usize> {
    let len = take(bytes, 4)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(len)).ok()
}

fn read_text<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = read_len(bytes)?;
    take(bytes, len)
}

fn read_string(bytes: &mut &[u8]) -> Option<String> {
    String::from_utf8(read_text(bytes)?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::static_files::StaticOptions;
    use crate::static_files::tests::absolute;

    const MOST: usize = 1 << 16;

    fn at(path: &str, overrides: Overrides) -> StaticPath {
        let is_empty = path.is_empty();
        StaticPath { path: if is_empty { path.into() } else { absolute(path) }, overrides }
    }

    fn files() -> StaticFiles {
        let header =
            |name: &str, value: &str| Header::new(name.as_bytes(), value.as_bytes()).unwrap();
        let validation =
            Validation::Require(RequiredHeader::new("X-Secret", b"\xe9 \"==\" ;\0").unwrap());
        let files = StaticFiles::new();
        files.set_options(StaticOptions { fallthrough: true, ..StaticOptions::default() });
        files
            .set(
                [
                    ("/", at("/srv/www", Overrides::default())),
                    (
                        "/a/b",
                        at(
                            "/srv/b",
                            Overrides { validation: Some(validation), ..Overrides::default() },
                        ),
                    ),
                    ("/a", at("", Overrides { exclude: Some(true), ..Overrides::default() })),
                    (
                        "/\u{e9}",
                        at(
                            "/srv/\u{e9}",
                            Overrides {
                                index: Some(false),
                                fallthrough: Some(false),
                                html_charset: Some(Charset::new("").unwrap()),
                                site: Some(true),
                                headers: Some(vec![
                                    header("A", "1"),
                                    header("A", ""),
                                    header("B", "\t"),
                                ]),
                                ..Overrides::default()
                            },
                        ),
                    ),
                ]
                .map(|(key, path)| (key.to_owned(), path)),
            )
            .unwrap();
        files
    }

    #[test]
    fn an_announced_path_keeps_all_its_options() {
        let files = files();
        let read = read_announcement(&files.announcement(MOST).0).unwrap();
        assert_eq!(read.len(), 4);
        for (key, path) in files.paths() {
            let (here, there) = (
                Mapping::resolve(&path, &files.options()),
                // The reader's defaults, which must not have any effect.
                Mapping::resolve(
                    &read[&key],
                    &StaticOptions { index: false, exclude: true, ..StaticOptions::default() },
                ),
            );
            assert_eq!((here.root, here.options), (there.root, there.options), "{key}");
        }
        assert!(read_announcement(&StaticFiles::new().announcement(MOST).0).unwrap().is_empty());
    }

    #[test]
    fn paths_that_do_not_fit_are_left_out_with_their_prefixes() {
        let paths = |keys: &[(&str, usize)]| {
            let files = StaticFiles::new();
            let long = |(key, len): &(&str, usize)| {
                ((*key).to_owned(), at(&format!("/{}", "x".repeat(*len)), Overrides::default()))
            };
            files.set(keys.iter().map(long)).unwrap();
            read_announcement(&files.announcement(1000).0).unwrap().into_keys().collect::<Vec<_>>()
        };
        assert_eq!(paths(&[("/a", 10), ("/b", 10)]), ["/a", "/b"]);
        assert_eq!(paths(&[("/a", 10), ("/a/b/c", 2000), ("/ab", 10), ("/c", 10)]), ["/ab", "/c"]);
        assert_eq!(paths(&[("/", 10), ("/a", 10), ("/b", 2000), ("/c", 10)]), ["/a", "/c"]);
        assert_eq!(paths(&[("/", 2000), ("/a", 10)]), ["/a"]);
        let many: Vec<_> = (0..100).map(|at| (format!("/{at}"), 10)).collect();
        let many: Vec<_> = many.iter().map(|(key, len)| (key.as_str(), *len)).collect();
        let kept = paths(&many).len();
        assert!((10..100).contains(&kept), "{kept}");
    }

    #[test]
    fn malformed_announcements_are_refused_without_allocating_memory() {
        let whole = files().announcement(MOST).0;
        let ends: Vec<usize> = {
            let (mut rest, mut ends) = (&whole[..], vec![0]);
            while read(&mut rest).is_some() {
                ends.push(whole.len() - rest.len());
            }
            ends
        };
        for len in 0..whole.len() {
            assert_eq!(read_announcement(&whole[..len]).is_ok(), ends.contains(&len), "{len}");
        }
        // With any byte changed, the announcement is either refused or read as valid paths.
        for at in 0..whole.len() {
            for other in [0, 1, 0x7F, 0xFF, whole[at] ^ 0x20] {
                let mut bytes = whole.clone();
                bytes[at] = other;
                if let Ok(paths) = read_announcement(&bytes) {
                    StaticFiles::new().set(paths).expect("it was checked");
                }
            }
        }
        for wrong in [&b"\xff\xff\xff\xff"[..], &[&whole[..], &whole].concat(), b"\x01\0\0\0/"] {
            assert_eq!(read_announcement(wrong), Err(MalformedAnnouncement));
        }
    }
}
