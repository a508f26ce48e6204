//! The admin listener, which serves status reports for people and programs, metrics, and probes.
//! The admin listener is separate from the listeners of the app, so clients of the app cannot reach
//! it. No response waits for R, so the admin listener responds even while R is busy.
//!
//! The reports come from a [`StatusSource`], which is a supervisor with its workers or [a single R
//! process](Standalone). Both fill the same [`Report`].

mod access_token;
mod admin_handler;
mod admin_listener;
mod exit_reason;
mod format;
mod live;
mod pool_counters;
mod process_usage;
mod profile;
mod r_process;
mod recent_errors;
mod report;
mod run_folder;
mod standalone;
mod utilization;

pub use access_token::{Access, AccessToken, is_host_expected};
pub use admin_handler::{Action, AdminHandler, HANG_TIMEOUT, NotReady, StatusSource};
pub use admin_listener::{AdminAddress, AdminListener, AdminListenerError};
pub use exit_reason::ExitReason;
pub use format::{format_count, format_duration, html_text, milliseconds};
pub use pool_counters::{PoolCounters, QueueGauge, QueueReading};
#[cfg(target_os = "linux")]
pub use process_usage::own_memory_beyond;
pub use process_usage::{Pid, own_memory, own_pid, processor_time, thread_time};
pub use profile::{
    Added, DEFAULT_PROFILE_SECONDS, JoinedProfile, MAX_PROFILE_SECONDS, ProfiledProcess,
    profile_file,
};
pub use r_process::{READY, RProcess, RStack, last_r_task, r_stack, r_task};
pub use recent_errors::RecentErrors;
pub use report::{
    LastExit, Lifecycle, MAX_SHOWN_SESSIONS, Reload, Report, ServerInfo, ServerState, WorkerReport,
};
pub use rookery_server::tls::ServedCertificate;
pub use rookery_worker_protocol::{
    Counter, HISTOGRAM_BOUNDS, Histogram, RequestCounters, RouteTable, STATUS_CLASSES,
    ShinySessions, StatusClassCounters, visible_text,
};
pub use run_folder::{ADMIN_SOCKET, RunFolder, admin_socket, remove_orphaned, run_folders};
pub use standalone::Standalone;
pub use utilization::Utilization;
