//! Settings of workers.

use super::{EXACT, FINITE};
use crate::kind::Kind;
use crate::setting::{Applies, Default, Former, Group, Places, Section, Setting, Shown, Stability};
use crate::text_forms;

const WORKERS: Setting = Setting {
    r_function: "workers_config",
    group: Group::Workers,
    is_program_variable: true,
    places: Places::PROGRAM,
    stability: Stability::Experimental,
    applies: Applies::AtReload,
    ..Setting::EMPTY
};

pub(super) static ROWS: [Setting; 26] = [
    Setting {
        name: "workers",
        shown: Shown::Always,
        kind: Kind::Count,
        words: &["auto"],
        default: Default::Is("1"),
        min: 1.0,
        max: 1000.0,
        r_function: "serve",
        help: "Number of R processes, or auto for one per processor",
        paragraph: "More than one worker needs Linux. `auto` counts the processors that the CPU \
                    limit of the control group and the CPU affinity allow. If no other source sets \
                    the number, the environment variable `WEB_CONCURRENCY` is used.",
        ..WORKERS
    },
    Setting {
        name: "spares",
        shown: Shown::Always,
        kind: Kind::Count,
        default: Default::Is("0"),
        max: 1000.0,
        help: "Number of started workers held in reserve",
        paragraph: "When a worker ends, a spare that has already loaded the app takes its place at \
                    once. Set this if the app takes long to start.",
        ..WORKERS
    },
    Setting {
        name: "surge",
        shown: Shown::InLongHelp,
        kind: Kind::Choice(&["0", "1"]),
        placeholder: "0/1",
        default: Default::Is("1"),
        help: "Extra workers during a replacement: 1, or 0 to save memory",
        paragraph: "With 1, a new worker starts before the worker that it replaces stops. With 0, \
                    the old worker stops first, which needs less memory, but one worker fewer \
                    serves requests meanwhile.",
        ..WORKERS
    },
    Setting {
        name: "warmup",
        shown: Shown::InLongHelp,
        kind: Kind::List(&text_forms::PATHS_OF_REQUESTS),
        placeholder: "paths",
        help: "Paths requested from a new worker before it gets traffic",
        paragraph: "A list of URL paths, such as `/,/predict?x=1`, for apps whose first request is \
                    slow. A worker that responds to one of them with a status of 500 or above is \
                    stopped.",
        ..WORKERS
    },
    Setting {
        name: "max_sessions",
        applies: Applies::AtRestart,
        shown: Shown::InLongHelp,
        kind: Kind::Count,
        min: 1.0,
        max: EXACT,
        help: "Maximum WebSockets per worker (Shiny sessions); 503 above it",
        paragraph: "When every worker has this many WebSockets, new clients get status 503, while \
                    clients that already have a WebSocket are still served. There is no limit by \
                    default.",
        ..WORKERS
    },
    Setting {
        name: "max_in_flight",
        applies: Applies::AtRestart,
        shown: Shown::InLongHelp,
        kind: Kind::Count,
        default: Default::Is("64"),
        min: 1.0,
        max: EXACT,
        help: "Maximum requests in flight per worker, for apps with promises",
        paragraph: "An app that uses promises can start a request before it has responded to the \
                    previous ones. This setting limits how many requests a worker may have started \
                    and not yet responded to.",
        ..WORKERS
    },
    Setting {
        name: "queue_timeout",
        applies: Applies::AtRestart,
        shown: Shown::InLongHelp,
        kind: Kind::Seconds,
        default: Default::Is("10 s"),
        min: 0.001,
        max: FINITE,
        help: "How long a request may wait for a worker; 503 after that",
        paragraph: "The time ends when a worker gets the request, and `request_timeout` starts \
                    then. A single worker that accepts connections itself has no such limit; if \
                    this is set, the supervisor accepts connections for it.",
        ..WORKERS
    },
    Setting {
        name: "max_requests",
        shown: Shown::Always,
        kind: Kind::Count,
        min: 1.0,
        max: EXACT,
        help: "Replace a worker after this many requests",
        paragraph: "The worker finishes its requests while a new worker takes its place. Set this \
                    to limit the effect of memory leaks. By default no worker is replaced.",
        ..WORKERS
    },
    Setting {
        name: "max_age",
        shown: Shown::Always,
        kind: Kind::Seconds,
        min: 0.001,
        max: FINITE,
        help: "Replace a worker that has run for longer than this, such as 12h",
        paragraph: "The worker finishes its requests while a new worker takes its place. By \
                    default no worker is replaced.",
        ..WORKERS
    },
    Setting {
        name: "max_memory",
        shown: Shown::Always,
        kind: Kind::Bytes,
        words: &["0"],
        default: Default::Derived(
            "none with one worker; else its share of 80 % of the control group's limit",
        ),
        min: 33_554_432.0,
        help: "Replace a worker that uses more memory than this, such as 2GB",
        paragraph: "The anonymous, swapped and shared memory of the worker's processes counts. 0 \
                    and `none` mean no limit.",
        ..WORKERS
    },
    Setting {
        name: "worker_timeout",
        shown: Shown::Always,
        kind: Kind::Seconds,
        min: 0.001,
        max: FINITE,
        help: "Replace a worker that is busy with one task for this long",
        paragraph: "This is a health check of the worker and not a time limit for requests: it \
                    also applies to tasks that no request started. With `interrupt_requests` R is \
                    interrupted first, and the worker is killed only if that does not help. \
                    Clients of the worker get status 504, or lose their connections if the worker \
                    accepts connections itself. There is no limit by default.",
        former: &[Former {
            places: Places::COMMAND_LINE.and(Places::FILE).and(Places::R),
            ..Former::everywhere("kill_stuck", Section::Options)
        }],
        ..WORKERS
    },
    Setting {
        name: "start_timeout",
        shown: Shown::Always,
        kind: Kind::Seconds,
        default: Default::Is("60 s"),
        min: 0.001,
        max: FINITE,
        help: "How long a worker may take to become ready",
        paragraph: "A worker that is not ready by then is stopped, and the start counts as failed. \
                    Increase this for an app that takes long to load.",
        ..WORKERS
    },
    Setting {
        name: "start_retries",
        shown: Shown::InLongHelp,
        kind: Kind::Count,
        default: Default::Derived("3; 0 with `reload`"),
        max: 1000.0,
        help: "Retries of a failed start before exiting with status 3",
        paragraph: "Starts are retried only until a worker has been ready once, for example while \
                    the app waits for a database. The pauses between retries grow.",
        ..WORKERS
    },
    Setting {
        name: "drain",
        shown: Shown::Always,
        kind: Kind::Seconds,
        default: Default::Derived("60 s; 1 s with `reload`"),
        min: 0.001,
        max: FINITE,
        help: "Time for requests to finish when a worker or the server stops",
        paragraph: "A worker that stops gets no new requests. After this time, requests and \
                    WebSockets that are still open are cut off.",
        ..WORKERS
    },
    Setting {
        name: "drain_sessions",
        shown: Shown::InLongHelp,
        kind: Kind::Seconds,
        default: Default::Derived("the time of `drain`"),
        min: 0.001,
        max: FINITE,
        help: "How long WebSockets of a replaced worker may stay, such as 4h",
        paragraph: "A replaced worker waits for this long until its WebSockets, such as Shiny \
                    sessions, have ended. If the worker is replaced because of its memory, and \
                    when the server stops, it waits no longer than `drain`.",
        ..WORKERS
    },
    Setting {
        name: "sticky",
        applies: Applies::AtRestart,
        shown: Shown::Always,
        kind: Kind::Choice(&["auto", "cookie", "none"]),
        placeholder: "how",
        default: Default::Is("auto"),
        help: "Session affinity: auto (for Shiny), cookie or none",
        paragraph: "Session affinity sends all requests of a client to the same worker, which \
                    matters with several workers. `auto` applies it to Shiny apps, whose sessions \
                    exist in only one worker; `cookie` applies it to every app.",
        ..WORKERS
    },
    Setting {
        name: "cookie_suffix",
        applies: Applies::AtRestart,
        shown: Shown::InLongHelp,
        kind: Kind::Text(&text_forms::NAME),
        placeholder: "text",
        default: Default::Derived("derived from the app's path and the address"),
        help: "End of the session cookie's name, rookery-SUFFIX",
        paragraph: "The session cookie keeps a client with its worker (`sticky`). Servers that \
                    share a host name need different suffixes, because otherwise each server \
                    overwrites the cookie of the other.",
        former: &[Former {
            places: Places::COMMAND_LINE.and(Places::FILE).and(Places::R),
            ..Former::everywhere("name", Section::Options)
        }],
        ..WORKERS
    },
    Setting {
        name: "retry_safe_methods",
        applies: Applies::AtRestart,
        shown: Shown::InLongHelp,
        kind: Kind::Flag,
        default: Default::Is("off"),
        help: "Retry GET, HEAD and OPTIONS that a crashed worker had started",
        paragraph: "Such a request is sent once to another worker, although the crashed worker may \
                    already have changed something. A request that no worker had started is \
                    retried in any case.",
        former: &[Former {
            places: Places::COMMAND_LINE.and(Places::FILE).and(Places::R),
            ..Former::everywhere("retry_begun", Section::Options)
        }],
        ..WORKERS
    },
    Setting {
        name: "keep_half_closed",
        applies: Applies::AtRestart,
        kind: Kind::Flag,
        default: Default::Is("off"),
        places: Places::FILE.and(Places::R),
        help: "Respond to clients that half-close while they wait for a worker",
        paragraph: "By default, a client that closes its sending side while its request waits for \
                    a worker counts as disconnected, because most such clients have given up. `nc \
                    -N` and a few health checks half-close the connection and still expect a \
                    response.",
        former: &[Former::option("keep_half_closed", "few health checks need it")],
        ..WORKERS
    },
    Setting {
        name: "restart",
        shown: Shown::InLongHelp,
        kind: Kind::Choice(&["always", "never"]),
        placeholder: "when",
        default: Default::Is("always"),
        help: "When a worker that ended is restarted: always or never",
        paragraph: "With `never`, the server exits when a worker exits by itself, and passes on \
                    the exit status of R. Set this if an orchestrator such as Kubernetes restarts \
                    the server.",
        ..WORKERS
    },
    Setting {
        name: "fail_fast",
        shown: Shown::InLongHelp,
        kind: Kind::Flag,
        default: Default::Is("off"),
        help: "Exit with status 5 when all workers keep crashing",
        paragraph: "Set this if an orchestrator should restart the server elsewhere. By default \
                    the server keeps restarting its workers, with growing pauses.",
        ..WORKERS
    },
    Setting {
        name: "shutdown_delay",
        shown: Shown::InLongHelp,
        kind: Kind::Seconds,
        default: Default::Is("0 s"),
        max: FINITE,
        help: "How long to keep serving as not ready before shutting down",
        paragraph: "After a signal to stop, the probe `/-/ready` fails, but the server still \
                    serves requests for this time, so that load balancers notice the failure \
                    before the server stops accepting connections.",
        ..WORKERS
    },
    Setting {
        name: "min_ready",
        shown: Shown::InLongHelp,
        kind: Kind::Count,
        default: Default::Is("1"),
        min: 1.0,
        max: 1000.0,
        help: "Ready workers needed for the probe /-/ready to succeed",
        paragraph: "The number cannot be greater than `workers`.",
        ..WORKERS
    },
    Setting {
        name: "drain_status",
        kind: Kind::Choice(&["503", "404"]),
        default: Default::Is("503"),
        places: Places::FILE.and(Places::R),
        help: "Status of the probe /-/ready during shutdown: 503 or 404",
        paragraph: "With `http-check disable-on-404`, HAProxy sends no new clients to a server \
                    that responds with 404, and keeps the existing sessions there.",
        former: &[Former::option("drain_status", "one setting of HAProxy needs it")],
        ..WORKERS
    },
    Setting {
        name: "reconnect",
        shown: Shown::InLongHelp,
        kind: Kind::Choice(&["app", "always", "never"]),
        placeholder: "when",
        default: Default::Is("app"),
        places: Places::ALL.without(Places::R),
        is_program_variable: false,
        r_function: "",
        help: "When a disconnected Shiny page reconnects: app, always, never",
        paragraph: "`app`: only if the app calls `session$allowReconnect(TRUE)`. `always`: unless \
                    the app calls `session$allowReconnect(FALSE)`; the new session gets the inputs \
                    of the old session, whose other state is lost. `never`: no page reconnects.",
        stability: Stability::Stable,
        ..WORKERS
    },
    Setting {
        name: "embed",
        applies: Applies::AtRestart,
        shown: Shown::InLongHelp,
        kind: Kind::Flag,
        default: Default::Is("off"),
        help: "Send the session cookie to frames on other sites (HTTPS only)",
        paragraph: "Set this if pages of other sites show the app in a frame and it needs session \
                    affinity (`sticky`). Browsers accept such a cookie over HTTPS only.",
        ..WORKERS
    },
];
