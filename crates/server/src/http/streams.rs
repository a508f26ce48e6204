//! The open streams of an I/O thread, by their ids.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use rookery_exchange::{Departure, Exchange, ReplyBody, StreamId};

use super::stream::Stream;
use crate::application::dispatch::Dispatch;
use crate::connections::table::ConnectionTable;

/// Streams that are compressed at a time: a compressor is 300 KiB, for as long as its stream is open, which may be hours.
const COMPRESSED: usize = 32;

/// The open streams of an I/O thread.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    open: RefCell<HashMap<StreamId, Rc<Stream>>>,
    /// How many of them are compressed.
    compressed: Rc<Cell<usize>>,
}

/// One of the streams that are compressed.
#[derive(Debug)]
pub(super) struct CompressedStream(Rc<Cell<usize>>);

impl Drop for CompressedStream {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Streams {
    /// Opens the stream that an exchange has as its reply: what the application sends next is for it already.
    pub(super) fn open(
        &self,
        connections: &Rc<ConnectionTable>,
        dispatch: &Rc<Dispatch>,
        exchange: &Exchange,
    ) {
        if let ReplyBody::Stream(given) = exchange.reply().body() {
            let stream = Stream::new(connections, dispatch, exchange, given.clone());
            self.open.borrow_mut().insert(exchange.id(), stream);
        }
    }

    /// An open one.
    pub(crate) fn get(&self, id: StreamId) -> Option<Rc<Stream>> {
        self.open.borrow().get(&id).cloned()
    }

    /// Counts one as compressed; `None` when there are as many as there may be.
    pub(super) fn compress(&self) -> Option<CompressedStream> {
        let count = self.compressed.get();
        (count < COMPRESSED).then(|| {
            self.compressed.set(count + 1);
            CompressedStream(Rc::clone(&self.compressed))
        })
    }

    /// Ends one, for `reason` where nothing else has been decided.
    pub(super) fn end(&self, stream: &Stream, reason: Departure) {
        self.forget(stream.id());
        stream.depart(reason);
    }

    /// Forgets one whose application is told by somebody else.
    pub(super) fn forget(&self, id: StreamId) {
        let forgotten = self.open.borrow_mut().remove(&id);
        drop(forgotten);
    }
}
