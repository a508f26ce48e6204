//! The response headers of a static file, including its validators (`ETag` and `Last-Modified`).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::conditional_request::{Representation, http_seconds};
use super::header::Header;
use super::media_type::media_type;
use super::options::Mapping;
use super::path_on_disk::as_path;
use crate::blocking::file_state::FileState;

/// The validators (`ETag` and `Last-Modified`) and the content type of a static file, from which
/// its response headers are made.
#[derive(Debug)]
pub(crate) struct FileHeaders {
    etag: Option<Header>,
    /// The value of `Last-Modified` in seconds since 1970.
    modified: Option<u64>,
    /// The time of the last change of the file in seconds since 1970.
    changed: Option<u64>,
    is_settled: bool,
    len: u64,
    content_type: Header,
}

impl FileHeaders {
    /// Determines the validators (`ETag` and `Last-Modified`) and the content type of the file at
    /// `path`, for a response that is sent at the time `now`.
    pub(crate) fn new(
        mapping: &Mapping,
        path: &[u8],
        state: &FileState,
        now: SystemTime,
    ) -> FileHeaders {
        let is_settled = state.is_older_than(SETTLED, now);
        let given_etag = mapping.options.headers.iter().find(|header| header.is("etag"));
        let etag = match given_etag {
            Some(header) => Some(header.clone()),
            None => etag(state, is_settled).map(|value| Header::own("ETag", value)),
        };
        let path = as_path(path);
        FileHeaders {
            etag,
            // RFC 9110, 8.8.2.1: Last-Modified must not be later than the time of the response.
            modified: state.modified().and_then(|modified| http_seconds(modified.min(now))),
            changed: state.changed().and_then(|changed| http_seconds(changed.min(now))),
            is_settled,
            len: state.len,
            content_type: Header::own(
                "Content-Type",
                media_type(path, mapping.options.html_charset.as_str()),
            ),
        }
    }

    pub(crate) fn representation(&self) -> Representation<'_> {
        Representation {
            etag: self.etag.as_ref().map(Header::value),
            modified: self.modified,
            changed: self.changed,
            is_settled: self.is_settled,
            len: self.len,
        }
    }

    /// Returns the headers of a 200 or 206 response with the file: those that the application set,
    /// followed by those of the server.
    pub(crate) fn headers(&self, mapping: &Mapping) -> Vec<Header> {
        let given = &mapping.options.headers;
        let mut headers = Vec::with_capacity(given.len() + OWN_HEADERS);
        headers.extend(given.iter().cloned());
        let mut add = |lower_name, header: Header| {
            if !mapping.has_header(lower_name) {
                headers.push(header);
            }
        };
        add("content-type", self.content_type.clone());
        if let Some(seconds) = self.modified {
            let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
            add("last-modified", Header::own("Last-Modified", date));
        }
        if let Some(etag) = &self.etag {
            add("etag", etag.clone());
        }
        add("accept-ranges", Header::own("Accept-Ranges", &b"bytes"[..]));
        headers
    }

    /// Returns the Content-Type header of the file, unless the application set another one.
    pub(crate) fn content_type(&self) -> &Header {
        &self.content_type
    }

    /// Returns the `ETag` header of the file, if it has one. A 412 response includes it, so that
    /// the client learns the current version of the file.
    pub(crate) fn etag(&self) -> Option<&Header> {
        self.etag.as_ref()
    }

    /// Returns the headers of a 304 response for the file.
    pub(crate) fn not_modified(&self, mapping: &Mapping) -> Vec<Header> {
        let given = mapping.options.headers.iter();
        let mut headers: Vec<Header> = given
            .filter(|header| NOT_MODIFIED_HEADERS.iter().any(|name| header.is(name)))
            .cloned()
            .collect();
        if !mapping.has_header("etag") {
            headers.extend(self.etag.clone());
        }
        headers
    }
}

/// Returns the entity tag of a file, which depends on its device, inode, length and both of its
/// times. Returns `None` if both times are meaningless, because another content could have the same
/// tag.
///
/// The tag is strong if both times are meaningful and `is_settled` is true, that is, if any further
/// change is certain to give the file a new time. Otherwise the tag is weak (RFC 9110, 8.8.1). A
/// file that is not settled has another tag than afterwards, so that a client whose copy is older
/// than the last change does not keep it.
fn etag(state: &FileState, is_settled: bool) -> Option<String> {
    state.changed()?;
    let is_strong = is_settled && state.has_meaningful_times();
    let (weak, suffix) = (if is_strong { "" } else { "W/" }, if is_settled { "" } else { "-new" });
    Some(format!("{weak}\"{:016x}-{:x}{suffix}\"", state.fingerprint(), state.len))
}

/// The minimum age of a file's times at which any further change is certain to give the file a new
/// time. It is two seconds, because the file system with the coarsest time stamps in
/// use (FAT) has this resolution.
pub(crate) const SETTLED: Duration = Duration::from_secs(2);

/// The number of headers that the server may add to the response with a file: Content-Type,
/// Last-Modified, `ETag`, Accept-Ranges and Content-Range.
const OWN_HEADERS: usize = 5;

/// The headers that a 304 response must have if the 200 response would have them (RFC 9110,
/// 15.4.5). Date is missing from the list because the HTTP implementation adds it.
const NOT_MODIFIED_HEADERS: [&str; 5] =
    ["cache-control", "content-location", "etag", "expires", "vary"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_meaningful_time_has_no_tag() {
        const NOW: i64 = 1_700_000_000;
        let etag_at = |modified, changed| etag(&FileState::with_times(modified, changed), true);
        let is_strong = |etag: Option<String>| etag.unwrap().starts_with('"');
        assert!(is_strong(etag_at(NOW, NOW)));
        assert!(!is_strong(etag_at(0, NOW)) && !is_strong(etag_at(NOW, 0)));
        assert_eq!(etag_at(1, 1), None);
    }
}
