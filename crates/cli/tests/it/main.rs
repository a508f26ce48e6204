//! The program as a shell runs it.

mod asking;
#[path = "../../../acme/tests/authority/mod.rs"]
mod authority;
mod hand_over;
#[cfg(target_os = "linux")]
mod init;
mod inspect;
mod pebble;
#[cfg(target_os = "linux")]
#[cfg(target_os = "linux")]
mod predecessor;
mod reloading;
mod screen;
mod server_yml;
#[cfg(target_os = "linux")]
mod service;
mod site;
mod support;
#[cfg(target_os = "linux")]
mod unread;
#[cfg(target_os = "linux")]
mod workers;
