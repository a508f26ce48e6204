//! What a supervisor and its workers share, which exist only on Linux.
//!
//! - [`packets`]: sockets that preserve message boundaries
//! - [`descriptor_channel`]: sockets that pass descriptors to another process
//! - [`shared_memory`]: memory of a fixed size that processes share
//! - [`shared_wait`]: waiting for another process (futex)
//! - [`timer`]: timers that wake whoever waits for a descriptor
//! - [`wake_socket`]: sockets that wake another process

pub mod descriptor_channel;
pub mod packets;
pub mod shared_memory;
pub mod shared_wait;
pub mod timer;
pub mod wake_socket;
