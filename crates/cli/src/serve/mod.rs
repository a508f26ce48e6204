//! The commands `rookery serve` and `rookery dev`. They serve a static site in this process, and an
//! app in R processes.

pub(crate) mod access_log;
pub(crate) mod development;
pub(crate) mod r_command;
pub(crate) mod r_package;
#[cfg(all(target_os = "linux", not(feature = "portable")))]
pub(crate) mod reload;
// Compiled for tests on Linux as well, so that a change cannot break the code unnoticed.
#[cfg(any(not(target_os = "linux"), feature = "portable", test))]
#[cfg_attr(all(target_os = "linux", not(feature = "portable")), allow(dead_code))]
pub(crate) mod single_process;
pub(crate) mod static_site;
#[cfg(all(target_os = "linux", not(feature = "portable")))]
pub(crate) mod supervised;
#[cfg(all(target_os = "linux", not(feature = "portable")))]
pub(crate) mod supervisor_commands;
#[cfg(all(target_os = "linux", not(feature = "portable")))]
pub(crate) mod supervisor_config;
#[cfg(all(target_os = "linux", not(feature = "portable")))]
pub(crate) mod supervisor_frontend;
pub(crate) mod tls;
pub(crate) mod tracing;
