//! What clients may do, and how long things may take.

use crate::kind::Kind;
use crate::setting::{Applies, Default, Former, Group, Places, Section, Setting, Shown};
use crate::{composite, derived, forms};

const CLIENTS: Setting =
    Setting { group: Group::Limits, applies: Applies::WithAcceptingProcess, ..Setting::EMPTY };
const LIMIT: Setting = Setting { section: Section::Limits, ..CLIENTS };

pub(super) static ROWS: [Setting; 14] = [
    Setting {
        name: "max_body_size",
        key: "max_body_size",
        shown: Shown::Always,
        kind: Kind::Bytes,
        placeholder: "size",
        default: Default::Is("none"),
        r_argument: "server_limits(max_body_size)",
        help: "Largest request body, such as 10MB; 413 above it",
        paragraph: "Shiny and plumber have limits of their own, so there is none by default.",
        former: &[Former::everywhere("body_bytes", Section::Limits)],
        ..LIMIT
    },
    Setting {
        name: "request_timeout",
        key: "request_timeout",
        shown: Shown::Always,
        kind: Kind::Seconds,
        placeholder: "time",
        default: Default::Is("none"),
        min: 0.01,
        r_argument: "server_limits(request_timeout)",
        help: "How long the app may take to answer; 504 after that",
        paragraph: "The app is not notified, and its late response is discarded. R continues with the \
                    request unless `interrupt_requests` is on. There is no limit by default, because \
                    handlers may take long, for example to fit a model.",
        former: &[
            Former::everywhere("request_time", Section::Limits),
            Former {
                places: Places::FILE.and(Places::R),
                ..Former::everywhere("request_timeout", Section::Options)
            },
        ],
        ..LIMIT
    },
    Setting {
        name: "idle_timeout",
        key: "idle_timeout",
        shown: Shown::Always,
        kind: Kind::Seconds,
        placeholder: "time",
        default: Default::Is("120 s"),
        min: 0.01,
        r_argument: "server_limits(idle_timeout)",
        help: "Close a connection that is idle, or stalled, for this long",
        paragraph: "It applies between requests, and while a body or a response makes no progress. The \
                    default is twice the time for which proxies keep connections.",
        former: &[Former::everywhere("idle_time", Section::Limits)],
        ..LIMIT
    },
    Setting {
        name: "max_connections",
        key: "max_connections",
        shown: Shown::Always,
        kind: Kind::Count,
        placeholder: "n",
        default: Default::Is("10000"),
        min: 1.0,
        r_argument: "server_limits(max_connections)",
        help: "Maximum number of client connections; idle ones are evicted",
        paragraph: "At the limit, a new connection replaces the slowest one that is idle, has not sent its \
                    request head within a second, or is below its minimum rate. If there is none, the new \
                    connection is refused with 503.",
        former: &[Former::everywhere("connections", Section::Limits)],
        ..LIMIT
    },
    Setting {
        name: "max_header_size",
        key: "max_header_size",
        kind: Kind::Bytes,
        default: Default::Is("96 KiB"),
        min: 8192.0,
        r_argument: "server_limits(max_header_size)",
        help: "Largest request head over HTTP/1.1; 431 above it",
        paragraph: "httpuv takes 80 KiB, and apps send cookies of that size.",
        former: &[Former::everywhere("head_bytes", Section::Limits)],
        ..LIMIT
    },
    Setting {
        name: "header_timeout",
        key: "header_timeout",
        kind: Kind::Seconds,
        default: Default::Is("30 s"),
        min: 0.01,
        r_argument: "server_limits(header_timeout)",
        help: "How long a request head may take to arrive; 408 after that",
        paragraph: "The time begins when the connection is accepted or, after a response, with the first \
                    byte of the next head.",
        former: &[Former::everywhere("head_time", Section::Limits)],
        ..LIMIT
    },
    Setting {
        name: "max_connections_per_ip",
        key: "max_connections_per_ip",
        kind: Kind::Count,
        default: Default::Is("none"),
        min: 1.0,
        r_argument: "server_limits(max_connections_per_ip)",
        help: "Connections of one IPv4 address or IPv6 /64; 503 above it",
        paragraph: "Behind a proxy all clients have one address, so there is no limit by default.",
        former: &[Former::everywhere("per_address", Section::Limits)],
        ..LIMIT
    },
    Setting {
        name: "max_queued_requests",
        key: "max_queued_requests",
        kind: Kind::Count,
        default: Default::Is("1024"),
        r_argument: "server_limits(max_queued_requests)",
        help: "Requests that may wait for R; 503 above it",
        paragraph: "Requests that have arrived and that R has not begun.",
        former: &[Former::everywhere("queue_requests", Section::Limits)],
        ..LIMIT
    },
    Setting {
        name: "max_client_memory",
        key: "max_client_memory",
        kind: Kind::Bytes,
        default: Default::Derived {
            text: "a quarter of what the process may use, and at least 32 MiB",
            value: derived::found_at_start,
        },
        min: 1_048_576.0,
        r_argument: "server_limits(max_client_memory)",
        help: "Memory that clients can make the server hold",
        paragraph: "The limit is for all clients together; memory of the app does not count. When a share \
                    of it is used up, the client that holds the most of that share, or the newest client, \
                    gets 503 or close code 1013.",
        former: &[Former::everywhere("memory", Section::Limits)],
        ..LIMIT
    },
    Setting {
        name: "ws_max_message_size",
        applies: Applies::AtReload,
        key: "ws_max_message_size",
        kind: Kind::Bytes,
        default: Default::Is("64 MiB"),
        min: 1.0,
        r_argument: "server_limits(ws_max_message_size)",
        help: "Largest WebSocket message; close code 1009 above it",
        paragraph: "Shiny Server takes as much as the default.",
        former: &[Former::everywhere("message_bytes", Section::Limits)],
        ..LIMIT
    },
    Setting {
        name: "interrupt_requests",
        applies: Applies::AtReload,
        key: "interrupt_requests",
        shown: Shown::InLongHelp,
        kind: Kind::Flag,
        default: Default::Is("off"),
        places: Places::ALL.without(Places::R),
        help: "Interrupt R when a request exceeds request_timeout",
        paragraph: "The R code of the request fails with the error that `setTimeLimit()` raises. It is off \
                    by default because an interrupt can break a transaction. It has no effect without \
                    `request_timeout` or `worker_timeout`.",
        ..CLIENTS
    },
    Setting {
        name: "ws_origins",
        applies: Applies::AtReload,
        key: "ws_origins",
        shown: Shown::Always,
        kind: Kind::List(&forms::ORIGINS),
        placeholder: "list",
        r_argument: "app$wsOrigins",
        help: "Origins allowed to open WebSockets: same, example.org, ...",
        paragraph: "`same` allows pages of the app's own host. Hosts are written without `https://`, and \
                    may begin with `*.` and end with a port. Without it, pages of every site may open \
                    WebSockets.",
        ..CLIENTS
    },
    Setting {
        name: "ws_compression",
        applies: Applies::AtReload,
        key: "ws_compression",
        shown: Shown::InLongHelp,
        kind: Kind::Composite(&composite::COMPRESSION),
        placeholder: "how",
        default: Default::Is("off"),
        r_argument: "app$wsCompression",
        help: "WebSocket compression: on, off, or level=6,threshold=512,...",
        paragraph: "In `_server.yml` and in R, the value may also be a mapping of `level` (1 to 9), \
                    `threshold` (shorter messages, in bytes, are not compressed) and `takeover` (whether \
                    the compression context is kept for the next message).",
        ..CLIENTS
    },
    Setting {
        name: "spool_dir",
        key: "spool_dir",
        shown: Shown::InLongHelp,
        kind: Kind::Path,
        placeholder: "folder",
        default: Default::Derived {
            text: "`TMPDIR`; in R `tempdir()`",
            value: derived::found_at_start,
        },
        places: Places::ALL.without(Places::R),
        help: "Folder for large request bodies",
        paragraph: "A body larger than `body_buffer_size` is stored here, in a file without a name, while \
                    the app reads it. The default is `TMPDIR`; when R itself serves, it is `tempdir()`.",
        ..CLIENTS
    },
];
