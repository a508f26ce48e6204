//! Request-scoped memory whose allocation is O(1) however many chunks are full.
//!
//! An [`Arena`] hands out memory by moving a cursor through chunks and takes everything back at once. Use it for what lives
//! as long as one request, one frame of work or one parse: many small allocations, freed together.
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
//! # What is here
//! - [`Arena`]: one thread. [`SyncArena`]: several at once, without locks. [`Pool`]: arenas by kind of work, sized by what
//!   that kind used lately.
//! - [`collections`]: `Vec`, `String` and `Buffer`, which grow in an arena, in place when they are
//!   its last allocation.
//! - [`Growth`]: how chunks grow. [`AllocError`]: what the `try_` methods return.
//!
//! # What an arena does not do
//! - It never runs `drop`. A `Box` or an `Rc` moved into it is leaked. ([`collections::Vec`] drops
//!   its values as long as it owns them.)
//! - It takes nothing back before [`reset`](Arena::reset), and `reset` needs `&mut`, so that
//!   nothing borrowed from it is left. A value that outlives the request belongs elsewhere:
//!
//! ```compile_fail,E0502
//! let mut arena = rookery_arena::Arena::new();
//! let text = arena.alloc_str("gone");
//! arena.reset();
//! println!("{text}");
//! ```
//! - It does not clear memory: `reset` leaves old contents behind, to be overwritten. What must not linger has to be
//!   overwritten by its owner.
//! - It does not shrink while in use. A request a thousand times the usual size is forgotten over the resets after it.
//!
//! # Cost
//! | operation | cost |
//! |---|---|
//! | an allocation that fits | one comparison, one store; 11 instructions for a constant layout, loop included |
//! | one that does not | the next chunk, kept or from malloc; or a chunk of its own, kept or from malloc |
//! | `reset` | constant, and no malloc or free, while periods are alike; else it frees what was not needed lately |
//! | memory | of what a fresh arena reserves, less than an eighth and the last chunk is unused; 0.5 to 1 % in the usual mixes |
//!
//! Padding before aligned allocations is not in that bound: it is at most the alignment less one
//! byte for each, which is half of everything where bytes and 16-byte values alternate. Allocate
//! each kind as a slice where that matters.
//!
//! `docs/arena.md` in the repository explains the cursor, the chunks at the side and the bound on
//! waste, with their numbers.
//!
//! # Features
//! `std` (default): `std::io` traits of [`collections::Buffer`], and in [`SyncArena`] a chain of
//! chunks for each of up to eight threads. Without it the crate needs `core` and `alloc` only.
//! There are no dependencies.
#![allow(unexpected_cfgs)] // `loom`, which only its model sets: see `sync/model.rs`
#![cfg_attr(not(any(feature = "std", test)), no_std)]

extern crate alloc;

mod arena;
mod buffer;
mod chunk;
mod chunk_set;
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
pub use error::AllocError;
pub use layout::Growth;
pub use pool::{Pool, PoolLimits, Pooled};
pub use sync::SyncArena;
pub use zero::Zeroable;

/// Growable collections in an arena.
///
/// They are not in the root of the crate, so that `use rookery_arena::*` leaves the prelude's `Vec`
/// and `String` what they are.
///
/// ```
/// use rookery_arena::*;
///
/// let arena = Arena::new();
/// let mut numbers = collections::Vec::new_in(&arena);
/// numbers.push(1);
/// let mut prelude: Vec<u8> = Vec::from(&*numbers);
/// prelude.extend(String::from("text").into_bytes());
/// assert_eq!(prelude.len(), 5);
/// ```
pub mod collections {
    pub use crate::buffer::Buffer;
    pub use crate::string::String;
    pub use crate::vec::Vec;
}
