//! The registry of open WebSocket tunnels and streamed responses, by their ids.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use rookery_exchange::{StreamId, WebSocketId};

use super::responder::Responder;
use super::response_sink::ResponseSink;
use super::tunnel::Tunnel;

/// A registry of open WebSocket tunnels and streamed responses. With it, the pool finds the tunnel
/// or response to which an event of the server refers.
#[derive(Default)]
pub(super) struct Registry {
    tunnels: RefCell<HashMap<WebSocketId, Rc<Tunnel>>>,
    sinks: RefCell<HashMap<StreamId, Rc<ResponseSink>>>,
}

impl Registry {
    pub(super) fn add_tunnel(&self, socket: WebSocketId, tunnel: Rc<Tunnel>) {
        self.tunnels.borrow_mut().insert(socket, tunnel);
    }

    pub(super) fn tunnel(&self, socket: WebSocketId) -> Option<Rc<Tunnel>> {
        self.tunnels.borrow().get(&socket).cloned()
    }

    pub(super) fn remove_tunnel(&self, socket: WebSocketId) -> Option<Rc<Tunnel>> {
        self.tunnels.borrow_mut().remove(&socket)
    }

    /// Schedules the closing of all WebSocket tunnels to workers that are about to end.
    pub(super) fn close_ending_tunnels(&self, responder: &Rc<Responder>) {
        for (socket, tunnel) in self.tunnels.borrow().iter() {
            tunnel.close_if_ending(responder, *socket);
        }
    }

    pub(super) fn add_sink(&self, stream: StreamId, sink: Rc<ResponseSink>) {
        self.sinks.borrow_mut().insert(stream, sink);
    }

    /// Calls `body` with the sink of a streamed response, which holds the state of that response.
    /// Does nothing if the response has ended.
    pub(super) fn with_sink(&self, stream: StreamId, body: impl FnOnce(&ResponseSink)) {
        if let Some(sink) = self.sinks.borrow().get(&stream) {
            body(sink);
        }
    }

    pub(super) fn remove_sink(&self, stream: StreamId) -> Option<Rc<ResponseSink>> {
        self.sinks.borrow_mut().remove(&stream)
    }
}
