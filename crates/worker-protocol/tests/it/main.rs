//! Tests with supervisors and workers as real processes that share descriptors.

#![allow(clippy::disallowed_methods, reason = "a test may panic")]
#![cfg(target_os = "linux")]

mod control_channel;
mod rings;
mod scoreboard;
mod sealed_memory;
mod support;
mod worker_environment;
