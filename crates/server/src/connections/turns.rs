//! The turns that networks take on the I/O thread.
//!
//! The runtime polls tasks in the order in which they became ready. A network with 1,000
//! connections, all of which have requests, would get 1,000 polls for each poll of a client with
//! one connection. The I/O thread therefore works in *rounds*, each of which ends when the tasks
//! that were ready have been polled. Once a round has taken [`FREE_TIME`], each network gets
//! [`TIME_OF_NETWORK`] more. Its other tasks wait for later rounds.
//!
//! The waiting tasks of a network have their turns by its *virtual time* (start-time fair
//! queueing): the turn of a task begins when the virtual time has reached what the task has used. A
//! task that has been idle may use [`CREDIT`] first. A task that takes little time therefore does
//! not wait for 1,000 others that want to run all the time. If 1,000 tasks become ready at once, it
//! waits for a poll of each of them. Such a poll is short as long as its task begins nothing else
//! after a [limited time](super::client_task), and a task with work left has no credit.
//!
//! The time is measured, because the time of a poll depends on what a client has sent: a poll with
//! a small request takes 10 us, and one with a costly TLS handshake or a long head takes 2 ms. It
//! is the time of the processor, so that no task waits because another process has interrupted it.
//!
//! A task that was woken for a round runs before the next one begins, because the runtime's queue
//! is first in, first out.

use std::collections::BTreeMap;
use std::task::Waker;
use std::time::Duration;

use rookery_exchange::ById;

/// The time of a round that is not divided among networks. While the server keeps up with its
/// clients, rounds are shorter, and cost nothing.
pub(crate) const FREE_TIME: Duration = Duration::from_millis(5);

/// The time that each network gets in a round beyond [`FREE_TIME`]: that of some ten polls, or of a
/// TLS handshake.
pub(crate) const TIME_OF_NETWORK: Duration = Duration::from_micros(500);

/// The maximum number of waiting tasks of a network that are woken in a round. If the first of them
/// take all of the network's time, the others wait again.
const MAX_WOKEN: usize = 64;

/// The maximum number of waiting tasks that are woken in a round if only one network has taken
/// time.
const MAX_WOKEN_ALONE: usize = 512;

/// The time beyond which what a network has taken does not count for its later rounds.
const MAX_OWED: Duration = Duration::from_millis(100);

/// The virtual time, in nanoseconds, that a task which has been idle may use before it takes turns
/// with those that were not: that of the polls of a few requests. Together, the idle tasks of a
/// network may let the others wait for as long a time of each.
const CREDIT: u64 = 200_000;

/// The number of first polls of a new task that cost at most [`TIME_OF_FIRST_POLL`]. They perform
/// the handshake of a connection over TLS, which takes a millisecond.
const FIRST_POLLS: u8 = 3;

/// The virtual time, in nanoseconds, that each of the first polls of a task costs at most.
const TIME_OF_FIRST_POLL: u64 = 50_000;

/// The virtual time, in nanoseconds, that a task uses when it starts a task for a part of its work:
/// that of a small request.
const TIME_OF_PART: u64 = 20_000;

/// The networks that have had time in the current round, and their tasks that wait for a later one.
#[derive(Debug, Default)]
pub(super) struct Turns {
    networks: ById<NetworkTurn>,
    /// True if only one network had taken time when the current round began.
    is_alone: bool,
    /// The latest virtual time of any network, in nanoseconds.
    latest: u64,
}

#[derive(Debug, Default)]
struct NetworkTurn {
    /// The time that the tasks have taken in the current round.
    taken: Duration,
    /// The virtual time, in nanoseconds.
    now: u64,
    /// The tasks that wait, by the virtual time at which each of them has its turn. A task without
    /// a waker has been woken for the current round, in which it runs before tasks that become
    /// ready later.
    waiting: BTreeMap<u64, Option<Waker>>,
    /// The places of the tasks that were woken for the current round.
    woken: Vec<u64>,
}

/// The ticket of a task: its place among the tasks of its network.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ticket {
    /// The virtual time of the network up to which the task has used its part. While the task
    /// waits, the virtual time at which it has its turn.
    time: u64,
    /// True if the task waits, or has not run since its wait has ended.
    is_waiting: bool,
    /// True if the task had work left after its last poll.
    is_busy: bool,
    /// The number of polls whose time was counted, at most [`FIRST_POLLS`].
    polls: u8,
}

impl Ticket {
    /// Returns the ticket of a task that has not run.
    pub(super) const fn new() -> Ticket {
        Ticket { time: 0, is_waiting: false, is_busy: false, polls: 0 }
    }

    /// Returns true if the task waits, or has not run since its wait has ended.
    #[inline]
    pub(super) fn is_waiting(self) -> bool {
        self.is_waiting
    }

    /// Records whether the task has work left after a poll, so that it was not idle when it becomes
    /// ready again.
    pub(super) fn set_busy(&mut self, is_busy: bool) {
        self.is_busy = is_busy;
    }

    /// Returns the ticket of a task that does a part of the work of this ticket's task, which uses
    /// time for it.
    pub(super) fn begin_part(&mut self) -> Ticket {
        let part = Ticket { time: self.time, polls: FIRST_POLLS, ..Ticket::new() };
        self.time += TIME_OF_PART;
        part
    }
}

impl Turns {
    /// Returns true if a task of `network` may run now. Otherwise, gives it a place, and wakes it
    /// by `waker` when it has its turn.
    pub(super) fn admit(&mut self, network: u64, ticket: &mut Ticket, waker: &Waker) -> bool {
        let time = self.time_of_network();
        let turn = turn_of(&mut self.networks, network, self.latest);
        let has_time = turn.taken < time;
        let is_due = if ticket.is_waiting {
            // Something else than its turn may have woken the task.
            if matches!(turn.waiting.get(&ticket.time), Some(Some(_))) {
                return false;
            }
            // A task that was woken and finds no time keeps its place before later ones.
            true
        } else {
            ticket.time = turn.new_place(*ticket);
            turn.waiting.keys().next().is_none_or(|first| ticket.time < *first)
        };
        ticket.is_waiting = !(has_time && is_due);
        if ticket.is_waiting {
            turn.waiting.insert(ticket.time, Some(waker.clone()));
        } else {
            turn.waiting.remove(&ticket.time);
            turn.now = turn.now.max(ticket.time);
        }
        !ticket.is_waiting
    }

    /// Counts time that a task of a network has taken in this round.
    pub(super) fn count(&mut self, network: u64, ticket: &mut Ticket, time: Duration) {
        let turn = turn_of(&mut self.networks, network, self.latest);
        turn.taken = turn.taken.saturating_add(time).min(MAX_OWED);
        // For a longer time, the task would have to wait for as long a time of each other task.
        let nanoseconds = time.min(TIME_OF_NETWORK).as_nanos() as u64;
        if ticket.polls < FIRST_POLLS {
            ticket.polls += 1;
            ticket.time += nanoseconds.min(TIME_OF_FIRST_POLL);
        } else {
            ticket.time += nanoseconds;
        }
        // Otherwise, new tasks without end would keep those that have used time from their turns.
        turn.now += nanoseconds / (2 * (1 + turn.waiting.len() as u64));
        self.latest = self.latest.max(turn.now);
    }

    /// Changes the ticket of a task that was one of the network `before` and is now one of `after`,
    /// so that its distance from the virtual time stays the same. The virtual times of two networks
    /// say nothing of each other.
    pub(super) fn change_network(&self, before: u64, after: u64, ticket: &mut Ticket) {
        let now =
            |network| self.networks.get(&network).map_or(self.latest.max(CREDIT), |turn| turn.now);
        ticket.time = (now(after) + ticket.time).saturating_sub(now(before));
    }

    /// Forgets the time that networks have taken, because the thread has had time for all of them.
    pub(super) fn forget_time(&mut self) {
        self.forget_use();
        self.networks.retain(|_, turn| !turn.waiting.is_empty());
        self.networks.values_mut().for_each(|turn| turn.taken = Duration::ZERO);
    }

    /// Lets what all tasks have used until now count no more, because none has waited.
    fn forget_use(&mut self) {
        self.latest += CREDIT + TIME_OF_NETWORK.as_nanos() as u64;
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
            turn.forget_ended();
            if turn.taken < most {
                turn.wake(max_woken);
            }
            is_limited |= !turn.taken.is_zero() || !turn.waiting.is_empty();
        }
        if is_limited {
            self.networks.retain(|_, turn| !turn.taken.is_zero() || !turn.waiting.is_empty());
        } else {
            self.networks = ById::default();
            self.forget_use();
        }
        is_limited
    }
}

impl NetworkTurn {
    /// Returns a place for a task that becomes ready.
    fn new_place(&mut self, ticket: Ticket) -> u64 {
        // Tasks with equal rights have their turns in the order in which they became ready.
        self.now += 1;
        // A task that had work left long ago has been idle since.
        let is_busy = ticket.is_busy && ticket.time + CREDIT >= self.now;
        let credit = if is_busy { 0 } else { CREDIT };
        let mut place = self.now.saturating_sub(credit).max(ticket.time);
        while self.waiting.contains_key(&place) {
            place += 1;
        }
        place
    }

    /// Forgets the tasks that were woken for the last round and were not polled, because they have
    /// ended.
    fn forget_ended(&mut self) {
        for place in self.woken.drain(..) {
            if matches!(self.waiting.get(&place), Some(None)) {
                self.waiting.remove(&place);
            }
        }
    }

    /// Wakes the first `most` tasks.
    fn wake(&mut self, most: usize) {
        for (place, waker) in self.waiting.iter_mut().take(most) {
            if let Some(waker) = waker.take() {
                self.woken.push(*place);
                waker.wake();
            }
        }
    }
}

/// Returns the turn of a network. The virtual time of a new turn begins at `latest`, because tasks
/// of the network may have used time in an earlier turn, and is large enough for [`CREDIT`].
fn turn_of(networks: &mut ById<NetworkTurn>, network: u64, latest: u64) -> &mut NetworkTurn {
    networks
        .entry(network)
        .or_insert_with(|| NetworkTurn { now: latest.max(CREDIT), ..Default::default() })
}

#[cfg(test)]
mod tests;
