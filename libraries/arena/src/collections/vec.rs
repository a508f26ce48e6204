//! A growable array whose memory is in an arena.
//!
//! # Ground rules
//! `start` points to memory of the arena for `capacity` values. The first `len` of them are
//! initialized and owned by the array. Nothing else has a pointer to them, so growing may move
//! them.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};
use core::slice;

mod drain;

pub use drain::Drain;

use crate::arena::Arena;
use crate::error::AllocError;
use crate::typed::array;

/// A growable array whose memory is in an [`Arena`].
///
/// A full array doubles its capacity:
/// - If the array is the arena's last allocation and its chunk has space, it grows in place.
/// - If it is large and has the arena's most recent dedicated chunk (a chunk for one allocation),
///   that chunk is resized.
/// - Otherwise the values are copied, and the old memory remains unused until the arena is reset.
///
/// Dropping the array drops its values. [`into_slice`](Vec::into_slice) leaves them to the arena,
/// which never drops them.
///
/// ```
/// use rookery_arena::{Arena, collections::Vec};
///
/// let arena = Arena::new();
/// let mut squares = Vec::new_in(&arena);
/// squares.extend((0..5).map(|n| n * n));
/// let squares: &[i32] = squares.into_slice();
/// assert_eq!(squares, [0, 1, 4, 9, 16]);
/// ```
///
/// # Cost
/// `push`, `extend_from_slice` and similar methods cost a copy of the added values, and amortized
/// constant time for each value. `len`, `capacity` and `into_slice` take constant time.
/// `truncate`, `clear` and drop run the destructors of the removed values, if they have any.
///
/// # Panics
/// Methods without `try_` in their name panic if the memory is not available.
pub struct Vec<'a, T> {
    start: NonNull<T>,
    len: usize,
    capacity: usize,
    arena: &'a Arena,
}

impl<'a, T> Vec<'a, T> {
    /// Makes an empty array.
    ///
    /// # Allocation
    /// None.
    pub const fn new_in(arena: &'a Arena) -> Vec<'a, T> {
        let capacity = if size_of::<T>() == 0 { usize::MAX } else { 0 };
        Vec { start: NonNull::dangling(), len: 0, capacity, arena }
    }

    /// Makes an empty array with space for `capacity` values.
    ///
    /// # Panics
    /// If the memory is not available.
    #[track_caller]
    pub fn with_capacity_in(capacity: usize, arena: &'a Arena) -> Vec<'a, T> {
        let mut vec = Vec::new_in(arena);
        if capacity > vec.capacity {
            if let Err(error) = vec.grow(capacity) {
                error.raise();
            }
        }
        vec
    }

    /// Appends a value to the array.
    ///
    /// # Panics
    /// If the memory is not available.
    #[inline]
    #[track_caller]
    pub fn push(&mut self, value: T) {
        if let Err(error) = self.try_push(value) {
            error.raise();
        }
    }

    /// Appends a value to the array, as [`push`](Vec::push) does, but returns an error instead of
    /// panicking.
    ///
    /// # Errors
    /// If the memory is not available. In this case `value` is dropped.
    #[inline]
    pub fn try_push(&mut self, value: T) -> Result<(), AllocError> {
        if self.len == self.capacity {
            self.try_reserve(1)?;
        }
        // SAFETY: `len < capacity`.
        unsafe { self.start.add(self.len).write(value) };
        self.len += 1;
        Ok(())
    }

    /// Shortens the array to its first `len` values, and drops the others.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len {
            let rest = ptr::slice_from_raw_parts_mut(
                // SAFETY: `len` is within the values.
                unsafe { self.start.add(len) }.as_ptr(),
                self.len - len,
            );
            // Set before the drop, so that no value is dropped twice if a destructor panics.
            self.len = len;
            // SAFETY: the values are initialized and no longer counted.
            unsafe { rest.drop_in_place() };
        }
    }

    /// Drops all values of the array, and keeps its memory.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Makes space for `more` further values in the array. If it has to grow, its capacity at least
    /// doubles.
    ///
    /// # Panics
    /// If the memory is not available.
    #[track_caller]
    pub fn reserve(&mut self, more: usize) {
        if let Err(error) = self.try_reserve(more) {
            error.raise();
        }
    }

    /// Makes space for `more` further values in the array, as [`reserve`](Vec::reserve) does, but
    /// returns an error instead of panicking.
    ///
    /// # Errors
    /// If the memory is not available. In this case the array is unchanged.
    pub fn try_reserve(&mut self, more: usize) -> Result<(), AllocError> {
        if more <= self.capacity - self.len {
            return Ok(());
        }
        let needed = self.len.checked_add(more).ok_or(AllocError::too_large())?;
        let least = (LEAST_BYTES / size_of::<T>().max(1)).max(1);
        let doubled = needed.max(self.capacity.saturating_mul(2)).max(least);
        // Twice the capacity may exceed the limit when just enough does not.
        self.grow(doubled).or_else(|_| self.grow(needed))
    }

    /// Returns the number of values that the array can hold without growing.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the values of the array as a slice.
    #[inline]
    pub fn as_slice(&self) -> &[T] {
        self
    }

    /// Returns the values of the array as a slice. They stay in the arena until it is reset, and
    /// are never dropped.
    pub fn into_slice(self) -> &'a mut [T] {
        let vec = ManuallyDrop::new(self);
        // SAFETY: there are `len` initialized values, in memory that belongs to the arena for `'a`
        // and to nothing else.
        unsafe { slice::from_raw_parts_mut(vec.start.as_ptr(), vec.len) }
    }

    #[cold]
    fn grow(&mut self, capacity: usize) -> Result<(), AllocError> {
        let old = array::<T>(self.capacity)?;
        let new = array::<T>(capacity)?;
        // SAFETY: `start` belongs only to this array and has the layout `old` (or none), and `new`
        // is larger, because zero-sized types never reach this line.
        self.start = unsafe { self.arena.try_grow(self.start.cast(), old, new) }?.cast();
        self.capacity = capacity;
        Ok(())
    }
}

impl<T: Copy> Vec<'_, T> {
    /// Appends copies of `values` to the array.
    ///
    /// # Panics
    /// If the memory is not available.
    #[inline]
    #[track_caller]
    pub fn extend_from_slice(&mut self, values: &[T]) {
        if let Err(error) = self.try_extend_from_slice(values) {
            error.raise();
        }
    }

    /// Appends copies of `values` to the array, as [`extend_from_slice`](Vec::extend_from_slice)
    /// does, but returns an error instead of panicking.
    ///
    /// # Errors
    /// If the memory is not available. In this case the array is unchanged.
    #[inline]
    pub fn try_extend_from_slice(&mut self, values: &[T]) -> Result<(), AllocError> {
        self.try_reserve(values.len())?;
        // SAFETY: space for as many was just made, and `values` cannot be in it.
        unsafe {
            ptr::copy_nonoverlapping(
                values.as_ptr(),
                self.start.add(self.len).as_ptr(),
                values.len(),
            );
        }
        self.len += values.len();
        Ok(())
    }
}

impl<T> Deref for Vec<'_, T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` initialized values.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Vec<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: there are `len` initialized values, borrowed as this array is.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> Extend<T> for Vec<'_, T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        let values = values.into_iter();
        self.reserve(values.size_hint().0);
        values.for_each(|value| self.push(value));
    }
}

impl<T> Drop for Vec<'_, T> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<T: fmt::Debug> fmt::Debug for Vec<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

impl<T: PartialEq> PartialEq<[T]> for Vec<'_, T> {
    fn eq(&self, other: &[T]) -> bool {
        self.as_slice() == other
    }
}

impl<T: PartialEq, const N: usize> PartialEq<[T; N]> for Vec<'_, T> {
    fn eq(&self, other: &[T; N]) -> bool {
        self.as_slice() == other
    }
}

/// The minimum number of bytes that an array allocates, so that an array of small values does not
/// grow with each of its first values.
const LEAST_BYTES: usize = 32;
