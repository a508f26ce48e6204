//! Reads a request's complete body before the application is called. A small body stays in memory,
//! and a large one is written to a temporary file.

use std::fs::File;
use std::future::poll_fn;
use std::io::{self, Write as _};
use std::pin::Pin;
use std::sync::Arc;

use rookery_exchange::{Charge, Exchange, FileGuard, Peer, Share};
use rookery_system::{blocking, disk};

use crate::blocking::unnamed_file::UnnamedFile;
use crate::http::request::request_body::{RequestBody, with_body_held};
use crate::http::request::request_context::RequestContext;
use crate::http::request::spool_folder::{DiskReserve, SpoolSpace};
use crate::rejection::Rejection;

/// The number of bytes of a request body that are gathered before a background thread writes them
/// to the temporary file. Writing so many bytes takes a fraction of a millisecond.
const WRITE_BATCH: usize = 256 << 10;

/// The number of bytes of a request body that must have arrived before the server takes a large
/// memory block for the body. A client thus cannot make the server reserve memory merely by
/// announcing a large body.
const MIN_BLOCK_BODY: u64 = 64 << 10;

/// Reads the body of a request into its exchange (the shared object of the request and its
/// response).
///
/// # Errors
/// Fails with the rejection to respond with if the body is invalid or too large, or if memory or
/// disk space is exhausted. Fails with `None` if the client disconnected.
pub(crate) async fn collect<B: RequestBody>(
    mut body: B,
    mut exchange: Box<Exchange>,
    context: &RequestContext,
) -> Result<Box<Exchange>, Option<Rejection>> {
    let limits = context.shared().connections.limits();
    // The spool folder reports the cause itself. The client gets the same response for every cause.
    let refused = |_: io::Error| Some(Rejection::DiskFull);
    let mut spool: Option<Spool> = None;
    let mut len = 0u64;
    // A body of unknown length, or one that will be spooled, does not need a block.
    let mut announced =
        body.size_hint().exact().filter(|total| *total <= limits.body_buffer_size as u64);
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|error| B::rejection(&error))?;
        // Trailers are read and dropped, as in httpuv.
        let Ok(data) = frame.into_data() else { continue };
        len += data.len() as u64;
        if len > limits.max_body_size {
            return Err(Some(Rejection::BodyTooLarge));
        }
        if spool.is_none() && len <= limits.body_buffer_size as u64 {
            exchange.push_body(&data);
            if len >= MIN_BLOCK_BODY {
                let block = announced
                    .take()
                    .and_then(|total| context.shared().blocks.take(usize::try_from(total).ok()?));
                if let Some(block) = block {
                    exchange.body_mut().use_block(block);
                }
            }
            context.charge_request(&mut exchange, 0).map_err(Some)?;
            continue;
        }
        let mut file = match spool.take() {
            Some(file) => file,
            None => {
                let in_memory = usize::try_from(exchange.body().len()).unwrap_or(usize::MAX);
                context.charge_request(&mut exchange, in_memory).map_err(Some)?;
                let descriptor = context.charge_request_file().map_err(Some)?;
                let file = with_body_held(&mut body, Spool::start(&exchange, context, descriptor))
                    .await
                    .map_err(refused)?;
                context.reduce_charge(&exchange, file.held());
                file
            }
        };
        file.batch.extend_from_slice(&data);
        context.charge_request(&mut exchange, file.held()).map_err(Some)?;
        file.charge.set(file.held());
        spool =
            Some(with_body_held(&mut body, file.write_if_full(context)).await.map_err(refused)?);
    }
    if let Some(spool) = spool {
        let (file, guard) = spool.finish(context.peer()).await.map_err(refused)?;
        exchange.body_mut().set_file(file, len, Some(guard));
    }
    Ok(exchange)
}

/// A temporary file for a large request body. The file has no name, so the system deletes it once
/// it is closed.
struct Spool {
    file: UnnamedFile,
    batch: Vec<u8>,
    /// The charge to the memory budget for what this spool [holds](Self::held). It moves between
    /// threads together with the bytes.
    charge: Charge,
    reserve: DiskReserve,
    space: SpoolSpace,
    /// True if the file is in memory, because its folder is (tmpfs).
    is_in_memory: bool,
}

impl Spool {
    /// Creates the temporary file for a request body, and moves the part of the body that is
    /// already in memory into the file. `descriptor` is the charge for the descriptor of the file.
    async fn start(
        exchange: &Exchange,
        context: &RequestContext,
        descriptor: Charge,
    ) -> io::Result<Spool> {
        let batch = exchange.body().segments().collect::<Vec<_>>().concat();
        let charge = context.shared().connections.charge(Share::Incoming, batch.capacity());
        let (reserve, space) = (
            DiskReserve::of(&context.shared().connections.limits()),
            SpoolSpace::new(Arc::clone(&context.connection.config.spool), context.peer()),
        );
        context.connection.activity.background_bytes.set(charge.bytes());
        let job = blocking::start_for(context.peer(), move || {
            let folder = space.folder();
            let file = folder.create_file().inspect_err(|error| folder.report_failure(error))?;
            let is_in_memory = disk::is_in_memory(&file);
            let mut file = UnnamedFile::new(file);
            file.set_charge(descriptor);
            Spool { file, batch, charge, reserve, space, is_in_memory }.write()
        });
        let spool = job.await;
        context.connection.activity.background_bytes.set(0);
        spool
    }

    async fn write_if_full(self, context: &RequestContext) -> io::Result<Spool> {
        if self.batch.len() < WRITE_BATCH {
            return Ok(self);
        }
        context.connection.activity.background_bytes.set(self.charge.bytes());
        let spool = blocking::start_for(context.peer(), move || self.write()).await;
        context.connection.activity.background_bytes.set(0);
        spool
    }

    /// Writes the rest of the body. Returns the file, and a guard with the charges for the file.
    async fn finish(self, peer: Peer) -> io::Result<(File, FileGuard)> {
        let mut spool = blocking::start_for(peer, move || self.write()).await?;
        spool.batch = Vec::new();
        spool.charge.set(spool.held());
        let Spool { file, charge, space, .. } = spool;
        let (file, descriptor) = file.into_file();
        Ok((file, Box::new((descriptor, charge, space))))
    }

    /// Returns the memory in bytes that the spool holds: the bytes that are about to be written,
    /// and, if the file is in memory, the file with these bytes.
    fn held(&self) -> usize {
        let file = if self.is_in_memory { self.space.bytes() + self.batch.len() as u64 } else { 0 };
        self.batch.capacity() + usize::try_from(file).unwrap_or(usize::MAX)
    }

    fn write(mut self) -> io::Result<Spool> {
        let written = self
            .space
            .grow(&self.file, self.reserve, self.batch.len() as u64)
            .and_then(|()| (&*self.file).write_all(&self.batch))
            .inspect_err(|error| self.space.folder().report_failure(error));
        // The first batch consists of all bytes that were in memory and can be larger than later
        // ones.
        self.batch.clear();
        self.batch.shrink_to(2 * WRITE_BATCH);
        self.charge.set(self.held());
        written.map(|()| self)
    }
}
