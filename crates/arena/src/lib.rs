//! Request-scoped memory whose allocation is O(1) however many chunks are full.
#![allow(unexpected_cfgs)] // `loom`, which only its model sets: see `sync/model.rs`
#![cfg_attr(not(any(feature = "std", test)), no_std)]

extern crate alloc;

mod arena;
mod buffer;
mod chunk;
mod chunks;
mod error;
#[doc(hidden)]
pub mod layout;
mod pool;
mod string;
mod sync;
mod typed;
mod vec;
mod zero;

pub use arena::Arena;
pub use buffer::Buffer;
pub use error::AllocError;
pub use layout::Growth;
pub use pool::{Limits, Pool, Pooled};
pub use string::String;
pub use sync::SyncArena;
pub use vec::Vec;
pub use zero::Zeroable;
