//! Request-scoped memory whose allocation is O(1) however many chunks are full.
#![cfg_attr(not(any(feature = "std", test)), no_std)]

extern crate alloc;

mod arena;
mod chunk;
mod chunks;
mod error;
#[doc(hidden)]
pub mod layout;
mod zero;

pub use arena::Arena;
pub use error::AllocError;
pub use layout::Growth;
pub use zero::Zeroable;
