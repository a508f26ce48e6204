//! The limits for clients, including timeouts, as rows of the table of settings.

use crate::kind::Kind;
use crate::setting::{Applies, Default, Group, Places, Section, Setting};
use crate::{composite, text_forms};

const CLIENTS: Setting =
    Setting { group: Group::Limits, applies: Applies::AtReload, ..Setting::EMPTY };
const LIMIT: Setting = Setting { r_function: "server_limits", section: Section::Limits, ..CLIENTS };

pub(super) static ROWS: [Setting; 15] = [
    Setting {
        name: "max_body_size",
        is_common: true,
        kind: Kind::Bytes,
        default: Default::Is("none"),
        help: "Maximum size of a request body, such as 10MB; status 413 above it",
        paragraph: "There is no limit by default, because Shiny and plumber have their own limits.",
        ..LIMIT
    },
    Setting {
        name: "request_timeout",
        is_common: true,
        kind: Kind::Seconds,
        default: Default::Is("none"),
        min: 0.01,
        help: "How long the app may take to respond; status 504 after that",
        paragraph: "R still finishes the request, and its late response is discarded. With \
                    `interrupt_requests`, R is interrupted instead. There is no limit by default, \
                    because a request may take long, for example to fit a model.",
        ..LIMIT
    },
    Setting {
        name: "idle_timeout",
        is_common: true,
        kind: Kind::Seconds,
        default: Default::Is("120 s"),
        min: 0.01,
        help: "Close a connection that makes no progress for this long",
        paragraph: "The time applies to a connection that waits for its next request, and to a \
                    request body or response whose transfer has stalled, or falls behind a rate of \
                    512 bytes per second by this time. The default is longer than the idle timeout \
                    of common proxies (60 s).",
        ..LIMIT
    },
    Setting {
        name: "max_connections",
        is_common: true,
        kind: Kind::Count,
        default: Default::Is("10000"),
        min: 1.0,
        help: "Maximum number of client connections",
        paragraph: "At the limit, a new connection replaces one of the address that has the most \
                    connections, if its own address has fewer. Otherwise it replaces an idle or \
                    slow one, beginning with the least active. A connection is slow if it has not \
                    sent its request head, or transfers less than 512 bytes per second. If there \
                    is none, the new connection is refused with status 503.",
        ..LIMIT
    },
    Setting {
        name: "max_header_size",
        kind: Kind::Bytes,
        default: Default::Is("96 KiB"),
        min: 8192.0,
        help: "Maximum size of an HTTP/1.1 request head; status 431 above it",
        paragraph: "The request head is the request line and all header fields. The default is \
                    larger than the limit of httpuv (80 KiB), because the cookies of some apps \
                    reach that size. Over HTTP/2, the limit is 32 KiB.",
        ..LIMIT
    },
    Setting {
        name: "header_timeout",
        kind: Kind::Seconds,
        default: Default::Is("30 s"),
        min: 0.01,
        help: "How long a request head may take to arrive; status 408 after that",
        paragraph: "The request head is the request line and all header fields. The time starts \
                    when the connection is accepted or, for a later request on that connection, \
                    with the first byte of its head. A head also gets status 408 if it falls \
                    behind a rate of 32 bytes per second by 10 s.",
        ..LIMIT
    },
    Setting {
        name: "max_connections_per_ip",
        kind: Kind::Count,
        default: Default::Is("none"),
        min: 1.0,
        help: "Maximum connections of one IPv4 address or IPv6 /64 network",
        paragraph: "Further connections from that address or network are refused with status 503. \
                    There is no limit by default, because behind a proxy all clients have the same \
                    address.",
        ..LIMIT
    },
    Setting {
        name: "max_queued_requests",
        applies: Applies::AtRestart,
        kind: Kind::Count,
        default: Default::Is("1024"),
        help: "Maximum number of requests that wait for R; status 503 above it",
        paragraph: "A request waits from its arrival until R starts to process it. Clients of an \
                    address of which no request waits may add one, up to twice the number.",
        ..LIMIT
    },
    Setting {
        name: "max_client_memory",
        applies: Applies::AtRestart,
        kind: Kind::Bytes,
        default: Default::Derived(
            "a quarter of the memory that the process may use, and at least 32 MiB",
        ),
        min: 1_048_576.0,
        help: "Maximum memory that clients can make the server use",
        paragraph: "The limit is for all clients together, and does not include the memory of the \
                    app. The memory is divided into fixed shares, for example one for request \
                    bodies. When a share is used up, the client that uses the most of it, or the \
                    newest client, gets status 503 or WebSocket close code 1013.",
        ..LIMIT
    },
    Setting {
        name: "ws_max_message_size",
        kind: Kind::Bytes,
        default: Default::Is("64 MiB"),
        min: 1.0,
        help: "Maximum size of a WebSocket message; close code 1009 above it",
        paragraph: "The default is the same limit as in Shiny Server.",
        ..LIMIT
    },
    Setting {
        name: "interrupt_requests",
        needs_r: true,
        kind: Kind::Flag,
        places: Places::ALL.without(Places::R),
        help: "Interrupt R when a request or a task exceeds its time limit",
        paragraph: "The time limits are `request_timeout` for a request and `worker_timeout` for \
                    any task of a worker. The interrupted R code fails with the error that \
                    `setTimeLimit()` raises. Of Shiny, the output, observer or promise that is \
                    being computed is cancelled, and its session stays open. This is off by \
                    default, because an interrupt can break a database transaction.",
        ..CLIENTS
    },
    Setting {
        name: "ws_origins",
        needs_r: true,
        is_common: true,
        kind: Kind::List(&text_forms::ORIGINS),
        r_function: "app$wsOrigins",
        help: "Origins that may open WebSockets: same, example.org, ...",
        paragraph: "A list of the hosts whose pages may open WebSockets, without `https://`. Each \
                    host may begin with `*.` and end with a port; `same` means the app's own host. \
                    By default, pages of every site may open WebSockets, so set this if the app \
                    identifies its users by cookies.",
        ..CLIENTS
    },
    Setting {
        name: "ws_compression",
        needs_r: true,
        kind: Kind::Composite(&composite::COMPRESSION),
        default: Default::Is("off"),
        r_function: "app$wsCompression",
        help: "WebSocket compression: on, off, or level=6,threshold=512,...",
        paragraph: "`level` is from 1 (fastest) to 9 (smallest). Messages shorter than `threshold` \
                    bytes are not compressed. `takeover=on` keeps the compression context for the \
                    next message, which compresses better but takes 512 KiB of memory per \
                    WebSocket. `on` means `level=2,threshold=512,takeover=off`. In `_server.yml` \
                    and in R, the value may also be a mapping of `level`, `threshold` and \
                    `takeover`.",
        ..CLIENTS
    },
    Setting {
        name: "spool_dir",
        applies: Applies::AtRestart,
        kind: Kind::Path,
        placeholder: "folder",
        default: Default::Derived(
            "`TMPDIR`, or else `/tmp`, or `/var/tmp` if `/tmp` is in memory; in R, `tempdir()`",
        ),
        places: Places::ALL.without(Places::R),
        help: "Folder for temporary files with large request bodies",
        paragraph: "A request body larger than 1 MiB is written to an unnamed \
                    temporary file in this folder while the app reads it. Files in a folder that \
                    is in memory (tmpfs) count towards `max_client_memory`.",
        ..CLIENTS
    },
    Setting {
        name: "error_pages",
        applies: Applies::AtRestart,
        kind: Kind::Path,
        placeholder: "folder",
        places: Places::PROGRAM.without(Places::R),
        help: "Folder with pages for errors of the server, such as 503.html",
        paragraph: "When the server itself responds with an error, for example because all \
                    workers are busy (503) or one has crashed (502), a browser gets a small page \
                    with the reason, the request id and a link to reload. A file of this folder \
                    whose name is the status and `.html` replaces that page. The files are read \
                    when the server starts, and have at most 256 KiB each. Programs that ask for \
                    JSON get an object with `error` and `request_id`, and others a line of text. \
                    Responses of the app stay as they are.",
        ..CLIENTS
    },
];
