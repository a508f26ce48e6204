//! Tickets, which are the numbers by which a supervisor identifies requests to a worker. With a
//! ticket, the worker records on the scoreboard that R has begun the request.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};

/// The maximum number of requests that one worker can have at the same time.
// The pool sends a busy application up to 64 requests ahead. The remaining tickets suffice for many
// times the largest number of sessions that has been measured with one R process. The words of all
// tickets occupy two pages of memory.
pub const MAX_TICKETS: usize = 1024;

/// The number of bits in a ticket for the request's place on the scoreboard.
const PLACE_BITS: u32 = MAX_TICKETS.trailing_zeros();

/// A number that identifies a request to a worker process. It combines the sequence number of the
/// request with the request's place on the scoreboard. A ticket is one machine word, so a single
/// store writes it. Of two tickets with the same place, the later one is the larger number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(NonZeroU64);

impl Ticket {
    /// Creates a ticket for the `sequence`-th request of a worker, counted from 1, at a place on
    /// the scoreboard. Returns `None` if either number is out of range.
    pub fn new(sequence: u64, place: usize) -> Option<Ticket> {
        if place >= MAX_TICKETS || sequence == 0 || sequence > u64::MAX >> PLACE_BITS {
            return None;
        }
        NonZeroU64::new(sequence << PLACE_BITS | place as u64).map(Ticket)
    }

    /// Converts a machine word from [`word`](Self::word) back to its ticket. Returns `None` if no
    /// ticket has this word.
    pub fn of_word(word: u64) -> Option<Ticket> {
        Ticket::new(word >> PLACE_BITS, (word & (MAX_TICKETS as u64 - 1)) as usize)
    }

    /// Returns the ticket as a machine word, which is never 0.
    pub fn word(self) -> u64 {
        self.0.get()
    }

    /// Returns the request's place on the scoreboard.
    pub fn place(self) -> usize {
        (self.word() & (MAX_TICKETS as u64 - 1)) as usize
    }

    /// Returns the sequence number of the request: the number of requests that the worker had
    /// received when the ticket was issued, including this request.
    pub fn sequence(self) -> u64 {
        self.word() >> PLACE_BITS
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.word())
    }
}

/// The supply of tickets for the requests to one worker process. At most [`MAX_TICKETS`] tickets
/// are in use at the same time. Clones share the same supply.
#[derive(Debug, Clone, Default)]
pub struct Tickets(Arc<Mutex<Places>>);

#[derive(Debug, Default)]
struct Places {
    given: u64,
    /// The places on the scoreboard that tickets have used before and that are free now.
    free: Vec<usize>,
    /// The number of places on the scoreboard that tickets have ever used.
    used: usize,
}

impl Tickets {
    /// Creates the supply of tickets for a worker that has received no request yet.
    pub fn new() -> Tickets {
        Tickets::default()
    }

    /// Issues a ticket for the next request to the worker. Returns `None` if all places on the
    /// scoreboard are in use.
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

    /// Returns the number of tickets in use.
    pub fn taken(&self) -> usize {
        let places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.used - places.free.len()
    }
}

/// A ticket in use. When the guard is dropped, a later ticket can use the same place on the
/// scoreboard. Drop the guard after the response has arrived or after
/// [`Scoreboard::has_begun`](crate::Scoreboard::has_begun) was called.
///
/// The guard may also be dropped while the worker still processes the request, for example because
/// the client has disconnected. This is safe, because the worker never overwrites the record of a
/// later ticket with that of an older one.
#[derive(Debug)]
pub struct TicketGuard {
    ticket: Ticket,
    tickets: Tickets,
}

impl TicketGuard {
    /// Returns the ticket that this guard keeps in use.
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
    fn words_round_trip_and_invalid_words_are_rejected() {
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
        // The word has a place but no sequence number.
        assert_eq!(Ticket::of_word(0), None);
        assert_eq!(Ticket::of_word(MAX_TICKETS as u64 - 1), None);
    }

    #[test]
    fn tickets_are_limited_to_the_places_and_increase() {
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
