//! Supervisors and workers as processes, over the system's own descriptors.

#![cfg(target_os = "linux")]

mod control_channel;
mod scoreboard;
mod support;
mod worker_environment;
