//! A request's body: in the exchange's memory while it is small, in a temporary file when it is not.

use std::fs::File;
use std::future::poll_fn;
use std::io::{self, Write as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;

use bytes::Bytes;
use hyper::body::Incoming;
use rookery_exchange::{Charge, Exchange, Share};

use super::call::Call;
use super::spool_folder::{Reserve, SpoolFolder};
use crate::blocking::blocking_task::BlockingTask;
use crate::blocking::unnamed_file::UnnamedFile;
use crate::rejection::Rejection;

/// Bytes gathered before they are written to the file in one go, on another thread: a fraction of a millisecond of
/// disk, and 4,000 hand-overs for a gigabyte.
const BATCH: usize = 256 << 10;

/// Bytes that have arrived before a block is taken for a body: nothing is reserved for what is only announced, and a
/// copy of this much is a small part of what the block saves.
const BLOCK_FROM: u64 = 64 << 10;

/// A request's body, as its protocol reads it.
pub(super) trait RequestBody: http_body::Body<Data = Bytes> + Unpin {
    /// What is answered when it could not be read; `None`: there is nobody to answer.
    fn rejection(error: &Self::Error) -> Option<Rejection>;

    /// Whether it ended before its end, because its client has gone, or sends no more.
    fn is_cut_short(error: &Self::Error) -> bool;

    /// Takes over what has arrived while nobody reads. HTTP/2 needs this: h2 closes a connection on
    /// which too many small frames wait.
    fn hold_unread(&mut self, _cx: &mut Context<'_>) {}
}

impl RequestBody for Incoming {
    fn rejection(error: &hyper::Error) -> Option<Rejection> {
        (!error.is_incomplete_message()).then_some(Rejection::BodyUnreadable)
    }

    fn is_cut_short(error: &hyper::Error) -> bool {
        let io =
            std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
        io.is_some_and(|error| {
            error.kind() != io::ErrorKind::InvalidData
                && error.kind() != io::ErrorKind::InvalidInput
        })
    }
}

/// Reads the body into the exchange.
///
/// # Errors
/// What to answer instead; `None` when there is nobody to answer.
pub(super) async fn read<B: RequestBody>(
    mut body: B,
    mut exchange: Box<Exchange>,
    call: &Call,
) -> Result<Box<Exchange>, Option<Rejection>> {
    let limits = &call.http().connections.limits;
    // Whatever is wrong with the folder has been said there; to the client it is one and the same.
    let refused = |_: io::Error| Some(Rejection::DiskFull);
    let mut spool: Option<Spool> = None;
    let mut len = 0u64;
    // A body of unknown length, or one that will not stay in memory, needs no block.
    let mut announced =
        body.size_hint().exact().filter(|total| *total <= limits.body_memory as u64);
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|error| B::rejection(&error))?;
        // Trailers are read and dropped, as with httpuv.
        let Ok(data) = frame.into_data() else { continue };
        len += data.len() as u64;
        if len > limits.body_bytes {
            return Err(Some(Rejection::BodyTooLarge));
        }
        if spool.is_none() && len <= limits.body_memory as u64 {
            exchange.push_body(&data);
            call.hold_request(&mut exchange, 0).map_err(Some)?;
            if len >= BLOCK_FROM {
                let block = announced
                    .take()
                    .and_then(|total| call.http().blocks.take(usize::try_from(total).ok()?));
                if let Some(block) = block {
                    exchange.body_mut().use_block(block);
                }
            }
            continue;
        }
        let mut file = match spool.take() {
            Some(file) => file,
            None => {
                let in_memory = usize::try_from(exchange.body().len()).unwrap_or(usize::MAX);
                call.hold_request(&mut exchange, in_memory).map_err(Some)?;
                let file =
                    while_held(&mut body, Spool::start(&exchange, call)).await.map_err(refused)?;
                call.let_go_beside(&exchange, file.batch.capacity());
                file
            }
        };
        file.batch.extend_from_slice(&data);
        call.hold_request(&mut exchange, file.batch.capacity()).map_err(Some)?;
        file.charge.set(file.batch.capacity());
        spool = Some(while_held(&mut body, file.written_if_full(call)).await.map_err(refused)?);
    }
    if let Some(spool) = spool {
        let file = spool.finish().await.map_err(refused)?;
        exchange.body_mut().set_file(file, len);
    }
    Ok(exchange)
}

/// Awaits `work`, during which the body is held and not read.
async fn while_held<B: RequestBody, T>(body: &mut B, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    poll_fn(|cx| {
        body.hold_unread(cx);
        work.as_mut().poll(cx)
    })
    .await
}

/// A temporary file without a name: nothing is left behind, whatever happens.
struct Spool {
    file: UnnamedFile,
    batch: Vec<u8>,
    /// For the batch, wherever it is.
    charge: Charge,
    reserve: Reserve,
    folder: Arc<SpoolFolder>,
}

impl Spool {
    /// Makes the file and moves into it what is in memory.
    async fn start(exchange: &Exchange, call: &Call) -> io::Result<Spool> {
        let batch = exchange.body().segments().collect::<Vec<_>>().concat();
        let charge = call.http().connections.charge(Share::Requests, batch.capacity());
        let (reserve, folder) =
            (Reserve::of(&call.http().connections.limits), Arc::clone(&call.connection.site.spool));
        call.connection.standing.away.set(charge.bytes());
        let job = BlockingTask::start(move || {
            let file = folder.file().inspect_err(|error| folder.complain(error))?;
            Spool { file: UnnamedFile::new(file), batch, charge, reserve, folder }.written()
        });
        let spool = job.await;
        call.connection.standing.away.set(0);
        spool
    }

    async fn written_if_full(self, call: &Call) -> io::Result<Spool> {
        if self.batch.len() < BATCH {
            return Ok(self);
        }
        call.connection.standing.away.set(self.charge.bytes());
        let spool = BlockingTask::start(move || self.written()).await;
        call.connection.standing.away.set(0);
        spool
    }

    async fn finish(self) -> io::Result<File> {
        BlockingTask::start(move || self.written()).await.map(|spool| spool.file.into_file())
    }

    fn written(mut self) -> io::Result<Spool> {
        let written = self
            .reserve
            .check(&self.file, self.batch.len() as u64)
            .and_then(|()| (&*self.file).write_all(&self.batch))
            .inspect_err(|error| self.folder.complain(error));
        // The first one was all that had been in memory.
        self.batch.clear();
        self.batch.shrink_to(2 * BATCH);
        self.charge.set(self.batch.capacity());
        written.map(|()| self)
    }
}
