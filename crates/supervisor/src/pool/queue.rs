//! Requests that wait for a worker, the oldest first.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rookery_exchange::Exchange;

use crate::counts::Gauge;

/// A request that waits for a worker.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) exchange: Box<Exchange>,
    pub(super) came: Instant,
    /// Since when it waits: it has been with a worker before, if it came earlier.
    pub(super) since: Instant,
    /// How often it has come back from a worker that had not begun it.
    pub(super) returns: u32,
    /// How many workers have ended while R had begun it.
    pub(super) deaths: u32,
    /// Whether its client is told which worker it came to.
    pub(super) tells: bool,
    /// Whether this is its head alone: its body is taken once the app has seen that.
    pub(super) is_head: bool,
    /// Whether it has been looked at where it has to go.
    pub(super) is_looked_at: bool,
}

impl Waiting {
    pub(super) fn new(exchange: Box<Exchange>, is_head: bool) -> Waiting {
        let now = Instant::now();
        Waiting {
            exchange,
            came: now,
            since: now,
            returns: 0,
            deaths: 0,
            tells: false,
            is_head,
            is_looked_at: false,
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
}

impl Queue {
    /// Puts a request behind the others, of which there may be `most`; it comes back when there are.
    pub(super) fn push(&mut self, waiting: Waiting, most: usize) -> Result<(), Box<Exchange>> {
        if self.is_full(most) {
            return Err(waiting.exchange);
        }
        self.waiting.push_back(waiting);
        Ok(())
    }

    /// Puts one behind the others that was taken before.
    pub(super) fn push_back(&mut self, waiting: Waiting) {
        self.waiting.push_back(waiting);
    }

    /// Since when the first waits, and how many do.
    pub(super) fn tell(&self, gauge: &Gauge) {
        gauge.set(self.waiting.len(), self.waiting.front().map(|first| first.since));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes out those that have waited for so long, which are in front.
    pub(super) fn take_overdue(&mut self, time: Duration) -> Vec<Waiting> {
        let overdue = self.waiting.iter().take_while(|waiting| waiting.since.elapsed() >= time).count();
        self.waiting.drain(..overdue).collect()
    }

    pub(super) fn is_full(&self, most: usize) -> bool {
        self.waiting.len() >= most
    }

    /// One that came back is the next: it is older than those behind it.
    pub(super) fn push_front(&mut self, waiting: Waiting) {
        self.waiting.push_front(waiting);
    }

    pub(super) fn pop(&mut self) -> Option<Waiting> {
        self.waiting.pop_front()
    }

    /// Takes out those whose clients have gone.
    pub(super) fn take_departed(&mut self) -> Vec<Waiting> {
        let (gone, waiting) =
            self.waiting.drain(..).partition::<Vec<_>, _>(|waiting| waiting.exchange.is_departed());
        self.waiting = waiting.into();
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(id: u64) -> Waiting {
        let mut exchange = Exchange::new();
        exchange.begin(id, 1, 0);
        Waiting::new(exchange, false)
    }

    #[test]
    fn it_is_bounded_and_who_has_gone_has_no_place_in_it() {
        let mut queue = Queue::default();
        let first = waiting(1);
        let fate = first.exchange.fate();
        queue.push(first, 2).unwrap();
        queue.push(waiting(2), 2).unwrap();
        assert_eq!(queue.push(waiting(3), 2).unwrap_err().id(), 3);
        fate.depart();
        let departed = queue.take_departed();
        queue.push(waiting(3), 2).unwrap();
        assert_eq!(departed.iter().map(|gone| gone.exchange.id()).collect::<Vec<_>>(), [1]);
        let second = queue.pop().unwrap();
        assert_eq!((second.exchange.id(), second.returns), (2, 0));
        queue.push_front(second);
        assert_eq!([queue.pop(), queue.pop()].map(|it| it.unwrap().exchange.id()), [2, 3]);
        assert!(queue.pop().is_none());
    }
}
