//! Opening what a request names.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use http::StatusCode;

use super::conditional_request::{Conditions, Outcome};
use super::file_cache::{Cacheable, CachedFile, FileCache, FilePath, WHOLE};
use super::file_headers::FileHeaders;
use super::header::Header;
use super::options::Mapping;
use crate::blocking::file_state::{FileState, Kind, WouldBlock, is_missing};
use crate::blocking::nonblocking_file;

/// A file to look for, and what to do with it.
#[derive(Debug)]
pub struct Lookup {
    mapping: Arc<Mapping>,
    path: FilePath,
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
        /// The headers of the 200 that would be sent otherwise. They determine whether that
        /// response would be compressed.
        whole: Vec<Header>,
        /// Bytes of that 200.
        len: u64,
    },
    /// 404, 412, 416 or 500, with the body of [`error_body`] and no Content-Type.
    Status {
        /// The status.
        status: StatusCode,
        /// An `ETag` with 412, a Content-Range with 416.
        headers: Vec<Header>,
    },
}

/// What was found without waiting.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "boxed, a lookup would cost an allocation")]
pub(crate) enum FoundNonblocking {
    /// As [`Lookup::open`] has it; with the bytes of a small file that has to be read, or the work of reading them.
    Found(Found, Reading),
    /// A file that is in memory, and what of it is sent.
    Ready(Rc<CachedFile>, Outcome),
    /// It has to be waited for.
    WouldBlock(Lookup),
}

/// How far a file that was found has been read.
#[derive(Debug)]
pub(crate) enum Reading {
    /// Read, small as it is.
    Done(Bytes),
    /// It is small, and has to be waited for.
    WouldBlock(Option<Box<Cacheable>>),
    /// It is large, or there is none.
    None,
}

/// What a thread that may block has found.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) found: Found,
    /// The bytes of a small file.
    pub(crate) bytes: Option<Bytes>,
    /// What they are the bytes of, if that may be kept.
    pub(crate) cacheable: Option<Cacheable>,
    /// The file's device, if it is local.
    pub(crate) local: Option<u64>,
}

impl Lookup {
    pub(crate) fn new(mapping: Arc<Mapping>, path: FilePath, conditions: Conditions) -> Lookup {
        Lookup { mapping, path, conditions }
    }

    /// The file or directory, as the request names it.
    pub fn path(&self) -> &Path {
        as_path(&self.path)
    }

    /// Looks for the file, on a thread that may block. Makes three system calls for a file and one more for a directory; opens
    /// nothing but regular files, so that neither a FIFO nor a device can hold the thread up.
    pub fn open(self) -> Found {
        self.open_at(SystemTime::now())
    }

    /// [`Lookup::open`] at a certain time.
    pub(crate) fn open_at(self, now: SystemTime) -> Found {
        let mut path = FilePath::from_slice(&self.path);
        match open_regular(&mut path, self.mapping.options.index) {
            Ok(Some((file, state))) => self.found(&path, file, &state, now).0,
            Ok(None) => self.missing(),
            Err(_) => failed(),
        }
    }

    /// [`Lookup::open`], and reads a small file.
    pub(crate) fn fetch(self, now: SystemTime) -> io::Result<Fetched> {
        let mut path = FilePath::from_slice(&self.path);
        let nothing = |found| Ok(Fetched { found, bytes: None, cacheable: None, local: None });
        let (file, state) = match open_regular(&mut path, self.mapping.options.index) {
            Ok(Some(opened)) => opened,
            Ok(None) => return nothing(self.missing()),
            Err(_) => return nothing(failed()),
        };
        let local = nonblocking_file::is_local(&file).then_some(state.device);
        let (found, cacheable) = self.found(&path, file, &state, now);
        let bytes = read_small(&found)?;
        Ok(Fetched { found, bytes, cacheable: cacheable.filter(|_| local.is_some()), local })
    }

    /// Looks for the file without waiting, for the I/O thread; what is kept in memory allocates nothing. With `out` a small
    /// file is read, into `out` if it is not to be kept.
    pub(crate) fn open_nonblocking(
        self,
        cache: &mut FileCache,
        now: SystemTime,
        out: Option<&mut BytesMut>,
    ) -> FoundNonblocking {
        match self.try_open(cache, now) {
            Err(WouldBlock) => FoundNonblocking::WouldBlock(self),
            Ok(Known::Missing) => FoundNonblocking::Found(self.missing(), Reading::None),
            Ok(Known::Ready(file)) => {
                let outcome = self.conditions.evaluate(&file.representation());
                FoundNonblocking::Ready(file, outcome)
            }
            Ok(Known::Opened(path, file, state)) => {
                let (found, cacheable) = self.found(&path, file, &state, now);
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
        let Some((mut kind, mut state)) = nonblocking_file::look(&self.path)? else {
            return Ok(Known::Missing);
        };
        let index = kind == Kind::Directory && self.mapping.options.index;
        let mut with_index = FilePath::new();
        if index {
            with_index.extend_from_slice(&self.path);
            push_index(&mut with_index);
            let Some(found) = nonblocking_file::look(&with_index)? else {
                return Ok(Known::Missing);
            };
            (kind, state) = found;
        }
        if kind != Kind::Regular {
            return Ok(Known::Missing);
        }
        if let Some(file) = cache.find(&self.path, &self.mapping, &state, now) {
            return Ok(Known::Ready(file));
        }
        if !cache.is_local(state.device, now) {
            return Err(WouldBlock);
        }
        let path = if index { with_index } else { FilePath::from_slice(&self.path) };
        match nonblocking_file::open(&path)? {
            // Another one by now, on another device perhaps: what was opened was not what was looked at.
            Some((_, _, opened)) if opened.device != state.device => Err(WouldBlock),
            Some((file, Kind::Regular, opened)) => Ok(Known::Opened(path, file, opened)),
            Some(_) | None => Ok(Known::Missing),
        }
    }

    fn missing(&self) -> Found {
        if self.mapping.options.fallthrough {
            Found::Application
        } else {
            Found::Status { status: StatusCode::NOT_FOUND, headers: Vec::new() }
        }
    }

    /// What an open file answers; with what can be kept of it, where all of it is sent.
    fn found(
        self,
        path: &[u8],
        file: File,
        state: &FileState,
        now: SystemTime,
    ) -> (Found, Option<Cacheable>) {
        let file_headers = FileHeaders::new(&self.mapping, path, state, now);
        let outcome = self.conditions.evaluate(&file_headers.representation());
        let (status, range) = match outcome {
            Outcome::Failed => {
                let (status, headers) =
                    (StatusCode::PRECONDITION_FAILED, vec![file_headers.etag().clone()]);
                return (Found::Status { status, headers }, None);
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
            Outcome::Whole => (StatusCode::OK, 0..state.len),
        };
        let mut headers = file_headers.headers(&self.mapping);
        let mut cacheable = None;
        if status == StatusCode::PARTIAL_CONTENT {
            headers.push(content_range(&range, state.len));
        } else {
            cacheable = Cacheable::new(self.path, self.mapping, *state, file_headers, now);
        }
        let (offset, len) = (range.start, range.end - range.start);
        (Found::File { file, offset, len, status, headers }, cacheable)
    }
}

#[expect(clippy::large_enum_variant, reason = "handed on once")]
enum Known {
    Missing,
    Ready(Rc<CachedFile>),
    Opened(FilePath, File, FileState),
}

/// Content-Range of a part that is sent (RFC 9110, 14.4).
pub(crate) fn content_range(range: &std::ops::Range<u64>, len: u64) -> Header {
    Header::own("Content-Range", format!("bytes {}-{}/{len}", range.start, range.end - 1))
}

/// Content-Range of a file that has no such part.
pub(crate) fn unsatisfiable(len: u64) -> Header {
    Header::own("Content-Range", format!("bytes */{len}"))
}

/// The body that goes with a status of [`Found::Status`] and [`Route::Refuse`](super::Decision::Refuse), as httpuv
/// words it.
pub fn error_body(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "400 Bad Request\n",
        StatusCode::FORBIDDEN => "403 Forbidden\n",
        StatusCode::NOT_FOUND => "404 Not Found\n",
        StatusCode::PRECONDITION_FAILED => "412 Precondition Failed\n",
        StatusCode::RANGE_NOT_SATISFIABLE => "416 Range Not Satisfiable\n",
        _ => "500 Internal Server Error\n",
    }
}

fn failed() -> Found {
    Found::Status { status: StatusCode::INTERNAL_SERVER_ERROR, headers: Vec::new() }
}

fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

fn push_index(directory: &mut FilePath) {
    if !directory.ends_with(b"/") {
        directory.push(b'/');
    }
    directory.extend_from_slice(b"index.html");
}

/// Reads a small file, on a thread that may block.
pub(crate) fn read_small(found: &Found) -> io::Result<Option<Bytes>> {
    match found {
        Found::File { file, offset, len, .. } if *len <= WHOLE => {
            let mut bytes = vec![0; *len as usize];
            file.read_exact_at(&mut bytes, *offset)?;
            Ok(Some(bytes.into()))
        }
        _ => Ok(None),
    }
}

/// Reads a small file, if it is in the kernel's memory.
fn read_nonblocking(
    file: &File,
    offset: u64,
    len: usize,
    cacheable: Option<Cacheable>,
    cache: &mut FileCache,
    out: &mut BytesMut,
) -> Reading {
    // One that is kept gets memory of its own, no larger than it.
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

/// Opens a regular file; `None` where there is none. For a directory `path` becomes that of its index.
fn open_regular(path: &mut FilePath, index: bool) -> io::Result<Option<(File, FileState)>> {
    let opened: io::Result<_> = (|| {
        let mut metadata = std::fs::metadata(as_path(path))?;
        if metadata.is_dir() && index {
            push_index(path);
            metadata = std::fs::metadata(as_path(path))?;
        }
        // Looked at before it is opened: opening a FIFO lets its writer go on, and a device may act on it.
        if !metadata.is_file() {
            return Ok(None);
        }
        // What the name stands for may have changed since: not blocking keeps a FIFO from holding the thread.
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(as_path(path))?;
        let metadata = file.metadata()?;
        Ok(metadata.is_file().then(|| (file, FileState::of(&metadata))))
    })();
    match opened {
        Err(error) if error.raw_os_error().is_some_and(is_missing) => Ok(None),
        opened => opened,
    }
}
