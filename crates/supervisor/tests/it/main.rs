//! Tests of the pool in front of fake workers in this process, and of the supervisor with worker
//! processes.

#![allow(clippy::disallowed_methods, reason = "a test may panic")]

mod pool;
mod supervision;
mod support;
