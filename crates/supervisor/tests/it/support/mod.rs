//! Helpers of several tests: workers, the server in front of them, a running supervisor, and a
//! client of the admin listener.

pub(crate) mod admin;
pub(crate) mod fake_worker;
pub(crate) mod frontend;
pub(crate) mod running_supervisor;
pub(crate) mod worker_program;
