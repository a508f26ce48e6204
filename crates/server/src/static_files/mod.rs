//! Static files, which are served without the application.
//!
//! [`StaticFiles`] maps URL paths to files and directories. The application's thread changes the
//! map while the I/O thread reads it for every request. Therefore [`StaticFiles::route`] makes no
//! system call and takes no lock. If there are no static paths, it costs only one atomic load.
//! [`Lookup::open`] does everything that may have to wait for a disk, on a thread that may block.
//! Content in the page cache or in this module's cache is read on the I/O thread. This module does
//! not depend on the HTTP implementation or the application.
//!
//! # The steps for a request
//! 1. If the request opens a WebSocket, it is for the application ([`Route::Application`]).
//! 2. The target up to `?` is percent-decoded once, and `//` and `/./` are collapsed. A target with
//!    a backslash is for the application.
//! 3. The longest key that is a prefix of whole segments is selected. If there is none, or if the
//!    key is excluded, the request is for the application.
//! 4. If a required header is missing or wrong, the response is 403, even with `fallthrough`.
//! 5. For a method other than GET and HEAD the response is 400. With `fallthrough`, the request is
//!    for the application.
//! 6. For a request with a body the response is 400.
//! 7. For a path with a `..` segment or a NUL the response is 400. With `fallthrough`, the request
//!    is for the application.
//! 8. [`Lookup::open`] looks for the file. If the file is missing, or a directory has no index, the
//!    response is 404. With `fallthrough`, the request is for the application. If the file cannot
//!    be opened, the response is 500.
//! 9. The conditions and the range of the request (RFC 9110, sections 13 and 14) decide whether the
//!    response is 412, 304, 206, 416 or 200.
//!
//! ```
//! use rookery_server::static_files::{
//!     BodyFraming, Found, RequestHead, Route, StaticFiles, StaticPath,
//! };
//!
//! let dir = tempfile::tempdir()?;
//! std::fs::write(dir.path().join("a.txt"), "hello")?;
//! let files = StaticFiles::new();
//! let path = StaticPath { path: dir.path().into(), ..StaticPath::default() };
//! files.set([("/s".to_owned(), path)])?;
//!
//! let headers = http::HeaderMap::new();
//! let (target, body) = (&b"/s/a.txt"[..], BodyFraming::Absent);
//! let request = RequestHead { method: "GET", target, is_upgrade: false, body, headers: &headers };
//! let Route::Open(lookup) = files.route(&request) else { panic!("`/s` is a prefix") };
//! let Found::File { len, headers, .. } = lookup.open() else { panic!("the file is there") };
//! assert_eq!(len, 5);
//! assert_eq!((headers[0].name(), headers[0].value()), (&b"Content-Type"[..], &b"text/plain"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits of this module
//! Requests for a directory without the final slash are not redirected, and directories are not
//! listed. An exclusion applies to a URL path and not to the file. A symbolic link, or another
//! spelling on a file system that ignores case, can therefore lead to the file of an excluded path.

mod announcement;
mod conditional_request;
mod file_cache;
mod file_headers;
mod header;
mod lookup;
mod media_type;
mod options;
mod path_decoding;
mod path_map;
mod prefix_tree;
mod request_head;
mod routing;
#[cfg(test)]
mod tests;

pub use announcement::{MalformedAnnouncement, read_announcement};
pub(crate) use conditional_request::Outcome;
pub(crate) use file_cache::{Cacheable, CachedFile, FileCache, Headers, Variant};
pub use header::{Header, InvalidHeader};
pub(crate) use lookup::{
    Fetched, FoundNonblocking, Reading, content_range, read_small, unsatisfiable,
};
pub use lookup::{Found, Lookup, error_body};
pub use options::{
    Charset, Overrides, PathError, RequiredHeader, StaticOptions, StaticPath, Validation,
};
pub use path_map::StaticFiles;
pub use request_head::{BodyFraming, RequestHead, RequestHeaders};
pub use routing::Route;
