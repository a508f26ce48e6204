//! The open streams of an I/O thread, by their ids.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use rookery_exchange::{Departure, Exchange, ReplyBody, StreamId};

use super::stream::Stream;
use crate::application::dispatch::Dispatch;
use crate::peers::table::Peers;

/// The open streams of an I/O thread.
#[derive(Debug, Default)]
pub(crate) struct Streams(RefCell<HashMap<StreamId, Rc<Stream>>>);

impl Streams {
    /// Opens the stream that an exchange has as its reply: what the application sends next is for it already.
    pub(super) fn open(&self, peers: &Rc<Peers>, dispatch: &Rc<Dispatch>, exchange: &Exchange) {
        if let ReplyBody::Stream(given) = exchange.reply().body() {
            let stream = Stream::new(peers, dispatch, exchange, given.clone());
            self.0.borrow_mut().insert(exchange.id(), stream);
        }
    }

    /// An open one.
    pub(crate) fn get(&self, id: StreamId) -> Option<Rc<Stream>> {
        self.0.borrow().get(&id).cloned()
    }

    /// Ends one, for `reason` where nothing else has been decided.
    pub(super) fn end(&self, stream: &Stream, reason: Departure) {
        self.forget(stream.id());
        stream.depart(reason);
    }

    /// Forgets one whose application is told by somebody else.
    pub(super) fn forget(&self, id: StreamId) {
        let forgotten = self.0.borrow_mut().remove(&id);
        drop(forgotten);
    }
}
