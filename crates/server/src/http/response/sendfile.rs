//! Sends files with `sendfile`, without reading them into user memory.
//!
//! - hyper can only write bytes. Instead of a part of a file, hyper gets a placeholder of the same
//!   length. When hyper writes the placeholder, the connection recognizes it by its address and
//!   calls `sendfile` for the next part in a queue of files. This requires that hyper uses vectored
//!   writes and does not copy the placeholder.
//! - The I/O thread sends only bytes that are in the system's page cache. Other bytes are read by a
//!   thread that may block, and are then written. All bytes are sent in this way if the transport
//!   or the file system does not support `sendfile`.
//! - The bytes are read from the file when they are sent, perhaps seconds after the response has
//!   begun. A program that changes a file in place therefore changes responses that are being sent.
//!   Replacing a file by another file is safe.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, LazyLock, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use rookery_exchange::{Charge, Peer};
use rookery_system::blocking::{self, BlockingTask};
use rookery_system::file;

use crate::blocking::nonblocking_file;
use crate::blocking::unnamed_file::UnnamedFile;
use crate::connections::client_task;
use crate::net::transport::{Scratch, Transport};

/// The maximum number of bytes that are read from a file at once when `sendfile` cannot be used.
pub(crate) const READ_CHUNK: usize = 64 << 10;

/// The maximum size in bytes of a placeholder (which hyper gets instead of a part of a file), and
/// of a `sendfile` call. It is larger than a socket buffer, so that few writes are cut short by the
/// end of a placeholder.
const MAX_PLACEHOLDER: usize = 16 << 20;

/// The number of bytes of a file that one lookup in the system's page cache covers. A lookup is
/// expensive, because it checks every page, so its result is reused until the next clock tick (at
/// most a second).
// If the system evicts some of the pages in that time, the I/O thread blocks on the disk when it
// sends them.
const CACHE_LOOKAHEAD: u64 = 16 << 20;

/// The memory of the placeholders, which hyper gets instead of the contents of files. It is never
/// written to, so it occupies no physical memory.
static PLACEHOLDER: LazyLock<&'static [u8]> =
    LazyLock::new(|| Box::leak(vec![0; MAX_PLACEHOLDER].into()));

/// A file that is being sent as a response body. If its name has been deleted, a background thread
/// closes the file, because the system then frees its disk space, which may take long.
#[derive(Debug)]
pub(crate) struct SentFile {
    file: UnnamedFile,
    had_name: bool,
    /// True if the file is on a local file system. Unset until that is known.
    is_local: OnceLock<bool>,
}

impl SentFile {
    pub(crate) fn named(file: File, is_local: bool) -> SentFile {
        SentFile { file: UnnamedFile::new(file), had_name: true, is_local: is_local.into() }
    }

    pub(crate) fn unnamed(file: UnnamedFile) -> SentFile {
        SentFile { file, had_name: false, is_local: OnceLock::new() }
    }

    /// Keeps the charge for the descriptor of the file until the file has been closed.
    pub(crate) fn set_charge(&mut self, charge: Charge) {
        self.file.set_charge(charge);
    }

    /// Returns true if the descriptor of the file is charged.
    pub(crate) fn is_charged(&self) -> bool {
        self.file.is_charged()
    }

    /// Reads `len` bytes of the file from offset `at`. Returns `None` if that is not possible
    /// without waiting for a disk.
    pub(crate) fn try_read(&self, at: u64, len: usize) -> Option<Vec<u8>> {
        if self.is_local.get() != Some(&true) {
            return None;
        }
        let mut chunk = vec![0; len];
        nonblocking_file::read(self, &mut chunk, at).ok().map(|()| chunk)
    }

    /// Reads `len` bytes of the file from offset `at`. Must be called on a thread that may block,
    /// because it may wait for a disk.
    pub(crate) fn read(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        self.is_local.get_or_init(|| nonblocking_file::is_local(self));
        let mut chunk = vec![0; len];
        // Fails if the file has become shorter since its length was sent. The response then stays
        // incomplete.
        file::read_exact_at(self, &mut chunk, at)?;
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
        // Metadata of a remote file would require a request to another machine, which frees the
        // file by itself.
        let is_local = self.is_local.get() == Some(&true);
        if self.had_name && !(is_local && file::has_no_name(self)) {
            self.file.close();
        }
    }
}

/// The queue of the file parts that a connection sends. hyper gets a placeholder of the same length
/// for each part. When hyper writes it, the bytes of the file are sent instead.
#[derive(Debug, Default)]
pub(crate) struct SendfileQueue {
    /// The parts of files that have not been sent yet.
    parts: VecDeque<FilePart>,
    /// The bytes that have been read from the first file part because `sendfile` could not be used.
    chunk: Vec<u8>,
    /// The number of bytes of `chunk` that have been written to the client.
    written: usize,
    read_job: Option<BlockingTask<Vec<u8>>>,
    /// The offset up to which the first file of the queue is known to be in the page cache, and the
    /// clock tick of the lookup that found this.
    cached: (u64, u32),
    is_sendfile_unsupported: bool,
}

#[derive(Debug)]
struct FilePart {
    file: Arc<SentFile>,
    at: u64,
    left: usize,
    /// The offset in the file at which the part that must be sent ends.
    end: u64,
    /// The client to which the part is sent.
    peer: Peer,
}

/// The result of one write to a client's connection. The write sends either ordinary bytes of a
/// response or bytes of a file.
pub(crate) enum WriteResult {
    /// The number of bytes written to the socket, or `Pending` if the socket accepts no more bytes.
    Socket(Poll<io::Result<usize>>),
    /// The write waits until a background thread has read bytes of the file from disk.
    DiskWait,
}

/// Returns true if the bytes that hyper writes are the placeholder for a file's contents.
fn is_placeholder(bytes: &[u8]) -> bool {
    PLACEHOLDER.as_ptr_range().contains(&bytes.as_ptr())
}

impl SendfileQueue {
    /// Queues at most `left` bytes of a file for sending to `peer`, starting at offset `at`.
    /// Returns placeholder bytes for hyper, which [`poll_write`](Self::poll_write) replaces by the
    /// file's bytes.
    pub(crate) fn push(&mut self, peer: Peer, file: &Arc<SentFile>, at: u64, left: u64) -> Bytes {
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
                peer,
            }),
        }
        Bytes::from_static(&PLACEHOLDER[..len])
    }

    /// Returns the number of queued file bytes that have not been sent yet.
    pub(crate) fn left(&self) -> usize {
        self.parts.iter().map(|part| part.left).sum()
    }

    /// Writes the first of hyper's `buffers`, together with the buffers after it that are of the
    /// same kind: either ordinary bytes or placeholders, for which bytes of the queued files are
    /// sent.
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

    /// Writes at most `len` bytes of the first file in the queue to the transport.
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
        let len = len.min(part.left).min(client_task::write_limit().unwrap_or(usize::MAX));
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
                // TLS keeps encrypted bytes until they have been sent, so no other copy is needed.
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
                    Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::Unsupported => {
                        self.is_sendfile_unsupported = true;
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
            self.read_job = Some(blocking::start_for(part.peer, move || file.read(at, len)));
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
    /// Returns true if the next `len` bytes of the file are in the system's page cache. `cached` is
    /// the result of the previous lookup (an offset in the file and a clock tick). It is replaced
    /// if a new lookup is necessary.
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::sync::mpsc;

    use rookery_system::blocking::BlockingPool;

    use super::*;

    #[test]
    fn closes_a_replaced_file_on_another_thread() {
        let pool = BlockingPool::start("test", 1).unwrap();
        let entered = pool.enter();
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
        // The only blocking thread is busy, so nothing can be closed there.
        blocking::run_detached(move || _ = waits.recv());
        let (named, is_named_open) = open("rookery-named");
        drop(named);
        assert!(!is_named_open("rookery-named"), "closed here");
        let (replaced, is_replaced_open) = open("rookery-replaced");
        std::fs::remove_file(dir.path().join("rookery-replaced")).unwrap();
        drop(replaced);
        assert!(is_replaced_open("rookery-replaced"), "closed on this thread");
        let (closed, wait_until_closed) = mpsc::channel();
        blocking::run_detached(move || closed.send(()).unwrap());
        goes_on.send(()).unwrap();
        wait_until_closed.recv().unwrap();
        assert!(!is_replaced_open("rookery-replaced"));
        drop(entered);
        pool.join();
    }
}
