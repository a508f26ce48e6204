//! The addresses and listeners of the server, and the search for other processes that use these
//! addresses.

pub(crate) mod address;
pub(crate) mod listeners;
#[cfg(target_os = "linux")]
pub(crate) mod orphaned_worker;
pub(crate) mod port_owner;
