//! A value in an arena that is dropped with its owner.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr;

use crate::arena::Arena;

/// A value in an [`Arena`] that has an owner, which drops it. A value that
/// [`alloc`](Arena::alloc) has moved into the arena is never dropped.
///
/// ```
/// use rookery_arena::{Arena, collections::Box};
///
/// let arena = Arena::new();
/// let name = Box::new_in(std::string::String::from("rook"), &arena);
/// assert_eq!(*name, "rook");
/// drop(name); // frees the text of the string; the string's own bytes stay in the arena
/// ```
///
/// A box of a slice or of a trait object is made from a reference:
///
/// ```
/// use rookery_arena::{Arena, collections::Box};
///
/// let arena = Arena::new();
/// let value: &mut i32 = Box::leak(Box::new_in(7, &arena));
/// // SAFETY: the value came from a box, which no longer owns it.
/// let value: Box<dyn std::fmt::Display> = unsafe { Box::from_mut(value) };
/// assert_eq!(value.to_string(), "7");
/// ```
///
/// # Cost
/// A box has one pointer, or two if its type is unsized. Dropping it runs the destructor of the
/// value and frees no memory.
pub struct Box<'a, T: ?Sized>(&'a mut T);

impl<'a, T> Box<'a, T> {
    /// Moves `value` into the arena, and owns it there.
    ///
    /// # Panics
    /// If the memory is not available.
    #[inline]
    #[track_caller]
    pub fn new_in(value: T, arena: &'a Arena) -> Box<'a, T> {
        Box(arena.alloc(value))
    }
}

impl<'a, T: ?Sized> Box<'a, T> {
    /// Returns a reference to the value of a box. The value stays in the arena until the arena is
    /// reset, and is never dropped.
    #[inline]
    pub fn leak(boxed: Box<'a, T>) -> &'a mut T {
        let value = ManuallyDrop::new(boxed);
        // SAFETY: a copy of the reference of a box that is not used again.
        unsafe { ptr::read(&raw const value.0) }
    }

    /// Makes a box that owns the value of a reference.
    ///
    /// # Safety
    /// Nothing else drops the value, and nothing uses it after the box is dropped.
    #[inline]
    pub unsafe fn from_mut(value: &'a mut T) -> Box<'a, T> {
        Box(value)
    }
}

impl<T: ?Sized> Drop for Box<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the box owns the value, which is not used after the box.
        unsafe { ptr::drop_in_place(self.0) }
    }
}

impl<T: ?Sized> Deref for Box<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0
    }
}

impl<T: ?Sized> DerefMut for Box<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.0
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Box<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
