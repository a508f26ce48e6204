//! Helpers that the tests of several crates share. The crate is not published, and is only a
//! dev-dependency.

pub mod allocator;
#[cfg(feature = "client")]
pub mod client;
mod fixtures;
#[cfg(feature = "client")]
pub mod tls;
mod wait;

pub use fixtures::tls_file;
pub use wait::{TEST_TIMEOUT, wait_until};
