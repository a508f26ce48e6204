//! Tests of what the program writes, and of outputs that nobody reads.

mod json_log;
mod live;
mod profile;
mod status_watch;
mod unread_output;
