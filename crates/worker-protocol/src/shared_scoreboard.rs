//! The memory that contains the scoreboard of an R process.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
#[cfg(target_os = "linux")]
use std::io;
use std::ops::Deref;
#[cfg(target_os = "linux")]
use std::os::fd::{AsFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

#[cfg(target_os = "linux")]
use rookery_system::linux::shared_memory;

use crate::routes::RouteTable;
use crate::scoreboard::Scoreboard;
use crate::shiny_sessions::ShinySessions;

/// A [`Scoreboard`] in memory that a supervisor and a worker share, or in the memory of a server
/// without a supervisor. A supervisor can still read the scoreboard after the worker has exited.
#[derive(Debug)]
pub struct SharedScoreboard {
    scoreboard: NonNull<Scoreboard>,
    /// The sessions of Shiny in a server without a supervisor. They are not in the shared memory.
    sessions: Arc<ShinySessions>,
    /// Whether the memory is mapped, and not allocated in this process.
    #[cfg(target_os = "linux")]
    is_mapped: bool,
}

// SAFETY: a scoreboard consists of atomics, and its memory is not tied to a thread.
unsafe impl Send for SharedScoreboard {}
// SAFETY: the reason is the same as for `Send`.
unsafe impl Sync for SharedScoreboard {}

impl SharedScoreboard {
    /// Creates the scoreboard of a process that is not a worker. No other process can read it.
    pub fn private() -> SharedScoreboard {
        const LAYOUT: Layout = Layout::new::<Scoreboard>();
        // SAFETY: a scoreboard is not empty.
        let start = unsafe { alloc_zeroed(LAYOUT) };
        let scoreboard = NonNull::new(start.cast()).unwrap_or_else(|| handle_alloc_error(LAYOUT));
        let scoreboard = SharedScoreboard {
            scoreboard,
            sessions: Arc::default(),
            #[cfg(target_os = "linux")]
            is_mapped: false,
        };
        scoreboard.write_signature();
        scoreboard
    }

    /// Returns the sessions of Shiny in this process, if it serves without a supervisor. The front
    /// end of a supervisor has its own.
    pub fn sessions(&self) -> &Arc<ShinySessions> {
        &self.sessions
    }

    /// Maps the memory of a scoreboard into this process.
    #[cfg(target_os = "linux")]
    fn map(memory: &OwnedFd) -> io::Result<SharedScoreboard> {
        let scoreboard = shared_memory::map(memory.as_fd())?;
        Ok(SharedScoreboard { scoreboard, sessions: Arc::default(), is_mapped: true })
    }

    /// Creates the scoreboard of a worker that will be started. Returns the scoreboard and the
    /// descriptor of its memory, which the worker inherits. No process can change the size of the
    /// memory.
    ///
    /// # Errors
    /// Returns the system's error if the memory cannot be created or mapped.
    #[cfg(target_os = "linux")]
    pub fn create() -> io::Result<(SharedScoreboard, OwnedFd)> {
        let memory = shared_memory::create(size_of::<Scoreboard>())?;
        let scoreboard = SharedScoreboard::map(&memory)?;
        scoreboard.write_signature();
        Ok((scoreboard, memory))
    }

    /// Maps the scoreboard whose descriptor a worker has inherited.
    ///
    /// # Errors
    /// Returns [`InvalidData`](io::ErrorKind::InvalidData) if the descriptor refers to something
    /// else, if the size of the memory can change, or if the scoreboard has another layout, and the
    /// system's error if the memory cannot be mapped.
    #[cfg(target_os = "linux")]
    pub fn attach(memory: &OwnedFd) -> io::Result<SharedScoreboard> {
        // Checked before mapping, because truncating unsealed memory would cause a SIGBUS later.
        shared_memory::check_size(memory.as_fd(), size_of::<Scoreboard>())?;
        let scoreboard = SharedScoreboard::map(memory)?;
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
        // SAFETY: the memory exists for as long as `self` does, and has this size and alignment. It
        // consists of atomics, for which every value is valid and which the other process also
        // accesses as atomics.
        unsafe { self.scoreboard.as_ref() }
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
        #[cfg(target_os = "linux")]
        if self.is_mapped {
            // SAFETY: `shared_memory::map` has mapped the memory, and nothing refers to it any
            // more.
            return unsafe { shared_memory::unmap(self.scoreboard) };
        }
        // SAFETY: `private` has allocated the memory, and nothing refers to it any more.
        unsafe { dealloc(self.scoreboard.as_ptr().cast(), Layout::new::<Scoreboard>()) };
    }
}
