//! What those who look after a server are answered, on a listener of its own that no client of the app comes to: status for people and
//! programs, metrics, and probes. Nothing here asks R, so it is answered also while R is busy.
//! What there is to tell is a [`StatusSource`]: a supervisor with its workers, or [one R](Standalone) that serves by itself.

mod admin_handler;
mod admin_listener;
mod format;
mod process_usage;
mod r_process;
mod run_folder;
mod standalone;
mod utilization;

pub use admin_handler::{AdminHandler, HANG_TIMEOUT, NotReady, ServerInfo, StatusSource};
pub use admin_listener::{AdminAddress, AdminListener, AdminListenerError};
pub use format::{Metrics, format_count, format_duration, milliseconds, seconds};
pub use process_usage::{own_memory, own_memory_beyond, processor_time, thread_time};
pub use r_process::{RProcess, r_activity};
pub use rookery_worker_protocol::{
    Counter, HISTOGRAM_BOUNDS, Histogram, RequestCounters, STATUS_CLASSES, StatusClassCounters,
};
pub use run_folder::{ADMIN_SOCKET, RunFolder, run_folders};
pub use standalone::{Lifecycle, Standalone, StandaloneInputs};
pub use utilization::Utilization;
