//! An in-memory cache of small static files with their response headers.
//!
//! For each request, the server compares the device, inode, length and times of the file on disk
//! with those of the cached file. If they differ, the cached file is not used. A file that changed
//! within the last two seconds is not cached, because a further change could leave its times as
//! they are. A file on a file system that does not record changes (ctime) is not cached either.
//!
//! A response therefore contains every earlier change of the file, with one exception: changes that
//! a program makes through a memory mapping, because the kernel does not update the file's times at
//! each of these changes.

use std::cell::OnceCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderName, HeaderValue};

use super::conditional_request::Representation;
use super::file_headers::{FileHeaders, SETTLED};
use super::header::Header;
use super::options::Mapping;
use super::path_on_disk::FilePath;
use crate::blocking::file_state::FileState;

/// The maximum number of bytes that the file cache of an I/O thread holds. It is enough for the
/// pages of an application and their scripts. The size of each file counts twice, because its
/// compressed form may be cached too.
const BYTES: usize = 16 << 20;

/// The maximum number of files in the file cache. It is enough for two hundred pages with their
/// scripts and images.
const FILES: usize = 2048;

/// The maximum size in bytes of a file that is cached. Files up to this size are read as soon as
/// they are opened, and are sent in one write with the response head.
pub(crate) const WHOLE: u64 = 64 << 10;

/// The maximum length in bytes of the path of a cached file. Longer paths are seldom requested
/// twice.
const PATH_BYTES: usize = 1024;

/// The number of bytes that the cache counts for each file in addition to its content and path.
/// They stand for the headers and table entries of the file.
const OVERHEAD: usize = 1024;

/// The maximum number of file-system devices that the cache remembers as local. The files of an
/// application are usually on fewer file systems.
const DEVICES: usize = 16;

/// The time for which the cache relies on a check that a file-system device is local. It is short
/// because another file system may get the same device number after this one is unmounted.
const DEVICE_TIME: Duration = Duration::from_secs(60);

/// A static file in memory, with the headers of its responses.
#[derive(Debug)]
pub(crate) struct CachedFile {
    mapping: Arc<Mapping>,
    state: FileState,
    file_headers: FileHeaders,
    plain: Variant,
    not_modified: OnceCell<Headers>,
    not_modified_gzip: OnceCell<Headers>,
    gzip: OnceCell<Variant>,
}

/// The response headers and the content of a cached file, either uncompressed or compressed.
#[derive(Debug)]
pub(crate) struct Variant {
    pub(crate) headers: Headers,
    pub(crate) bytes: Bytes,
}

/// Response headers in the types of the `http` crate.
pub(crate) type Headers = Box<[(HeaderName, HeaderValue)]>;

/// The description of a file that may be added to the file cache as soon as its content has been
/// read.
#[derive(Debug)]
pub(crate) struct Cacheable {
    path: FilePath,
    mapping: Arc<Mapping>,
    state: FileState,
    file_headers: FileHeaders,
}

/// The cache in which an I/O thread keeps small files. It also remembers which file-system devices
/// are local, because files on them can be opened without blocking.
#[derive(Debug, Default)]
pub(crate) struct FileCache {
    files: HashMap<Rc<[u8]>, Kept>,
    /// The paths of the cached files, each once, in the order in which they are considered for
    /// eviction.
    order: VecDeque<Rc<[u8]>>,
    bytes: usize,
    local: Vec<(u64, SystemTime)>,
}

#[derive(Debug)]
struct Kept {
    /// The cached file, or `None` after the file on disk changed.
    file: Option<Rc<CachedFile>>,
    bytes: usize,
    /// True if the file was requested since it was last considered for eviction.
    was_used: bool,
}

impl Cacheable {
    /// Describes a file for the cache. Returns `None` for a file that must not be cached, because
    /// it is large, its path is long, it changed a moment ago, or the file system does not record
    /// changes.
    pub(super) fn new(
        path: FilePath,
        mapping: Arc<Mapping>,
        state: FileState,
        file_headers: FileHeaders,
        now: SystemTime,
    ) -> Option<Cacheable> {
        let is_small = state.len <= WHOLE && path.len() <= PATH_BYTES;
        (is_small && state.has_meaningful_change() && state.is_older_than(SETTLED, now))
            .then_some(Cacheable { path, mapping, state, file_headers })
    }
}

impl CachedFile {
    pub(crate) fn representation(&self) -> Representation<'_> {
        self.file_headers.representation()
    }

    /// Returns the headers and content of the cached file in uncompressed form.
    pub(crate) fn plain(&self) -> &Variant {
        &self.plain
    }

    /// Returns the headers of a 304 response for the cached file.
    pub(crate) fn not_modified(&self) -> &Headers {
        self.not_modified.get_or_init(|| to_http(self.file_headers.not_modified(&self.mapping)))
    }

    /// Returns the headers of a 304 response for a client that accepts gzip. The first call builds
    /// them with `make` and caches them.
    pub(crate) fn not_modified_gzip(&self, make: impl FnOnce() -> Headers) -> &Headers {
        self.not_modified_gzip.get_or_init(make)
    }

    /// Returns the `ETag` header of the cached file, if it has one. A 412 response includes it.
    pub(crate) fn etag(&self) -> Option<&Header> {
        self.file_headers.etag()
    }

    /// Returns the compressed form of the cached file, or `None` if the file has not been
    /// compressed.
    pub(crate) fn gzip(&self) -> Option<&Variant> {
        self.gzip.get()
    }

    /// Stores the compressed form of the cached file, unless it is longer than the uncompressed
    /// form.
    pub(crate) fn keep_gzip(&self, form: Variant) {
        if form.bytes.len() <= self.plain.bytes.len() {
            // `set` fails if another request has stored the compressed form in the meantime.
            let _ = self.gzip.set(form);
        }
    }
}

impl FileCache {
    /// Returns the cached file for a path. Removes it from the cache and returns `None` if the file
    /// on disk or its static path has changed since the file was cached.
    pub(super) fn find(
        &mut self,
        path: &[u8],
        mapping: &Arc<Mapping>,
        state: &FileState,
        now: SystemTime,
    ) -> Option<Rc<CachedFile>> {
        let kept = self.files.get_mut(path)?;
        let file = kept.file.as_ref()?;
        if file.state != *state || !Arc::ptr_eq(&file.mapping, mapping) {
            self.bytes -= kept.bytes;
            kept.bytes = 0;
            kept.file = None;
            return None;
        }
        kept.was_used = true;
        // If the clock was set back, the cached headers could differ from those of a new response:
        // `Last-Modified` must not be in the future.
        state.is_older_than(SETTLED, now).then(|| Rc::clone(file))
    }

    /// Adds a file with the content `bytes` to the cache, and evicts files if the cache then
    /// exceeds its limits. Does nothing if the length of `bytes` is not that of the file, which
    /// means that the file was changed while it was being read.
    pub(crate) fn keep(&mut self, cacheable: Cacheable, bytes: Bytes) {
        let Cacheable { path, mapping, state, file_headers } = cacheable;
        if bytes.len() as u64 != state.len {
            return;
        }
        let plain = Variant { headers: to_http(file_headers.headers(&mapping)), bytes };
        let weight = 2 * plain.bytes.len() + path.len() + OVERHEAD;
        let file = Some(Rc::new(CachedFile {
            mapping,
            state,
            file_headers,
            plain,
            not_modified: OnceCell::new(),
            not_modified_gzip: OnceCell::new(),
            gzip: OnceCell::new(),
        }));
        if let Some(kept) = self.files.get_mut(&path[..]) {
            self.bytes = self.bytes - kept.bytes + weight;
            (kept.file, kept.bytes) = (file, weight);
        } else {
            let path: Rc<[u8]> = path[..].into();
            self.order.push_back(Rc::clone(&path));
            self.files.insert(path, Kept { file, bytes: weight, was_used: false });
            self.bytes += weight;
        }
        self.evict();
    }

    /// Evicts files until the cache is within its limits. Considers the files in the order of a
    /// queue. A file that was requested since it was last considered is moved to the end of the
    /// queue instead of being evicted.
    fn evict(&mut self) {
        while self.bytes > BYTES || self.files.len() > FILES {
            let Some(path) = self.order.pop_front() else { return };
            let Some(kept) = self.files.get_mut(&path) else { continue };
            if std::mem::take(&mut kept.was_used) {
                self.order.push_back(path);
            } else {
                self.bytes -= kept.bytes;
                self.files.remove(&path);
            }
        }
    }

    /// Returns true if a file-system device was found to be local within the last [`DEVICE_TIME`].
    pub(super) fn is_local(&self, device: u64, now: SystemTime) -> bool {
        self.local.iter().any(|(local, since)| {
            *local == device && now.duration_since(*since).is_ok_and(|known| known < DEVICE_TIME)
        })
    }

    /// Records that a file-system device is local, which means that its files can be opened without
    /// blocking.
    pub(crate) fn learn_local(&mut self, device: u64, now: SystemTime) {
        self.local.retain(|(local, _)| *local != device);
        if self.local.len() == DEVICES {
            self.local.remove(0);
        }
        self.local.push((device, now));
    }
}

fn to_http(headers: Vec<Header>) -> Headers {
    headers.into_iter().map(Header::into_http).collect()
}

#[cfg(all(test, target_os = "linux", not(feature = "portable")))]
mod tests;
