//! The arena seen from outside, with an allocator that counts.

mod cursor;
mod heap;
mod limits;
mod oracle;
mod random;
mod sync;
mod waste;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;
