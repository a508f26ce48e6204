//! One worker process: how it is started, what is known of it, and how it ends.

mod exit;
mod folder;
mod output;
mod spawn;
mod usage;

pub use exit::Exit;
pub(crate) use exit::wait;
pub(crate) use folder::RunFolder;
pub use folder::{ADMIN_SOCKET, run_folders};
pub(crate) use output::{Output, Sink, pass_on};
pub(crate) use spawn::{Start, spawn};
pub(crate) use usage::{kills_for_memory, open_descriptors, own_memory, processor_time};
