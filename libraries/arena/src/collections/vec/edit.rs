//! Inserting values into an array and removing them, at any index.

use core::ptr;

use super::Vec;
use crate::collections::Box;

impl<'a, T> Vec<'a, T> {
    /// Inserts a value at `index`, and moves the values from there on by one place.
    ///
    /// # Panics
    /// If `index` is larger than the number of values, or if the memory is not available.
    #[track_caller]
    pub fn insert(&mut self, index: usize, value: T) {
        let len = self.len;
        assert!(index <= len, "cannot insert at {index}: the array has {len} values");
        self.reserve(1);
        // SAFETY: `index <= len`, and there is space for one more value after the last.
        unsafe {
            let place = self.start.add(index).as_ptr();
            ptr::copy(place, place.add(1), len - index);
            place.write(value);
        }
        self.len = len + 1;
    }

    /// Removes the value at `index` and returns it, and moves the values after it by one place.
    ///
    /// # Panics
    /// If there is no value at `index`.
    #[track_caller]
    pub fn remove(&mut self, index: usize) -> T {
        let len = self.len;
        assert!(index < len, "cannot remove at {index}: the array has {len} values");
        // SAFETY: `index < len`; the value that is read is overwritten or no longer counted.
        unsafe {
            let place = self.start.add(index).as_ptr();
            let value = place.read();
            ptr::copy(place.add(1), place, len - index - 1);
            self.len = len - 1;
            value
        }
    }

    /// Removes the value at `index` and returns it, and moves the last value to its place, which
    /// takes constant time.
    ///
    /// # Panics
    /// If there is no value at `index`.
    #[track_caller]
    pub fn swap_remove(&mut self, index: usize) -> T {
        let last = self.len.saturating_sub(1);
        self.swap(index, last);
        self.pop().expect("`swap` has found a value at the index")
    }

    /// Keeps the values for which `keep` returns true, in their order, and drops the others.
    ///
    /// If `keep` or a destructor panics, the values that `keep` has not seen stay in the array.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.retain_mut(|value| keep(value));
    }

    /// Keeps the values for which `keep` returns true, as [`retain`](Vec::retain) does. `keep` may
    /// change the values.
    pub fn retain_mut(&mut self, mut keep: impl FnMut(&mut T) -> bool) {
        /// Moves the values that were not seen behind those that are kept, also after a panic.
        struct CloseGap<'v, 'a, T> {
            vec: &'v mut Vec<'a, T>,
            seen: usize,
            kept: usize,
            len: usize,
        }

        impl<T> Drop for CloseGap<'_, '_, T> {
            fn drop(&mut self) {
                let unseen = self.len - self.seen;
                // SAFETY: the values from `seen` on are initialized, and those from `kept` to
                // `seen` are not.
                unsafe {
                    let from = self.vec.start.add(self.seen).as_ptr();
                    ptr::copy(from, self.vec.start.add(self.kept).as_ptr(), unseen);
                }
                self.vec.len = self.kept + unseen;
            }
        }

        let len = self.len;
        // The array counts no value while its values are examined, so that none is dropped twice.
        self.len = 0;
        let mut gap = CloseGap { vec: self, seen: 0, kept: 0, len };
        while gap.seen < len {
            // SAFETY: the value at `seen` is initialized, and nothing else refers to it.
            unsafe {
                let value = gap.vec.start.add(gap.seen);
                let is_kept = keep(&mut *value.as_ptr());
                gap.seen += 1;
                if is_kept {
                    ptr::copy(value.as_ptr(), gap.vec.start.add(gap.kept).as_ptr(), 1);
                    gap.kept += 1;
                } else {
                    value.drop_in_place();
                }
            }
        }
    }

    /// Returns the values of the array as a slice that has an owner, which drops them.
    pub fn into_boxed_slice(self) -> Box<'a, [T]> {
        // SAFETY: the array no longer owns the values.
        unsafe { Box::from_mut(self.into_slice()) }
    }
}
