//! The environment variables that make a process a worker. Variables whose names begin with
//! `ROOKERY_INTERNAL_` are private to the processes of one installation and may change in any
//! release.

/// The environment variable with the number of the worker's slot (its numbered place among the
/// workers), from 0. Applications may read it.
pub const WORKER: &str = "ROOKERY_WORKER";

/// The environment variable with the number of workers. Applications may read it.
pub const WORKERS: &str = "ROOKERY_WORKER_COUNT";

/// The former name of the environment variable [`WORKERS`], which is set for one more release.
pub(crate) const FORMER_WORKERS: &str = "ROOKERY_WORKERS";

/// The environment variable with the number of times that the supervisor has reloaded the
/// application. Applications may read it.
pub const GENERATION: &str = "ROOKERY_GENERATION";

/// The environment variable with the identifier of the worker in URLs. Each start of a worker has a
/// different identifier. Shiny reads this variable.
pub const WORKER_ID: &str = "ROOKERY_INTERNAL_WORKER_ID";

/// The environment variable with the descriptor of the worker's end of the [control
/// channel](crate::ControlChannel).
pub const CONTROL_FD: &str = "ROOKERY_INTERNAL_CONTROL_FD";

/// The environment variable with the descriptor of the [scoreboard](crate::SharedScoreboard)'s
/// memory.
pub const SCOREBOARD_FD: &str = "ROOKERY_INTERNAL_SCOREBOARD_FD";

/// The environment variable with the descriptor of the gate of a preloaded worker, which waits for
/// a byte from it before the worker reads the app.
pub const GATE_FD: &str = "ROOKERY_INTERNAL_GATE_FD";

/// The environment variable with the names of the packages that a preloaded worker loads before it
/// waits at its gate, separated by spaces.
pub const PRELOAD: &str = "ROOKERY_INTERNAL_PRELOAD";

/// The environment variable with the descriptors of the [rings](crate::rings): their memory, and
/// those by which the two processes wake each other.
pub const RINGS_FDS: &str = "ROOKERY_INTERNAL_RINGS_FDS";

/// The environment variables that name the mandatory descriptors of a worker besides the rings. A
/// worker removes the variables from its environment once it has read them. Programs that the
/// worker starts do not inherit the descriptors.
pub const DESCRIPTORS: [&str; 2] = [CONTROL_FD, SCOREBOARD_FD];

/// All environment variables of a worker. When a supervisor starts a worker, it removes the values
/// of these variables that it has itself inherited, and then sets those that apply to the worker.
pub const NAMES: [&str; 10] = [
    WORKER,
    WORKERS,
    FORMER_WORKERS,
    GENERATION,
    WORKER_ID,
    CONTROL_FD,
    SCOREBOARD_FD,
    GATE_FD,
    PRELOAD,
    RINGS_FDS,
];
