//! One worker process: how it is started, what is known of it, and how it ends.

mod cgroup;
mod exit;
mod folder;
mod output;
mod spawn;
mod usage;

pub(crate) use cgroup::Groups;
pub use cgroup::memory_limit;
#[cfg(test)]
pub(crate) use cgroup::stand_in;
pub use exit::Exit;
pub(crate) use exit::wait;
pub(crate) use folder::RunFolder;
pub use folder::{ADMIN_SOCKET, run_folders};
pub(crate) use output::{Output, Sink, pass_on};
pub(crate) use spawn::{Start, spawn};
pub(crate) use usage::{open_descriptors, own_memory, processor_time};
