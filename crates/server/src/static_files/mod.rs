//! Static files, which the server sends without calling the application.
//!
//! [`StaticFiles`] maps URL paths to files and directories. The work for a request is divided into
//! two functions:
//! - [`StaticFiles::route`] decides whether the server or the application responds. It makes no
//!   system call and takes no lock, because the I/O thread calls it for every request.
//! - [`Lookup::open`] opens the file. It may wait for the disk, so it runs on a thread that may
//!   block.
//!
//! # The steps for a request
//! Each step either leads to the next one, or ends with a response or with [`Route::Application`],
//! which means that the application responds. The option `fallthrough` of a static path means that
//! the application responds to some requests that would otherwise get an error.
//!
//! 1. If the request opens a WebSocket, the application responds.
//! 2. The target up to `?` is percent-decoded once, and `//` and `/./` are collapsed. If the target
//!    has a backslash, the application responds.
//! 3. The longest static path that matches the first segments of the target is selected. If there
//!    is none, or if it has the option `exclude`, the application responds. On macOS and Windows,
//!    where file systems ignore case, the comparison ignores case as well, and also the normal form
//!    of Unicode, which file systems of macOS ignore. On Linux, the application responds if the
//!    target is another spelling of a longer static path that is excluded or requires a header,
//!    because Linux mounts file systems that ignore case as well.
//! 4. If a required header is missing or wrong, the response is 403, even with `fallthrough`.
//! 5. If the method is neither GET nor HEAD, the response is 405, or 400 for POST unless the static
//!    path is a site. With `fallthrough`, the application responds.
//! 6. If the request has a body, the response is 400.
//! 7. If the path has a `..` segment or a NUL, the response is 400. With `fallthrough`, the
//!    application responds. On Windows, this also applies to names that Windows interprets
//!    otherwise than they are written: reserved names (`CON`), names with a stream (`a::$DATA`) or
//!    a drive letter, names that end with a dot or a space, and short names (`PROGRA~1`).
//! 8. [`Lookup::open`] looks for the file. If the file is missing, or if a directory has no index,
//!    the response is 404. With `fallthrough`, the application responds. If the server may not open
//!    the file, the response is 403, and if opening it fails for another reason, 500.
//!
//!    A site redirects (301) a request for a directory whose URL has no slash at its end. If the
//!    requested file is missing, a site looks for a file whose name ends with `.html` in addition,
//!    and then for the file `404.html` in its directory, which is sent with status 404. Settings
//!    (`_server.yml`) and source code (`.R`, `.Rmd`, `.qmd`) of a site count as missing.
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
//! - Directories are not listed.
//! - The option `exclude` applies to a URL path and not to a file. Another URL path can lead to the
//!   same file, for example through a symbolic link.

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
mod path_on_disk;
mod prefix_tree;
mod request_head;
mod routing;
#[cfg(test)]
mod tests;

pub use announcement::{MalformedAnnouncement, read_announcement};
pub(crate) use conditional_request::Outcome;
pub(crate) use file_cache::{Cacheable, CachedFile, FileCache, Headers, Variant, WHOLE};
pub use header::{Header, InvalidHeader};
pub(crate) use lookup::{
    Fetched, FoundNonblocking, Reading, content_range, read_up_to, unsatisfiable,
};
pub use lookup::{Found, Lookup, error_body};
pub use options::{
    Charset, Overrides, PathError, RequiredHeader, StaticOptions, StaticPath, Validation,
};
pub use path_map::StaticFiles;
#[doc(hidden)]
pub use path_on_disk::name_rules::NameRules;
pub use request_head::{BodyFraming, RequestHead, RequestHeaders};
pub use routing::Route;
