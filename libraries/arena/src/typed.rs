//! Methods of `Arena` and `SyncArena` that allocate values, slices and strings.

use core::alloc::Layout;
use core::ptr::{self, NonNull};
use core::slice;

use crate::error::AllocError;

/// Defines the methods of an arena that allocate values, slices and strings. They call the arena's
/// `try_alloc_one` and `try_alloc_array`, which return uninitialized memory.
macro_rules! typed_methods {
    ($arena:ident) => {
        #[allow(clippy::mut_from_ref)] // each call returns other memory
        impl $arena {
            /// Moves `value` into the arena. The arena never drops it.
            ///
            /// # Panics
            /// If the memory is not available.
            #[inline]
            #[track_caller]
            pub fn alloc<T>(&self, value: T) -> &mut T {
                self.alloc_with(|| value)
            }

            /// Moves `value` into the arena, as [`alloc`](Self::alloc) does, but returns an error
            /// instead of panicking.
            ///
            /// # Errors
            /// If the memory is not available. In this case `value` is dropped.
            #[inline]
            pub fn try_alloc<T>(&self, value: T) -> Result<&mut T, $crate::AllocError> {
                self.try_alloc_with(|| value)
            }

            /// Allocates uninitialized memory in the arena for a value of type `T`.
            ///
            /// # Panics
            /// If the memory is not available.
            #[inline]
            #[track_caller]
            pub fn alloc_uninit<T>(&self) -> &mut core::mem::MaybeUninit<T> {
                match self.try_alloc_uninit() {
                    Ok(value) => value,
                    Err(error) => error.raise(),
                }
            }

            /// Allocates uninitialized memory for a value, as [`alloc_uninit`](Self::alloc_uninit)
            /// does, but returns an error instead of panicking.
            ///
            /// # Errors
            /// If the memory is not available.
            #[inline]
            pub fn try_alloc_uninit<T>(
                &self,
            ) -> Result<&mut core::mem::MaybeUninit<T>, $crate::AllocError> {
                let start = self.try_alloc_one::<core::mem::MaybeUninit<T>>()?;
                // SAFETY: the memory is fresh, and no bytes need to be initialized.
                Ok(unsafe { &mut *start.as_ptr() })
            }

            /// Calls `make` and writes its result directly into the arena, so that a large value is
            /// not copied from the stack. `make` may allocate in this arena.
            ///
            /// # Panics
            /// If the memory is not available, or if `make` panics. In the latter case the value's
            /// memory remains unused until the next reset.
            #[inline]
            #[track_caller]
            pub fn alloc_with<T>(&self, make: impl FnOnce() -> T) -> &mut T {
                let start = match self.try_alloc_one::<T>() {
                    Ok(start) => start,
                    Err(error) => error.raise(),
                };
                // SAFETY: fresh memory for a `T`.
                unsafe { $crate::typed::init(start, make) }
            }

            /// Writes the result of `make` into the arena, as [`alloc_with`](Self::alloc_with)
            /// does, but returns an error instead of panicking.
            ///
            /// # Errors
            /// If the memory is not available. In this case `make` is not called.
            #[inline]
            pub fn try_alloc_with<T>(
                &self,
                make: impl FnOnce() -> T,
            ) -> Result<&mut T, $crate::AllocError> {
                let start = self.try_alloc_one::<T>()?;
                // SAFETY: fresh memory for a `T`.
                Ok(unsafe { $crate::typed::init(start, make) })
            }

            /// Copies `values` into the arena.
            ///
            /// # Panics
            /// If the memory is not available.
            #[inline]
            #[track_caller]
            pub fn alloc_slice_copy<T: Copy>(&self, values: &[T]) -> &mut [T] {
                let start = if size_of::<T>() == 0 {
                    NonNull::dangling()
                } else {
                    self.alloc_layout(Layout::for_value(values)).cast()
                };
                // SAFETY: the memory is fresh and large enough.
                unsafe { $crate::typed::copy(start, values) }
            }

            /// Copies `values` into the arena, as [`alloc_slice_copy`](Self::alloc_slice_copy)
            /// does, but returns an error instead of panicking.
            ///
            /// # Errors
            /// If the memory is not available.
            #[inline]
            pub fn try_alloc_slice_copy<T: Copy>(
                &self,
                values: &[T],
            ) -> Result<&mut [T], $crate::AllocError> {
                let start = self.try_alloc_array::<T>(values.len())?;
                // SAFETY: the memory is fresh and large enough.
                Ok(unsafe { $crate::typed::copy(start, values) })
            }

            /// Allocates a slice of `len` copies of `value` in the arena.
            ///
            /// # Panics
            /// If the memory is not available.
            #[inline]
            #[track_caller]
            pub fn alloc_slice_fill<T: Copy>(&self, len: usize, value: T) -> &mut [T] {
                match self.try_alloc_slice_fill(len, value) {
                    Ok(slice) => slice,
                    Err(error) => error.raise(),
                }
            }

            /// Allocates a slice of `len` copies of `value`, as
            /// [`alloc_slice_fill`](Self::alloc_slice_fill) does, but returns an error instead of
            /// panicking.
            ///
            /// # Errors
            /// If the memory is not available.
            #[inline]
            pub fn try_alloc_slice_fill<T: Copy>(
                &self,
                len: usize,
                value: T,
            ) -> Result<&mut [T], $crate::AllocError> {
                let start = self.try_alloc_array::<T>(len)?;
                // Zero-sized values need no loop, which a debug build would run `len` times.
                let copies = if size_of::<T>() == 0 { 0 } else { len };
                // SAFETY: the memory is fresh and large enough for `len` values; zero-sized values
                // are always initialized.
                unsafe { $crate::typed::fill(start, copies, |_| value) };
                // SAFETY: just initialized.
                Ok(unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), len) })
            }

            /// Allocates a slice of `len` zeros in the arena. Other allocations are not zeroed,
            /// because `reset` does not clear the memory.
            ///
            /// # Panics
            /// If the memory is not available.
            #[inline]
            #[track_caller]
            pub fn alloc_slice_zeroed<T: $crate::Zeroable>(&self, len: usize) -> &mut [T] {
                match self.try_alloc_slice_zeroed(len) {
                    Ok(slice) => slice,
                    Err(error) => error.raise(),
                }
            }

            /// Allocates a slice of `len` zeros, as
            /// [`alloc_slice_zeroed`](Self::alloc_slice_zeroed) does, but returns an error instead
            /// of panicking.
            ///
            /// # Errors
            /// If the memory is not available.
            #[inline]
            pub fn try_alloc_slice_zeroed<T: $crate::Zeroable>(
                &self,
                len: usize,
            ) -> Result<&mut [T], $crate::AllocError> {
                let start = self.try_alloc_array::<T>(len)?;
                // SAFETY: the memory is fresh and large enough for `len` values.
                unsafe { start.as_ptr().write_bytes(0, len) };
                // SAFETY: just initialized, and `Zeroable` guarantees that zeros are a valid value.
                Ok(unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), len) })
            }

            /// Copies `text` into the arena.
            ///
            /// # Panics
            /// If the memory is not available.
            #[inline]
            #[track_caller]
            pub fn alloc_str(&self, text: &str) -> &mut str {
                let bytes = self.alloc_slice_copy(text.as_bytes());
                // SAFETY: a copy of text.
                unsafe { core::str::from_utf8_unchecked_mut(bytes) }
            }

            /// Copies `text` into the arena, as [`alloc_str`](Self::alloc_str) does, but returns an
            /// error instead of panicking.
            ///
            /// # Errors
            /// If the memory is not available.
            #[inline]
            pub fn try_alloc_str(&self, text: &str) -> Result<&mut str, $crate::AllocError> {
                let bytes = self.try_alloc_slice_copy(text.as_bytes())?;
                // SAFETY: a copy of text.
                Ok(unsafe { core::str::from_utf8_unchecked_mut(bytes) })
            }
        }
    };
}
pub(crate) use typed_methods;

/// Returns the memory layout of `len` values of type `T`, or an error if it is too large.
#[inline]
pub(crate) fn array<T>(len: usize) -> Result<Layout, AllocError> {
    Layout::array::<T>(len).map_err(|_| AllocError::too_large())
}

/// Returns a pointer for an allocation of zero bytes: it is aligned and not null, but must not be
/// dereferenced.
pub(crate) fn dangling(layout: Layout) -> NonNull<u8> {
    NonNull::new(ptr::without_provenance_mut(layout.align())).expect("an alignment is not zero")
}

/// Writes the result of `make` to `start`, and returns a reference to it.
///
/// # Safety
/// `start` is memory for a `T` to which nothing else refers for `'a`.
#[inline]
pub(crate) unsafe fn init<'a, T>(start: NonNull<T>, make: impl FnOnce() -> T) -> &'a mut T {
    // SAFETY: the caller guarantees the conditions.
    unsafe {
        start.write(make());
        &mut *start.as_ptr()
    }
}

/// Copies `values` to `start`, and returns the copy as a slice.
///
/// # Safety
/// `start` is memory for `values.len()` values of type `T`, to which nothing else refers for `'a`.
#[inline]
pub(crate) unsafe fn copy<'a, T: Copy>(start: NonNull<T>, values: &[T]) -> &'a mut [T] {
    // SAFETY: the caller guarantees the conditions, and `values` existed before the memory was
    // allocated, so they do not overlap.
    unsafe {
        ptr::copy_nonoverlapping(values.as_ptr(), start.as_ptr(), values.len());
        slice::from_raw_parts_mut(start.as_ptr(), values.len())
    }
}

/// Calls `make` with each index below `len`, writes the results to `start`, and returns them as a
/// slice.
///
/// # Safety
/// `start` is memory for `len` values of type `T`, to which nothing else refers for `'a`.
#[inline]
pub(crate) unsafe fn fill<'a, T>(
    start: NonNull<T>,
    len: usize,
    mut make: impl FnMut(usize) -> T,
) -> &'a mut [T] {
    for index in 0..len {
        // SAFETY: `index < len`.
        unsafe { start.add(index).write(make(index)) };
    }
    // SAFETY: all `len` are initialized.
    unsafe { slice::from_raw_parts_mut(start.as_ptr(), len) }
}
