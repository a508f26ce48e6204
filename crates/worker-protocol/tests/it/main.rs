//! Tests with supervisors and workers as real processes that share descriptors.

#![cfg(target_os = "linux")]

mod control_channel;
mod scoreboard;
mod support;
mod worker_environment;
