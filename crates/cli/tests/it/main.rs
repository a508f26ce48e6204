//! The program as a shell runs it.

mod hand_over;
mod pebble;
mod site;
mod support;
#[cfg(target_os = "linux")]
mod workers;
