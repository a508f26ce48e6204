//! Supervisors and workers as processes, over the system's own descriptors.

#![cfg(target_os = "linux")]

mod control;
mod hand_over;
mod scoreboard;
mod support;
