//! A supervisor that runs several worker processes behind one server.
//!
//! Clients connect to an ordinary server ([`rookery_server`]), which implements TLS, HTTP/2 and
//! static files, for example. This crate contains the [pool](pool()), through which that server
//! forwards requests to the workers, and the supervisor, which starts, watches and replaces the
//! workers.
//!
//! Windows has neither the Unix sockets nor the inherited descriptors by which a supervisor and its
//! workers communicate. There, this crate contains only the [restart back-off](RestartBackoff).

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test may panic"))]

#[cfg(unix)]
mod backend;
#[cfg(unix)]
mod backend_registry;
#[cfg(unix)]
mod pool;
#[cfg(unix)]
mod pool_counters;
#[cfg(unix)]
mod process;
#[cfg(unix)]
mod report;
mod restart_backoff;
#[cfg(unix)]
mod supervise;
#[cfg(unix)]
mod worker_id;

#[cfg(unix)]
pub use backend::{Availability, Backend};
#[cfg(unix)]
pub use backend_registry::BackendRegistry;
#[cfg(unix)]
pub use pool::{
    PoolLimits, SessionAffinity, pool, read_cookies_for_fuzzer, read_query_for_fuzzer, server_name,
};
#[cfg(unix)]
pub use process::{Exit, memory_limit};
#[cfg(unix)]
pub use report::SupervisorStatus;
pub use restart_backoff::{Pause, RestartBackoff};
#[cfg(unix)]
pub use supervise::{
    Frontend, MOST_WORKERS, MemoryLimit, Outcome, PublicListeners, RecyclePolicy, StartReport,
    SupervisorCommand, SupervisorConfig, SupervisorEvent, Timeouts, open_files, supervise,
};
#[cfg(unix)]
pub use worker_id::WorkerId;
