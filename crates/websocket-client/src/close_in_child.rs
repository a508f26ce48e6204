//! The sockets of this process's clients, which a forked child has copies of and must not keep open.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// The maximum number of clients of a process, closing clients included. Each client has a descriptor
/// and buffers, and an application that opens clients in a loop should get an error.
pub const MAX_CLIENTS: usize = 1000;

/// A slot for each client. No lock: a child may take none.
static SOCKETS: [AtomicI32; MAX_CLIENTS] = [const { AtomicI32::new(NONE) }; MAX_CLIENTS];

const NONE: RawFd = -1;

/// Marks a socket as a client's for as long as it lives. To be dropped before the socket is closed.
#[derive(Debug)]
pub(crate) struct CloseInChild(Option<usize>);

impl CloseInChild {
    pub(crate) fn new(socket: &impl AsFd) -> CloseInChild {
        let fd = socket.as_fd().as_raw_fd();
        let is_taken = |slot: &AtomicI32| {
            slot.compare_exchange(NONE, fd, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        CloseInChild(SOCKETS.iter().position(is_taken))
    }
}

impl Drop for CloseInChild {
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            SOCKETS[slot].store(NONE, Ordering::Relaxed);
        }
    }
}

/// In a forked child: closes the sockets of the parent's clients. The child then forgets (`std::mem::forget`) its copy of
/// [`Clients`](crate::Clients) and may make a new one. Takes no lock and allocates nothing.
pub fn close_inherited() {
    for slot in &SOCKETS {
        let fd = slot.swap(NONE, Ordering::Relaxed);
        if fd != NONE {
            // SAFETY: in the child nobody uses this descriptor any more: the thread that did was not forked.
            unsafe { libc::close(fd) };
        }
    }
}
