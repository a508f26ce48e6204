//! The division of places and turns among the clients of a server.

pub(crate) mod fair_queue;
pub(crate) mod load;
pub(crate) mod peer;
mod ring;
