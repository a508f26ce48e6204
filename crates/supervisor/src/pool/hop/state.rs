//! The state of the hop: the workers, and the streams and WebSockets whose connections are in this
//! process.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rookery_exchange::{FlowObserver, Peer, SendBacklog, StreamFlow, StreamId, WebSocketId};

use crate::pool::balancing::worker_load::PoolBackend;

/// The state of the hop to all workers.
#[derive(Default)]
pub(in crate::pool) struct Hops {
    /// The workers to which requests cross in shared memory.
    pub(super) workers: RefCell<Vec<Rc<PoolBackend>>>,
    pub(super) sockets: HopSockets,
    pub(super) streams: HopStreams,
    /// Whether a timer is set because records wait for blocks.
    pub(super) is_retrying: Cell<bool>,
    /// The number of times in a row that this thread has not slept because records had arrived.
    pub(super) refusals: Cell<u32>,
}

/// The WebSockets of this process whose messages cross to workers.
#[derive(Default)]
pub(in crate::pool) struct HopSockets(pub(super) RefCell<HashMap<WebSocketId, HopSocket>>);

/// A WebSocket whose messages are sent to a worker.
pub(super) struct HopSocket {
    pub(super) backend: Rc<PoolBackend>,
    /// The peer that has opened the WebSocket.
    pub(super) peer: Peer,
    pub(super) backlog: Arc<SendBacklog>,
    /// The number of written bytes of which the worker was told.
    pub(super) reported: Cell<u64>,
    /// Whether the WebSocket will be closed because its worker is about to end.
    pub(super) is_closing: Cell<bool>,
}

impl HopSockets {
    /// Returns the WebSockets of a worker.
    pub(in crate::pool) fn of(&self, backend: &Rc<PoolBackend>) -> Vec<WebSocketId> {
        let sockets = self.0.borrow();
        let own = sockets.iter().filter(|(_, socket)| Rc::ptr_eq(&socket.backend, backend));
        own.map(|(id, _)| *id).collect()
    }
}

/// The streamed responses of this process whose chunks come from workers.
#[derive(Default)]
pub(in crate::pool) struct HopStreams {
    pub(super) open: RefCell<HashMap<StreamId, HopStream>>,
    pub(super) written: Arc<WrittenStreams>,
}

/// A streamed response whose chunks come from a worker.
pub(super) struct HopStream {
    pub(super) backend: Rc<PoolBackend>,
    /// The peer whose turns the events of the stream take.
    pub(super) peer: Peer,
    pub(super) flow: Arc<StreamFlow>,
    /// Whether the stream is in the list of [`WrittenStreams`] already.
    pub(super) is_noted: Arc<AtomicBool>,
    /// Whether the application produces chunks on demand.
    pub(super) is_pulled: bool,
    /// The number of written bytes of which the worker was told.
    pub(super) reported: Cell<u64>,
    /// Whether the application waits until the client has caught up.
    pub(super) is_waiting: Cell<bool>,
}

/// The list of the streams of which bytes have been written since the last report.
#[derive(Debug, Default)]
pub(super) struct WrittenStreams(pub(super) Mutex<Vec<StreamId>>);

/// The observer of a stream, which adds the stream to `written` when bytes have been written.
#[derive(Debug)]
pub(super) struct Observer {
    pub(super) stream: StreamId,
    /// Whether the stream is in `written` already.
    pub(super) is_noted: Arc<AtomicBool>,
    pub(super) written: Arc<WrittenStreams>,
}

impl FlowObserver for Observer {
    fn on_written(&self) {
        if !self.is_noted.swap(true, Ordering::Relaxed) {
            self.written.0.lock().unwrap_or_else(PoisonError::into_inner).push(self.stream);
        }
    }
}

impl HopStream {
    /// Returns the number of bytes that have been written to the client.
    pub(super) fn written(&self) -> u64 {
        self.flow.pushed().saturating_sub(self.flow.waiting() as u64)
    }
}

impl HopStreams {
    /// Returns the streams of a worker.
    pub(in crate::pool) fn of(
        &self,
        backend: &Rc<PoolBackend>,
    ) -> Vec<(StreamId, Arc<StreamFlow>)> {
        let open = self.open.borrow();
        let own = open.iter().filter(|(_, stream)| Rc::ptr_eq(&stream.backend, backend));
        own.map(|(id, stream)| (*id, Arc::clone(&stream.flow))).collect()
    }
}
