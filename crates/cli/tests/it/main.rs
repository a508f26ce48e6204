//! Tests of the program as users start it from a shell.

#![allow(clippy::disallowed_methods, reason = "a test may panic")]

#[path = "../../../acme/tests/authority/mod.rs"]
mod authority;
mod completions;
mod config_and_check;
#[cfg(target_os = "linux")]
#[cfg(target_os = "linux")]
mod output;
mod pebble;
#[cfg(target_os = "linux")]
mod pid1;
mod r_processes;
mod reload;
mod server_yml;
#[cfg(target_os = "linux")]
mod service_manager;
mod signals;
mod socket_activation;
mod startup_screen;
mod static_site;
mod support;
#[cfg(target_os = "linux")]
mod workers;
