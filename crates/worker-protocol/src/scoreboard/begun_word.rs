//! The word of the scoreboard in which R records that it has begun a request, and the supervisor
//! that it has withdrawn one.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{self, Relaxed, SeqCst};

use crate::ticket::Ticket;

/// The maximum number of attempts to withdraw a request. R changes the word at most once meanwhile,
/// and only a hostile worker changes it more often.
const MAX_ATTEMPTS: u32 = 8;

/// An atomic word: that of the standard library, or loom's in the models.
pub(crate) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64>;
}

impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }

    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        AtomicU64::compare_exchange(self, current, new, SeqCst, SeqCst)
    }
}

/// Returns the word that R writes to the scoreboard when it begins the request with this ticket.
fn begun(ticket: Ticket) -> u64 {
    ticket.sequence() << 1
}

/// Returns the word that the supervisor writes to the scoreboard when it withdraws the request with
/// this ticket.
fn withdrawn(ticket: Ticket) -> u64 {
    begun(ticket) | 1
}

/// Returns true if `word` shows that R has begun the request with this ticket. `word` is the value
/// at the ticket's place on the scoreboard.
pub(super) fn is_begun(word: u64, ticket: Ticket) -> bool {
    word >= begun(ticket) && word != withdrawn(ticket)
}

/// Withdraws a request unless R has begun it. Returns true if R will never begin it.
pub(crate) fn withdraw(place: &impl Word, ticket: Ticket) -> bool {
    let mut word = place.load(SeqCst);
    for _ in 0..MAX_ATTEMPTS {
        if word >= begun(ticket) {
            break;
        }
        match place.compare_exchange(word, withdrawn(ticket)) {
            Ok(_) => return true,
            Err(current) => word = current,
        }
    }
    word == withdrawn(ticket)
}

/// Records that R begins a request. Returns false if the request was withdrawn.
pub(crate) fn begin(place: &impl Word, ticket: Ticket) -> bool {
    let word = place.load(Relaxed);
    if word == begun(ticket) {
        // R has begun the request already, when the application inspected its head.
        return true;
    }
    // The exchange is sequentially consistent: the processor completes it before any later
    // instruction of the thread, even if a signal kills the thread in between.
    //
    // A later request in the same place means that nobody waits for this one. Otherwise only the
    // supervisor can have changed the word meanwhile, by withdrawing the request.
    word < begun(ticket) && place.compare_exchange(word, begun(ticket)).is_ok()
}
