//! What a supervisor calls a request, so that the worker can say that R has begun it.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};

/// Places for requests in flight to one worker: 64 that a busy application is given ahead, and the most sessions that anybody has
/// measured with one R, many times over; in two pages.
pub const MAX_TICKETS: usize = 1024;

/// Bits of a ticket that say which of the scoreboard's places is its.
const PLACE_BITS: u32 = MAX_TICKETS.trailing_zeros();

/// The number of a request among all that one worker process is given, with its place on the scoreboard. One word, so that it is
/// written whole or not at all. Of two tickets of one place the later is the larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(NonZeroU64);

impl Ticket {
    /// The `sequence`-th request, from 1, in `place`. `None` for what no worker can be given.
    pub fn new(sequence: u64, place: usize) -> Option<Ticket> {
        if place >= MAX_TICKETS || sequence == 0 || sequence > u64::MAX >> PLACE_BITS {
            return None;
        }
        NonZeroU64::new(sequence << PLACE_BITS | place as u64).map(Ticket)
    }

    /// The ticket of a word that [`word`](Self::word) gave; `None` for any that it cannot have given.
    pub fn of_word(word: u64) -> Option<Ticket> {
        Ticket::new(word >> PLACE_BITS, (word & (MAX_TICKETS as u64 - 1)) as usize)
    }

    /// All of it in one word, which is not 0.
    pub fn word(self) -> u64 {
        self.0.get()
    }

    /// Its place on the scoreboard.
    pub fn place(self) -> usize {
        (self.word() & (MAX_TICKETS as u64 - 1)) as usize
    }

    /// How many requests the worker had been given with it.
    pub fn sequence(self) -> u64 {
        self.word() >> PLACE_BITS
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.word())
    }
}

/// The tickets of one worker process: as many at a time as its scoreboard has places. A clone gives out the same ones.
#[derive(Debug, Clone, Default)]
pub struct Tickets(Arc<Mutex<Places>>);

#[derive(Debug, Default)]
struct Places {
    given: u64,
    /// Places that have been used, and are free.
    free: Vec<usize>,
    /// Places that have been used.
    used: usize,
}

impl Tickets {
    /// Those of a worker that has been given no request yet.
    pub fn new() -> Tickets {
        Tickets::default()
    }

    /// A ticket, later than all before; `None` while all places are taken.
    pub fn take(&self) -> Option<TicketGuard> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = match places.free.pop() {
            Some(place) => place,
            None if places.used < MAX_TICKETS => {
                places.used += 1;
                places.used - 1
            }
            None => return None,
        };
        places.given += 1;
        let ticket = Ticket::new(places.given, place).expect("fewer requests than 2^54");
        Some(TicketGuard { ticket, tickets: self.clone() })
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        let places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.used - places.free.len()
    }
}

/// A ticket, whose place is free again when this is dropped: after the reply has come, or [`Scoreboard::has_begun`](crate::Scoreboard::has_begun)
/// has been asked. It may be dropped while the worker still has the request, for instance because the client has gone: the worker
/// never writes an older ticket over a later one.
#[derive(Debug)]
pub struct TicketGuard {
    ticket: Ticket,
    tickets: Tickets,
}

impl TicketGuard {
    /// The ticket.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }
}

impl Drop for TicketGuard {
    fn drop(&mut self) {
        let mut places = self.tickets.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.free.push(self.ticket.place());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_one_ticket_or_none() {
        for (sequence, place) in
            [(1, 0), (1, MAX_TICKETS - 1), (77, 5), (u64::MAX >> PLACE_BITS, MAX_TICKETS - 1)]
        {
            let ticket = Ticket::new(sequence, place).unwrap();
            assert_eq!((ticket.sequence(), ticket.place()), (sequence, place));
            assert_eq!(Ticket::of_word(ticket.word()), Some(ticket));
        }
        assert_eq!(Ticket::new(0, 0), None);
        assert_eq!(Ticket::new(1, MAX_TICKETS), None);
        assert_eq!(Ticket::new((u64::MAX >> PLACE_BITS) + 1, 0), None);
        // A place without a sequence.
        assert_eq!(Ticket::of_word(0), None);
        assert_eq!(Ticket::of_word(MAX_TICKETS as u64 - 1), None);
    }

    #[test]
    fn there_are_as_many_tickets_as_places_and_each_is_later_than_all_before() {
        let tickets = Tickets::new();
        let mut held: Vec<_> = std::iter::from_fn(|| tickets.take()).collect();
        assert_eq!((held.len(), tickets.taken()), (MAX_TICKETS, MAX_TICKETS));
        let mut places: Vec<_> = held.iter().map(|held| held.ticket().place()).collect();
        places.sort_unstable();
        assert!(places.into_iter().eq(0..MAX_TICKETS));
        let old = held.swap_remove(3).ticket();
        let new = tickets.take().unwrap();
        assert_eq!(new.ticket().place(), old.place());
        assert!(new.ticket() > old);
        assert!(tickets.take().is_none());
        drop(held);
        assert_eq!(tickets.taken(), 1);
        drop(new);
        assert_eq!(tickets.taken(), 0);
    }
}
