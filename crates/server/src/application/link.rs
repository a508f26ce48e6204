//! The implementation of [`Application`] for an application that runs on another thread. A
//! [`Link`], which contains queues for events and commands, connects it to the I/O thread.

use std::collections::VecDeque;
use std::sync::Arc;

use rookery_exchange::{Command, Event, Link, Peer, PushError, WakeUp, WebSocketId};

use super::application::Application;

impl Application for Arc<Link> {
    fn handle_event(&self, peer: Peer, event: Event) -> Result<WakeUp, PushError> {
        self.push(peer, event)
    }

    fn take_commands(&self, commands: &mut VecDeque<Command>) {
        Link::take_commands(self, commands);
    }

    fn poll_capacity(&self, peer: Peer, _socket: WebSocketId) -> bool {
        Link::poll_capacity(self, peer)
    }

    fn take_buffer(&self) -> Vec<u8> {
        Link::buffer(self)
    }

    fn recycle_buffer(&self, buffer: Vec<u8>) {
        Link::recycle(self, buffer);
    }

    fn wake_deferred(&self) {
        Link::wake_waiting(self);
    }

    fn has_thread(&self) -> bool {
        true
    }

    fn events_taken(&self) -> u64 {
        Link::taken(self)
    }

    fn has_unread_events(&self) -> bool {
        Link::has_events(self)
    }

    fn wake_if_stalled(&self, seen: u64) -> Option<u64> {
        Link::wake_if_stalled(self, seen)
    }

    fn prepare_sleep(&self, is_slow: bool) -> bool {
        Link::prepare_sleep(self, is_slow)
    }

    fn on_wake(&self) {
        Link::set_awake(self);
    }
}
