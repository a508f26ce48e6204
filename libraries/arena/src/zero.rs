//! The trait of types for which memory filled with zeros is a valid value.

/// A type for which memory filled with zeros is a valid value.
///
/// # Safety
/// Memory of the type's size in which every byte is zero must be a valid value of the type.
///
/// ```
/// use rookery_arena::{Arena, Zeroable};
///
/// #[derive(Clone, Copy)]
/// #[repr(C)]
/// struct Counter { hits: u64, misses: u64 }
///
/// // SAFETY: two integers.
/// unsafe impl Zeroable for Counter {}
///
/// let arena = Arena::new();
/// let counters = arena.alloc_slice_zeroed::<Counter>(3);
/// assert_eq!(counters[2].hits + counters[2].misses, 0);
/// ```
pub unsafe trait Zeroable: Copy {}

macro_rules! zeroable {
    ($($type:ty),*) => {
        // SAFETY: zero is a valid value of each of these types.
        $(unsafe impl Zeroable for $type {})*
    };
}

zeroable!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64, bool, char, ());

// SAFETY: each element is valid as zero bytes.
unsafe impl<T: Zeroable, const N: usize> Zeroable for [T; N] {}
