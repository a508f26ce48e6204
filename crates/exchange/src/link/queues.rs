//! The two queues of a link.

use std::collections::VecDeque;
use std::time::Instant;

use crate::command::Command;
use crate::event::Event;

/// The number of bytes in the queue of commands above which the server is woken at once.
pub(super) const MANY_BYTES: usize = 1 << 20;

/// The events that wait for the application, and the counts to which limits apply.
#[derive(Default)]
pub(super) struct EventQueue {
    pub(super) events: VecDeque<Event>,
    pub(super) requests: usize,
    pub(super) messages: usize,
    pub(super) message_bytes: usize,
    /// The reason for which the server's thread has ended.
    pub(super) failure: Option<String>,
}

/// The commands that wait for the server.
#[derive(Default)]
pub(super) struct CommandQueue {
    pub(super) commands: VecDeque<Command>,
    /// The time at which the oldest command was sent since the server last took the commands, while
    /// the server sleeps.
    pub(super) oldest: Option<Instant>,
    /// The time at which the timer expires that was set last.
    pub(super) alarm: Option<Instant>,
    /// The number of bytes that the commands occupy.
    pub(super) bytes: usize,
    /// Whether the server has been woken because of these bytes.
    pub(super) is_heavy: bool,
}

impl CommandQueue {
    /// Counts the bytes of a command. Returns true if the server should take the commands now, even
    /// if it is busy: commands in the queue are not charged to any client, and a server that never
    /// sleeps does not look into the queue by itself.
    pub(super) fn count_command(&mut self, command: &Command) -> bool {
        let (Command::Send { payload, .. } | Command::Chunk { payload, .. }) = command else {
            return false;
        };
        self.bytes = self.bytes.saturating_add(payload.held());
        self.bytes > MANY_BYTES && !std::mem::replace(&mut self.is_heavy, true)
    }
}
