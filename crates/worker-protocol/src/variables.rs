//! The environment variables that make a process a worker. Variables whose names begin with
//! `ROOKERY_INTERNAL_` are private to the processes of one installation and may change in any
//! release.

/// The number of the worker's slot, from 0. Applications may read this variable.
pub const WORKER: &str = "ROOKERY_WORKER";

/// The number of workers. Applications may read this variable.
pub const WORKERS: &str = "ROOKERY_WORKER_COUNT";

/// The former name of [`WORKERS`], which is set for one more release.
pub(crate) const FORMER_WORKERS: &str = "ROOKERY_WORKERS";

/// The number of times the supervisor has reloaded the application. Applications may read this
/// variable.
pub const GENERATION: &str = "ROOKERY_GENERATION";

/// The identifier of the worker in URLs. Each start of a worker has a different identifier. Shiny
/// reads this variable.
pub const WORKER_ID: &str = "ROOKERY_INTERNAL_WORKER_ID";

/// The descriptor of the Unix socket that the worker listens on.
pub const LISTEN_FD: &str = "ROOKERY_INTERNAL_LISTEN_FD";

/// The descriptor of the [control channel](crate::ControlChannel).
pub const CONTROL_FD: &str = "ROOKERY_INTERNAL_CONTROL_FD";

/// The descriptor of the [scoreboard](crate::SharedScoreboard)'s memory.
pub const SCOREBOARD_FD: &str = "ROOKERY_INTERNAL_SCOREBOARD_FD";

/// The descriptors of the public listeners, set if the supervisor may command the worker to accept
/// on them. The descriptors of the address are separated by commas; after a slash follow those from
/// which plaintext HTTP is redirected to HTTPS.
pub const PUBLIC_FDS: &str = "ROOKERY_INTERNAL_PUBLIC_FDS";

/// The descriptor to which the worker writes the access log instead of its standard output. It
/// refers to the supervisor's log.
pub const LOG_FD: &str = "ROOKERY_INTERNAL_LOG_FD";

/// The cookie by which the supervisor's front end assigns clients to this worker, in the text form
/// that the server's `SessionCookie` reads.
pub const COOKIE: &str = "ROOKERY_INTERNAL_COOKIE";

/// The variables that name the three mandatory descriptors. They are removed from the environment
/// once they have been read, and the descriptors are not inherited by programs that the worker
/// starts.
pub const DESCRIPTORS: [&str; 3] = [LISTEN_FD, CONTROL_FD, SCOREBOARD_FD];

/// All variables of this module. A supervisor removes inherited values of these variables from the
/// environment of each worker before it sets those that apply.
pub const NAMES: [&str; 11] = [
    WORKER,
    WORKERS,
    FORMER_WORKERS,
    GENERATION,
    WORKER_ID,
    LISTEN_FD,
    CONTROL_FD,
    SCOREBOARD_FD,
    PUBLIC_FDS,
    LOG_FD,
    COOKIE,
];
