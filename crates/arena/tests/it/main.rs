//! The arena seen from outside, with an allocator that counts.

mod cursor;
mod heap;
mod oracle;
mod random;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;
