//! An application that responds to requests by calling a closure on the I/O thread. It is used for
//! servers of static files, for measurements of the server without a second thread, and in tests.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

use rookery_exchange::{Command, Event, Exchange, Peer, PushError, WakeUp};

use super::application::Application;

/// The maximum number of empty WebSocket message buffers that are kept for reuse.
const MAX_KEPT_BUFFERS: usize = 64;

/// The configuration of a [`ClosureApplication`], an application that calls a closure for each
/// request.
#[derive(Clone)]
pub(crate) struct ClosureConfig {
    /// The closure that responds to a request. It writes the response into the request's exchange
    /// (the object of the request and its response).
    pub(crate) respond: Arc<dyn Fn(&mut Exchange) + Send + Sync>,
    /// True if every WebSocket is accepted and each of its messages is echoed. If false, WebSocket
    /// handshakes are passed to `respond` as requests.
    pub(crate) is_echo: bool,
}

/// An application that responds to each request by calling a closure on the I/O thread.
pub(crate) struct ClosureApplication {
    config: ClosureConfig,
    commands: RefCell<VecDeque<Command>>,
    buffers: RefCell<Vec<Vec<u8>>>,
    taken: Cell<u64>,
}

impl ClosureApplication {
    pub(crate) fn new(config: ClosureConfig) -> ClosureApplication {
        ClosureApplication {
            config,
            commands: RefCell::default(),
            buffers: RefCell::default(),
            taken: Cell::new(0),
        }
    }
}

impl Application for ClosureApplication {
    fn handle_event(&self, _peer: Peer, event: Event) -> Result<WakeUp, PushError> {
        self.taken.set(self.taken.get() + 1);
        let command = match event {
            Event::Request(mut exchange) => {
                if exchange.is_upgrade() && self.config.is_echo {
                    exchange.begin_response(101);
                } else {
                    (self.config.respond)(&mut exchange);
                }
                Command::Respond(exchange)
            }
            Event::Head(exchange) => Command::ReadBody(exchange),
            Event::Message { socket, kind, payload, .. } => Command::Send { socket, kind, payload },
            // The closure needs no notice of ended connections, and it makes no streams.
            _ => return Ok(WakeUp::NotNeeded),
        };
        self.commands.borrow_mut().push_back(command);
        Ok(WakeUp::NotNeeded)
    }

    fn take_commands(&self, commands: &mut VecDeque<Command>) {
        std::mem::swap(&mut *self.commands.borrow_mut(), commands);
    }

    /// Returns true, because this application echoes each WebSocket message at once and queues
    /// none.
    fn take_buffer(&self) -> Vec<u8> {
        self.buffers.borrow_mut().pop().unwrap_or_default()
    }

    fn recycle_buffer(&self, mut buffer: Vec<u8>) {
        let mut buffers = self.buffers.borrow_mut();
        if buffers.len() < MAX_KEPT_BUFFERS {
            buffer.clear();
            buffers.push(buffer);
        }
    }

    fn events_taken(&self) -> u64 {
        self.taken.get()
    }

    fn prepare_sleep(&self, _is_slow: bool) -> bool {
        self.commands.borrow().is_empty()
    }
}
