//! An application that is a closure, called on the I/O thread: a server of files alone, what the server costs without a
//! second thread, and the answers of tests that are about something else.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

use rookery_exchange::{Command, Event, Exchange, PushError, Pushed};

use super::application::Application;

/// Message buffers that are kept.
const KEPT_BUFFERS: usize = 64;

/// How a closure answers.
#[derive(Clone)]
pub(crate) struct Answering {
    /// Writes the reply to a request.
    pub(crate) answer: Arc<dyn Fn(&mut Exchange) + Send + Sync>,
    /// Whether every WebSocket is accepted, and each message sent back; else handshakes are requests like others.
    pub(crate) is_echo: bool,
}

/// Answers each request by a closure.
pub(crate) struct Closure {
    answering: Answering,
    commands: RefCell<VecDeque<Command>>,
    buffers: RefCell<Vec<Vec<u8>>>,
    taken: Cell<u64>,
}

impl Closure {
    pub(crate) fn new(answering: Answering) -> Closure {
        Closure {
            answering,
            commands: RefCell::default(),
            buffers: RefCell::default(),
            taken: Cell::new(0),
        }
    }
}

impl Application for Closure {
    fn take(&self, event: Event) -> Result<Pushed, PushError> {
        self.taken.set(self.taken.get() + 1);
        let command = match event {
            Event::Request(mut exchange) => {
                if exchange.is_upgrade() && self.answering.is_echo {
                    exchange.begin_reply(101);
                } else {
                    (self.answering.answer)(&mut exchange);
                }
                Command::Respond(exchange)
            }
            Event::Head(exchange) => Command::Proceed(exchange),
            Event::Message { socket, kind, payload, .. } => Command::Send { socket, kind, payload },
            // Nobody is told of what has ended, and it makes no streams.
            _ => return Ok(Pushed::Quiet),
        };
        self.commands.borrow_mut().push_back(command);
        Ok(Pushed::Quiet)
    }

    fn commands(&self, commands: &mut VecDeque<Command>) {
        std::mem::swap(&mut *self.commands.borrow_mut(), commands);
    }

    /// The answer to a message waits with the others of its WebSocket, which have a limit.
    fn has_room(&self) -> bool {
        true
    }

    fn buffer(&self) -> Vec<u8> {
        self.buffers.borrow_mut().pop().unwrap_or_default()
    }

    fn recycle(&self, mut buffer: Vec<u8>) {
        let mut buffers = self.buffers.borrow_mut();
        if buffers.len() < KEPT_BUFFERS {
            buffer.clear();
            buffers.push(buffer);
        }
    }

    fn settle(&self) {}

    fn taken(&self) -> u64 {
        self.taken.get()
    }

    fn has_events(&self) -> bool {
        false
    }

    fn nudge(&self, _seen: u64) -> Option<u64> {
        None
    }

    fn may_sleep(&self, _is_slow: bool) -> bool {
        self.commands.borrow().is_empty()
    }

    fn woke(&self) {}
}
