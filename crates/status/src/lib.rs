//! What those who look after a server are answered, on a listener of its own that no client of the app comes to: status for people and
//! programs, metrics, and probes. Nothing here asks R, so it is answered also while R is busy.
//! What there is to tell is a [`Subject`]: a supervisor with its workers, or [one R](OneR) that serves by itself.

mod admin;
mod answers;
mod one_r;
mod r_process;
mod run_folder;
mod share;
mod text;
mod usage;

pub use admin::{Admin, AdminAt, AdminError};
pub use answers::{About, Answers, HANGS, NotReady, Subject};
pub use one_r::{Course, OneR, Seen};
pub use r_process::{RProcess, what_r_does};
pub use rookery_worker::{BOUNDS, CLASSES, Classes, Count, Histogram, Tally};
pub use run_folder::{ADMIN_SOCKET, RunFolder, run_folders};
pub use share::Share;
pub use text::{Metrics, counted, in_words, milliseconds, seconds};
pub use usage::{own_memory, own_memory_beyond, processor_time, thread_time};
