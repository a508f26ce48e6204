//! A request's body: in the exchange's memory while it is small, in a temporary file when it is not.

use std::fs::File;
use std::future::poll_fn;
use std::io::{self, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::pin::Pin;

use http_body::Body as _;
use hyper::body::Incoming;
use rookery_exchange::Exchange;

use crate::connection::Connection;
use crate::rejection::Rejection;

/// Bytes gathered before they are written to the file in one go, on another thread: a fraction of a millisecond of
/// disk, and 4,000 hand-overs for a gigabyte.
const BATCH: usize = 256 << 10;

/// Bytes that have arrived before a block is taken for a body: nothing is reserved for what is only announced, and a
/// copy of this much is a small part of what the block saves.
const BLOCK_FROM: u64 = 64 << 10;

/// Reads the body into the exchange.
///
/// # Errors
/// What to answer instead; `None` when there is nobody to answer.
pub(crate) async fn read(
    mut body: Incoming,
    mut exchange: Box<Exchange>,
    connection: &Connection,
) -> Result<Box<Exchange>, Option<Rejection>> {
    let limits = &connection.hub.limits;
    let mut spool: Option<Spool> = None;
    let mut len = 0u64;
    // A body of unknown length, or one that will not stay in memory, needs no block.
    let mut announced = body.size_hint().exact().filter(|total| *total <= limits.body_memory as u64);
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame =
            frame.map_err(|error| (!error.is_incomplete_message()).then_some(Rejection::BodyUnreadable))?;
        // Trailers are read and dropped, as with httpuv.
        let Ok(data) = frame.into_data() else { continue };
        len += data.len() as u64;
        if len > limits.body_bytes {
            return Err(Some(Rejection::BodyTooLarge));
        }
        if spool.is_none() && len <= limits.body_memory as u64 {
            exchange.push_body(&data);
            connection.hold_request(&mut exchange, 0).map_err(Some)?;
            if len >= BLOCK_FROM {
                let block = announced
                    .take()
                    .and_then(|total| connection.hub.blocks.take(usize::try_from(total).ok()?));
                if let Some(block) = block {
                    exchange.body_mut().use_block(block);
                }
            }
            continue;
        }
        let file = match spool.take() {
            Some(file) => file,
            None => {
                Spool::start(&exchange, limits.disk_reserve).await.map_err(|error| Some(rejection(&error)))?
            }
        };
        let file = file.push(&data).await.map_err(|error| Some(rejection(&error)))?;
        connection.hold_request(&mut exchange, file.batch.capacity()).map_err(Some)?;
        spool = Some(file);
    }
    if let Some(spool) = spool {
        let file = spool.finish().await.map_err(|error| Some(rejection(&error)))?;
        exchange.body_mut().set_file(file, len);
    }
    Ok(exchange)
}

fn rejection(error: &io::Error) -> Rejection {
    match error.kind() {
        io::ErrorKind::StorageFull => Rejection::DiskFull,
        _ => Rejection::Application,
    }
}

/// A temporary file without a name: nothing is left behind, whatever happens.
struct Spool {
    file: File,
    batch: Vec<u8>,
    reserve: u64,
}

impl Spool {
    /// Makes the file and moves into it what is in memory.
    async fn start(exchange: &Exchange, reserve: u64) -> io::Result<Spool> {
        let batch = exchange.body().segments().collect::<Vec<_>>().concat();
        blocking(move || Spool { file: tempfile::tempfile()?, batch, reserve }.written()).await
    }

    async fn push(mut self, data: &[u8]) -> io::Result<Spool> {
        self.batch.extend_from_slice(data);
        if self.batch.len() < BATCH { Ok(self) } else { blocking(move || self.written()).await }
    }

    async fn finish(self) -> io::Result<File> {
        blocking(move || self.written()).await.map(|spool| spool.file)
    }

    fn written(mut self) -> io::Result<Spool> {
        if free_bytes(&self.file)? < self.reserve.saturating_add(self.batch.len() as u64) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.write_all(&self.batch)?;
        // The first one was all that had been in memory.
        self.batch.clear();
        self.batch.shrink_to(2 * BATCH);
        Ok(self)
    }
}

/// Runs work that touches the disk where it does not hold up the connections.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// What an ordinary user may still write to the file's disk.
fn free_bytes(file: &File) -> io::Result<u64> {
    let mut stat = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the descriptor is open and `stat` has room for the answer.
    if unsafe { libc::fstatvfs(file.as_raw_fd(), stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fstatvfs succeeded and filled it.
    let stat = unsafe { stat.assume_init() };
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}
