//! The commands `rookery serve` and `rookery dev`. They serve a static site in this process, and an
//! app in R processes.

pub(crate) mod access_log;
pub(crate) mod development;
pub(crate) mod r_command;
pub(crate) mod r_package;
#[cfg(target_os = "linux")]
pub(crate) mod reload;
// Compiled for tests on Linux as well, so that a change cannot break the code unnoticed.
#[cfg(any(not(target_os = "linux"), test))]
#[cfg_attr(target_os = "linux", allow(dead_code))]
pub(crate) mod single_process;
pub(crate) mod static_site;
#[cfg(target_os = "linux")]
pub(crate) mod supervised;
#[cfg(target_os = "linux")]
pub(crate) mod supervisor_commands;
#[cfg(target_os = "linux")]
pub(crate) mod supervisor_config;
#[cfg(target_os = "linux")]
pub(crate) mod supervisor_frontend;
pub(crate) mod tls;
pub(crate) mod tracing;
