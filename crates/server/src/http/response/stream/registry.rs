//! The registry of the open streamed responses of an I/O thread.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use rookery_exchange::{Exchange, ResponseBody, StreamEnd, StreamId};
use rookery_worker_protocol::SharedScoreboard;

use crate::application::dispatch::Dispatch;
use crate::connections::table::ConnectionTable;
use crate::http::response::stream::response_stream::ResponseStream;

/// The maximum number of streamed responses that are compressed at the same time. Each needs a
/// compressor of several hundred KiB for as long as it is open, which may be hours.
const MAX_COMPRESSED: usize = 32;

/// The open streamed responses of an I/O thread, by their ids.
#[derive(Debug)]
pub(crate) struct ResponseStreams {
    open: RefCell<HashMap<StreamId, Rc<ResponseStream>>>,
    /// The number of streamed responses that are being compressed.
    compressed: Rc<Cell<usize>>,
    /// The scoreboard on which the streamed responses are counted.
    scoreboard: Option<Arc<SharedScoreboard>>,
}

/// A permit to compress a streamed response. It counts towards [`MAX_COMPRESSED`] until it is
/// dropped.
#[derive(Debug)]
pub(crate) struct CompressorPermit(Rc<Cell<usize>>);

impl Drop for CompressorPermit {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl ResponseStreams {
    pub(crate) fn new(scoreboard: Option<Arc<SharedScoreboard>>) -> ResponseStreams {
        ResponseStreams { open: RefCell::default(), compressed: Rc::default(), scoreboard }
    }

    /// Registers the streamed response of an exchange (a request with its response) under its id,
    /// which later commands of the application contain.
    pub(crate) fn open(
        &self,
        connections: &Rc<ConnectionTable>,
        dispatch: &Rc<Dispatch>,
        exchange: &Exchange,
    ) {
        if let ResponseBody::Stream(parts) = exchange.response().body() {
            let stream = ResponseStream::new(connections, dispatch, exchange, parts.clone());
            let before = self.open.borrow_mut().insert(exchange.id(), stream);
            if let Some(scoreboard) = self.scoreboard.as_ref().filter(|_| before.is_none()) {
                scoreboard.open_stream();
            }
        }
    }

    /// Returns the open streamed response with this id, if there is one.
    pub(crate) fn get(&self, id: StreamId) -> Option<Rc<ResponseStream>> {
        self.open.borrow().get(&id).cloned()
    }

    /// Returns a permit to compress one more streamed response, or `None` if [`MAX_COMPRESSED`] are
    /// being compressed.
    pub(crate) fn reserve_compressor(&self) -> Option<CompressorPermit> {
        let count = self.compressed.get();
        (count < MAX_COMPRESSED).then(|| {
            self.compressed.set(count + 1);
            CompressorPermit(Rc::clone(&self.compressed))
        })
    }

    /// Removes a streamed response, and notifies the application that it has ended. `reason` is
    /// reported unless the response already has an end reason.
    pub(crate) fn end(&self, stream: &ResponseStream, reason: StreamEnd) {
        self.forget(stream.id());
        stream.report_end(reason);
    }

    /// Removes a streamed response without notifying the application.
    pub(crate) fn forget(&self, id: StreamId) {
        let forgotten = self.open.borrow_mut().remove(&id);
        if let Some(scoreboard) = self.scoreboard.as_ref().filter(|_| forgotten.is_some()) {
            scoreboard.close_stream();
        }
    }
}
