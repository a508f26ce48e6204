//! The iterator that takes an array apart.

use core::fmt;
use core::iter::FusedIterator;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Range;
use core::ptr::{self, NonNull};

use super::Vec;
use crate::arena::Arena;

/// An iterator that moves the values out of a [`Vec`]. Values that were not taken are dropped with
/// the iterator.
pub struct IntoIter<'a, T> {
    start: NonNull<T>,
    /// The indexes of the values that were not taken. They are initialized, and owned by the
    /// iterator. They are indexes because pointers cannot count values of size zero.
    rest: Range<usize>,
    arena: PhantomData<&'a Arena>,
}

impl<T> IntoIter<'_, T> {
    /// Returns the values that were not taken.
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: the values of `rest` are initialized.
        unsafe { &*self.rest_of_values() }
    }

    fn rest_of_values(&self) -> *mut [T] {
        // SAFETY: `rest` lies within the array.
        let first = unsafe { self.start.add(self.rest.start) };
        ptr::slice_from_raw_parts_mut(first.as_ptr(), self.rest.len())
    }
}

impl<'a, T> IntoIterator for Vec<'a, T> {
    type Item = T;
    type IntoIter = IntoIter<'a, T>;

    #[inline]
    fn into_iter(self) -> IntoIter<'a, T> {
        let vec = ManuallyDrop::new(self);
        IntoIter { start: vec.start, rest: 0..vec.len, arena: PhantomData }
    }
}

impl<T> Iterator for IntoIter<'_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        let index = self.rest.next()?;
        // SAFETY: the value is initialized and no longer counted.
        Some(unsafe { self.start.add(index).read() })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rest.size_hint()
    }
}

impl<T> DoubleEndedIterator for IntoIter<'_, T> {
    #[inline]
    fn next_back(&mut self) -> Option<T> {
        let index = self.rest.next_back()?;
        // SAFETY: the value is initialized and no longer counted.
        Some(unsafe { self.start.add(index).read() })
    }
}

impl<T> ExactSizeIterator for IntoIter<'_, T> {}

impl<T> FusedIterator for IntoIter<'_, T> {}

impl<T> Drop for IntoIter<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the values of `rest` are initialized, and not used after the iterator. If a
        // destructor panics, the others still run.
        unsafe { ptr::drop_in_place(self.rest_of_values()) }
    }
}

impl<T: fmt::Debug> fmt::Debug for IntoIter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IntoIter").field(&self.as_slice()).finish()
    }
}
