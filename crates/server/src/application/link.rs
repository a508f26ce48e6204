//! An application on another thread, over a [`Link`].

use std::collections::VecDeque;
use std::sync::Arc;

use rookery_exchange::{Command, Event, Link, PushError, Pushed};

use super::application::Application;

impl Application for Arc<Link> {
    fn take(&self, event: Event) -> Result<Pushed, PushError> {
        self.push(event)
    }

    fn commands(&self, commands: &mut VecDeque<Command>) {
        Link::commands(self, commands);
    }

    fn has_room(&self) -> bool {
        Link::has_room(self)
    }

    fn buffer(&self) -> Vec<u8> {
        Link::buffer(self)
    }

    fn recycle(&self, buffer: Vec<u8>) {
        Link::recycle(self, buffer);
    }

    fn settle(&self) {
        Link::settle(self);
    }

    fn has_thread(&self) -> bool {
        true
    }

    fn taken(&self) -> u64 {
        Link::taken(self)
    }

    fn has_events(&self) -> bool {
        Link::has_events(self)
    }

    fn nudge(&self, seen: u64) -> Option<u64> {
        Link::nudge(self, seen)
    }

    fn may_sleep(&self, is_slow: bool) -> bool {
        Link::may_sleep(self, is_slow)
    }

    fn woke(&self) {
        Link::woke(self);
    }
}
