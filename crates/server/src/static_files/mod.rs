//! Files served without the application.
//!
//! [`StaticFiles`] maps paths of requests to files and directories. The application's thread changes the map while the
//! I/O thread asks it about every request: [`StaticFiles::route`] makes no system call and takes no lock, and where
//! there are no static paths it is one load of an atomic. Everything that may wait for a disk is [`Lookup::open`], made
//! for a thread that may block; what the kernel or this module has in memory is had without waiting, on the I/O thread.
//! Neither knows the HTTP implementation or the application.
//!
//! # A request, in this order
//! 1. A request that opens a WebSocket: [`Route::Application`].
//! 2. The target up to `?` is percent-decoded once; `//` and `/./` are collapsed; a backslash is the application's.
//! 3. The longest key that is a whole-segment prefix decides; none, or an exclusion: the application.
//! 4. A missing or wrong validation header: 403, also where a miss would fall through.
//! 5. A method other than GET and HEAD: 400, or the application where misses fall through.
//! 6. A request body: 400.
//! 7. A `..` segment or a NUL: 400, or the application where misses fall through.
//! 8. [`Lookup::open`]: a missing file, or a directory without index: 404, or the application where misses fall through;
//!    a file that cannot be opened: 500.
//! 9. Conditions and ranges (RFC 9110, sections 13 and 14): 412, 304, 206, 416; else 200.
//!
//! ```
//! use rookery_server::static_files::{BodyFraming, Route, Found, RequestHead, StaticFiles, StaticPath};
//!
//! let dir = tempfile::tempdir()?;
//! std::fs::write(dir.path().join("a.txt"), "hello")?;
//! let files = StaticFiles::new();
//! files.set([("/s".to_owned(), StaticPath { path: dir.path().into(), ..StaticPath::default() })])?;
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
//! # What it does not do
//! Redirect to add a slash, list directories, follow exclusions through symbolic links or through a
//! file system that ignores case: an exclusion is a path of requests, not a permission of a file.

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
