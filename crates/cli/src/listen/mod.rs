//! The addresses and listeners of the server, and ways to find out which other process uses an
//! address.

pub(crate) mod address;
pub(crate) mod listeners;
#[cfg(unix)]
// Where systems differ, one file for each kind of system has the same functions.
#[cfg(all(target_os = "linux", not(feature = "portable")))]
pub(crate) mod port_owner;
#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
#[path = "port_owner_unknown.rs"]
pub(crate) mod port_owner;
pub(crate) mod service_sockets;
