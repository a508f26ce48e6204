//! The addresses and listeners of the server, and ways to find out which other process uses an
//! address.

pub(crate) mod address;
pub(crate) mod listeners;
#[cfg(target_os = "linux")]
pub(crate) mod orphaned_worker;
pub(crate) mod port_owner;
