//! Supervisors and workers as processes, over the system's own descriptors.

mod control;
mod hand_over;
mod scoreboard;
mod support;
