//! The commands `rookery serve` and `rookery dev`. They serve a static site in this process, and an
//! app in R processes.

pub(crate) mod access_log;
pub(crate) mod development;
pub(crate) mod r_command;
pub(crate) mod r_package;
#[cfg(unix)]
pub(crate) mod reload;
// Compiled for tests on Unix as well, so that a change cannot break the code unnoticed.
#[cfg(any(windows, test))]
#[cfg_attr(unix, allow(dead_code))]
pub(crate) mod single_process;
pub(crate) mod static_site;
#[cfg(unix)]
pub(crate) mod supervised;
#[cfg(unix)]
pub(crate) mod supervisor_commands;
#[cfg(unix)]
pub(crate) mod supervisor_config;
#[cfg(unix)]
pub(crate) mod supervisor_frontend;
pub(crate) mod tls;
pub(crate) mod tracing;
