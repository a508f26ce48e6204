//! Helpers that the tests of several crates share. This crate is only a dev-dependency and is not
//! published.

#![allow(clippy::disallowed_methods, reason = "a test may panic")]

pub mod allocator;
#[cfg(feature = "client")]
pub mod client;
pub mod collector;
mod fixtures;
pub mod flood;
mod lines;
mod random;
mod thread_shortage;
#[cfg(feature = "client")]
pub mod tls;
mod wait;

pub use fixtures::tls_file;
pub use lines::Lines;
pub use random::Random;
pub use thread_shortage::forbid_new_threads;
pub use wait::{TEST_TIMEOUT, wait_until};
