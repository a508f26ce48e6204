//! Opening what a request names: for a thread that may block.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::StatusCode;

use super::condition::{Conditions, Outcome, Representation, http_seconds};
use super::header::Header;
use super::media_type::media_type;
use super::options::Mapping;

/// A file to look for, and what to do with it.
#[derive(Debug)]
pub struct Lookup {
    mapping: Arc<Mapping>,
    path: PathBuf,
    conditions: Conditions,
}

/// What was found. Content-Length, Date and leaving out the body of a HEAD are the server's.
#[derive(Debug)]
pub enum Found {
    /// Nothing, and misses fall through.
    Application,
    /// A regular file, of which `len` bytes from `offset` are sent. It may become shorter while it is read.
    File {
        /// Open for reading, positioned at its start.
        file: File,
        /// Where to begin.
        offset: u64,
        /// How many bytes to send.
        len: u64,
        /// 200 or 206.
        status: StatusCode,
        /// The application's, then ours.
        headers: Vec<Header>,
    },
    /// 304, without a body.
    NotModified {
        /// Those of RFC 9110, 15.4.5.
        headers: Vec<Header>,
    },
    /// 404, 416 or 500, with the body of [`error_body`] and no Content-Type.
    Status {
        /// The status.
        status: StatusCode,
        /// A Content-Range with 416.
        headers: Vec<Header>,
    },
}

impl Lookup {
    pub(crate) fn new(mapping: Arc<Mapping>, path: PathBuf, conditions: Conditions) -> Lookup {
        Lookup { mapping, path, conditions }
    }

    /// The file or directory, as the request names it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Looks for the file. Makes three system calls for a file and one more for a directory; opens nothing but regular
    /// files, so that neither a FIFO nor a device can hold the thread up.
    pub fn open(self) -> Found {
        self.open_at(SystemTime::now())
    }

    /// [`Lookup::open`] at a certain time.
    pub(crate) fn open_at(mut self, now: SystemTime) -> Found {
        match open_regular(&mut self.path, self.mapping.options.index) {
            Ok(Some((file, metadata))) => self.reply(file, &metadata, now),
            Ok(None) if self.mapping.options.fallthrough => Found::Application,
            Ok(None) => Found::Status { status: StatusCode::NOT_FOUND, headers: Vec::new() },
            Err(_) => Found::Status { status: StatusCode::INTERNAL_SERVER_ERROR, headers: Vec::new() },
        }
    }

    fn reply(self, file: File, metadata: &Metadata, now: SystemTime) -> Found {
        // A file system without times has files from 1970.
        let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
        let is_settled = now.duration_since(modified).is_ok_and(|age| age >= SETTLED);
        let given_etag = self.mapping.options.headers.iter().find(|header| header.is("etag"));
        let etag = match given_etag {
            Some(header) => header.clone(),
            None => Header::own("ETag", etag(modified, metadata.len(), is_settled)),
        };
        let representation = Representation {
            etag: etag.value(),
            // RFC 9110, 8.8.2.1: never later than the time of the answer.
            modified: http_seconds(modified.min(now)),
            is_settled,
            len: metadata.len(),
        };
        let (status, range) = match self.conditions.evaluate(&representation) {
            Outcome::NotModified => return Found::NotModified { headers: self.not_modified(etag) },
            Outcome::Partial(range) => (StatusCode::PARTIAL_CONTENT, range),
            Outcome::Unsatisfiable => {
                let range = Header::own("Content-Range", format!("bytes */{}", metadata.len()));
                return Found::Status { status: StatusCode::RANGE_NOT_SATISFIABLE, headers: vec![range] };
            }
            Outcome::Whole => (StatusCode::OK, 0..metadata.len()),
        };
        let mut headers = self.found(representation.modified, etag);
        if status == StatusCode::PARTIAL_CONTENT {
            let value = format!("bytes {}-{}/{}", range.start, range.end - 1, metadata.len());
            headers.push(Header::own("Content-Range", value));
        }
        Found::File { file, offset: range.start, len: range.end - range.start, status, headers }
    }

    /// The headers of 200 and 206.
    fn found(&self, modified: Option<u64>, etag: Header) -> Vec<Header> {
        let given = &self.mapping.options.headers;
        let mut headers = Vec::with_capacity(given.len() + OWN_HEADERS);
        headers.extend(given.iter().cloned());
        let mut add = |lower_name, header: Header| {
            if !self.mapping.has_header(lower_name) {
                headers.push(header);
            }
        };
        add(
            "content-type",
            Header::own("Content-Type", media_type(&self.path, self.mapping.options.html_charset.as_str())),
        );
        if let Some(seconds) = modified {
            let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
            add("last-modified", Header::own("Last-Modified", date));
        }
        add("etag", etag);
        add("accept-ranges", Header::own("Accept-Ranges", &b"bytes"[..]));
        headers
    }

    /// The headers of 304.
    fn not_modified(&self, etag: Header) -> Vec<Header> {
        let given = self.mapping.options.headers.iter();
        let mut headers: Vec<Header> =
            given.filter(|header| NOT_MODIFIED_HEADERS.iter().any(|name| header.is(name))).cloned().collect();
        if !self.mapping.has_header("etag") {
            headers.push(etag);
        }
        headers
    }
}

/// The body that goes with a status of [`Found::Status`] and [`Decision::Refuse`](super::Decision::Refuse), as httpuv
/// words it.
pub fn error_body(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "400 Bad Request\n",
        StatusCode::FORBIDDEN => "403 Forbidden\n",
        StatusCode::NOT_FOUND => "404 Not Found\n",
        StatusCode::RANGE_NOT_SATISFIABLE => "416 Range Not Satisfiable\n",
        _ => "500 Internal Server Error\n",
    }
}

/// Opens a regular file; `None` where there is none. For a directory `path` becomes that of its index.
fn open_regular(path: &mut PathBuf, index: bool) -> io::Result<Option<(File, Metadata)>> {
    let opened = (|| {
        let mut metadata = std::fs::metadata(&*path)?;
        if metadata.is_dir() && index {
            path.push("index.html");
            metadata = std::fs::metadata(&*path)?;
        }
        // Looked at before it is opened: opening a FIFO lets its writer go on, and a device may act on it.
        if !metadata.is_file() {
            return Ok(None);
        }
        // What the name stands for may have changed since: not blocking keeps a FIFO from holding the thread.
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(&*path)?;
        let metadata = file.metadata()?;
        Ok(metadata.is_file().then_some((file, metadata)))
    })();
    match opened {
        Err(error) if is_missing(&error) => Ok(None),
        opened => opened,
    }
}

/// Whether a path cannot name a file. A file where a directory should be and a name too long for the file system are so
/// as well: httpuv answers them with 500 and never lets them fall through, which keeps long paths from an app that has
/// static files at `/` (its issue 267).
fn is_missing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG))
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
const SETTLED: Duration = Duration::from_secs(2);

/// Content-Type, Last-Modified, `ETag`, Accept-Ranges, Content-Range.
const OWN_HEADERS: usize = 5;

/// What a 304 must have if a 200 would have it (RFC 9110, 15.4.5); Date is the server's.
const NOT_MODIFIED_HEADERS: [&str; 5] = ["cache-control", "content-location", "etag", "expires", "vary"];
