//! The two queues between server and application: events for the application and commands for the
//! server.

use std::collections::VecDeque;

use rookery_fairness::FairQueue;

use super::wake_schedule::WakeSchedule;
use crate::command::Command;
use crate::event::Event;

/// The number of bytes in queued commands above which the server is woken at once to take the
/// commands from the queue.
pub(super) const MANY_BYTES: usize = 1 << 20;

/// The queue of events for the application.
#[derive(Default)]
pub(super) struct EventQueue {
    pub(super) events: FairQueue<Event>,
    /// The reason why the server's thread has failed, or `None`.
    pub(super) failure: Option<String>,
}

/// The queue of commands for the server.
#[derive(Default)]
pub(super) struct CommandQueue {
    pub(super) commands: VecDeque<Command>,
    pub(super) schedule: WakeSchedule,
    /// The number of bytes that the messages and chunks in the queue of commands occupy.
    pub(super) bytes: usize,
    /// Whether the server has been woken because the commands in the queue occupy many bytes.
    pub(super) is_heavy: bool,
}

impl CommandQueue {
    /// Adds the size of a command to the byte count of the queue. Returns true once, when the queue
    /// has grown so much that even a busy server should take the commands now.
    pub(super) fn count_command(&mut self, command: &Command) -> bool {
        let (Command::Send { payload, .. } | Command::Chunk { payload, .. }) = command else {
            return false;
        };
        self.bytes = self.bytes.saturating_add(payload.held());
        self.bytes > MANY_BYTES && !std::mem::replace(&mut self.is_heavy, true)
    }
}
