//! The turns that networks take on the I/O thread.
//!
//! The runtime polls tasks in the order in which they became ready. A network with 1,000
//! connections, all of which have requests, would get 1,000 polls for each poll of a client with
//! one connection. The I/O thread therefore works in *rounds*, each of which ends when the tasks
//! that were ready have been polled. Once a round has had [`FREE_WORK`] units of work, each network
//! gets [`WORK_OF_NETWORK`] more. Its other tasks wait for later rounds, in the order in which they
//! became ready.
//!
//! A unit of work is a poll, a request, 64 KiB of output, 8 KiB of messages (0.5 KiB if they are
//! compressed), or a quarter of a step of a TLS handshake, and takes some 20 to 60 us.

use std::collections::VecDeque;
use std::task::Waker;

use rookery_exchange::ById;

/// The work of a round that is not divided among networks, in units. While the server keeps up with
/// its clients, rounds are shorter, and cost nothing.
pub(super) const FREE_WORK: u32 = 256;

/// The work that each network gets in a round beyond [`FREE_WORK`], in units. It is as much as one
/// poll may take, which answers up to 16 requests or writes 1 MiB.
pub(super) const WORK_OF_NETWORK: u32 = 16;

/// The networks that have had work in the current round, and their tasks that wait for a later one.
#[derive(Debug, Default)]
pub(super) struct Turns {
    networks: ById<NetworkTurn>,
    /// The number of tickets that were given to waiting tasks so far.
    tickets: u64,
}

#[derive(Debug, Default)]
struct NetworkTurn {
    /// The work of the current round, in units.
    work: u32,
    /// The tasks that wait, with their tickets.
    waiting: VecDeque<(u64, Waker)>,
}

/// The number that a task has while it waits for its turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ticket(Option<u64>);

impl Ticket {
    /// Returns true if the task waits, or has not been polled since its wait has ended.
    #[inline]
    pub(super) fn is_some(self) -> bool {
        self.0.is_some()
    }
}

impl Turns {
    /// Returns true if a task of `network` may run now. Otherwise, gives it a ticket, and wakes it
    /// by `waker` when it has its turn.
    pub(super) fn admit(&mut self, network: u64, ticket: &mut Ticket, waker: &Waker) -> bool {
        let turn = self.networks.entry(network).or_default();
        if let Some(number) = ticket.0 {
            // Tasks get their turns in the order of their tickets.
            if turn.waiting.front().is_some_and(|(first, _)| *first <= number) {
                return false;
            }
            // The round in which the task was woken has counted this poll already.
            *ticket = Ticket::default();
            return true;
        }
        if turn.work < WORK_OF_NETWORK && turn.waiting.is_empty() {
            turn.work += 1;
            return true;
        }
        self.tickets += 1;
        *ticket = Ticket(Some(self.tickets));
        turn.waiting.push_back((self.tickets, waker.clone()));
        false
    }

    /// Counts work of a network in this round.
    pub(super) fn count(&mut self, network: u64, units: u32) {
        let turn = self.networks.entry(network).or_default();
        turn.work = turn.work.saturating_add(units);
    }

    /// Begins the next round: wakes the tasks that have their turns in it. Returns true if work is
    /// also limited in the next round, because tasks have waited for it, or a network has had more
    /// work than its part.
    ///
    /// If only one network has had work, it gets as much as in a free round.
    pub(super) fn begin_round(&mut self) -> bool {
        let most = if self.networks.len() == 1 { FREE_WORK } else { WORK_OF_NETWORK };
        let mut is_limited = false;
        for turn in self.networks.values_mut() {
            // Work beyond the limit counts for the next rounds.
            let owed = turn.work.saturating_sub(most);
            is_limited |= owed > 0 || !turn.waiting.is_empty();
            let woken = turn.waiting.len().min(most.saturating_sub(owed) as usize);
            turn.work = owed + woken as u32;
            for (_, waker) in turn.waiting.drain(..woken) {
                waker.wake();
            }
        }
        if is_limited {
            self.networks.retain(|_, turn| turn.work > 0 || !turn.waiting.is_empty());
        } else {
            self.networks = ById::default();
        }
        is_limited
    }
}

#[cfg(test)]
mod tests;
