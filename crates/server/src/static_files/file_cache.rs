//! Small files that are kept in memory, with their headers.
//!
//! A file is kept under its path and trusted as long as looking at that path finds the same device, inode, length and times.
//! One that was changed within the last two seconds is not kept: by then whatever changes it next gives it another time.
//! So a change on disk is seen by the next request, unless it leaves no trace: a program that has the file mapped into its
//! memory gives it its time with the first byte that it writes, and with the next ones when the system has written those out.

use std::cell::OnceCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use smallvec::SmallVec;

use super::conditional_request::Representation;
use super::file_headers::{FileHeaders, SETTLED};
use super::header::Header;
use super::options::Mapping;
use crate::blocking::file_state::FileState;

/// Bytes that are kept, each file counted with its compressed form, its path and its headers. The pages of an application
/// and its libraries; a peer that asks for every file there is cannot make it more.
const BYTES: usize = 16 << 20;

/// Files that are kept: two hundred pages with what belongs to them. Of small ones, this is reached first.
const FILES: usize = 2048;

/// Files up to here are read where they are opened, and leave in one write with their head; these are kept. What is larger
/// takes longer to send than to read.
pub(super) const WHOLE: u64 = 64 << 10;

/// Bytes of a path: a longer one is seldom asked for twice.
const PATH_BYTES: usize = 1024;

/// Headers and the tables' places of one file.
const OVERHEAD: usize = 1024;

/// Devices known to be local: more than the file systems that an application has its files on.
const DEVICES: usize = 16;

/// How long a device is known to be local. Its number may be given to another file system after it has been unmounted.
const DEVICE_TIME: Duration = Duration::from_secs(60);

/// A path of a file. Few are longer, and up to here one allocates nothing.
pub(crate) type FilePath = SmallVec<[u8; 256]>;

/// A file in memory.
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

/// What is sent of it.
#[derive(Debug)]
pub(crate) struct Variant {
    pub(crate) headers: Headers,
    pub(crate) bytes: Bytes,
}

/// Headers as HTTP's table has them.
pub(crate) type Headers = Box<[(HeaderName, HeaderValue)]>;

/// A file that may be kept.
#[derive(Debug)]
pub(crate) struct Cacheable {
    path: FilePath,
    mapping: Arc<Mapping>,
    state: FileState,
    file_headers: FileHeaders,
}

/// Those of an I/O thread.
#[derive(Debug, Default)]
pub(crate) struct FileCache {
    files: HashMap<Rc<[u8]>, Kept>,
    /// Every path of `files` once, in the order in which they are looked at for eviction.
    order: VecDeque<Rc<[u8]>>,
    bytes: usize,
    local: Vec<(u64, SystemTime)>,
}

#[derive(Debug)]
struct Kept {
    /// `None` since it was found to be another one.
    file: Option<Rc<CachedFile>>,
    bytes: usize,
    /// Whether it was asked for since it was last looked at for eviction.
    was_used: bool,
}

impl Cacheable {
    /// `None` for what is not to be kept: large, or changed a moment ago.
    pub(super) fn new(
        path: FilePath,
        mapping: Arc<Mapping>,
        state: FileState,
        file_headers: FileHeaders,
        now: SystemTime,
    ) -> Option<Cacheable> {
        (state.len <= WHOLE && path.len() <= PATH_BYTES && state.is_older_than(SETTLED, now))
            .then_some(Cacheable { path, mapping, state, file_headers })
    }
}

impl CachedFile {
    pub(crate) fn representation(&self) -> Representation<'_> {
        self.file_headers.representation()
    }

    /// The whole of it.
    pub(crate) fn plain(&self) -> &Variant {
        &self.plain
    }

    /// The headers of 304.
    pub(crate) fn not_modified(&self) -> &Headers {
        self.not_modified.get_or_init(|| to_http(self.file_headers.not_modified(&self.mapping)))
    }

    /// The headers of 304 for a client that takes gzip, which are made once.
    pub(crate) fn not_modified_gzip(&self, make: impl FnOnce() -> Headers) -> &Headers {
        self.not_modified_gzip.get_or_init(make)
    }

    /// The header of 412.
    pub(crate) fn etag(&self) -> &Header {
        self.file_headers.etag()
    }

    /// Compressed, once it has been.
    pub(crate) fn gzip(&self) -> Option<&Variant> {
        self.gzip.get()
    }

    /// Keeps the compressed form, unless it is the longer one.
    pub(crate) fn keep_gzip(&self, form: Variant) {
        if form.bytes.len() <= self.plain.bytes.len() {
            // Another request may have been faster.
            let _ = self.gzip.set(form);
        }
    }
}

impl FileCache {
    /// The file that is kept of a path, if it is the one that was found there now.
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
        // Where the clock was set back, its headers are not those of now.
        state.is_older_than(SETTLED, now).then(|| Rc::clone(file))
    }

    /// Keeps a file; `now` is when it was looked at.
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

    /// Forgets files until the rest is within the limits: those that have not been asked for since they were last looked at.
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

    /// Whether a device is known to be local.
    pub(super) fn is_local(&self, device: u64, now: SystemTime) -> bool {
        self.local.iter().any(|(local, since)| {
            *local == device && now.duration_since(*since).is_ok_and(|known| known < DEVICE_TIME)
        })
    }

    /// A device has been found to be local.
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

#[cfg(test)]
mod tests;
