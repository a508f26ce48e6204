//! A queue of bytes in an arena, which is written at the end and read from the front.

use core::fmt;

use super::vec::Vec;
use crate::arena::Arena;
use crate::error::AllocError;

/// A queue of bytes in an [`Arena`], which grows as [`Vec`] does.
///
/// With the `std` feature it implements [`io::Write`](std::io::Write), [`io::Read`](std::io::Read)
/// and [`io::BufRead`](std::io::BufRead).
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
/// Writing and reading each copy the bytes once. To make space, the buffer grows as a [`Vec`] does.
/// If at most half of the buffer is unread, it moves the unread bytes to the front instead, which
/// costs at most one more copy of each byte. All other methods take constant time.
///
/// # Errors
/// The methods of `Write` return an error of kind `OutOfMemory` if the memory is not available.
pub struct Buffer<'a> {
    bytes: Vec<'a, u8>,
    /// The number of bytes at the front of `bytes` that were already read. They stay in `bytes`
    /// until all bytes are read, or the unread bytes move to the front.
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

    /// Appends `bytes` to the buffer.
    ///
    /// # Errors
    /// If the memory is not available. In this case the buffer is unchanged.
    #[inline]
    pub fn try_push(&mut self, bytes: &[u8]) -> Result<(), AllocError> {
        if self.read > 0 && bytes.len() > self.bytes.capacity() - self.bytes.len() {
            self.move_to_front();
        }
        self.bytes.try_extend_from_slice(bytes)
    }

    /// Returns the bytes of the buffer that have not been read.
    #[inline]
    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.read..]
    }

    /// Marks the first `count` unread bytes as read, or all unread bytes if there are fewer.
    #[inline]
    pub fn skip(&mut self, count: usize) {
        self.read += count.min(self.unread().len());
        if self.read == self.bytes.len() {
            self.clear();
        }
    }

    /// Removes all bytes from the buffer, and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.read = 0;
    }

    /// Moves the unread bytes to the front of the buffer if at least half of its bytes were read.
    /// The number of moved bytes is therefore never larger than the number of bytes that were read.
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
            .field("capacity", &self.bytes.capacity())
            .finish()
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
