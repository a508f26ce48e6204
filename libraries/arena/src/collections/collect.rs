//! Collecting an iterator in an arena.

use super::Vec;
use crate::arena::Arena;

/// A collection that can be made from an iterator, with its memory in an [`Arena`]. It is to
/// [`CollectIn`] what [`FromIterator`] is to [`Iterator::collect`].
pub trait FromIteratorIn<'a, T> {
    /// Makes a collection of the values of an iterator.
    ///
    /// # Panics
    /// If the memory is not available.
    fn from_iter_in<I: IntoIterator<Item = T>>(values: I, arena: &'a Arena) -> Self;
}

/// Extends iterators by the method [`collect_in`](CollectIn::collect_in).
pub trait CollectIn: Iterator + Sized {
    /// Collects the values of the iterator in `arena`.
    ///
    /// ```
    /// use rookery_arena::Arena;
    /// use rookery_arena::collections::{CollectIn, Vec};
    ///
    /// let arena = Arena::new();
    /// let parsed: Result<Vec<u8>, _> = "1 2 3".split(' ').map(str::parse).collect_in(&arena);
    /// assert_eq!(parsed?, [1, 2, 3]);
    /// # Ok::<(), std::num::ParseIntError>(())
    /// ```
    ///
    /// # Panics
    /// If the memory is not available.
    fn collect_in<'a, C: FromIteratorIn<'a, Self::Item>>(self, arena: &'a Arena) -> C {
        C::from_iter_in(self, arena)
    }
}

impl<I: Iterator> CollectIn for I {}

impl<'a, T> FromIteratorIn<'a, T> for Vec<'a, T> {
    fn from_iter_in<I: IntoIterator<Item = T>>(values: I, arena: &'a Arena) -> Self {
        let mut vec = Vec::new_in(arena);
        vec.extend(values);
        vec
    }
}

/// Collects the values up to the first error, and returns that error if there is one.
impl<'a, T, E, C: FromIteratorIn<'a, T>> FromIteratorIn<'a, Result<T, E>> for Result<C, E> {
    fn from_iter_in<I: IntoIterator<Item = Result<T, E>>>(values: I, arena: &'a Arena) -> Self {
        let mut error = None;
        let values = values.into_iter().map_while(|value| match value {
            Ok(value) => Some(value),
            Err(found) => {
                error = Some(found);
                None
            }
        });
        // `fuse`, because a collection may ask again after the end.
        let collection = C::from_iter_in(values.fuse(), arena);
        error.map_or(Ok(collection), Err)
    }
}
