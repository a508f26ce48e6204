//! The settings of workers (R processes), as rows of the table of settings.

use crate::kind::Kind;
use crate::setting::{Applies, Default, Group, Places, Setting, Stability};
use crate::text_forms;

const WORKERS: Setting = Setting {
    r_function: "workers_config",
    group: Group::Workers,
    needs_r: true,
    places: Places::PROGRAM,
    stability: Stability::Experimental,
    applies: Applies::AtReload,
    ..Setting::EMPTY
};

/// A time that cannot be unlimited.
const FINITE_TIME: Setting = Setting { kind: Kind::Seconds, min: 0.001, max: FINITE, ..WORKERS };

/// The maximum of a number that may be any finite number.
const FINITE: f64 = 1e18;

pub(super) static ROWS: [Setting; 22] = [
    Setting {
        name: "workers",
        is_common: true,
        kind: Kind::Count,
        words: &["auto"],
        default: Default::Is("1"),
        min: 1.0,
        max: 1000.0,
        r_function: "serve",
        help: "Number of R processes, or auto for one per processor",
        paragraph: "More than one worker needs Linux. `auto` starts one worker for each \
                    processor that the CPU limit of the control group and the CPU affinity allow. \
                    If the number is not set anywhere else, the server uses the environment \
                    variable `WEB_CONCURRENCY`.",
        ..WORKERS
    },
    Setting {
        name: "spares",
        is_common: true,
        kind: Kind::Count,
        default: Default::Is("0"),
        max: 1000.0,
        help: "Number of started workers (R processes) held in reserve",
        paragraph: "A spare worker has already loaded the app, so it takes over immediately when \
                    another worker ends. Set this if the app takes long to start.",
        ..WORKERS
    },
    Setting {
        name: "surge",
        kind: Kind::Choice(&["0", "1"]),
        default: Default::Is("1"),
        help: "Extra workers during a replacement: 1, or 0 to save memory",
        paragraph: "With 1, a new worker starts before the old worker that it replaces is stopped. \
                    With 0, the old worker is stopped first. This needs less memory, but one \
                    worker fewer serves requests until the new worker is ready.",
        ..WORKERS
    },
    Setting {
        name: "warmup",
        kind: Kind::List(&text_forms::PATHS_OF_REQUESTS),
        help: "Paths requested from a new worker before it gets traffic",
        paragraph: "A list of URL paths, such as `/,/predict?x=1`. Set this for an app whose first \
                    requests are slow. A new worker that responds to one of the paths with a \
                    status of 500 or above is stopped.",
        ..WORKERS
    },
    Setting {
        name: "max_sessions",
        applies: Applies::AtRestart,
        kind: Kind::Count,
        min: 1.0,
        help: "Maximum number of WebSockets (Shiny sessions) per worker",
        paragraph: "When every worker has this many WebSockets, new clients get status 503, while \
                    clients that already have a WebSocket are still served. If one address has \
                    most of them, clients of others may exceed the number, up to twice. There is \
                    no limit by default.",
        ..WORKERS
    },
    Setting {
        name: "max_in_flight",
        applies: Applies::AtRestart,
        kind: Kind::Count,
        default: Default::Derived("none with one worker, else 64"),
        min: 1.0,
        help: "Maximum unfinished requests per worker, for apps with promises",
        paragraph: "An app that uses promises can start a request before it has responded to the \
                    previous ones. This setting limits the number of requests that one worker has \
                    started and not yet responded to. If one client has most of them, those of \
                    others may exceed it, up to twice the number.",
        ..WORKERS
    },
    Setting {
        name: "queue_timeout",
        applies: Applies::AtRestart,
        default: Default::Derived("60 s with one worker, else 10 s"),
        help: "How long a request may wait for a worker; status 503 after that",
        paragraph: "The time limit `request_timeout` begins only when a worker gets the request. A \
                    single worker has a longer default, because no other worker could take the \
                    request.",
        ..FINITE_TIME
    },
    Setting {
        name: "max_requests",
        is_common: true,
        kind: Kind::Count,
        min: 1.0,
        help: "Replace a worker after this many requests",
        paragraph: "Set this if the app leaks memory. The old worker finishes its requests while a \
                    new worker takes its place. By default, workers are not replaced for this \
                    reason.",
        ..WORKERS
    },
    Setting {
        name: "max_age",
        is_common: true,
        kind: Kind::Seconds,
        min: 0.001,
        help: "Replace a worker that has run for longer than this, such as 12h",
        paragraph: "The old worker finishes its requests while a new worker takes its place. By \
                    default, workers are not replaced because of their age.",
        ..WORKERS
    },
    Setting {
        name: "max_memory",
        is_common: true,
        kind: Kind::Bytes,
        words: &["0"],
        default: Default::Derived(
            "none with one worker; else 80 % of the control group's limit, divided by the workers",
        ),
        min: 33_554_432.0,
        help: "Replace a worker that uses more memory than this, such as 2GB",
        paragraph: "A worker's memory is the anonymous, swapped and shared memory of all its \
                    processes. 0 and `none` mean no limit.",
        ..WORKERS
    },
    Setting {
        name: "worker_timeout",
        is_common: true,
        kind: Kind::Seconds,
        min: 0.001,
        help: "Replace a worker that is busy with one task for this long",
        paragraph: "This detects a worker (an R process) that hangs, whether it processes a \
                    request or another task. The worker is killed. With `interrupt_requests`, R is \
                    interrupted first, and the worker is killed only if it stays busy. The clients \
                    whose requests R has begun get status 504. There is no limit by default. To \
                    limit only the time of requests, use `request_timeout` instead.",
        ..WORKERS
    },
    Setting {
        name: "slow_log",
        kind: Kind::Seconds,
        default: Default::Is("10 s"),
        min: 0.1,
        help: "Report a task of R that takes longer than this",
        paragraph: "The program's messages then name the worker, the request (method and path, no \
                    query) and whether R computes or waits, and later how long the task took. \
                    `none` reports nothing.",
        ..WORKERS
    },
    Setting {
        name: "start_timeout",
        is_common: true,
        default: Default::Is("60 s"),
        help: "How long a worker may take to become ready",
        paragraph: "A worker that is not ready to serve after this time is stopped, and its start \
                    counts as failed. Increase this for an app that takes long to load.",
        ..FINITE_TIME
    },
    Setting {
        name: "start_retries",
        kind: Kind::Count,
        default: Default::Derived("3; 0 with `reload`"),
        max: 1000.0,
        help: "Retries of a failed start before exiting with status 3",
        paragraph: "Set this if the app may have to wait, for example for a database, when the \
                    server starts. The pauses between retries grow. The setting has no effect once \
                    a worker has been ready.",
        ..WORKERS
    },
    Setting {
        name: "drain",
        is_common: true,
        default: Default::Derived("60 s; 1 s with `reload`"),
        help: "Time for requests to finish when a worker or the server stops",
        paragraph: "A worker that is being stopped gets no new requests. Requests and WebSockets \
                    that are still open after this time are cut off.",
        ..FINITE_TIME
    },
    Setting {
        name: "drain_sessions",
        default: Default::Derived("the time of `drain`"),
        help: "How long WebSockets of a replaced worker may stay open, such as 4h",
        paragraph: "When a worker is replaced, it waits up to this long for its WebSockets, such \
                    as Shiny sessions, to end. If the worker is replaced because of its memory, or \
                    if the server stops, it waits only as long as for requests (see `drain`).",
        ..FINITE_TIME
    },
    Setting {
        name: "sticky",
        applies: Applies::AtRestart,
        is_common: true,
        kind: Kind::Choice(&["auto", "cookie", "none"]),
        default: Default::Is("auto"),
        help: "Session affinity: auto (for Shiny), cookie or none",
        paragraph: "With several workers, session affinity sends all requests of one client to the \
                    same worker. `auto` applies it to Shiny apps, because a Shiny session exists \
                    in only one worker. `cookie` applies it to every app.",
        ..WORKERS
    },
    Setting {
        name: "restart",
        kind: Kind::Choice(&["always", "never"]),
        default: Default::Is("always"),
        help: "Whether a worker that ended is restarted: always or never",
        paragraph: "With `never`, the server exits when a worker exits by itself, with the exit \
                    status of R. Set this if an orchestrator such as Kubernetes restarts the \
                    server.",
        ..WORKERS
    },
    Setting {
        name: "fail_fast",
        kind: Kind::Flag,
        help: "Exit with status 5 when all workers keep crashing",
        paragraph: "Set this if an orchestrator such as Kubernetes should restart the server \
                    elsewhere. By default the server keeps restarting its workers, with growing \
                    pauses.",
        ..WORKERS
    },
    Setting {
        name: "shutdown_delay",
        kind: Kind::Seconds,
        default: Default::Is("0 s"),
        max: FINITE,
        help: "How long to keep serving requests after a signal to stop",
        paragraph: "During this time, the probe `/-/ready` already fails. Load balancers can \
                    therefore notice that the server is stopping before it refuses connections.",
        ..WORKERS
    },
    Setting {
        name: "reconnect",
        kind: Kind::Choice(&["app", "always", "never"]),
        default: Default::Is("app"),
        places: Places::ALL.without(Places::R),
        r_function: "",
        help: "When a disconnected Shiny page reconnects: app, always, never",
        paragraph: "`app` reconnects a page only if the app calls `session$allowReconnect(TRUE)`. \
                    `always` reconnects it unless the app calls `session$allowReconnect(FALSE)`. \
                    `never` reconnects no page. A reconnected page gets a new session with the \
                    inputs of the old one; other state of the old session is lost. With `always`, \
                    buttons count as not pressed in the new session, so that no observer runs \
                    again for the last click. A page that does not reconnect shows a dialog with \
                    a button to reload.",
        stability: Stability::Stable,
        ..WORKERS
    },
    Setting {
        name: "embed",
        applies: Applies::AtRestart,
        kind: Kind::Flag,
        help: "Send the session cookie to frames on other sites (HTTPS only)",
        paragraph: "Set this if pages of other sites show the app in a frame and the app needs \
                    session affinity (see `sticky`). Browsers accept the session cookie in such \
                    frames only over HTTPS.",
        ..WORKERS
    },
];
