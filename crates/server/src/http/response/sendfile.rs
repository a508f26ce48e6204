//! Files on their way out.
//!
//! hyper writes bytes, and a file is not read to become some. In place of each of its bytes hyper is given one that stands for
//! it and is never looked at; when it writes those, the file is sent by the system from its cache (`sendfile`), which copies
//! nothing. Both are done in the same order, so all that is kept is a queue. hyper does not copy what it is given for writes
//! of several buffers at once, which is what the connection asks for; a test compares every byte.
//!
//! The I/O thread sends what is in the system's cache, and nothing else: what is not is read by a thread that may block, a
//! piece at a time, and written. So is the file of a transport or a file system that cannot do it.
//!
//! What is sent so is the file as it is when its bytes leave the socket, perhaps seconds later: a program that changes a
//! file in place changes what is on its way, as with every server that uses `sendfile`. A file that is replaced by
//! another, or emptied and written anew, does not change for those who are being sent it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::pin::Pin;
use std::sync::{Arc, LazyLock, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::blocking::blocking_task::BlockingTask;
use crate::blocking::nonblocking_file;
use crate::blocking::unnamed_file::UnnamedFile;
use crate::net::transport::{Scratch, Transport};

/// Bytes of a file read at once, where it is read.
pub(crate) const READ_CHUNK: usize = 64 << 10;

/// Bytes of a file that hyper is told of at once, and that the system is asked to send: more than a socket's buffer takes, so
/// that what is left of them is seldom little.
const MAX_PLACEHOLDER: usize = 16 << 20;

/// Bytes that are looked for in the system's cache at once. Each time costs a look at every page: so what was found there is
/// not looked for again within the same tick of the clock, a second at most. Dropped within that, it is read again by the
/// system while the I/O thread waits.
const CACHE_LOOKAHEAD: u64 = 16 << 20;

/// What stands for bytes of files. Nobody writes to it, so it takes no memory.
static PLACEHOLDER: LazyLock<&'static [u8]> =
    LazyLock::new(|| Box::leak(vec![0; MAX_PLACEHOLDER].into()));

/// A file that is sent. Its last close may take long where it has no name: one of the application's, or one that has been
/// replaced meanwhile.
#[derive(Debug)]
pub(crate) struct SentFile {
    file: UnnamedFile,
    had_name: bool,
    /// Whether its file system is local, once that is known.
    is_local: OnceLock<bool>,
}

impl SentFile {
    pub(crate) fn named(file: File, is_local: bool) -> SentFile {
        SentFile { file: UnnamedFile::new(file), had_name: true, is_local: is_local.into() }
    }

    pub(crate) fn unnamed(file: UnnamedFile) -> SentFile {
        SentFile { file, had_name: false, is_local: OnceLock::new() }
    }

    /// Reads a part, if that does not wait for a disk.
    pub(crate) fn try_read(&self, at: u64, len: usize) -> Option<Vec<u8>> {
        if self.is_local.get() != Some(&true) {
            return None;
        }
        let mut chunk = vec![0; len];
        nonblocking_file::read(self, &mut chunk, at).ok().map(|()| chunk)
    }

    /// Reads a part, on a thread that may block.
    pub(crate) fn read(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        self.is_local.get_or_init(|| nonblocking_file::is_local(self));
        let mut chunk = vec![0; len];
        // A file that has become shorter since its length was told: the reply cannot be completed.
        self.read_exact_at(&mut chunk, at)?;
        Ok(chunk)
    }
}

impl std::ops::Deref for SentFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for SentFile {
    fn drop(&mut self) {
        // Another machine is not asked: it keeps what is open, or frees it by itself.
        let is_local = self.is_local.get() == Some(&true);
        if self.had_name
            && !(is_local && self.metadata().is_ok_and(|metadata| metadata.nlink() == 0))
        {
            self.file.close();
        }
    }
}

/// The files that a connection is sending, in their order.
#[derive(Debug, Default)]
pub(crate) struct SendfileQueue {
    /// What hyper has been told of and has not written.
    parts: VecDeque<FilePart>,
    /// What has been read of the first, and how much of that has been written.
    chunk: Vec<u8>,
    written: usize,
    read_job: Option<BlockingTask<Vec<u8>>>,
    /// Up to where the first is in the system's cache, and when that was so.
    cached: (u64, u32),
    is_sendfile_unsupported: bool,
}

#[derive(Debug)]
struct FilePart {
    file: Arc<SentFile>,
    at: u64,
    left: usize,
    /// Where it ends, as far as hyper will be told of it.
    end: u64,
}

/// How sending goes on.
pub(crate) enum WriteResult {
    /// So many bytes have been written, or the peer does not read.
    Socket(Poll<io::Result<usize>>),
    /// It waits for a disk.
    DiskWait,
}

/// Whether bytes stand for those of a file.
fn is_placeholder(bytes: &[u8]) -> bool {
    PLACEHOLDER.as_ptr_range().contains(&bytes.as_ptr())
}

impl SendfileQueue {
    /// Queues a part of a file, of `left` bytes at most: what hyper is to be given for it.
    pub(crate) fn push(&mut self, file: &Arc<SentFile>, at: u64, left: u64) -> Bytes {
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(MAX_PLACEHOLDER);
        match self.parts.back_mut() {
            Some(part) if Arc::ptr_eq(&part.file, file) && part.at + part.left as u64 == at => {
                part.left += len;
            }
            _ => self.parts.push_back(FilePart {
                file: Arc::clone(file),
                at,
                left: len,
                end: at + left,
            }),
        }
        Bytes::from_static(&PLACEHOLDER[..len])
    }

    /// Bytes that hyper has been told of and has not written.
    pub(crate) fn left(&self) -> usize {
        self.parts.iter().map(|part| part.left).sum()
    }

    /// Writes the first of `buffers`, or as many of them as are of one kind.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
        buffers: &[IoSlice<'_>],
        scratch: &Scratch,
        now: u32,
    ) -> WriteResult {
        let plain = buffers.iter().take_while(|buffer| !is_placeholder(buffer)).count();
        if plain > 0 {
            return WriteResult::Socket(transport.poll_write_vectored(cx, &buffers[..plain]));
        }
        let of_files = buffers.iter().take_while(|buffer| is_placeholder(buffer));
        let len = of_files.map(|buffer| buffer.len()).sum();
        self.poll_send(cx, transport, len, scratch, now)
    }

    /// Writes at most `len` bytes of the first file.
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
        len: usize,
        scratch: &Scratch,
        now: u32,
    ) -> WriteResult {
        let Some(part) = self.parts.front_mut() else {
            return WriteResult::Socket(Poll::Ready(Err(io::Error::other(
                "no file is being sent",
            ))));
        };
        let len = len.min(part.left);
        let sent = loop {
            if let Some(read_job) = &mut self.read_job {
                let Poll::Ready(read) = Pin::new(read_job).poll(cx) else {
                    return WriteResult::DiskWait;
                };
                self.read_job = None;
                match read {
                    Ok(chunk) => (self.chunk, self.written) = (chunk, 0),
                    Err(error) => break Poll::Ready(Err(error)),
                }
            }
            if self.written < self.chunk.len() {
                let rest = &self.chunk[self.written..];
                let written = transport.poll_write_chunk(cx, &rest[..len.min(rest.len())]);
                if let Poll::Ready(Ok(n)) = written {
                    self.written += n;
                }
                break written;
            }
            let is_local = part.file.is_local.get() == Some(&true);
            if is_local && transport.is_encrypted() {
                // TLS keeps what is sealed until it has left, so nothing is kept here.
                self.chunk = Vec::new();
                match transport.poll_flush(cx) {
                    Poll::Ready(Ok(())) => {}
                    failed => break failed.map_ok(|()| 0),
                }
                let mut scratch = scratch.0.borrow_mut();
                let room = scratch.len().min(len).min(READ_CHUNK);
                if nonblocking_file::read(&part.file, &mut scratch[..room], part.at).is_ok() {
                    break transport.poll_write_chunk(cx, &scratch[..room]);
                }
            } else if is_local
                && !self.is_sendfile_unsupported
                && part.is_cached(len, now, &mut self.cached)
            {
                match transport.poll_send_file(cx, &part.file, part.at, len) {
                    Poll::Ready(Ok(0)) => {
                        break Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                    }
                    Poll::Ready(Err(error)) if is_unsupported(&error) => {
                        self.is_sendfile_unsupported = true
                    }
                    sent => break sent,
                }
            }
            let len = part.left.min(READ_CHUNK);
            if is_local && !transport.is_encrypted() {
                self.chunk.resize(len, 0);
                self.written = 0;
                if nonblocking_file::read(&part.file, &mut self.chunk, part.at).is_ok() {
                    continue;
                }
            }
            self.chunk = Vec::new();
            let (file, at) = (Arc::clone(&part.file), part.at);
            self.read_job = Some(BlockingTask::start(move || file.read(at, len)));
        };
        if let Poll::Ready(Ok(n)) = sent {
            part.at += n as u64;
            part.left -= n;
            if part.left == 0 {
                self.cached = (0, now);
                self.parts.pop_front();
            }
        }
        WriteResult::Socket(sent)
    }
}

impl FilePart {
    /// Whether the next `len` bytes are in the system's cache; `cached` is what is known of that.
    fn is_cached(&self, len: usize, now: u32, cached: &mut (u64, u32)) -> bool {
        let to = self.at + len as u64;
        if cached.0 < to || cached.1 != now {
            let ahead = (self.at + CACHE_LOOKAHEAD).min(self.end).max(to);
            let found = [ahead, to].into_iter().find(|to| {
                nonblocking_file::is_resident(&self.file, self.at, (to - self.at) as usize)
                    == Ok(true)
            });
            *cached = (found.unwrap_or(0), now);
        }
        cached.0 >= to
    }
}

/// Whether a transport or a file cannot do it at all.
fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::ENOSYS | libc::EPERM | libc::EOPNOTSUPP)
    ) || error.kind() == io::ErrorKind::Unsupported
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_file_that_has_been_replaced_is_closed_on_another_thread() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        let (goes_on, waits) = mpsc::channel::<()>();
        let dir = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, name).unwrap();
            let file = File::open(path).unwrap();
            let link = format!("/proc/self/fd/{}", file.as_raw_fd());
            let is_open = move |name: &str| {
                std::fs::read_link(&link).is_ok_and(|path| path.to_string_lossy().contains(name))
            };
            (SentFile::named(file, true), is_open)
        };
        runtime.block_on(async {
            // The only such thread is busy: nothing is closed there until it is free.
            let busy = tokio::task::spawn_blocking(move || waits.recv());
            let (named, is_named_open) = open("rookery-named");
            drop(named);
            assert!(!is_named_open("rookery-named"), "closed here");
            let (replaced, is_replaced_open) = open("rookery-replaced");
            std::fs::remove_file(dir.path().join("rookery-replaced")).unwrap();
            drop(replaced);
            assert!(is_replaced_open("rookery-replaced"), "closed on this thread");
            goes_on.send(()).unwrap();
            busy.await.unwrap().unwrap();
            tokio::task::spawn_blocking(|| ()).await.unwrap();
            assert!(!is_replaced_open("rookery-replaced"));
        });
    }
}
