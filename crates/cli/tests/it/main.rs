//! The program as a shell runs it.

mod hand_over;
mod pebble;
mod site;
mod support;
