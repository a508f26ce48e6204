//! Several worker processes behind one server: starting them, and giving them what there is to do.
//!
//! The server ([`rookery_server`]) owns the listeners, TLS, HTTP/2, limits, bodies, files and the log, as with one process. Here are
//! [the application](pool()) that it asks, and the supervisor of the processes behind that.

#![cfg(target_os = "linux")]

mod counts;
mod pool;
mod process;
mod roster;
mod status;
mod supervise;
mod worker_id;

pub use pool::{PoolLimits, Sticky, pool, read_for_fuzzer, server_name, told_for_fuzzer};
#[doc(hidden)]
pub use pool::{ReadReply, read_reply_for_fuzzer};
pub use process::{Exit, memory_limit};
pub use roster::{Member, Roster, Standing};
pub use status::{Readiness, Status};
pub use supervise::{
    Front, MOST_WORKERS, MemoryLimit, News, Outcome, Plan, Public, Recycle, Request, Times,
    open_files, supervise,
};
pub use worker_id::WorkerId;
