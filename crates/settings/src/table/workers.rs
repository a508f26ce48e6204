//! R processes.

use super::{EXACT, FINITE};
use crate::kind::Kind;
use crate::setting::{Applies, Default, Former, Group, Places, Section, Setting, Shown, Stability};
use crate::{derived, forms, rules};

const WORKERS: Setting = Setting {
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
        key: "workers",
        shown: Shown::Always,
        kind: Kind::Count,
        placeholder: "n",
        words: &["auto"],
        default: Default::Is("1"),
        min: 1.0,
        max: 1000.0,
        r_argument: "serve(workers)",
        help: "Number of R processes, or auto for one per processor",
        paragraph: "`auto` respects the CPU limit of the control group and the CPU affinity of the \
                    process. Several workers need Linux. The variable `WEB_CONCURRENCY` is used if the \
                    number is given nowhere else.",
        ..WORKERS
    },
    Setting {
        name: "spares",
        key: "spares",
        shown: Shown::Always,
        kind: Kind::Count,
        placeholder: "n",
        default: Default::Is("0"),
        max: 1000.0,
        r_argument: "workers_config(spares)",
        help: "Number of started workers held in reserve",
        paragraph: "A worker that ends is replaced by one that has loaded the app already.",
        ..WORKERS
    },
    Setting {
        name: "surge",
        key: "surge",
        shown: Shown::InLongHelp,
        kind: Kind::Choice(&["0", "1"]),
        placeholder: "0/1",
        default: Default::Is("1"),
        r_argument: "workers_config(surge)",
        help: "Extra workers during a replacement: 1, or 0 to save memory",
        paragraph: "With 1 a new worker starts beside the one that it replaces. With 0 the old one ends \
                    first, which needs less memory; one worker fewer serves meanwhile.",
        ..WORKERS
    },
    Setting {
        name: "warmup",
        key: "warmup",
        shown: Shown::InLongHelp,
        kind: Kind::List(&forms::PATHS_OF_REQUESTS),
        placeholder: "paths",
        r_argument: "workers_config(warmup)",
        help: "Paths requested from a new worker before it gets traffic",
        paragraph: "A worker that answers one of them with a status of 500 or more does not serve.",
        ..WORKERS
    },
    Setting {
        name: "max_sessions",
        applies: Applies::AtRestart,
        key: "max_sessions",
        shown: Shown::InLongHelp,
        kind: Kind::Count,
        placeholder: "n",
        min: 1.0,
        max: EXACT,
        r_argument: "workers_config(max_sessions)",
        help: "WebSockets per worker, such as Shiny sessions; 503 above it",
        paragraph: "When every worker has this many sessions, further clients get 503; clients that \
                    already have a WebSocket do not.",
        ..WORKERS
    },
    Setting {
        name: "max_in_flight",
        applies: Applies::AtRestart,
        key: "max_in_flight",
        shown: Shown::InLongHelp,
        kind: Kind::Count,
        placeholder: "n",
        default: Default::Is("64"),
        min: 1.0,
        max: EXACT,
        r_argument: "workers_config(max_in_flight)",
        help: "Unanswered requests per worker, for apps that use promises",
        paragraph: "The number of requests that a worker may have started and not yet answered, as happens \
                    when R waits for promises.",
        ..WORKERS
    },
    Setting {
        name: "queue_timeout",
        applies: Applies::AtRestart,
        key: "queue_timeout",
        shown: Shown::InLongHelp,
        kind: Kind::Seconds,
        placeholder: "time",
        default: Default::Is("10 s"),
        min: 0.001,
        max: FINITE,
        r_argument: "workers_config(queue_timeout)",
        help: "How long a request may wait for a worker; 503 after that",
        paragraph: "The time ends when a worker gets the request; the time of `request_timeout` begins \
                    then. A single worker that accepts connections itself has no such limit; if this is \
                    set, the front end accepts.",
        ..WORKERS
    },
    Setting {
        name: "max_requests",
        key: "max_requests",
        shown: Shown::Always,
        kind: Kind::Count,
        placeholder: "n",
        min: 1.0,
        max: EXACT,
        r_argument: "workers_config(max_requests)",
        help: "Replace a worker after this many requests",
        paragraph: "The worker finishes its work and a new one takes its place. It bounds what a leak of \
                    memory can do.",
        ..WORKERS
    },
    Setting {
        name: "max_age",
        key: "max_age",
        shown: Shown::Always,
        kind: Kind::Seconds,
        placeholder: "time",
        min: 0.001,
        max: FINITE,
        r_argument: "workers_config(max_age)",
        help: "Replace a worker that is older than this, such as 12h",
        paragraph: "The worker finishes its work and a new one takes its place.",
        ..WORKERS
    },
    Setting {
        name: "max_memory",
        key: "max_memory",
        shown: Shown::Always,
        kind: Kind::Bytes,
        placeholder: "size",
        words: &["0"],
        default: Default::Derived {
            text: "none for one worker; for several each one's part of 4/5 of the control group's limit",
            value: derived::found_at_start,
        },
        min: 33_554_432.0,
        r_argument: "workers_config(max_memory)",
        help: "Replace a worker that uses more memory, such as 2GB",
        paragraph: "The anonymous, swapped and shared memory of the worker's processes counts. With \
                    several workers in a control group with a memory limit, the default is each worker's \
                    share of 4/5 of that limit. 0 and `none` mean no limit.",
        ..WORKERS
    },
    Setting {
        name: "worker_timeout",
        key: "worker_timeout",
        shown: Shown::Always,
        kind: Kind::Seconds,
        placeholder: "time",
        min: 0.001,
        max: FINITE,
        r_argument: "workers_config(worker_timeout)",
        help: "Replace a worker whose R is busy with one task for this long",
        paragraph: "A health check of the worker, and not a time limit of a request: it also applies to a \
                    task that no request caused. With `interrupt_requests` R is interrupted first, and the \
                    worker is ended only if that does not help. Its clients get 504, or lose their \
                    connections if the worker accepts connections itself.",
        former: &[Former {
            places: Places::COMMAND_LINE.and(Places::FILE).and(Places::R),
            ..Former::everywhere("kill_stuck", Section::Options)
        }],
        ..WORKERS
    },
    Setting {
        name: "start_timeout",
        key: "start_timeout",
        shown: Shown::Always,
        kind: Kind::Seconds,
        placeholder: "time",
        default: Default::Is("60 s"),
        min: 0.001,
        max: FINITE,
        r_argument: "workers_config(start_timeout)",
        help: "How long a worker may take to become ready",
        paragraph: "A worker that is not ready by then is ended, and its start counts as failed.",
        ..WORKERS
    },
    Setting {
        name: "start_retries",
        key: "start_retries",
        shown: Shown::InLongHelp,
        kind: Kind::Count,
        placeholder: "n",
        default: Default::Derived { text: "3; 0 with `reload`", value: derived::start_retries },
        max: 1000.0,
        r_argument: "workers_config(start_retries)",
        help: "Retries of a failed start before exiting with status 3",
        paragraph: "The pauses between retries grow. Starts are retried only until a worker has been \
                    ready: something that the app needs, such as a database, may become available later. \
                    With `reload` the default is 0.",
        ..WORKERS
    },
    Setting {
        name: "drain",
        key: "drain",
        shown: Shown::Always,
        kind: Kind::Seconds,
        placeholder: "time",
        default: Default::Derived { text: "60 s; 1 s with `reload`", value: derived::drain },
        min: 0.001,
        max: FINITE,
        r_argument: "workers_config(drain)",
        help: "How long to finish requests before a worker or server ends",
        paragraph: "The time that requests and WebSockets in progress have to finish when a worker or the \
                    server ends. With `reload` the default is 1 s.",
        ..WORKERS
    },
    Setting {
        name: "drain_sessions",
        key: "drain_sessions",
        shown: Shown::InLongHelp,
        kind: Kind::Seconds,
        placeholder: "time",
        default: Default::Derived { text: "as `drain`", value: derived::drain_sessions },
        min: 0.001,
        max: FINITE,
        r_argument: "workers_config(drain_sessions)",
        help: "How long WebSockets of a replaced worker may stay, such as 4h",
        paragraph: "The time that a replaced worker gives its WebSockets, such as Shiny sessions, to end. \
                    A worker that is replaced for its memory, and every worker when the server ends, waits \
                    no longer than `drain`.",
        ..WORKERS
    },
    Setting {
        name: "sticky",
        applies: Applies::AtRestart,
        key: "sticky",
        shown: Shown::Always,
        kind: Kind::Choice(&["auto", "cookie", "none"]),
        placeholder: "how",
        default: Default::Is("auto"),
        r_argument: "workers_config(sticky)",
        help: "Session affinity: auto (for Shiny), cookie or none",
        paragraph: "`auto` keeps clients of a Shiny app with their worker, `cookie` those of every app.",
        ..WORKERS
    },
    Setting {
        name: "cookie_suffix",
        applies: Applies::AtRestart,
        key: "cookie_suffix",
        shown: Shown::InLongHelp,
        kind: Kind::Text(&forms::NAME),
        placeholder: "text",
        default: Default::Derived {
            text: "derived from path and address",
            value: derived::found_at_start,
        },
        r_argument: "workers_config(cookie_suffix)",
        help: "End of the session cookie's name, rookery-SUFFIX",
        paragraph: "Servers of one host need different suffixes, or they overwrite each other's cookie. \
                    The default is derived from the app's path and the address.",
        former: &[Former {
            places: Places::COMMAND_LINE.and(Places::FILE).and(Places::R),
            ..Former::everywhere("name", Section::Options)
        }],
        ..WORKERS
    },
    Setting {
        name: "retry_safe_methods",
        applies: Applies::AtRestart,
        key: "retry_safe_methods",
        shown: Shown::InLongHelp,
        kind: Kind::Flag,
        default: Default::Is("off"),
        r_argument: "workers_config(retry_safe_methods)",
        help: "Retry GET, HEAD and OPTIONS that a crashed worker had started",
        paragraph: "The request is sent to another worker once, although the crashed one may have had \
                    effects. A request that no worker had started is retried in any case.",
        former: &[Former {
            places: Places::COMMAND_LINE.and(Places::FILE).and(Places::R),
            ..Former::everywhere("retry_begun", Section::Options)
        }],
        ..WORKERS
    },
    Setting {
        name: "keep_half_closed",
        applies: Applies::AtRestart,
        key: "keep_half_closed",
        kind: Kind::Flag,
        default: Default::Is("off"),
        places: Places::FILE.and(Places::R),
        r_argument: "workers_config(keep_half_closed)",
        help: "Answer clients that half-close while they wait for a worker",
        paragraph: "By default a client that closes its sending side while its request waits counts as \
                    disconnected, because most such clients have left. `nc -N` and a few health checks \
                    half-close and still expect the response.",
        former: &[Former::option("keep_half_closed", "few health checks need it")],
        ..WORKERS
    },
    Setting {
        name: "restart",
        key: "restart",
        shown: Shown::InLongHelp,
        kind: Kind::Choice(&["always", "never"]),
        placeholder: "when",
        default: Default::Is("always"),
        r_argument: "workers_config(restart)",
        help: "When a worker that ended is restarted: always or never",
        paragraph: "With `never` the server ends when a worker ends by itself, and passes on the exit \
                    status of R, for orchestrators that restart services themselves.",
        ..WORKERS
    },
    Setting {
        name: "fail_fast",
        key: "fail_fast",
        shown: Shown::InLongHelp,
        kind: Kind::Flag,
        default: Default::Is("off"),
        r_argument: "workers_config(fail_fast)",
        help: "Exit with status 5 when all workers keep crashing",
        paragraph: "Without it the program keeps trying, less and less often.",
        ..WORKERS
    },
    Setting {
        name: "shutdown_delay",
        key: "shutdown_delay",
        shown: Shown::InLongHelp,
        kind: Kind::Seconds,
        placeholder: "time",
        default: Default::Is("0 s"),
        max: FINITE,
        r_argument: "workers_config(shutdown_delay)",
        help: "How long to keep serving, while not ready, before shutting down",
        paragraph: "Within this time load balancers notice that `/-/ready` fails, while the server still \
                    serves requests.",
        ..WORKERS
    },
    Setting {
        name: "min_ready",
        key: "min_ready",
        shown: Shown::InLongHelp,
        kind: Kind::Count,
        placeholder: "n",
        default: Default::Is("1"),
        min: 1.0,
        max: 1000.0,
        r_argument: "workers_config(min_ready)",
        help: "Ready workers needed for /-/ready to answer 200",
        paragraph: "At most the number of workers.",
        rule: Some(rules::no_more_ready_than_workers),
        ..WORKERS
    },
    Setting {
        name: "drain_status",
        key: "drain_status",
        kind: Kind::Choice(&["503", "404"]),
        default: Default::Is("503"),
        places: Places::FILE.and(Places::R),
        r_argument: "workers_config(drain_status)",
        help: "Status of /-/ready during shutdown: 503 or 404",
        paragraph: "Some balancers take 404 for \"no new clients\"; `http-check disable-on-404` of \
                    HAProxy does.",
        former: &[Former::option("drain_status", "one setting of HAProxy needs it")],
        ..WORKERS
    },
    Setting {
        name: "reconnect",
        key: "reconnect",
        shown: Shown::InLongHelp,
        kind: Kind::Choice(&["app", "always", "never"]),
        placeholder: "when",
        default: Default::Is("app"),
        places: Places::ALL.without(Places::R),
        is_program_variable: false,
        help: "When a disconnected Shiny page reconnects: app, always, never",
        paragraph: "`app`: if the app calls `session$allowReconnect(TRUE)`. `always`: unless the app calls \
                    `session$allowReconnect(FALSE)`; the new session has the inputs of the old one, and \
                    all other state of the old session is lost. `never`: no page reconnects.",
        stability: Stability::Stable,
        ..WORKERS
    },
    Setting {
        name: "embed",
        applies: Applies::AtRestart,
        key: "embed",
        shown: Shown::InLongHelp,
        kind: Kind::Flag,
        default: Default::Is("off"),
        r_argument: "workers_config(embed)",
        help: "Allow the session cookie in frames on other sites (HTTPS)",
        paragraph: "The cookie of `sticky` is then sent to pages in frames of other sites, which \
                    browsers do over HTTPS only.",
        ..WORKERS
    },
];
