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

/// Implements comparison and hashing of a collection `$type` by those of the `$target` that it
/// dereferences to, so that it can be a key that is looked up by its `$target` (`Borrow`).
macro_rules! compare_as {
    (impl [$($generics:tt)*] $type:ty as $target:ty) => {
        impl<$($generics)*> PartialEq for $type where $target: PartialEq {
            fn eq(&self, other: &Self) -> bool {
                **self == **other
            }
        }

        impl<$($generics)*> Eq for $type where $target: Eq {}

        // `$target` may have a partial order only.
        #[allow(clippy::non_canonical_partial_ord_impl)]
        impl<$($generics)*> PartialOrd for $type where $target: PartialOrd {
            fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
                (**self).partial_cmp(&**other)
            }
        }

        impl<$($generics)*> Ord for $type where $target: Ord {
            fn cmp(&self, other: &Self) -> core::cmp::Ordering {
                (**self).cmp(&**other)
            }
        }

        impl<$($generics)*> core::hash::Hash for $type where $target: core::hash::Hash {
            fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
                (**self).hash(state);
            }
        }
    };
}
pub(crate) use compare_as;

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
