//! What is said about a file: its validators, and the headers that go with it.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::conditional_request::{Representation, http_seconds};
use super::header::Header;
use super::media_type::media_type;
use super::options::Mapping;
use crate::blocking::file_state::FileState;

/// What is said about a file, whichever part of it is sent.
#[derive(Debug)]
pub(crate) struct FileHeaders {
    etag: Header,
    modified: Option<u64>,
    is_settled: bool,
    len: u64,
    content_type: Header,
}

impl FileHeaders {
    /// Of the file at `path`, answered at `now`.
    pub(crate) fn new(
        mapping: &Mapping,
        path: &[u8],
        state: &FileState,
        now: SystemTime,
    ) -> FileHeaders {
        let modified = state.modified();
        let is_settled = now.duration_since(modified).is_ok_and(|age| age >= SETTLED);
        let given_etag = mapping.options.headers.iter().find(|header| header.is("etag"));
        let etag = match given_etag {
            Some(header) => header.clone(),
            None => Header::own("ETag", etag(modified, state.len, is_settled)),
        };
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        FileHeaders {
            etag,
            // RFC 9110, 8.8.2.1: never later than the time of the answer.
            modified: http_seconds(modified.min(now)),
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
            etag: self.etag.value(),
            modified: self.modified,
            is_settled: self.is_settled,
            len: self.len,
        }
    }

    /// The headers of 200 and 206: the application's, then ours.
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
        add("etag", self.etag.clone());
        add("accept-ranges", Header::own("Accept-Ranges", &b"bytes"[..]));
        headers
    }

    /// The header of 412 by which a client sees what there is now.
    pub(crate) fn etag(&self) -> &Header {
        &self.etag
    }

    /// The headers of 304.
    pub(crate) fn not_modified(&self, mapping: &Mapping) -> Vec<Header> {
        let given = mapping.options.headers.iter();
        let mut headers: Vec<Header> = given
            .filter(|header| NOT_MODIFIED_HEADERS.iter().any(|name| header.is(name)))
            .cloned()
            .collect();
        if !mapping.has_header("etag") {
            headers.push(self.etag.clone());
        }
        headers
    }
}

/// Strong where nothing can change without a new time of modification, else weak (RFC 9110, 8.8.1).
fn etag(modified: SystemTime, len: u64, is_settled: bool) -> String {
    let nanos = match modified.duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_nanos(),
        Err(before) => before.duration().as_nanos(),
    };
    format!("{}\"{nanos:x}-{len:x}\"", if is_settled { "" } else { "W/" })
}

/// How long after a change a file system may give the next one the same time: 2 s on FAT, the coarsest in use.
pub(crate) const SETTLED: Duration = Duration::from_secs(2);

/// Content-Type, Last-Modified, `ETag`, Accept-Ranges, Content-Range.
const OWN_HEADERS: usize = 5;

/// What a 304 must have if a 200 would have it (RFC 9110, 15.4.5); Date is the server's.
const NOT_MODIFIED_HEADERS: [&str; 5] =
    ["cache-control", "content-location", "etag", "expires", "vary"];
