//! Growable collections whose memory is in an arena.
//!
//! The collections are not in the root of the crate, so that `use rookery_arena::*` does not shadow
//! the prelude's `Vec`, `String` and `Box`. A method that has the name of a method in the standard
//! library does the same.
//!
//! ```
//! use rookery_arena::*;
//!
//! let arena = Arena::new();
//! let mut numbers = collections::Vec::new_in(&arena);
//! numbers.push(1);
//! let mut prelude: Vec<u8> = Vec::from(&*numbers);
//! prelude.extend(String::from("text").into_bytes());
//! assert_eq!(prelude.len(), 5);
//! ```

mod boxed;
mod buffer;
mod collect;
pub mod string;
pub mod vec;

pub use boxed::Box;
pub use buffer::Buffer;
pub use collect::{CollectIn, FromIteratorIn};
#[doc(inline)]
pub use string::String;
#[doc(inline)]
pub use vec::Vec;
