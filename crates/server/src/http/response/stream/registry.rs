//! The open streams of an I/O thread, by their ids.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use rookery_exchange::{Exchange, ResponseBody, StreamEnd, StreamId};

use crate::application::dispatch::Dispatch;
use crate::connections::table::ConnectionTable;
use crate::http::response::stream::response_stream::ResponseStream;

/// Streams that are compressed at a time: a compressor is 300 KiB, for as long as its stream is open, which may be hours.
const MAX_COMPRESSED: usize = 32;

/// The open streams of an I/O thread.
#[derive(Debug, Default)]
pub(crate) struct ResponseStreams {
    open: RefCell<HashMap<StreamId, Rc<ResponseStream>>>,
    /// How many of them are compressed.
    compressed: Rc<Cell<usize>>,
}

/// One of the streams that are compressed.
#[derive(Debug)]
pub(crate) struct CompressorPermit(Rc<Cell<usize>>);

impl Drop for CompressorPermit {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl ResponseStreams {
    /// Opens the stream that an exchange has as its reply: what the application sends next is for it already.
    pub(crate) fn open(
        &self,
        connections: &Rc<ConnectionTable>,
        dispatch: &Rc<Dispatch>,
        exchange: &Exchange,
    ) {
        if let ResponseBody::Stream(given) = exchange.response().body() {
            let stream = ResponseStream::new(connections, dispatch, exchange, given.clone());
            self.open.borrow_mut().insert(exchange.id(), stream);
        }
    }

    /// An open one.
    pub(crate) fn get(&self, id: StreamId) -> Option<Rc<ResponseStream>> {
        self.open.borrow().get(&id).cloned()
    }

    /// Counts one as compressed; `None` when there are as many as there may be.
    pub(crate) fn reserve_compressor(&self) -> Option<CompressorPermit> {
        let count = self.compressed.get();
        (count < MAX_COMPRESSED).then(|| {
            self.compressed.set(count + 1);
            CompressorPermit(Rc::clone(&self.compressed))
        })
    }

    /// Ends one, for `reason` where nothing else has been decided.
    pub(crate) fn end(&self, stream: &ResponseStream, reason: StreamEnd) {
        self.forget(stream.id());
        stream.report_end(reason);
    }

    /// Forgets one whose application is told by somebody else.
    pub(crate) fn forget(&self, id: StreamId) {
        let forgotten = self.open.borrow_mut().remove(&id);
        drop(forgotten);
    }
}
