#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test may panic"))]
#![doc = include_str!("../README.md")]
//!
//! # Cost
//! | operation | cost |
//! |---|---|
//! | an allocation that fits into the current chunk | one comparison and one store; at most 11 instructions for a constant layout |
//! | an allocation that does not fit | a further chunk, which is either kept from before or comes from malloc |
//! | `reset` | constant time without malloc or free, if about the same memory is needed between any two resets; otherwise it also frees memory that was not needed lately |
//! | unused memory of a new arena | the end of the last chunk, and less than an eighth of the memory; 0.5 to 1 % in usual mixes of sizes |
//!
//! # What an arena does not do
//! - It never runs `drop`. An `Rc` moved into it is leaked. [`collections::Box`] and
//!   [`collections::Vec`] drop their values as long as they own them.
//! - It frees nothing before [`reset`](Arena::reset), which needs `&mut`, so that no borrow of the
//!   arena is left. A value that outlives the request has to be stored elsewhere:
//!
//! ```compile_fail,E0502
//! let mut arena = rookery_arena::Arena::new();
//! let text = arena.alloc_str("gone");
//! arena.reset();
//! println!("{text}");
//! ```
//! - It does not clear memory, and it does not shrink while in use. The memory of a request a
//!   thousand times larger than usual is released over the following resets.
//!
//! # Features
//! `std` (enabled by default) implements the traits of `std::io` for [`collections::Buffer`]. It
//! also gives [`SyncArena`] eight chains of chunks instead of one, so that threads rarely collide.
//! `allocator-api2` implements the trait `Allocator` of that crate for `&Arena` and `&SyncArena`.
//! It is the only dependency.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(unexpected_cfgs)] // `loom` is set only by the models of `sync/model.rs`
#![cfg_attr(not(any(feature = "std", test)), no_std)]

extern crate alloc;

#[cfg(feature = "allocator-api2")]
mod allocator;
mod arena;
mod chunk;
mod chunk_set;
pub mod collections;
mod error;
#[doc(hidden)]
pub mod layout;
mod pool;
mod sync;
mod typed;
mod zero;

pub use arena::Arena;
pub use error::AllocError;
pub use layout::Growth;
pub use pool::{Pool, PoolLimits, Pooled};
pub use sync::SyncArena;
pub use zero::Zeroable;
