//! What those who look after a server are answered, on a listener of its own that no client of the app comes to: status for people and
//! programs, metrics, and probes. Nothing here asks R, so it is answered also while R is busy.
//! What there is to tell is a [`Subject`].

mod admin;
mod answers;
mod counts;
mod run_folder;
mod text;
mod usage;

pub use admin::{Admin, AdminAt, AdminError};
pub use answers::{About, Answers, HANGS, NotReady, Subject};
pub use counts::{BOUNDS, CLASSES, Classes, Count, Histogram};
pub use run_folder::{ADMIN_SOCKET, RunFolder, run_folders};
pub use text::{Metrics, counted, in_words, milliseconds, seconds};
pub use usage::{open_descriptors, own_memory, processor_time, thread_time};
