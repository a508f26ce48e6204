//! The internal limits, such as the share of memory for each purpose, as rows of the table of
//! settings. They are changed only for measurements.

use crate::kind::Kind;
use crate::setting::{Applies, Default, Group, Section, Setting, Stability};

const INTERNAL: Setting = Setting {
    r_function: "server_limits",
    group: Group::Limits,
    section: Section::Limits,
    stability: Stability::Internal,
    applies: Applies::AtRestart,
    ..Setting::EMPTY
};

pub(super) static ROWS: [Setting; 10] = [
    Setting {
        name: "disk_share",
        kind: Kind::Count,
        default: Default::Is("10"),
        min: 1.0,
        help: "Divisor of the file system's size that limits `disk_reserve`",
        paragraph: "`disk_reserve` is at most the size of the file system divided by this number. \
                    10 therefore means that at most a tenth of the file system is kept free.",
        ..INTERNAL
    },
    Setting {
        name: "kept_windows",
        kind: Kind::Count,
        default: Default::Is("64"),
        help: "Maximum WebSockets that keep a compression context",
        paragraph: "A WebSocket that keeps its compression context between messages compresses \
                    better, but takes 512 KiB of memory for it. Other WebSockets compress each \
                    message by itself.",
        ..INTERNAL
    },
    Setting {
        name: "pool_bytes",
        kind: Kind::Bytes,
        default: Default::Is("8 MiB"),
        help: "Memory of finished requests that is kept for new requests",
        paragraph: "The memory of 1,024 typical requests is 6 MiB.",
        ..INTERNAL
    },
    Setting {
        name: "share_connections",
        kind: Kind::Percent,
        default: Default::Is("20"),
        min: 1.0,
        max: 100.0,
        help: "Percentage of `max_client_memory` for open connections",
        paragraph: "Each open connection counts as 32 KiB, or 80 KiB with TLS.",
        ..INTERNAL
    },
    Setting {
        name: "share_requests",
        kind: Kind::Percent,
        default: Default::Is("15"),
        min: 1.0,
        max: 100.0,
        help: "Percentage of `max_client_memory` for request bodies in memory",
        paragraph: "Only requests larger than 8 KiB count. When this part of the memory is used \
                    up, further such requests get status 503.",
        ..INTERNAL
    },
    Setting {
        name: "share_messages",
        kind: Kind::Percent,
        default: Default::Is("15"),
        min: 1.0,
        max: 100.0,
        help: "Percentage of `max_client_memory` for partly received messages",
        paragraph: "The percentage is for WebSocket messages that have not arrived completely. \
                    When this part of the memory is used up, a WebSocket is closed with code 1013.",
        ..INTERNAL
    },
    Setting {
        name: "share_waiting",
        kind: Kind::Percent,
        default: Default::Is("5"),
        min: 1.0,
        max: 100.0,
        help: "Percentage of `max_client_memory` for messages that wait for R",
        paragraph: "The percentage is for WebSocket messages that have arrived and that R has not \
                    read yet. When this part of the memory is used up, the server stops reading \
                    from WebSockets.",
        ..INTERNAL
    },
    Setting {
        name: "share_queues",
        kind: Kind::Percent,
        default: Default::Is("20"),
        min: 1.0,
        max: 100.0,
        help: "Percentage of `max_client_memory` for data queued for clients",
        paragraph: "The data are WebSocket messages and streamed responses that clients have not \
                    read yet. When this part of the memory is used up, WebSockets are closed with \
                    code 1013, and streamed responses are cut off.",
        ..INTERNAL
    },
    Setting {
        name: "share_replies",
        kind: Kind::Percent,
        default: Default::Is("20"),
        min: 1.0,
        max: 100.0,
        help: "Percentage of `max_client_memory` for responses being sent",
        paragraph: "Only responses larger than 8 KiB count. When this part of the memory is used \
                    up, requests get status 503, or the server cuts off the largest response that \
                    its client does not read.",
        ..INTERNAL
    },
    Setting {
        name: "share_compressors",
        kind: Kind::Percent,
        default: Default::Is("5"),
        min: 1.0,
        max: 100.0,
        help: "Percentage of `max_client_memory` for response compression",
        paragraph: "When this part of the memory is used up, responses are sent uncompressed.",
        ..INTERNAL
    },
];
