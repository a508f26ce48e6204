//! What the server tells of itself: lines and numbers.

pub mod access_log;
