//! The arena seen from outside, with an allocator that counts.

mod collections;
mod cursor;
mod heap;
mod limits;
mod oracle;
mod pool;
mod random;
mod sync;
mod waste;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;
