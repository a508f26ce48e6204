//! Limits that are seldom set.

use super::FINITE;
use crate::kind::Kind;
use crate::setting::{Applies, Default, Former, Group, Section, Setting, Stability};

const ADVANCED: Setting = Setting {
    group: Group::Limits,
    section: Section::Limits,
    stability: Stability::Advanced,
    applies: Applies::WithAcceptingProcess,
    ..Setting::EMPTY
};

pub(super) static ROWS: [Setting; 21] = [
    Setting {
        name: "max_headers",
        key: "max_headers",
        kind: Kind::Count,
        default: Default::Is("2000"),
        min: 1.0,
        r_argument: "server_limits(max_headers)",
        help: "Header lines of a request; 431 above it",
        paragraph: "The server never takes more than 24,576.",
        former: &[Former::everywhere("header_lines", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "http2_max_header_list_size",
        key: "http2_max_header_list_size",
        kind: Kind::Bytes,
        default: Default::Is("32 KiB"),
        min: 1024.0,
        r_argument: "server_limits(http2_max_header_list_size)",
        help: "Largest request head over HTTP/2; 431 above it",
        paragraph: "Each header field counts 32 bytes more than its name and value (RFC 9113, 6.5.2). A \
                    connection that sends four times the limit is closed.",
        former: &[Former::everywhere("stream_head_bytes", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "http2_max_concurrent_streams",
        key: "http2_max_concurrent_streams",
        kind: Kind::Count,
        default: Default::Is("100"),
        min: 1.0,
        r_argument: "server_limits(http2_max_concurrent_streams)",
        help: "Requests at once on one HTTP/2 connection",
        paragraph: "Requests that their client has given up count while the app still has them.",
        former: &[Former::everywhere("streams", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "body_buffer_size",
        key: "body_buffer_size",
        kind: Kind::Bytes,
        default: Default::Is("1 MiB"),
        r_argument: "server_limits(body_buffer_size)",
        help: "Request bodies above this size are spooled to a file",
        paragraph: "A body up to this size stays in memory.",
        former: &[Former::everywhere("body_memory", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "disk_reserve",
        key: "disk_reserve",
        kind: Kind::Bytes,
        default: Default::Is("1 GiB"),
        r_argument: "server_limits(disk_reserve)",
        help: "Disk space that spooled bodies leave free; 507 otherwise",
        paragraph: "The reserve is at most the size of the file system divided by `disk_share`, so that \
                    bodies can be spooled to small file systems too.",
        ..ADVANCED
    },
    Setting {
        name: "tls_handshake_timeout",
        key: "tls_handshake_timeout",
        kind: Kind::Seconds,
        default: Default::Is("10 s"),
        min: 0.01,
        r_argument: "server_limits(tls_handshake_timeout)",
        help: "How long a TLS handshake may take",
        paragraph: "The time begins when the connection is accepted; the connection is closed after it.",
        former: &[Former::everywhere("handshake_time", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "tls_max_handshakes",
        key: "tls_max_handshakes",
        kind: Kind::Count,
        default: Default::Is("256"),
        min: 1.0,
        r_argument: "server_limits(tls_max_handshakes)",
        help: "TLS handshakes under way at once",
        paragraph: "Further connections wait to be accepted. Handshakes that wait for their client do \
                    not count.",
        former: &[Former::everywhere("handshakes", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "min_header_rate",
        key: "min_header_rate",
        kind: Kind::Rate,
        default: Default::Is("32 B/s"),
        max: FINITE,
        r_argument: "server_limits(min_header_rate)",
        help: "Slowest rate at which a request head may arrive; 0: none",
        paragraph: "A head that falls behind this rate by more than `header_grace` is refused with 408.",
        former: &[Former::everywhere("head_rate", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "header_grace",
        key: "header_grace",
        kind: Kind::Seconds,
        default: Default::Is("10 s"),
        min: 0.01,
        r_argument: "server_limits(header_grace)",
        help: "How long a request head may stall below its minimum rate",
        paragraph: "The default allows for three lost segments.",
        former: &[Former::everywhere("head_grace", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "min_body_rate",
        key: "min_body_rate",
        kind: Kind::Rate,
        default: Default::Is("512 B/s"),
        max: FINITE,
        r_argument: "server_limits(min_body_rate)",
        help: "Slowest rate at which a request body may arrive; 0: none",
        paragraph: "A body that falls behind this rate by more than `idle_timeout` is refused with 408.",
        former: &[Former::everywhere("body_rate", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "min_response_rate",
        key: "min_response_rate",
        kind: Kind::Rate,
        default: Default::Is("512 B/s"),
        max: FINITE,
        r_argument: "server_limits(min_response_rate)",
        help: "Slowest rate at which a client may read a response; 0: none",
        paragraph: "If a client falls behind this rate by more than `idle_timeout`, the connection is \
                    closed.",
        former: &[Former::everywhere("reply_rate", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "ws_max_send_queue_size",
        applies: Applies::AtReload,
        key: "ws_max_send_queue_size",
        kind: Kind::Bytes,
        default: Default::Is("64 MiB"),
        min: 1.0,
        r_argument: "server_limits(ws_max_send_queue_size)",
        help: "Bytes that may wait to be sent to one WebSocket",
        paragraph: "Above it, the WebSocket of a client that does not read is closed with 1013. If the \
                    client does not read the close frame either, the connection is dropped.",
        former: &[Former::everywhere("socket_queue", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "ws_min_rate",
        applies: Applies::AtReload,
        key: "ws_min_rate",
        kind: Kind::Rate,
        default: Default::Is("512 B/s"),
        max: FINITE,
        r_argument: "server_limits(ws_min_rate)",
        help: "Minimum rate of a WebSocket client within a message; 0: none",
        paragraph: "The rate applies within a message and to reading what is queued for the client. A \
                    client that falls behind it by more than `ws_stall_timeout` is closed with 1008.",
        former: &[Former::everywhere("message_rate", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "ws_stall_timeout",
        applies: Applies::AtReload,
        key: "ws_stall_timeout",
        kind: Kind::Seconds,
        default: Default::Is("15 min"),
        min: 0.01,
        r_argument: "server_limits(ws_stall_timeout)",
        help: "How long a WebSocket client may stall below its minimum rate",
        paragraph: "A laptop whose lid was closed finds its session again within the default.",
        former: &[Former::everywhere("stall_time", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "ws_ping_interval",
        applies: Applies::AtReload,
        key: "ws_ping_interval",
        kind: Kind::Seconds,
        default: Default::Is("20 s"),
        min: 0.01,
        r_argument: "server_limits(ws_ping_interval)",
        help: "How often an idle WebSocket is sent a ping",
        paragraph: "Pings keep proxies from closing connections that are silent.",
        former: &[Former::everywhere("ping_time", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "ws_ping_timeout",
        applies: Applies::AtReload,
        key: "ws_ping_timeout",
        kind: Kind::Seconds,
        default: Default::Is("15 min"),
        min: 0.01,
        r_argument: "server_limits(ws_ping_timeout)",
        help: "Close a WebSocket that is silent for this long after a ping",
        paragraph: "Browsers answer pings by themselves. Any byte counts as an answer.",
        former: &[Former::everywhere("pong_time", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "ws_close_timeout",
        key: "ws_close_timeout",
        kind: Kind::Seconds,
        default: Default::Is("5 s"),
        min: 0.01,
        r_argument: "server_limits(ws_close_timeout)",
        help: "How long a client may take to answer a close frame",
        paragraph: "The connection is dropped after it.",
        former: &[Former::everywhere("close_time", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "stop_timeout",
        key: "stop_timeout",
        kind: Kind::Seconds,
        default: Default::Is("1 s"),
        r_argument: "server_limits(stop_timeout)",
        help: "How long $stop() waits for responses that are under way",
        paragraph: "Connections that are not idle by then are closed.",
        former: &[Former::everywhere("stop_time", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "ws_max_receive_queue_messages",
        key: "ws_max_receive_queue_messages",
        kind: Kind::Count,
        default: Default::Is("4096"),
        min: 1.0,
        r_argument: "server_limits(ws_max_receive_queue_messages)",
        help: "WebSocket messages that may wait for R",
        paragraph: "The server reads no further messages above it.",
        former: &[Former::everywhere("queue_messages", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "ws_max_receive_queue_size",
        key: "ws_max_receive_queue_size",
        kind: Kind::Bytes,
        default: Default::Is("8 MiB"),
        min: 1.0,
        r_argument: "server_limits(ws_max_receive_queue_size)",
        help: "Bytes of WebSocket messages that may wait for R",
        paragraph: "The server reads no further messages above it.",
        former: &[Former::everywhere("queue_bytes", Section::Limits)],
        ..ADVANCED
    },
    Setting {
        name: "max_stream_queue_size",
        key: "max_stream_queue_size",
        kind: Kind::Bytes,
        default: Default::Is("16 MiB"),
        min: 1.0,
        r_argument: "server_limits(max_stream_queue_size)",
        help: "Bytes of one streamed response that may wait for its client",
        paragraph: "A client that does not read is disconnected above it.",
        former: &[Former::everywhere("stream_queue", Section::Limits)],
        ..ADVANCED
    },
];
