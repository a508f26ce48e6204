//! Who is connected: the table of all peers, the clock they are measured by, how fast each has to be, what all of them may
//! hold together, and who goes when there is no room.

pub(crate) mod budget;
pub(crate) mod clock;
mod leaving;
pub(crate) mod rate;
pub(crate) mod room;
pub(crate) mod seats;
mod slowest;
pub(crate) mod table;
