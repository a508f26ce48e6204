//! Tests of the pool in front of fake workers in this process, and of the supervisor with worker
//! processes.

mod pool;
mod supervision;
mod support;
