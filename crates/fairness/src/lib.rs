//! The division of places and turns among the clients of a server.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test may panic"))]

mod by_id;
mod fair_queue;
mod load;
mod peer;
mod ring;

pub use by_id::ById;
pub use fair_queue::FairQueue;
pub use load::{Load, Queued};
pub use peer::Peer;
