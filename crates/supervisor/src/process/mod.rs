//! One worker process: how it is started, what is known of it, and how it ends.

mod exit;
mod folder;
mod output;
mod spawn;

pub use exit::Exit;
pub(crate) use exit::wait;
pub(crate) use folder::RunFolder;
pub(crate) use output::{Output, Sink, pass_on};
pub(crate) use spawn::{Start, spawn};
