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
//! not wait for 1,000 others that want to run all the time.
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

/// The virtual time, in nanoseconds, that a task which has been idle may use before it takes turns
/// with those that were not: that of a few polls, which a request needs.
const CREDIT: u64 = 1_000_000;

/// The networks that have had time in the current round, and their tasks that wait for a later one.
#[derive(Debug, Default)]
pub(super) struct Turns {
    networks: ById<NetworkTurn>,
    /// True if only one network had taken time when the current round began.
    is_alone: bool,
    /// The number of places that were given to tasks so far.
    places: u64,
    /// The latest virtual time of any network, in nanoseconds.
    latest: u64,
}

#[derive(Debug, Default)]
struct NetworkTurn {
    /// The time that the tasks have taken in the current round.
    taken: Duration,
    /// The virtual time, in nanoseconds.
    now: u64,
    /// The tasks that wait. A task without a waker has been woken for the current round, in which
    /// it runs before tasks that become ready later.
    waiting: BTreeMap<Place, Option<Waker>>,
}

/// The place of a task among those of its network that wait: the virtual time at which the task has
/// its turn, and a number that is larger for a task that became ready later.
type Place = (u64, u64);

/// The ticket of a task: the time of its network that the task has used, and the place of the task
/// while it waits for its turn.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ticket {
    place: Option<Place>,
    /// The virtual time of the network up to which the task has used its part.
    used: u64,
}

impl Ticket {
    /// Returns true if the task waits, or has not run since its wait has ended.
    #[inline]
    pub(super) fn is_waiting(self) -> bool {
        self.place.is_some()
    }
}

impl Turns {
    /// Returns true if a task of `network` may run now. Otherwise, gives it a place, and wakes it
    /// by `waker` when it has its turn.
    pub(super) fn admit(&mut self, network: u64, ticket: &mut Ticket, waker: &Waker) -> bool {
        let time = self.time_of_network();
        let turn = turn_of(&mut self.networks, network, self.latest);
        let has_time = turn.taken < time;
        let (place, is_due) = match ticket.place {
            // Something else than its turn has woken the task.
            Some(place) if matches!(turn.waiting.get(&place), Some(Some(_))) => return false,
            // A task that was woken and finds no time keeps its place before later ones.
            Some(place) => (place, true),
            None => {
                self.places += 1;
                let place = (turn.now.saturating_sub(CREDIT).max(ticket.used), self.places);
                (place, turn.waiting.keys().next().is_none_or(|first| place < *first))
            }
        };
        if has_time && is_due {
            turn.waiting.remove(&place);
            turn.now = turn.now.max(place.0);
            *ticket = Ticket { place: None, used: place.0 };
            return true;
        }
        ticket.place = Some(place);
        turn.waiting.insert(place, Some(waker.clone()));
        false
    }

    /// Counts time that a task of a network has taken in this round.
    pub(super) fn count(&mut self, network: u64, ticket: &mut Ticket, time: Duration) {
        let turn = turn_of(&mut self.networks, network, self.latest);
        turn.taken = turn.taken.saturating_add(time).min(MAX_OWED);
        // A longer time is often that of another process, and would make the task wait for as long
        // a time of each other task.
        let nanoseconds = time.min(TIME_OF_NETWORK).as_nanos() as u64;
        ticket.used += nanoseconds;
        // Otherwise, new tasks without end would keep those that have used time from their turns.
        turn.now += nanoseconds / (2 * (1 + turn.waiting.len() as u64));
        self.latest = self.latest.max(turn.now);
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
            // A task that was woken and has not been polled has ended.
            turn.waiting.retain(|_, waker| waker.is_some());
            if turn.taken < most {
                turn.waiting
                    .values_mut()
                    .take(max_woken)
                    .filter_map(Option::take)
                    .for_each(Waker::wake);
            }
            is_limited |= !turn.taken.is_zero() || !turn.waiting.is_empty();
        }
        if is_limited {
            self.networks.retain(|_, turn| !turn.taken.is_zero() || !turn.waiting.is_empty());
        } else {
            self.networks = ById::default();
        }
        is_limited
    }
}

/// Returns the turn of a network. The virtual time of a new turn begins at `latest`, because tasks
/// of the network may have used time in an earlier turn.
fn turn_of(networks: &mut ById<NetworkTurn>, network: u64, latest: u64) -> &mut NetworkTurn {
    networks.entry(network).or_insert_with(|| NetworkTurn { now: latest, ..Default::default() })
}

#[cfg(test)]
mod tests;
