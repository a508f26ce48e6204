//! The two queues of a link.

use std::collections::VecDeque;
use std::time::Instant;

use crate::command::Command;
use crate::event::Event;

/// Bytes of commands that the server is to take though it is busy.
pub(super) const MANY_BYTES: usize = 1 << 20;

#[derive(Default)]
pub(super) struct EventQueue {
    pub(super) events: VecDeque<Event>,
    pub(super) requests: usize,
    pub(super) messages: usize,
    pub(super) message_bytes: usize,
    /// Why the server's thread has ended.
    pub(super) failure: Option<String>,
}

#[derive(Default)]
pub(super) struct CommandQueue {
    pub(super) commands: VecDeque<Command>,
    /// When the first of them came that the server sleeps over.
    pub(super) oldest: Option<Instant>,
    /// When the alarm that was set last goes off.
    pub(super) alarm: Option<Instant>,
    /// Bytes that the commands hold, and whether the server has been told that these are many.
    pub(super) bytes: usize,
    pub(super) is_heavy: bool,
}

impl CommandQueue {
    /// Counts a command in. Returns whether the server is to take them now, however busy it is: nobody is charged for what waits
    /// here, and a server that never sleeps does not look by itself.
    pub(super) fn count_command(&mut self, command: &Command) -> bool {
        let (Command::Send { payload, .. } | Command::Chunk { payload, .. }) = command else {
            return false;
        };
        self.bytes = self.bytes.saturating_add(payload.held());
        self.bytes > MANY_BYTES && !std::mem::replace(&mut self.is_heavy, true)
    }
}
