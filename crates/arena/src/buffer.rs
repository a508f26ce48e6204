//! A queue of bytes in an arena: written at the end, read from the front.

use core::fmt;

use crate::arena::Arena;
use crate::error::AllocError;
use crate::vec::Vec;

/// A queue of bytes in an [`Arena`], that grows as [`Vec`] does.
///
/// With the `std` feature it is an [`io::Write`](std::io::Write), an [`io::Read`](std::io::Read) and an
/// [`io::BufRead`](std::io::BufRead).
///
/// ```
/// # #[cfg(feature = "std")] {
/// use std::io::{BufRead, Write};
///
/// use rookery_arena::{Arena, collections::Buffer};
///
/// let arena = Arena::new();
/// let mut buffer = Buffer::new_in(&arena);
/// buffer.write_all(b"first line\nsecond")?;
/// let mut line = String::new();
/// buffer.read_line(&mut line)?;
/// assert_eq!((&*line, buffer.unread()), ("first line\n", &b"second"[..]));
/// # }
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Cost
/// Writing and reading copy the bytes once. Room is found by growth, as in [`Vec`], or by moving what is unread to the
/// front when that is at most half: at most one more copy of each byte. All else is constant.
///
/// # Panics
/// Methods without `try_` in their name panic when the memory cannot be had. `Write` gives an error of kind
/// `OutOfMemory` then.
pub struct Buffer<'a> {
    bytes: Vec<'a, u8>,
    /// Bytes already read: `read <= bytes.len()`. They stay until all are read; the queue then starts over.
    read: usize,
}

impl<'a> Buffer<'a> {
    /// Makes an empty buffer.
    ///
    /// # Allocation
    /// None.
    pub const fn new_in(arena: &'a Arena) -> Buffer<'a> {
        Buffer { bytes: Vec::new_in(arena), read: 0 }
    }

    /// Makes an empty buffer with room for `capacity` bytes.
    ///
    /// # Panics
    /// When the memory cannot be had.
    #[track_caller]
    pub fn with_capacity_in(capacity: usize, arena: &'a Arena) -> Buffer<'a> {
        Buffer { bytes: Vec::with_capacity_in(capacity, arena), read: 0 }
    }

    /// Adds `bytes` at the end.
    ///
    /// # Panics
    /// When the memory cannot be had.
    #[inline]
    #[track_caller]
    pub fn push(&mut self, bytes: &[u8]) {
        if let Err(error) = self.try_push(bytes) {
            error.raise();
        }
    }

    /// As [`push`](Buffer::push).
    ///
    /// # Errors
    /// When the memory cannot be had; the buffer is then as before.
    #[inline]
    pub fn try_push(&mut self, bytes: &[u8]) -> Result<(), AllocError> {
        if self.read > 0 && bytes.len() > self.bytes.capacity() - self.bytes.len() {
            self.move_to_front();
        }
        self.bytes.try_extend_from_slice(bytes)
    }

    /// The bytes not read yet.
    #[inline]
    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.read..]
    }

    /// Counts the first `count` unread bytes as read, or all if there are fewer.
    #[inline]
    pub fn skip(&mut self, count: usize) {
        self.read += count.min(self.unread().len());
        if self.read == self.bytes.len() {
            self.clear();
        }
    }

    /// Forgets all bytes. The memory stays.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.read = 0;
    }

    /// Bytes there is room for, those already read included.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Leaves the unread bytes to the arena, for as long as it is not reset.
    pub fn into_slice(self) -> &'a mut [u8] {
        &mut self.bytes.into_slice()[self.read..]
    }

    /// Uses the room of what was read before asking for more, if that is at least half: each byte then moves at most
    /// once for each one that was read.
    fn move_to_front(&mut self) {
        let len = self.bytes.len();
        if self.read >= len - self.read {
            self.bytes.copy_within(self.read.., 0);
            self.bytes.truncate(len - self.read);
            self.read = 0;
        }
    }
}

impl fmt::Debug for Buffer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("unread", &self.unread().len())
            .field("capacity", &self.capacity())
            .finish()
    }
}

impl fmt::Write for Buffer<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.try_push(text.as_bytes()).map_err(|_| fmt::Error)
    }
}

#[cfg(feature = "std")]
mod io {
    use std::io::{BufRead, Error, ErrorKind, Read, Result, Write};

    use super::Buffer;

    impl Write for Buffer<'_> {
        #[inline]
        fn write(&mut self, bytes: &[u8]) -> Result<usize> {
            self.write_all(bytes)?;
            Ok(bytes.len())
        }

        #[inline]
        fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
            self.try_push(bytes).map_err(|error| Error::new(ErrorKind::OutOfMemory, error))
        }

        fn flush(&mut self) -> Result<()> {
            Ok(())
        }
    }

    impl Read for Buffer<'_> {
        #[inline]
        fn read(&mut self, into: &mut [u8]) -> Result<usize> {
            let count = self.unread().len().min(into.len());
            into[..count].copy_from_slice(&self.unread()[..count]);
            self.skip(count);
            Ok(count)
        }
    }

    impl BufRead for Buffer<'_> {
        #[inline]
        fn fill_buf(&mut self) -> Result<&[u8]> {
            Ok(self.unread())
        }

        #[inline]
        fn consume(&mut self, count: usize) {
            self.skip(count);
        }
    }
}
