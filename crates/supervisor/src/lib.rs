//! A supervisor that runs several worker processes behind one server.
//!
//! Clients connect to an ordinary server ([`rookery_server`]), which implements TLS, HTTP/2 and
//! static files, for example. This crate contains the [pool](pool()), through which that server
//! forwards requests to the workers, and the supervisor, which starts, watches and replaces the
//! workers.
//!
//! Workers exist only on Linux. On other systems, this crate is empty.

#![cfg(target_os = "linux")]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test may panic"))]

mod backend;
mod backend_registry;
mod pool;
mod process;
mod state;
mod status;
mod supervise;
mod worker_id;

pub use backend::{Availability, Backend};
pub use backend_registry::BackendRegistry;
pub use pool::{
    PoolLimits, SessionAffinity, pool, read_cookies_for_fuzzer, read_query_for_fuzzer, server_name,
};
pub use process::{Exit, memory_limit};
pub use status::SupervisorStatus;
pub use supervise::{
    Frontend, MOST_WORKERS, MemoryLimit, Outcome, RecyclePolicy, StartReport, SupervisorCommand,
    SupervisorConfig, SupervisorEvent, Timeouts, open_files, supervise,
};
pub use worker_id::WorkerId;
