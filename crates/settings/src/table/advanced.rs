//! The limits that are seldom changed, as rows of the table of settings.

use super::FINITE;
use crate::kind::Kind;
use crate::setting::{Applies, Default, Former, Group, Section, Setting, Stability};

const ADVANCED: Setting = Setting {
    r_function: "server_limits",
    group: Group::Limits,
    section: Section::Limits,
    stability: Stability::Advanced,
    applies: Applies::AtRestart,
    ..Setting::EMPTY
};

pub(super) static ROWS: [Setting; 21] = [
    Setting {
        name: "max_headers",
        kind: Kind::Count,
        default: Default::Is("2000"),
        min: 1.0,
        help: "Maximum number of header lines in a request; status 431 above it",
        paragraph: "Values above 24,576 have the same effect as 24,576.",
        former: &[Former::everywhere("header_lines", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "http2_max_header_list_size",
        kind: Kind::Bytes,
        default: Default::Is("32 KiB"),
        min: 1024.0,
        help: "Maximum size of an HTTP/2 request head; status 431 above it",
        paragraph: "The size is the sum of all header fields, where each field counts 32 bytes in \
                    addition to its name and value (RFC 9113, 6.5.2). A connection may be closed \
                    if a client sends a head of three times this size.",
        former: &[Former::everywhere("stream_head_bytes", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "http2_max_concurrent_streams",
        kind: Kind::Count,
        default: Default::Is("100"),
        min: 1.0,
        help: "Maximum concurrent requests on one HTTP/2 connection",
        paragraph: "A request that the client has cancelled still counts until the app has \
                    finished it.",
        former: &[Former::everywhere("streams", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "body_buffer_size",
        kind: Kind::Bytes,
        default: Default::Is("1 MiB"),
        help: "Request bodies above this size are written to a temporary file",
        paragraph: "Smaller bodies stay in memory. The temporary files are in the folder that \
                    `spool_dir` sets.",
        former: &[Former::everywhere("body_memory", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "disk_reserve",
        kind: Kind::Bytes,
        default: Default::Is("1 GiB"),
        help: "Disk space that temporary files of request bodies must leave free",
        paragraph: "If a request body would use this space, the request gets status 507. On a \
                    small file system, the reserve is at most a tenth of its size (see \
                    `disk_share`).",
        ..ADVANCED
    },
    Setting {
        name: "tls_handshake_timeout",
        kind: Kind::Seconds,
        default: Default::Is("10 s"),
        min: 0.01,
        help: "How long a TLS handshake may take",
        paragraph: "The time starts when the connection is accepted. A connection whose handshake \
                    takes longer is closed.",
        former: &[Former::everywhere("handshake_time", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "tls_max_handshakes",
        kind: Kind::Count,
        default: Default::Is("256"),
        min: 1.0,
        help: "Maximum number of concurrent TLS handshakes",
        paragraph: "At the limit, the server accepts no further connections until a handshake is \
                    done. Handshakes that wait for data from the client do not count.",
        former: &[Former::everywhere("handshakes", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "min_header_rate",
        kind: Kind::Rate,
        default: Default::Is("32 B/s"),
        max: FINITE,
        help: "Minimum rate at which a request head must arrive; 0: no minimum",
        paragraph: "In bytes per second. A request gets status 408 if its head (the request line \
                    and all header fields) falls behind this rate by more than the time \
                    `header_grace`.",
        former: &[Former::everywhere("head_rate", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "header_grace",
        kind: Kind::Seconds,
        default: Default::Is("10 s"),
        min: 0.01,
        help: "How long a request head may be below its minimum rate",
        paragraph: "If a request head stays below `min_header_rate` for longer, the request gets \
                    status 408. The default allows for the loss of three TCP segments.",
        former: &[Former::everywhere("head_grace", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "min_body_rate",
        kind: Kind::Rate,
        default: Default::Is("512 B/s"),
        max: FINITE,
        help: "Minimum rate at which a request body must arrive; 0: no minimum",
        paragraph: "In bytes per second. A request gets status 408 if its body falls behind this \
                    rate by more than the time `idle_timeout`.",
        former: &[Former::everywhere("body_rate", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "min_response_rate",
        kind: Kind::Rate,
        default: Default::Is("512 B/s"),
        max: FINITE,
        help: "Minimum rate at which a client must read a response; 0: none",
        paragraph: "In bytes per second. If a client falls behind this rate by more than the time \
                    `idle_timeout`, its connection is closed.",
        former: &[Former::everywhere("reply_rate", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "ws_max_send_queue_size",
        kind: Kind::Bytes,
        default: Default::Is("64 MiB"),
        min: 1.0,
        help: "Maximum bytes that wait to be sent to one WebSocket client",
        paragraph: "If a client reads so slowly that more bytes wait, its WebSocket is closed with \
                    code 1013. If the client does not read the close frame either, its connection \
                    is dropped.",
        former: &[Former::everywhere("socket_queue", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "ws_min_rate",
        kind: Kind::Rate,
        default: Default::Is("512 B/s"),
        max: FINITE,
        help: "Minimum rate of a WebSocket client within a message; 0: none",
        paragraph: "In bytes per second. The rate applies while a client is sending a message, and \
                    while messages wait to be read by the client. If the client falls behind the \
                    rate by more than `ws_stall_timeout`, its WebSocket is closed with code 1008.",
        former: &[Former::everywhere("message_rate", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "ws_stall_timeout",
        kind: Kind::Seconds,
        default: Default::Is("15 min"),
        min: 0.01,
        help: "How long a WebSocket client may be below its minimum rate",
        paragraph: "If a client stays below `ws_min_rate` for longer, its WebSocket is closed with \
                    code 1008. With the default, a Shiny session survives if the user's laptop \
                    sleeps for some minutes.",
        former: &[Former::everywhere("stall_time", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "ws_ping_interval",
        kind: Kind::Seconds,
        default: Default::Is("20 s"),
        min: 0.01,
        help: "Interval at which a ping is sent to an idle WebSocket",
        paragraph: "The pings keep proxies from closing idle connections.",
        former: &[Former::everywhere("ping_time", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "ws_ping_timeout",
        kind: Kind::Seconds,
        default: Default::Is("15 min"),
        min: 0.01,
        help: "Close a WebSocket that is silent for this long after a ping",
        paragraph: "Browsers respond to pings by themselves. Any byte from the client counts as a \
                    response to the ping.",
        former: &[Former::everywhere("pong_time", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "ws_close_timeout",
        kind: Kind::Seconds,
        default: Default::Is("5 s"),
        min: 0.01,
        help: "How long a WebSocket client may take to answer a close frame",
        paragraph: "After this time the connection is dropped.",
        former: &[Former::everywhere("close_time", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "stop_timeout",
        kind: Kind::Seconds,
        default: Default::Is("1 s"),
        help: "How long $stop() of a server in R waits for unfinished responses",
        paragraph: "Connections that still send a response after this time are closed.",
        former: &[Former::everywhere("stop_time", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "ws_max_receive_queue_messages",
        kind: Kind::Count,
        default: Default::Is("4096"),
        min: 1.0,
        help: "Maximum number of WebSocket messages that wait for R",
        paragraph: "The limit is for all WebSockets together. At the limit, the server reads no \
                    more messages from clients until R has processed some of those that wait.",
        former: &[Former::everywhere("queue_messages", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "ws_max_receive_queue_size",
        kind: Kind::Bytes,
        default: Default::Is("8 MiB"),
        min: 1.0,
        help: "Maximum bytes of WebSocket messages that wait for R",
        paragraph: "The limit is for all WebSockets together. At the limit, the server reads no \
                    more messages from clients until R has processed some of those that wait.",
        former: &[Former::everywhere("queue_bytes", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "max_stream_queue_size",
        kind: Kind::Bytes,
        default: Default::Is("16 MiB"),
        min: 1.0,
        help: "Maximum bytes of a streamed response that wait for the client",
        paragraph: "A streamed response is sent to the client while the app still produces it. A \
                    client that reads so slowly that more bytes wait is disconnected.",
        former: &[Former::everywhere("stream_queue", Section::Limits)],
        ..ADVANCED
    },
];
