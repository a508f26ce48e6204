//! Tests of the pool in front of workers that are small servers in this process, and of the supervisor with worker processes.

mod pool;
mod supervision;
mod support;
