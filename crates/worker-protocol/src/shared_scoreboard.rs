//! The memory that a scoreboard lies in.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use rookery_system::shared_memory;

use crate::scoreboard::Scoreboard;

/// A [`Scoreboard`] in memory that a supervisor and a worker share. It outlives the worker, in the supervisor.
#[derive(Debug)]
pub struct SharedScoreboard(NonNull<Scoreboard>);

// SAFETY: a scoreboard is atomics, and the mapping belongs to nobody's thread.
unsafe impl Send for SharedScoreboard {}
// SAFETY: as above.
unsafe impl Sync for SharedScoreboard {}

impl SharedScoreboard {
    /// Makes one for a worker that is to be started, and the descriptor by which that finds it. Its size is sealed.
    ///
    /// # Errors
    /// The system's; [`Unsupported`](io::ErrorKind::Unsupported) where memory cannot be sealed.
    pub fn create() -> io::Result<(SharedScoreboard, OwnedFd)> {
        let memory = shared_memory::sealed_memory(size_of::<Scoreboard>())?;
        let scoreboard = SharedScoreboard(shared_memory::map(memory.as_fd())?);
        scoreboard.write_signature();
        Ok((scoreboard, memory))
    }

    /// The one that a worker was given.
    ///
    /// # Errors
    /// What is wrong with the descriptor: [`InvalidData`](io::ErrorKind::InvalidData) for one of something else, for memory that is
    /// not sealed, and for a scoreboard of another layout.
    pub fn attach(memory: &OwnedFd) -> io::Result<SharedScoreboard> {
        // Before it is mapped: memory that can be cut short would be a SIGBUS.
        shared_memory::check_sealed(memory.as_fd(), size_of::<Scoreboard>())?;
        let scoreboard = SharedScoreboard(shared_memory::map(memory.as_fd())?);
        if !scoreboard.has_valid_signature() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not of this version"));
        }
        Ok(scoreboard)
    }
}

impl Deref for SharedScoreboard {
    type Target = Scoreboard;

    fn deref(&self) -> &Scoreboard {
        // SAFETY: mapped for as long as this lives, of this size, and aligned to a page; all bytes are atomics, of which every value is
        // valid, and what another process writes it writes as such.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for SharedScoreboard {
    fn drop(&mut self) {
        // SAFETY: mapped by `shared_memory::map`, and nobody refers to it any more.
        unsafe { shared_memory::unmap(self.0) };
    }
}
