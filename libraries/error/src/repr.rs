//! The machine word that an [`Error`](crate::Error) consists of, and almost all `unsafe` code of
//! the crate.
//!
//! The low two bits of the word are a tag that says what the word points to:
//!
//! | tag | the word points to | owned |
//! |---|---|---|
//! | 0 | [`Heap<T>`], shared by a reference count | yes |
//! | 1 | a `&'static` [`StaticError<E>`] | no |
//! | 2 | a `&'static &'static str` | no |
//!
//! Cloning or dropping a static error accesses no memory. `Option<Error>` is also one word.
//!
//! # Ground rules
//! - With tag 0, the word owns one reference, counted in `refs`, to a live `Heap<T>`. Only the last
//!   owner has mutable access.
//! - With tags 0 and 1, the object begins with a [`Header`]. The header's table of functions
//!   belongs to exactly the type of the object.
//! - The word is a pointer with the provenance of the whole object. To keep this provenance, the
//!   tag is changed only by `map_addr` or byte offsets.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::error::Error as StdError;
use std::fmt;
use std::mem::{self, ManuallyDrop};
use std::process;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use crate::content::{Concrete, Content, Object};
use crate::text::{InlineText, StaticText};

/// An error that is stored in a `static`. An [`Error`](crate::Error) made from it needs no
/// allocation, and can be cloned and dropped without access to memory.
///
/// ```
/// use rookery_error::{Error, StaticError};
///
/// #[derive(Debug, PartialEq)]
/// enum Rejection {
///     HeadTooLarge,
/// }
/// # impl std::fmt::Display for Rejection {
/// #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
/// #         f.write_str("the head is too large")
/// #     }
/// # }
/// # impl std::error::Error for Rejection {}
///
/// static HEAD_TOO_LARGE: StaticError<Rejection> = StaticError::new(Rejection::HeadTooLarge);
///
/// let error = Error::from_static_error(&HEAD_TOO_LARGE);
/// assert_eq!(error.downcast_ref(), Some(&Rejection::HeadTooLarge));
/// ```
#[repr(C)]
pub struct StaticError<E> {
    header: Header,
    content: Concrete<E>,
}

impl<E: StdError + Send + Sync + 'static> StaticError<E> {
    const TABLE: Table = Table {
        content: static_content::<E>,
        drop: never_dropped,
        take: never_taken,
        share: never_shared,
    };

    /// Makes a `StaticError` that contains `error` and can be stored in a `static`.
    pub const fn new(error: E) -> StaticError<E> {
        StaticError { header: Header { table: &Self::TABLE }, content: Concrete(error) }
    }
}

impl<E> StaticError<E> {
    /// Returns the error that is stored in this `StaticError`.
    pub const fn error(&self) -> &E {
        &self.content.0
    }
}

impl<E: fmt::Debug> fmt::Debug for StaticError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StaticError").field(&self.content.0).finish()
    }
}

/// The machine word in an `Error`: a pointer to the error's content. It owns one reference if the
/// content is on the heap.
#[repr(transparent)]
pub(crate) struct Repr {
    word: NonNull<Header>,
}

// SAFETY: what the word points to is immutable while it is shared, except the reference count,
// which is atomic. Every `Content` is `Send + Sync`, and so are every `E` of a `StaticError`, and
// `str`.
unsafe impl Send for Repr {}
// SAFETY: as above.
unsafe impl Sync for Repr {}

impl Repr {
    /// Moves the content of an error to the heap, with one allocation.
    #[inline]
    pub(crate) fn new<T: Content>(content: T) -> Repr {
        let heap = Box::new(Heap {
            counted: Counted {
                header: Header { table: &Heap::<T>::TABLE },
                refs: AtomicUsize::new(1),
            },
            content,
        });
        // SAFETY: a box is never null.
        let word = unsafe { NonNull::new_unchecked(Box::into_raw(heap)) };
        Repr { word: word.cast() }
    }

    /// Copies the text of an error to the heap, with one allocation. The text follows its header in
    /// the same allocation.
    #[inline]
    pub(crate) fn text(text: &str) -> Repr {
        // SAFETY: a `str` is no longer than `isize::MAX`, so the sum does not wrap.
        let size = unsafe { TEXT_OFFSET.unchecked_add(text.len()) };
        let Ok(layout) = Layout::from_size_align(size, align_of::<Heap<InlineText>>()) else {
            too_long()
        };
        // SAFETY: the layout holds at least a header, so its size is not zero.
        let Some(start) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout)
        };
        // SAFETY: the offset lies within the layout, or at its end.
        let tail = unsafe { start.add(TEXT_OFFSET) };
        // SAFETY: the layout has `text.len()` bytes from there on, in memory that nothing else
        // refers to.
        unsafe { copy(text, tail) };
        let bytes = NonNull::slice_from_raw_parts(tail, text.len());
        let heap = Heap {
            counted: Counted { header: Header { table: &TEXT_TABLE }, refs: AtomicUsize::new(1) },
            // SAFETY: the bytes are those of a `str`, never written again, and freed only with this
            // content.
            content: unsafe { InlineText::new(NonNull::new_unchecked(bytes.as_ptr() as *mut str)) },
        };
        // SAFETY: the layout begins with that of a `Heap<InlineText>`, alignment included.
        unsafe { start.cast::<Heap<InlineText>>().write(heap) };
        Repr { word: start.cast() }
    }

    #[inline]
    pub(crate) const fn from_static<E>(error: &'static StaticError<E>) -> Repr {
        Repr::tagged(ptr::from_ref(error).cast(), STATIC_ERROR)
    }

    #[inline]
    pub(crate) const fn from_static_str(message: &'static &'static str) -> Repr {
        Repr::tagged(ptr::from_ref(message).cast(), STATIC_STR)
    }

    const fn tagged(pointer: *const Header, tag: usize) -> Repr {
        let word = pointer.wrapping_byte_add(tag).cast_mut();
        // SAFETY: the pointer came from a reference with an alignment above the tag, so the sum is
        // not zero.
        Repr { word: unsafe { NonNull::new_unchecked(word) } }
    }

    /// Returns the content of the error, such as an error of another crate.
    pub(crate) fn content(&self) -> &dyn Content {
        match self.tag() {
            STATIC_STR => {
                let message = self.pointer::<StaticText>();
                // SAFETY: this tag is only used for a `&'static &'static str`, and `StaticText` is
                // a transparent wrapper of `&'static str`.
                unsafe { &*message }
            }
            _ => {
                let header = self.header();
                // SAFETY: the header belongs to an object that lives as long as `self`, and the
                // table is that of the object.
                let content = unsafe { (header.as_ref().table.content)(header) };
                // SAFETY: the pointer refers to that object, to which there is no mutable
                // reference.
                unsafe { content.as_ref() }
            }
        }
    }

    /// Returns the content of the error in a box, if it is on the heap and the error has no clones.
    /// Otherwise returns the error unchanged.
    pub(crate) fn into_boxed(self) -> Result<Box<Object>, Repr> {
        if !self.is_unique() {
            return Err(self);
        }
        let header = self.header();
        mem::forget(self);
        // SAFETY: this was the only handle, no other can be made, and its `drop` is not run.
        Ok(unsafe { (header.as_ref().table.take)(header) })
    }

    /// Returns the content of the error in an `Arc`, if it is on the heap and the error has no
    /// clones. Otherwise returns the error unchanged.
    pub(crate) fn into_arc(self) -> Result<Arc<Object>, Repr> {
        if !self.is_unique() {
            return Err(self);
        }
        let header = self.header();
        mem::forget(self);
        // SAFETY: this was the only handle, no other can be made, and its `drop` is not run.
        Ok(unsafe { (header.as_ref().table.share)(header) })
    }

    /// Returns true if the content of the error is on the heap and the error has no clones.
    pub(crate) fn is_unique(&self) -> bool {
        // `Acquire` pairs with the `Release` of the drops that made this handle the last one.
        self.refs().is_some_and(|refs| refs.load(Ordering::Acquire) == 1)
    }

    fn tag(&self) -> usize {
        self.word.addr().get() & TAG_BITS
    }

    fn pointer<T>(&self) -> *const T {
        self.word.as_ptr().map_addr(|address| address & !TAG_BITS).cast()
    }

    /// Returns the header of the object that contains the error. The error must not be a static
    /// `str`, which has no header.
    fn header(&self) -> NonNull<Header> {
        debug_assert_ne!(self.tag(), STATIC_STR);
        // SAFETY: the word without its tag is the address of an object.
        unsafe { NonNull::new_unchecked(self.pointer::<Header>().cast_mut()) }
    }

    #[inline]
    fn refs(&self) -> Option<&AtomicUsize> {
        if self.tag() != HEAP {
            return None;
        }
        // SAFETY: under this tag the word points to a live `Heap<T>`, which starts with a
        // `Counted`.
        Some(unsafe { &(*self.word.cast::<Counted>().as_ptr()).refs })
    }
}

/// Subtracts one from the reference count `refs`. Returns true if this was the last reference.
#[inline]
fn release(refs: &AtomicUsize) -> bool {
    // If the count is one, no other handle exists, and none can be made. The locked instruction (2
    // ns of the 12 ns for making and dropping an error) is therefore needed only for a shared
    // error, which is rare. `Release` orders the accesses of this thread before the end of the
    // error on another thread. `Acquire` on the load and in the fence is the counterpart.
    let is_last = refs.load(Ordering::Acquire) == 1 || refs.fetch_sub(1, Ordering::Release) == 1;
    if is_last {
        fence(Ordering::Acquire);
    }
    is_last
}

impl Clone for Repr {
    #[inline]
    fn clone(&self) -> Repr {
        if let Some(refs) = self.refs() {
            // `Relaxed` is enough: the caller owns a reference, so the count cannot reach zero
            // meanwhile.
            if refs.fetch_add(1, Ordering::Relaxed) > MAX_REFS {
                process::abort();
            }
        }
        Repr { word: self.word }
    }
}

impl Drop for Repr {
    #[inline]
    fn drop(&mut self) {
        if let Some(refs) = self.refs() {
            if release(refs) {
                // SAFETY: this was the last handle of an object on the heap, and the table is that
                // of the object.
                unsafe { (self.word.as_ref().table.drop)(self.word) };
            }
        }
    }
}

/// The beginning of every object that an `Error`'s word points to, except a static `str`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Header {
    table: &'static Table,
}

/// A table of functions (a vtable) for an error object of which only the header is known.
struct Table {
    /// Returns the content of an error object. The header must be that of a live object of this
    /// table's type.
    content: unsafe fn(NonNull<Header>) -> NonNull<dyn Content>,
    /// Drops and frees an error object, which must not be used again. The header must be that of a
    /// live object of this table's type.
    drop: unsafe fn(NonNull<Header>),
    /// Moves the content of an error object into a box and frees the object. The header must be
    /// that of a live object of this table's type.
    take: unsafe fn(NonNull<Header>) -> Box<Object>,
    /// Moves the content of an error object into an `Arc` and frees the object. The header must be
    /// that of a live object of this table's type.
    share: unsafe fn(NonNull<Header>) -> Arc<Object>,
}

/// The beginning of every error object on the heap: its header and its reference count.
#[repr(C)]
struct Counted {
    header: Header,
    /// The number of references to the error object.
    refs: AtomicUsize,
}

#[repr(C)]
struct Heap<T> {
    counted: Counted,
    content: T,
}

impl<T: Content> Heap<T> {
    const TABLE: Table = Table {
        content: heap_content::<T>,
        drop: heap_drop::<T>,
        take: heap_take::<T>,
        share: heap_share::<T>,
    };
}

/// The function table of a [`Heap<InlineText>`]. It has its own functions for freeing the object,
/// because the text follows the object in the same allocation and has to be freed with it.
static TEXT_TABLE: Table = Table {
    content: heap_content::<InlineText>,
    drop: text_drop,
    take: text_take,
    share: text_share,
};

unsafe fn heap_content<T: Content>(header: NonNull<Header>) -> NonNull<dyn Content> {
    let heap = header.cast::<Heap<T>>().as_ptr();
    // SAFETY: the caller guarantees that the header is that of a live `Heap<T>`.
    let content: *mut dyn Content = unsafe { &raw mut (*heap).content };
    // SAFETY: a field of a live object is not null.
    unsafe { NonNull::new_unchecked(content) }
}

unsafe fn heap_drop<T: Content>(header: NonNull<Header>) {
    // SAFETY: the object came from a box of this type, and the caller does not use it again.
    let mut heap = unsafe { Box::from_raw(header.cast::<Heap<T>>().as_ptr()) };
    let wrapped = heap.content.take_wrapped();
    drop(heap);
    if let Some(error) = wrapped {
        drop_layers(error.into_repr());
    }
}

/// Releases a reference to an error. If it was the last reference, drops the error, and then
/// releases the reference to the error that it wraps (with a context or a backtrace), and so on.
/// Uses a loop, because recursion would overflow the stack after about 10,000 wrapped errors.
fn drop_layers(mut layer: Repr) {
    loop {
        let handle = ManuallyDrop::new(layer);
        if !handle.refs().is_some_and(release) {
            return;
        }
        let header = handle.word;
        // SAFETY: the table is that of the object, and this was its last handle.
        let wrapped = unsafe { (header.as_ref().table.content)(header).as_mut().take_wrapped() };
        // SAFETY: as above. If a destructor panics, `wrapped` is dropped all the same.
        unsafe { (header.as_ref().table.drop)(header) };
        let Some(error) = wrapped else { return };
        layer = error.into_repr();
    }
}

unsafe fn heap_take<T: Content>(header: NonNull<Header>) -> Box<Object> {
    // SAFETY: the object came from a box of this type, and the caller does not use it again.
    let heap = unsafe { Box::from_raw(header.cast::<Heap<T>>().as_ptr()) };
    heap.content.into_boxed()
}

unsafe fn heap_share<T: Content>(header: NonNull<Header>) -> Arc<Object> {
    // SAFETY: the object came from a box of this type, and the caller does not use it again.
    let heap = unsafe { Box::from_raw(header.cast::<Heap<T>>().as_ptr()) };
    heap.content.into_arc()
}

unsafe fn text_drop(header: NonNull<Header>) {
    let heap = header.cast::<Heap<InlineText>>();
    // SAFETY: the caller guarantees that this is a live `Heap<InlineText>`.
    let length = unsafe { heap.as_ref() }.content.as_str().len();
    // SAFETY: `Repr::text` checked this layout when it allocated with it.
    let layout = unsafe {
        Layout::from_size_align_unchecked(
            TEXT_OFFSET.unchecked_add(length),
            align_of::<Heap<InlineText>>(),
        )
    };
    // SAFETY: it was allocated with this layout, an `InlineText` needs no drop of its own, and the
    // caller does not use it again.
    unsafe { dealloc(header.as_ptr().cast(), layout) };
}

unsafe fn text_take(header: NonNull<Header>) -> Box<Object> {
    // SAFETY: the caller guarantees that this is a live `Heap<InlineText>`.
    let text = unsafe { header.cast::<Heap<InlineText>>().as_ref() }.content.as_str().to_owned();
    // SAFETY: the caller does not use the object again, and the text was copied.
    unsafe { text_drop(header) };
    text.into()
}

unsafe fn text_share(header: NonNull<Header>) -> Arc<Object> {
    // SAFETY: the caller guarantees the conditions of `text_take`.
    unsafe { text_take(header) }.into()
}

unsafe fn static_content<E: StdError + Send + Sync + 'static>(
    header: NonNull<Header>,
) -> NonNull<dyn Content> {
    let error = header.cast::<StaticError<E>>().as_ptr();
    // SAFETY: the caller guarantees that the header is that of a `&'static StaticError<E>`.
    let content: *const dyn Content = unsafe { &raw const (*error).content };
    // SAFETY: a field of a live object is not null.
    unsafe { NonNull::new_unchecked(content.cast_mut()) }
}

fn never_dropped(_: NonNull<Header>) {
    unreachable!("a static error has no reference count");
}

fn never_taken(_: NonNull<Header>) -> Box<Object> {
    unreachable!("a static error has no reference count");
}

fn never_shared(_: NonNull<Header>) -> Arc<Object> {
    unreachable!("a static error has no reference count");
}

/// Copies the text of an error message to `to`.
///
/// Most messages are a line of 16 to 64 bytes. For such a message, moves of 16 bytes (the last two
/// may overlap) are 2 ns faster than a call of `memcpy`.
///
/// # Safety
/// - `to` is valid for writes of `text.len()` bytes that do not overlap `text`.
#[inline]
unsafe fn copy(text: &str, to: NonNull<u8>) {
    let (from, length) = (text.as_ptr(), text.len());
    let block = |at: usize| {
        // SAFETY: `at + 16 <= length` in all calls below, and the caller guarantees that this
        // number of bytes is valid and does not overlap.
        unsafe { ptr::copy_nonoverlapping(from.add(at), to.as_ptr().add(at), 16) };
    };
    match length {
        16..=32 => {
            block(0);
            block(length - 16);
        }
        33..=64 => {
            block(0);
            block(16);
            block(length - 32);
            block(length - 16);
        }
        // SAFETY: the caller guarantees it.
        _ => unsafe { ptr::copy_nonoverlapping(from, to.as_ptr(), length) },
    }
}

#[cold]
#[inline(never)]
fn too_long() -> ! {
    panic!("a text that leaves no room for its header in the address space");
}

/// The offset in bytes of the text that follows a [`Heap<InlineText>`] in the same allocation.
const TEXT_OFFSET: usize = size_of::<Heap<InlineText>>();

const HEAP: usize = 0;
const STATIC_ERROR: usize = 1;
const STATIC_STR: usize = 2;
const TAG_BITS: usize = 3;

/// The maximum reference count of an error. If there are more references, the process aborts, as
/// with `Arc`, because the count must not wrap around. Only leaked clones can make the count so
/// large.
const MAX_REFS: usize = isize::MAX as usize;

const _: () = assert!(align_of::<Header>() > TAG_BITS && align_of::<&'static str>() > TAG_BITS);
