//! Tests of the public interface of the arena, with an allocator that counts.

#![allow(clippy::disallowed_methods, reason = "a test may panic")]

mod claims;
mod collections;
mod cursor;
mod heap;
mod limits;
mod oracle;
mod pool;
mod pool_reentry;
mod random;
mod steady;
mod sync;
mod waste;
mod workload;
