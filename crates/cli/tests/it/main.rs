//! The program as a shell runs it.

mod hand_over;
mod site;
mod support;
