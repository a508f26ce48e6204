//! A supervisor that runs several worker processes behind one server.
//!
//! Clients connect to an ordinary server ([`rookery_server`]), which implements TLS, HTTP/2 and
//! static files, for example. This crate contains the [pool](pool()), through which that server
//! forwards requests to the workers, and the supervisor, which starts, watches and replaces the
//! workers.
//!
//! Workers exist only on Linux. On other systems, this crate contains only the [restart
//! back-off](RestartBackoff).

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test may panic"))]

#[cfg(target_os = "linux")]
mod backend;
#[cfg(target_os = "linux")]
mod backend_registry;
#[cfg(target_os = "linux")]
mod pool;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod report;
mod restart_backoff;
#[cfg(target_os = "linux")]
mod supervise;
#[cfg(target_os = "linux")]
mod worker_id;

#[cfg(target_os = "linux")]
pub use backend::{Availability, Backend};
#[cfg(target_os = "linux")]
pub use backend_registry::BackendRegistry;
#[cfg(target_os = "linux")]
pub use pool::{
    PoolLimits, SessionAffinity, pool, read_cookies_for_fuzzer, read_query_for_fuzzer, server_name,
};
#[cfg(target_os = "linux")]
pub use process::{Exit, memory_limit};
#[cfg(target_os = "linux")]
pub use report::SupervisorStatus;
pub use restart_backoff::{Pause, RestartBackoff};
#[cfg(target_os = "linux")]
pub use supervise::{
    Frontend, MOST_WORKERS, MemoryLimit, Outcome, RecyclePolicy, StartReport, SupervisorCommand,
    SupervisorConfig, SupervisorEvent, Timeouts, open_files, supervise,
};
#[cfg(target_os = "linux")]
pub use worker_id::WorkerId;
