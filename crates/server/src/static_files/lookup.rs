//! The search on disk for the static file that a request names, with and without blocking.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use rookery_system::file::read_exact_at;

use super::conditional_request::{Conditions, Outcome, Representation};
use super::file_cache::{Cacheable, CachedFile, FileCache, WHOLE};
use super::file_headers::FileHeaders;
use super::header::Header;
use super::options::Mapping;
use super::path_on_disk::{FilePath, as_path, end_folder, join};
use crate::blocking::file_state::{FileState, Kind, WouldBlock, is_missing};
use crate::blocking::nonblocking_file;

/// A search for the static file that a request names. It contains the path on disk, the options of
/// the static path and the conditions of the request.
#[derive(Debug)]
pub struct Lookup {
    mapping: Arc<Mapping>,
    path: FilePath,
    rules: SiteRules,
    conditions: Conditions,
}

/// The rules of a site that apply to one request. They are all false for a static path that is not
/// a site.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SiteRules {
    /// True if a request for a directory must be redirected to the URL with a slash at its end.
    pub(crate) redirects_folder: bool,
    /// True if the response may be the file whose name is that of the request followed by `.html`.
    pub(crate) finds_page: bool,
    /// True if the request names settings or source code, which count as missing.
    pub(crate) is_hidden: bool,
}

/// The result of searching for a static file. It contains the headers of the response except
/// Content-Length and Date, which the HTTP implementation adds.
#[derive(Debug)]
pub enum Found {
    /// The file does not exist, and the request is passed to the application, because the option
    /// `fallthrough` is on.
    Application,
    /// The path leads to a regular file, and the response is the `len` bytes of it that begin at
    /// `offset`. Another program may truncate the file while it is read.
    File {
        /// The static file, open for reading and positioned at its start.
        file: File,
        /// The offset in the file of the first byte to send.
        offset: u64,
        /// The number of bytes of the file to send.
        len: u64,
        /// The status code, which is 200 for the whole file, 206 for a range of it, and 404 if the
        /// file is the site's page for missing files.
        status: StatusCode,
        /// The response headers that the application set, followed by those of the server.
        headers: Vec<Header>,
    },
    /// The response is 304 (not modified), without a body.
    NotModified {
        /// The headers of the 304 response (RFC 9110, 15.4.5).
        headers: Vec<Header>,
        /// The headers of the 200 response that would be sent if the file had been modified. They
        /// show whether that response would be compressed, which affects the headers of the 304
        /// response.
        whole: Vec<Header>,
        /// The length of the body of the 200 response that would be sent if the file had been
        /// modified.
        len: u64,
    },
    /// The path leads to a directory with an index, but the URL has no slash at its end. The
    /// response is 301, with the body of [`error_body`], and redirects to the URL with the slash.
    Folder,
    /// The response is 403, 404, 412, 416 or 500, with the body of [`error_body`] and without
    /// Content-Type.
    Status {
        /// The status code of the error response.
        status: StatusCode,
        /// Additional headers of the error response: `ETag` for 412, Content-Range for 416.
        headers: Vec<Header>,
    },
}

/// The result of searching for a static file without blocking.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "boxed, a lookup would cost an allocation")]
pub(crate) enum FoundNonblocking {
    /// The lookup is complete. The first value is the result that [`Lookup::open`] would return.
    /// The second one is the content of the file, if the file is small.
    Found(Found, Reading),
    /// The file is in the cache. The second value is the kind of response that follows from the
    /// conditions of the request.
    Ready(Rc<CachedFile>, Outcome),
    /// The lookup would have to wait for a disk, so it must be repeated on a thread that may block.
    WouldBlock(Lookup),
}

/// The result of reading the content of a static file when it is opened without blocking.
#[derive(Debug)]
pub(crate) enum Reading {
    /// The content of the small file has been read.
    Done(Bytes),
    /// Reading the small file would have to wait for a disk. Contains the description of the file
    /// for the cache, if the file may be cached.
    WouldBlock(Option<Box<Cacheable>>),
    /// The content is not read in advance, because the file is large or the response contains no
    /// file.
    None,
}

/// The result of searching for a static file on a thread that may block.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) found: Found,
    /// The content of the file, if the file is small.
    pub(crate) bytes: Option<Bytes>,
    /// The description of the file for the cache, if the file may be cached.
    pub(crate) cacheable: Option<Cacheable>,
    /// The device number of the file's file system, if the file system is local.
    pub(crate) local: Option<u64>,
}

impl Lookup {
    pub(crate) fn new(
        mapping: Arc<Mapping>,
        path: FilePath,
        rules: SiteRules,
        conditions: Conditions,
    ) -> Lookup {
        Lookup { mapping, path, rules, conditions }
    }

    /// Returns the path on disk of the file or directory that the request names.
    pub fn path(&self) -> &Path {
        as_path(&self.path)
    }

    /// Searches for the requested file and opens it, on a thread that may block. Only regular files
    /// are opened, because opening a FIFO or a device could block the thread for ever.
    pub fn open(self) -> Found {
        self.open_at(SystemTime::now())
    }

    /// Searches for the requested file and opens it, on a thread that may block. `now` is the
    /// current time.
    pub(crate) fn open_at(self, now: SystemTime) -> Found {
        match self.open_regular() {
            Ok(opened) => self.found(opened, now).0,
            Err(found) => found,
        }
    }

    /// Searches for the requested file and opens it, on a thread that may block. Also reads the
    /// content if the file is small.
    ///
    /// # Errors
    /// Fails if the content of the file cannot be read.
    pub(crate) fn fetch(self, now: SystemTime) -> io::Result<Fetched> {
        let nothing = |found| Ok(Fetched { found, bytes: None, cacheable: None, local: None });
        let opened = match self.open_regular() {
            Ok(opened) => opened,
            Err(found) => return nothing(found),
        };
        let local = nonblocking_file::is_local(&opened.file).then_some(opened.state.device);
        let (found, cacheable) = self.found(opened, now);
        let bytes = read_up_to(&found, WHOLE)?;
        Ok(Fetched { found, bytes, cacheable: cacheable.filter(|_| local.is_some()), local })
    }

    /// Searches for the requested file and opens it without blocking, on an I/O thread.
    ///
    /// If `out` is given, also reads the content of a small file. The content is stored in `out`,
    /// or in a separate buffer if the file is to be cached.
    pub(crate) fn open_nonblocking(
        self,
        cache: &mut FileCache,
        now: SystemTime,
        out: Option<&mut BytesMut>,
    ) -> FoundNonblocking {
        match self.try_open(cache, now) {
            Err(WouldBlock) => FoundNonblocking::WouldBlock(self),
            Ok(Known::Missing) => FoundNonblocking::Found(self.missing(), Reading::None),
            Ok(Known::Folder) => FoundNonblocking::Found(Found::Folder, Reading::None),
            Ok(Known::Ready(file, role)) => {
                let outcome = self.outcome(role, &file.representation());
                FoundNonblocking::Ready(file, outcome)
            }
            Ok(Known::Opened(opened)) => {
                let (found, cacheable) = self.found(opened, now);
                let reading = match (&found, out) {
                    (Found::File { file, offset, len, .. }, Some(out)) if *len <= WHOLE => {
                        read_nonblocking(file, *offset, *len as usize, cacheable, cache, out)
                    }
                    _ => Reading::None,
                };
                FoundNonblocking::Found(found, reading)
            }
        }
    }

    fn try_open(&self, cache: &mut FileCache, now: SystemTime) -> Result<Known, WouldBlock> {
        if !self.rules.is_hidden {
            match self.try_open_at(&self.path, Role::Requested, cache, now)? {
                Known::Missing => {}
                known => return Ok(known),
            }
        }
        for (path, role) in self.substitutes() {
            match self.try_open_at(&path, role, cache, now)? {
                Known::Missing => {}
                known => return Ok(known),
            }
        }
        Ok(Known::Missing)
    }

    /// Opens the regular file at `path` without blocking, or the index of the directory at `path`.
    fn try_open_at(
        &self,
        path: &FilePath,
        role: Role,
        cache: &mut FileCache,
        now: SystemTime,
    ) -> Result<Known, WouldBlock> {
        let Some((mut kind, mut state)) = nonblocking_file::look(path)? else {
            return Ok(Known::Missing);
        };
        let is_requested = role == Role::Requested;
        let index = kind == Kind::Directory && self.mapping.options.index && is_requested;
        let mut path = FilePath::from_slice(path);
        if index {
            push_index(&mut path);
            let Some(found) = nonblocking_file::look(&path)? else {
                return Ok(Known::Missing);
            };
            (kind, state) = found;
        }
        if kind != Kind::Regular {
            return Ok(Known::Missing);
        }
        if index && self.rules.redirects_folder {
            return Ok(Known::Folder);
        }
        if let Some(file) = cache.find(&path, &self.mapping, &state, now) {
            return Ok(Known::Ready(file, role));
        }
        if !cache.is_local(state.device, now) {
            return Err(WouldBlock);
        }
        match nonblocking_file::open(&path)? {
            // The path was changed between the two system calls and leads to another device, which
            // may not be local.
            Some((_, _, opened)) if opened.device != state.device => Err(WouldBlock),
            Some((file, Kind::Regular, state)) => {
                Ok(Known::Opened(Opened { path, role, file, state }))
            }
            Some(_) | None => Ok(Known::Missing),
        }
    }

    /// Opens the regular file that the request names, or the index of the directory that it names,
    /// or the file that a site sends instead.
    ///
    /// # Errors
    /// Returns the response to the request if there is no such file, if it cannot be opened, or if
    /// the request must be redirected.
    fn open_regular(&self) -> Result<Opened, Found> {
        let mut path = FilePath::from_slice(&self.path);
        let len = path.len();
        let opened = if self.rules.is_hidden {
            Ok(None)
        } else {
            open_regular(&mut path, self.mapping.options.index)
        };
        match opened {
            Ok(Some(_)) if path.len() > len && self.rules.redirects_folder => {
                return Err(Found::Folder);
            }
            Ok(Some((file, state))) => {
                return Ok(Opened { path, role: Role::Requested, file, state });
            }
            Ok(None) => {}
            Err(error) if error.raw_os_error().is_some_and(is_missing) => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(status(StatusCode::FORBIDDEN));
            }
            Err(_) => return Err(status(StatusCode::INTERNAL_SERVER_ERROR)),
        }
        for (mut path, role) in self.substitutes() {
            if let Ok(Some((file, state))) = open_regular(&mut path, false) {
                return Ok(Opened { path, role, file, state });
            }
        }
        Err(self.missing())
    }

    /// Returns the paths of the files that a site sends if the requested file is missing, in the
    /// order in which they are looked for.
    fn substitutes(&self) -> impl Iterator<Item = (FilePath, Role)> {
        let page = self.rules.finds_page && !self.rules.is_hidden;
        let page = page.then(|| {
            let mut path = FilePath::from_slice(&self.path);
            path.extend_from_slice(b".html");
            (path, Role::Requested)
        });
        let options = &self.mapping.options;
        let missing = (options.site && !options.fallthrough)
            .then(|| (join(&self.mapping.root, NOT_FOUND_PAGE), Role::NotFoundPage));
        page.into_iter().chain(missing)
    }

    /// Returns the kind of response that a request for an existing file gets.
    fn outcome(&self, role: Role, representation: &Representation<'_>) -> Outcome {
        match role {
            Role::Requested => self.conditions.evaluate(representation),
            Role::NotFoundPage => Outcome::NotFound,
        }
    }

    fn missing(&self) -> Found {
        if self.mapping.options.fallthrough {
            Found::Application
        } else {
            status(StatusCode::NOT_FOUND)
        }
    }

    /// Returns the response to a request for the open file. Also returns the description of the
    /// file for the cache, if the response is the whole file and the file may be cached.
    fn found(self, opened: Opened, now: SystemTime) -> (Found, Option<Cacheable>) {
        let Opened { path, role, file, state } = opened;
        let file_headers = FileHeaders::new(&self.mapping, &path, &state, now);
        let outcome = self.outcome(role, &file_headers.representation());
        let (status, range) = match outcome {
            Outcome::Failed => {
                let headers = file_headers.etag().cloned().into_iter().collect();
                return (Found::Status { status: StatusCode::PRECONDITION_FAILED, headers }, None);
            }
            Outcome::NotModified => {
                let headers = file_headers.not_modified(&self.mapping);
                let whole = file_headers.headers(&self.mapping);
                return (Found::NotModified { headers, whole, len: state.len }, None);
            }
            Outcome::Unsatisfiable => {
                let (status, headers) =
                    (StatusCode::RANGE_NOT_SATISFIABLE, vec![unsatisfiable(state.len)]);
                return (Found::Status { status, headers }, None);
            }
            Outcome::Partial(range) => (StatusCode::PARTIAL_CONTENT, range),
            Outcome::NotFound => (StatusCode::NOT_FOUND, 0..state.len),
            Outcome::Whole => (StatusCode::OK, 0..state.len),
        };
        let headers = match status {
            // The validators would be those of the missing file.
            StatusCode::NOT_FOUND => vec![file_headers.content_type().clone()],
            StatusCode::PARTIAL_CONTENT => {
                let mut headers = file_headers.headers(&self.mapping);
                headers.push(content_range(&range, state.len));
                headers
            }
            _ => file_headers.headers(&self.mapping),
        };
        let is_whole = status != StatusCode::PARTIAL_CONTENT;
        let cacheable = is_whole
            .then(|| Cacheable::new(path, self.mapping, state, file_headers, now))
            .flatten();
        let (offset, len) = (range.start, range.end - range.start);
        (Found::File { file, offset, len, status, headers }, cacheable)
    }
}

/// The name of the page in the folder of a site that is the response to requests for missing files.
const NOT_FOUND_PAGE: &[u8] = b"404.html";

/// The reason for which a file is the response to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The request names the file.
    Requested,
    /// The requested file is missing, and this file is the site's page that says so.
    NotFoundPage,
}

/// An open file that is the response to a request.
struct Opened {
    path: FilePath,
    role: Role,
    file: File,
    state: FileState,
}

#[expect(clippy::large_enum_variant, reason = "handed on once")]
enum Known {
    Missing,
    Folder,
    Ready(Rc<CachedFile>, Role),
    Opened(Opened),
}

/// Returns the Content-Range header of a 206 response (RFC 9110, 14.4). `len` is the length of the
/// whole file.
pub(crate) fn content_range(range: &std::ops::Range<u64>, len: u64) -> Header {
    Header::own("Content-Range", format!("bytes {}-{}/{len}", range.start, range.end - 1))
}

/// Returns the Content-Range header of a 416 response, which states the length `len` of the file.
pub(crate) fn unsatisfiable(len: u64) -> Header {
    Header::own("Content-Range", format!("bytes */{len}"))
}

/// Returns the body of an error response with this status, for [`Found::Status`] and
/// [`Route::Refuse`](super::Route::Refuse). The texts are those of httpuv.
pub fn error_body(status: StatusCode) -> &'static str {
    match status {
        StatusCode::MOVED_PERMANENTLY => "301 Moved Permanently\n",
        StatusCode::BAD_REQUEST => "400 Bad Request\n",
        StatusCode::FORBIDDEN => "403 Forbidden\n",
        StatusCode::NOT_FOUND => "404 Not Found\n",
        StatusCode::METHOD_NOT_ALLOWED => "405 Method Not Allowed\n",
        StatusCode::PRECONDITION_FAILED => "412 Precondition Failed\n",
        StatusCode::RANGE_NOT_SATISFIABLE => "416 Range Not Satisfiable\n",
        _ => "500 Internal Server Error\n",
    }
}

fn status(status: StatusCode) -> Found {
    Found::Status { status, headers: Vec::new() }
}

fn push_index(directory: &mut FilePath) {
    end_folder(directory);
    directory.extend_from_slice(b"index.html");
}

/// Reads the content of the file that was found, if it has at most `most` bytes. Must be called on
/// a thread that may block. Returns `None` for larger files and for responses without a file.
pub(crate) fn read_up_to(found: &Found, most: u64) -> io::Result<Option<Bytes>> {
    match found {
        Found::File { file, offset, len, .. } if *len <= most => {
            let mut bytes = vec![0; *len as usize];
            read_exact_at(file, &mut bytes, *offset)?;
            Ok(Some(bytes.into()))
        }
        _ => Ok(None),
    }
}

/// Reads the content of a small open file, unless reading would have to wait for a disk.
fn read_nonblocking(
    file: &File,
    offset: u64,
    len: usize,
    cacheable: Option<Cacheable>,
    cache: &mut FileCache,
    out: &mut BytesMut,
) -> Reading {
    // A file to be cached is read into a buffer of exactly its size, because the cache keeps the
    // buffer.
    let mut own = BytesMut::new();
    let into = if cacheable.is_some() { &mut own } else { out };
    into.resize(len, 0);
    if nonblocking_file::read(file, into, offset).is_err() {
        into.clear();
        return Reading::WouldBlock(cacheable.map(Box::new));
    }
    let bytes = into.split().freeze();
    if let Some(cacheable) = cacheable {
        cache.keep(cacheable, bytes.clone());
    }
    Reading::Done(bytes)
}

/// Opens the regular file at `path`. Returns `None` if there is none. If `index` is true and `path`
/// leads to a directory, appends `index.html` to `path` first.
fn open_regular(path: &mut FilePath, index: bool) -> io::Result<Option<(File, FileState)>> {
    let mut metadata = std::fs::metadata(as_path(path))?;
    if metadata.is_dir() && index {
        push_index(path);
        metadata = std::fs::metadata(as_path(path))?;
    }
    // The type is checked before the file is opened, because opening a FIFO lets a waiting writer
    // continue and opening a device may have side effects.
    if !metadata.is_file() {
        return Ok(None);
    }
    let mut options = OpenOptions::new();
    // The path may lead to another file by now. `O_NONBLOCK` prevents that opening a FIFO blocks
    // the thread.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        libc::O_NONBLOCK | libc::O_NOCTTY,
    );
    let file = options.read(true).open(as_path(path))?;
    let metadata = file.metadata()?;
    Ok(metadata.is_file().then(|| (file, FileState::of(&metadata))))
}
