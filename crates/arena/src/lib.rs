//! Arenas: memory for one request at a time, allocated in O(1) and freed all at once.
//!
//! An [`Arena`] allocates by moving a cursor through chunks of memory. Use it for values that live
//! as long as one request, one frame of work or one parse: many small allocations that are freed
//! together.
//!
//! ```
//! use rookery_arena::{Arena, collections::String};
//! use std::fmt::Write;
//!
//! let mut arena = Arena::new();
//! for request in ["/", "/search?q=rook"] {
//!     let path = arena.alloc_str(request.split('?').next().unwrap_or_default());
//!     let mut reply = String::new_in(&arena);
//!     write!(reply, "you asked for {path}")?;
//!     let reply = reply.into_str();
//!     assert!(reply.ends_with(&*path));
//!     arena.reset(); // O(1); the next request finds the memory there
//! }
//! # Ok::<(), std::fmt::Error>(())
//! ```
//!
//! # Contents
//! - [`Arena`] is for one thread, and [`SyncArena`] for several at once, without locks. A [`Pool`]
//!   keeps arenas for reuse, separately for each kind of work, in the sizes that each kind has
//!   needed recently.
//! - [`collections`] contains `Vec`, `String` and `Buffer`, whose memory is in an arena. Each grows
//!   in place while it is the arena's last allocation.
//! - [`Growth`] determines the sizes of chunks.
//! - Methods whose names begin with `try_` return an [`AllocError`] instead of panicking.
//!
//! # What an arena does not do
//! - It never runs `drop`. A `Box` or an `Rc` moved into it is leaked. ([`collections::Vec`] drops
//!   its values as long as it owns them.)
//! - It frees nothing before [`reset`](Arena::reset), which needs `&mut`, so that no borrow of the
//!   arena is left. A value that outlives the request has to be stored elsewhere:
//!
//! ```compile_fail,E0502
//! let mut arena = rookery_arena::Arena::new();
//! let text = arena.alloc_str("gone");
//! arena.reset();
//! println!("{text}");
//! ```
//! - It does not clear memory. `reset` leaves the old contents, which later allocations overwrite.
//!   Secrets have to be overwritten by their owner.
//! - It does not shrink while in use. The memory of a request a thousand times larger than usual is
//!   released over the following resets.
//!
//! # Cost
//! | operation | cost |
//! |---|---|
//! | an allocation that fits into the current chunk | one comparison and one store; at most 11 instructions for a constant layout |
//! | an allocation that does not fit | a further chunk, which is either kept from before or comes from malloc |
//! | `reset` | constant time without malloc or free, if about the same memory is needed between any two resets; otherwise it also frees memory that was not needed lately |
//! | unused memory of a new arena | the end of the last chunk, and less than an eighth of the memory; 0.5 to 1 % in usual mixes of sizes |
//!
//! The eighth does not include the padding before aligned allocations, which has fewer bytes than
//! the alignment of the allocation. If single bytes and 16-byte values alternate, padding is half
//! of the memory. Where that matters, allocate each kind of value as a slice.
//!
//! `docs/arena.md` in the repository explains the cursor, dedicated chunks and the bound on waste,
//! with measurements.
//!
//! # Features
//! `std` (enabled by default) implements the traits of `std::io` for [`collections::Buffer`]. It
//! also gives [`SyncArena`] eight chains of chunks instead of one, so that threads rarely collide.
//! Without `std` the crate needs only `core` and `alloc`. There are no dependencies.
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
