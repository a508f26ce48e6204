//! The turns that networks take on the I/O thread.
//!
//! The runtime polls tasks in the order in which they became ready. A network with 1,000
//! connections, all of which have requests, would get 1,000 polls for each poll of a client with
//! one connection. The I/O thread therefore works in *rounds*, each of which ends when the tasks
//! that were ready have been polled. Once a round has taken [`FREE_TIME`], each network gets
//! [`TIME_OF_NETWORK`] more. Its other tasks wait for later rounds, in the order in which they
//! became ready.
//!
//! The time is measured, because the time of a poll depends on what a client has sent: a poll with
//! a small request takes 10 us, and one with a costly TLS handshake or a long head takes 2 ms.

use std::collections::BTreeMap;
use std::task::Waker;
use std::time::Duration;

use rookery_exchange::ById;

/// The time of a round that is not divided among networks. While the server keeps up with its
/// clients, rounds are shorter, and cost nothing.
pub(crate) const FREE_TIME: Duration = Duration::from_millis(5);

/// The time that each network gets in a round beyond [`FREE_TIME`]. It is as much as one poll
/// usually takes at most, which answers up to 16 requests or writes 1 MiB.
pub(crate) const TIME_OF_NETWORK: Duration = Duration::from_micros(500);

/// The maximum number of waiting tasks of a network that are woken in a round. If the first of them
/// take all of the network's time, the others wait again.
const MAX_WOKEN: usize = 64;

/// The maximum number of waiting tasks that are woken in a round if only one network has taken
/// time.
const MAX_WOKEN_ALONE: usize = 512;

/// The time beyond which what a network has taken does not count for its later rounds. A poll takes
/// so long only if the process did not run.
const MAX_OWED: Duration = Duration::from_millis(100);

/// The networks that have had time in the current round, and their tasks that wait for a later one.
#[derive(Debug, Default)]
pub(super) struct Turns {
    networks: ById<NetworkTurn>,
    /// True if only one network had taken time when the current round began.
    is_alone: bool,
    /// The number of tickets that were given to waiting tasks so far.
    tickets: u64,
}

#[derive(Debug, Default)]
struct NetworkTurn {
    /// The time that the tasks have taken in the current round.
    taken: Duration,
    /// The tasks that wait, by their tickets.
    waiting: BTreeMap<u64, Waker>,
}

/// The number that a task has while it waits for its turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ticket(Option<u64>);

impl Ticket {
    /// Returns true if the task waits, or has not run since its wait has ended.
    #[inline]
    pub(super) fn is_some(self) -> bool {
        self.0.is_some()
    }
}

impl Turns {
    /// Returns true if a task of `network` may run now. Otherwise, gives it a ticket, and wakes it
    /// by `waker` when it has its turn.
    pub(super) fn admit(&mut self, network: u64, ticket: &mut Ticket, waker: &Waker) -> bool {
        let time = self.time_of_network();
        let turn = self.networks.entry(network).or_default();
        let has_time = turn.taken < time;
        let number = match ticket.0 {
            // Something else than its turn has woken the task.
            Some(number) if turn.waiting.contains_key(&number) => return false,
            // A task that was woken and finds no time keeps its place before later ones.
            Some(number) if !has_time => number,
            None if !has_time || !turn.waiting.is_empty() => {
                self.tickets += 1;
                self.tickets
            }
            _ => {
                *ticket = Ticket::default();
                return true;
            }
        };
        *ticket = Ticket(Some(number));
        turn.waiting.insert(number, waker.clone());
        false
    }

    /// Counts time that a task of a network has taken in this round.
    pub(super) fn count(&mut self, network: u64, time: Duration) {
        let turn = self.networks.entry(network).or_default();
        turn.taken = turn.taken.saturating_add(time).min(MAX_OWED);
    }

    /// Forgets the time that networks have taken, because the thread has had time for all of them.
    pub(super) fn forget_time(&mut self) {
        self.networks.retain(|_, turn| !turn.waiting.is_empty());
        self.networks.values_mut().for_each(|turn| turn.taken = Duration::ZERO);
    }

    /// Returns the time that a network gets in the current round.
    fn time_of_network(&self) -> Duration {
        if self.is_alone { FREE_TIME } else { TIME_OF_NETWORK }
    }

    /// Begins the next round: wakes the tasks that have their turns in it. Returns true if time is
    /// also limited in the next round, because tasks have waited for it, or a network has taken
    /// more than its part.
    ///
    /// If only one network has taken time, it gets as much as in a free round.
    pub(super) fn begin_round(&mut self) -> bool {
        self.is_alone = self.networks.len() == 1;
        let most = self.time_of_network();
        let max_woken = if self.is_alone { MAX_WOKEN_ALONE } else { MAX_WOKEN };
        let mut is_limited = false;
        for turn in self.networks.values_mut() {
            // Time beyond the limit counts for the next rounds.
            turn.taken = turn.taken.saturating_sub(most);
            is_limited |= !turn.taken.is_zero() || (!self.is_alone && !turn.waiting.is_empty());
            if turn.taken < most {
                for _ in 0..max_woken {
                    let Some((_, waker)) = turn.waiting.pop_first() else { break };
                    waker.wake();
                }
            }
            is_limited |= !turn.waiting.is_empty();
        }
        if is_limited {
            self.networks.retain(|_, turn| !turn.taken.is_zero() || !turn.waiting.is_empty());
        } else {
            self.networks = ById::default();
        }
        is_limited
    }
}

#[cfg(test)]
mod tests;
