//! The application of the admin listener's server, which runs on the server's I/O thread.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use rookery_exchange::{Command, Event, IoWaker, Peer, PushError, WakeUp};
use rookery_server::Application;

use super::Viewers;
use crate::admin_handler::{AdminHandler, Reply};

/// The application of the admin listener: it answers each request at once, and sends events to the
/// viewers of the live page.
pub(crate) struct AdminApplication {
    handler: AdminHandler,
    viewers: Arc<Viewers>,
    taken: Cell<u64>,
}

impl AdminApplication {
    pub(crate) fn new(
        handler: AdminHandler,
        viewers: Arc<Viewers>,
        waker: Arc<dyn IoWaker>,
    ) -> AdminApplication {
        viewers.set_waker(waker);
        AdminApplication { handler, viewers, taken: Cell::new(0) }
    }
}

impl Application for AdminApplication {
    fn handle_event(&self, _: Peer, event: Event) -> Result<WakeUp, PushError> {
        self.taken.set(self.taken.get() + 1);
        match event {
            Event::Request(mut exchange) => {
                let exchange = match self.handler.answer(&mut exchange) {
                    Reply::Complete => exchange,
                    Reply::Stream => match self.viewers.add(exchange) {
                        Ok(()) => return Ok(WakeUp::NotNeeded),
                        Err(mut exchange) => {
                            AdminHandler::refuse_viewer(&mut exchange);
                            exchange
                        }
                    },
                };
                self.viewers.push(Command::Respond(exchange));
            }
            Event::Head(exchange) => self.viewers.push(Command::ReadBody(exchange)),
            Event::StreamEnded { stream, .. } => self.viewers.remove(stream),
            _ => {}
        }
        Ok(WakeUp::NotNeeded)
    }

    fn take_commands(&self, commands: &mut VecDeque<Command>) {
        self.viewers.take_commands(commands);
    }

    fn events_taken(&self) -> u64 {
        self.taken.get()
    }

    fn prepare_sleep(&self, _is_slow: bool) -> bool {
        !self.viewers.has_commands()
    }
}
