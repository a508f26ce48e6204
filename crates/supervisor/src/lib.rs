//! A supervisor that runs several worker processes behind one server.
//!
//! Clients connect to an ordinary server ([`rookery_server`]), which implements TLS, HTTP/2 and
//! static files, for example. This crate contains the [pool](pool()), through which that server
//! forwards requests to the workers, and the supervisor, which starts, watches and replaces the
//! workers.

#![cfg(target_os = "linux")]

mod backend;
mod backend_registry;
mod pool;
mod pool_counters;
mod process;
mod report;
mod supervise;
mod worker_id;

pub use backend::{Availability, Backend};
pub use backend_registry::BackendRegistry;
#[doc(hidden)]
pub use pool::{ParsedResponse, parse_response_for_fuzzer};
pub use pool::{
    PoolLimits, SessionAffinity, pool, read_cookies_for_fuzzer, read_query_for_fuzzer, server_name,
};
pub use process::{Exit, memory_limit};
pub use report::{ReadinessPolicy, SupervisorStatus};
pub use supervise::{
    Frontend, MOST_WORKERS, MemoryLimit, Outcome, PublicListeners, RecyclePolicy, StartReport,
    SupervisorCommand, SupervisorConfig, SupervisorEvent, Timeouts, open_files, supervise,
};
pub use worker_id::WorkerId;
