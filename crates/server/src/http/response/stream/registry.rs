//! The registry of the open streamed responses of an I/O thread.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use rookery_exchange::{Exchange, ResponseBody, StreamEnd, StreamId};

use crate::application::dispatch::Dispatch;
use crate::connections::table::ConnectionTable;
use crate::http::response::stream::response_stream::ResponseStream;

/// The maximum number of streams that are compressed at the same time. Each needs a compressor of
/// 300 KiB for as long as it is open, which may be hours.
const MAX_COMPRESSED: usize = 32;

/// The open streamed responses of an I/O thread, by id.
#[derive(Debug, Default)]
pub(crate) struct ResponseStreams {
    open: RefCell<HashMap<StreamId, Rc<ResponseStream>>>,
    /// The number of streams that are compressed.
    compressed: Rc<Cell<usize>>,
}

/// A permit to compress a stream. It counts towards [`MAX_COMPRESSED`] until it is dropped.
#[derive(Debug)]
pub(crate) struct CompressorPermit(Rc<Cell<usize>>);

impl Drop for CompressorPermit {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl ResponseStreams {
    /// Opens the streamed response of an exchange. Any later command of the application for this id
    /// applies to the stream.
    pub(crate) fn open(
        &self,
        connections: &Rc<ConnectionTable>,
        dispatch: &Rc<Dispatch>,
        exchange: &Exchange,
    ) {
        if let ResponseBody::Stream(parts) = exchange.response().body() {
            let stream = ResponseStream::new(connections, dispatch, exchange, parts.clone());
            self.open.borrow_mut().insert(exchange.id(), stream);
        }
    }

    /// Returns an open stream.
    pub(crate) fn get(&self, id: StreamId) -> Option<Rc<ResponseStream>> {
        self.open.borrow().get(&id).cloned()
    }

    /// Returns a permit to compress another stream, or `None` if the maximum is reached.
    pub(crate) fn reserve_compressor(&self) -> Option<CompressorPermit> {
        let count = self.compressed.get();
        (count < MAX_COMPRESSED).then(|| {
            self.compressed.set(count + 1);
            CompressorPermit(Rc::clone(&self.compressed))
        })
    }

    /// Removes a stream and reports its end to the application. `reason` applies unless the stream
    /// has an end reason already.
    pub(crate) fn end(&self, stream: &ResponseStream, reason: StreamEnd) {
        self.forget(stream.id());
        stream.report_end(reason);
    }

    /// Removes a stream whose application is notified elsewhere.
    pub(crate) fn forget(&self, id: StreamId) {
        let forgotten = self.open.borrow_mut().remove(&id);
        drop(forgotten);
    }
}
