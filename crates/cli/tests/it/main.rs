//! The program as a shell runs it.

#[path = "../../../acme/tests/authority/mod.rs"]
mod authority;
mod hand_over;
#[cfg(target_os = "linux")]
mod init;
mod pebble;
#[cfg(target_os = "linux")]
mod service;
mod site;
mod support;
#[cfg(target_os = "linux")]
mod unread;
mod workers;
