//! The environment variables by which a worker knows that it is one. Those whose names begin with
//! `ROOKERY_INTERNAL_` are between processes of one installation, and may change in any release.

/// Which worker this is: the number of its slot, from 0. For the application to read.
pub const WORKER: &str = "ROOKERY_WORKER";

/// How many workers there are. For the application to read.
pub const WORKERS: &str = "ROOKERY_WORKER_COUNT";

/// The former name of [`WORKERS`], which is set for one release.
pub(crate) const FORMER_WORKERS: &str = "ROOKERY_WORKERS";

/// How often the supervisor has reloaded the application, from 0. For the application to read.
pub const GENERATION: &str = "ROOKERY_GENERATION";

/// What the worker's clients call it in URLs: no other start of a worker is called so. For Shiny to read.
pub const WORKER_ID: &str = "ROOKERY_INTERNAL_WORKER_ID";

/// The descriptor of the Unix socket that the worker listens on.
pub const LISTEN_FD: &str = "ROOKERY_INTERNAL_LISTEN_FD";

/// The descriptor of the [control channel](crate::ControlChannel).
pub const CONTROL_FD: &str = "ROOKERY_INTERNAL_CONTROL_FD";

/// The descriptor of the [scoreboard](crate::SharedScoreboard)'s memory.
pub const SCOREBOARD_FD: &str = "ROOKERY_INTERNAL_SCOREBOARD_FD";

/// The descriptors of the public listeners, where the worker may be told to accept on them: those
/// of the address with commas between them, and behind a slash those from which requests in the
/// clear are redirected to HTTPS.
pub const PUBLIC_FDS: &str = "ROOKERY_INTERNAL_PUBLIC_FDS";

/// The descriptor that the worker writes the access log to which would otherwise go to its standard output: the
/// supervisor's own.
pub const LOG_FD: &str = "ROOKERY_INTERNAL_LOG_FD";

/// The cookie by which the supervisor's front end knows the worker's clients; see the server's `SessionCookie`.
pub const COOKIE: &str = "ROOKERY_INTERNAL_COOKIE";

/// Those that name descriptors. They are unset once they have been read: what the worker starts has not got these descriptors.
pub const DESCRIPTORS: [&str; 3] = [LISTEN_FD, CONTROL_FD, SCOREBOARD_FD];

/// All of them: what a supervisor removes from the environment that it was started with itself.
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
