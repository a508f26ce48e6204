//! Removing a range of an array.

use core::fmt;
use core::iter::FusedIterator;
use core::ops::{Range, RangeBounds};
use core::ptr;
use core::slice;

use super::Vec;

/// An iterator that moves a range of values out of a [`Vec`]. When the iterator is dropped, values
/// of the range that were not taken are dropped, and the values after the range close the gap.
///
/// If the iterator is leaked (by `mem::forget`), the array has only the values before the range.
pub struct Drain<'v, 'a, T> {
    /// While the iterator exists, the array counts only the values before the range, so that no
    /// value is dropped twice if the iterator is leaked.
    vec: &'v mut Vec<'a, T>,
    /// The indexes of the values that were not taken. They are initialized, and owned by the
    /// iterator.
    rest: Range<usize>,
    /// The indexes of the values after the range, which are initialized.
    tail: Range<usize>,
}

impl<'a, T> Vec<'a, T> {
    /// Removes the values of `range` from the array, and returns an iterator over them.
    ///
    /// ```
    /// use rookery_arena::{Arena, collections::CollectIn};
    ///
    /// let arena = Arena::new();
    /// let mut queue = (0..6).collect_in::<rookery_arena::collections::Vec<_>>(&arena);
    /// assert!(queue.drain(1..4).eq([1, 2, 3]));
    /// assert_eq!(queue, [0, 4, 5]);
    /// ```
    ///
    /// # Panics
    /// If the range is not within the array.
    #[track_caller]
    pub fn drain(&mut self, range: impl RangeBounds<usize>) -> Drain<'_, 'a, T> {
        let Range { start, end } = bounds(&range, self.len);
        let tail = end..self.len;
        self.len = start;
        Drain { vec: self, rest: start..end, tail }
    }
}

/// Returns the indexes of a range of a collection with `len` elements.
///
/// # Panics
/// If the range is not within the collection.
#[track_caller]
fn bounds(range: &impl RangeBounds<usize>, len: usize) -> Range<usize> {
    use core::ops::Bound::{Excluded, Included, Unbounded};
    let start = match range.start_bound() {
        Included(&start) => Some(start),
        Excluded(&before) => before.checked_add(1),
        Unbounded => Some(0),
    };
    let end = match range.end_bound() {
        Included(&last) => last.checked_add(1),
        Excluded(&end) => Some(end),
        Unbounded => Some(len),
    };
    match (start, end) {
        (Some(start), Some(end)) if start <= end && end <= len => start..end,
        _ => panic!(
            "the range {:?} to {:?} is not within 0..{len}",
            range.start_bound(),
            range.end_bound()
        ),
    }
}

impl<T> Drain<'_, '_, T> {
    /// Returns the values that were not taken.
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: the values of `rest` are initialized, and lie within the array.
        unsafe {
            slice::from_raw_parts(self.vec.start.add(self.rest.start).as_ptr(), self.rest.len())
        }
    }
}

impl<T> Iterator for Drain<'_, '_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        let index = self.rest.next()?;
        // SAFETY: the value is initialized and no longer counted.
        Some(unsafe { self.vec.start.add(index).read() })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rest.size_hint()
    }
}

impl<T> DoubleEndedIterator for Drain<'_, '_, T> {
    #[inline]
    fn next_back(&mut self) -> Option<T> {
        let index = self.rest.next_back()?;
        // SAFETY: the value is initialized and no longer counted.
        Some(unsafe { self.vec.start.add(index).read() })
    }
}

impl<T> ExactSizeIterator for Drain<'_, '_, T> {}

impl<T> FusedIterator for Drain<'_, '_, T> {}

impl<T> Drop for Drain<'_, '_, T> {
    fn drop(&mut self) {
        /// Closes the gap, also if a destructor panics.
        struct CloseGap<'d, 'v, 'a, T>(&'d mut Drain<'v, 'a, T>);

        impl<T> Drop for CloseGap<'_, '_, '_, T> {
            fn drop(&mut self) {
                let Drain { vec, tail, .. } = &mut *self.0;
                // SAFETY: the tail is initialized, and the gap before it has no values left.
                unsafe {
                    let from = vec.start.add(tail.start);
                    ptr::copy(from.as_ptr(), vec.start.add(vec.len).as_ptr(), tail.len());
                }
                vec.len += tail.len();
            }
        }

        let gap = CloseGap(self);
        let rest = gap.0.rest.clone();
        // SAFETY: the values of `rest` are initialized, and not used after this line.
        unsafe {
            let first = gap.0.vec.start.add(rest.start).as_ptr();
            ptr::drop_in_place(ptr::slice_from_raw_parts_mut(first, rest.len()));
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Drain<'_, '_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Drain").field(&self.as_slice()).finish()
    }
}
