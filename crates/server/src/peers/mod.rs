//! Who is connected: the table of all peers, the clock they are measured by, how fast each has to be, what all of them may
//! hold together, who goes when there is no room, and when memory goes back to the system.

pub(crate) mod budget;
pub(crate) mod clock;
mod leaving;
#[cfg(test)]
pub(crate) mod random;
pub(crate) mod rate;
mod reclaim;
pub(crate) mod room;
pub(crate) mod seats;
mod slowest;
pub(crate) mod table;
