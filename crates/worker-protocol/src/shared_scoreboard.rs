//! The shared memory that contains the scoreboard of a worker.

use std::io;
use std::ops::Deref;
use std::ptr::NonNull;

use rookery_system::shared_memory::{self, OwnedMemory};

use crate::routes::RouteTable;
use crate::scoreboard::Scoreboard;

/// A [`Scoreboard`] in memory that a supervisor and a worker share. The supervisor can still read
/// the scoreboard after the worker has exited.
#[derive(Debug)]
pub struct SharedScoreboard(NonNull<Scoreboard>);

// SAFETY: a scoreboard consists of atomics, and the mapping is not tied to a thread.
unsafe impl Send for SharedScoreboard {}
// SAFETY: the reason is the same as for `Send`.
unsafe impl Sync for SharedScoreboard {}

impl SharedScoreboard {
    /// Creates the scoreboard of a worker that will be started. Returns the scoreboard and the
    /// handle of its memory, which the worker inherits. No process can change the size of the
    /// memory.
    ///
    /// # Errors
    /// Returns the system's error if the memory cannot be created or mapped.
    pub fn create() -> io::Result<(SharedScoreboard, OwnedMemory)> {
        let memory = shared_memory::create(size_of::<Scoreboard>())?;
        let scoreboard = SharedScoreboard(shared_memory::map(shared_memory::borrow(&memory))?);
        scoreboard.write_signature();
        Ok((scoreboard, memory))
    }

    /// Maps the scoreboard whose handle a worker has inherited.
    ///
    /// # Errors
    /// Returns [`InvalidData`](io::ErrorKind::InvalidData) if the handle refers to something else,
    /// if the size of the memory can change, or if the scoreboard has another layout, and the
    /// system's error if the memory cannot be mapped.
    pub fn attach(memory: &OwnedMemory) -> io::Result<SharedScoreboard> {
        let memory = shared_memory::borrow(memory);
        // Checked before mapping, because truncating unsealed memory would cause a SIGBUS later.
        shared_memory::check_size(memory, size_of::<Scoreboard>())?;
        let scoreboard = SharedScoreboard(shared_memory::map(memory)?);
        if !scoreboard.has_valid_signature() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the scoreboard is from another version of rookery",
            ));
        }
        Ok(scoreboard)
    }
}

impl Deref for SharedScoreboard {
    type Target = Scoreboard;

    fn deref(&self) -> &Scoreboard {
        // SAFETY: the memory stays mapped for as long as `self` exists, has this size, and is
        // aligned to a page. It consists of atomics, for which every value is valid and which the
        // other process also accesses as atomics.
        unsafe { self.0.as_ref() }
    }
}

impl AsRef<Scoreboard> for SharedScoreboard {
    fn as_ref(&self) -> &Scoreboard {
        self
    }
}

impl AsRef<RouteTable> for SharedScoreboard {
    fn as_ref(&self) -> &RouteTable {
        self.routes()
    }
}

impl Drop for SharedScoreboard {
    fn drop(&mut self) {
        // SAFETY: `shared_memory::map` has mapped the memory, and nothing refers to it any more.
        unsafe { shared_memory::unmap(self.0) };
    }
}
