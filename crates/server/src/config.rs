//! Every limit of the server, with its default and the reason for it.

use std::time::Duration;

pub use named_limits::{LimitKind, NamedLimit};

mod named_limits;

/// How a server is set up.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// What peers may do.
    pub limits: Limits,
    /// What may wait for the application.
    pub queue: rookery_exchange::QueueLimits,
    /// Has the program's allocator give back to the system what is free: called on the I/O thread, with whether all of it, between
    /// bursts of connections. May take some milliseconds for each 10 MB, once a burst; must not block. Default: nothing, as `malloc` has no cheap way.
    pub trim: Option<fn(bool)>,
}

/// What peers may do. Past a limit a client gets the status named with it, or its connection is closed.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of a request's head: 431. Default 96 KiB: httpuv takes 80 KiB, and apps send cookies of that size. Looked
    /// at when the buffer is full, so that a head whose end comes with its last read may be that read longer.
    pub max_header_size: usize,
    /// Header lines of a request: 431. Default 2,000, as many as clients of httpuv have been seen to send. More than 24,576 count as
    /// so many: the table of headers holds no more, and room for all is made for a head of more than 100.
    pub max_headers: usize,
    /// Bytes of a request's head over HTTP/2, with 32 for each line (RFC 9113, 6.5.2): 431, and the end of the connection past
    /// four times as much. Default 32 KiB: there a line costs its peer a byte, and a connection has many heads.
    pub http2_max_header_list_size: usize,
    /// Requests of an HTTP/2 connection at a time, with those that their client gave up and the application still has: refused,
    /// to be tried again. Default 100, the least that RFC 9113 (6.5.2) recommends.
    pub http2_max_concurrent_streams: usize,
    /// Bytes of a request's body: 413. Unlimited by default, as with httpuv: Shiny and plumber have limits of their own.
    pub max_body_size: u64,
    /// Bytes of a body kept in memory; a longer one goes to a temporary file. Default 1 MiB.
    pub body_buffer_size: usize,
    /// What a spooled body must leave free on its file system: 507. Default 1 GiB, or a tenth where that is less.
    pub disk_reserve: u64,
    /// The reserve is never more than this part of the file system, so that a small one takes bodies at all: a tenth
    /// is 10, the default.
    pub disk_share: u64,
    /// How long the handshake of TLS may take, from when the connection was accepted: it is closed. Default 10 s, some ten
    /// round trips of a bad line with lost segments.
    pub tls_handshake_timeout: Duration,
    /// Handshakes of TLS under way at a time, without those that wait for their client: more wait to be accepted. Default 256: they take the I/O thread for 40 ms, and with RSA for a tenth of a second.
    pub tls_max_handshakes: usize,
    /// How long a head may take, from when the connection was accepted or, after a reply, from its first byte: 408, or
    /// a close if none came. Default 30 s.
    pub header_timeout: Duration,
    /// Bytes a second that a head has to bring, behind which it may be by [`header_grace`](Self::header_grace): 408. 0 asks
    /// for none. Default 32, so that an ordinary head has its 30 seconds and nothing has them for a byte at a time.
    pub min_header_rate: u32,
    /// How long a head may stand still. Default 10 s: three lost segments.
    pub header_grace: Duration,
    /// Bytes a second that a body has to bring, behind which it may be by [`idle_timeout`](Self::idle_timeout): 408. 0 asks for
    /// none. Default 512, a tenth of what a telephone with bad reception sends.
    pub min_body_rate: u32,
    /// Bytes a second that a client has to take of a reply, likewise: the connection is closed. Default 512.
    pub min_response_rate: u32,
    /// How long a connection may be idle between requests, or a body or a reply make no progress: the connection is
    /// closed. Default 120 s, twice what proxies keep connections for.
    pub idle_timeout: Duration,
    /// How long the application may take to answer a request that it has been given whole, or the head of: 504. The application is not
    /// told, and its answer is thrown away. Default none ([`Duration::MAX`]), as with httpuv: models are fitted in handlers.
    pub request_timeout: Duration,
    /// Connections at once. A newcomer past that gets the seat of the slowest that is idle, has not sent its head for a
    /// second, or is behind its rate; when all are being served it is told 503. Default 10,000.
    pub max_connections: usize,
    /// Connections of one IPv4 address, or of one IPv6 network of 64 bits: 503. Default none, because behind a proxy
    /// all clients have one address.
    pub max_connections_per_ip: usize,
    /// Bytes of a WebSocket message: close code 1009. Default 64 MiB, what Shiny Server takes.
    pub ws_max_message_size: u64,
    /// Bytes that may wait to be sent to one WebSocket, behind the message that is being sent: past that its peer does
    /// not read, and it ends with 1013, or is dropped when the peer does not read that either. From a quarter of it on, no more
    /// than 256 KiB and the rest of a message are read of the peer until it has read half of that quarter. What the application has not
    /// answered yet is not counted: one that answers each message with one as long never exceeds 12 MiB and four times its largest
    /// message (with the default of [`QueueLimits::ws_max_receive_queue_size`](rookery_exchange::QueueLimits::ws_max_receive_queue_size)), and with less it
    /// may. Default 64 MiB, as much as one message may have.
    pub ws_max_send_queue_size: usize,
    /// Bytes a second that a WebSocket's peer has to send inside a message, and to read of what waits for it, behind
    /// which it may be by [`ws_stall_timeout`](Self::ws_stall_timeout): close code 1008, or dropped when it does not read. 0 asks for
    /// none. Default 512.
    pub ws_min_rate: u32,
    /// How long a WebSocket's peer may stand still inside a message, or read nothing of what waits for it. Default 15
    /// minutes: a laptop whose lid was closed finds its session again, as with httpuv, where the system gives up then.
    pub ws_stall_timeout: Duration,
    /// How often a WebSocket is sent a ping, for the sake of proxies that cut what is silent. Default 20 s.
    pub ws_ping_interval: Duration,
    /// How long nothing at all may come from a WebSocket's peer after a ping, which its software answers by itself: it is dropped
    /// then, and the application told 1006. Any byte counts, and time in which the server does not read does not. Default 15
    /// minutes, as [`ws_stall_timeout`](Self::ws_stall_timeout): a laptop whose lid is closed keeps its session for so long.
    pub ws_ping_timeout: Duration,
    /// WebSockets at once whose compressed messages may refer back to earlier ones, at 512 KiB each: the messages of others are
    /// compressed each by itself. Default 64.
    pub kept_windows: usize,
    /// How long a peer may take to answer a close frame, after it last took some of what was sent before. Default 5 s.
    pub ws_close_timeout: Duration,
    /// Bytes that peers may make the server hold, all together; what the application holds is not counted. None: a
    /// quarter of what the process may use (the machine's memory, its control groups, its limit on address space),
    /// and 32 MiB at least. Past a share of it, whoever holds the most, or comes last, is told 503 or 1013.
    pub max_client_memory: Option<usize>,
    /// How that is split.
    pub shares: Shares,
    /// Bytes of exchanges kept for reuse. Default 8 MiB: 1,024 after ordinary requests have 6.
    pub pool_bytes: usize,
    /// How long stopping a listener waits for replies that are on their way. Default 1 s.
    pub stop_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_header_size: 96 << 10,
            max_headers: 2000,
            http2_max_header_list_size: 32 << 10,
            http2_max_concurrent_streams: 100,
            max_body_size: u64::MAX,
            body_buffer_size: 1 << 20,
            disk_reserve: 1 << 30,
            disk_share: 10,
            tls_handshake_timeout: Duration::from_secs(10),
            tls_max_handshakes: 256,
            header_timeout: Duration::from_secs(30),
            min_header_rate: 32,
            header_grace: Duration::from_secs(10),
            min_body_rate: 512,
            min_response_rate: 512,
            idle_timeout: Duration::from_secs(120),
            request_timeout: Duration::MAX,
            max_connections: 10_000,
            max_connections_per_ip: usize::MAX,
            ws_max_message_size: 64 << 20,
            ws_max_send_queue_size: 64 << 20,
            ws_min_rate: 512,
            ws_stall_timeout: Duration::from_secs(15 * 60),
            ws_ping_interval: Duration::from_secs(20),
            ws_ping_timeout: Duration::from_secs(15 * 60),
            kept_windows: 64,
            ws_close_timeout: Duration::from_secs(5),
            max_client_memory: None,
            shares: Shares::default(),
            pool_bytes: 8 << 20,
            stop_timeout: Duration::from_secs(1),
        }
    }
}

/// How [`Limits::max_client_memory`] is split, in percent: so that one kind of attack leaves room for all other work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// Connections, at 32 KiB each (80 with TLS) and what longer heads need: the slowest gives its seat up, or 503. Default 20.
    pub connections: u8,
    /// Requests in memory that are larger than 8 KiB: 503. Default 15.
    pub requests: u8,
    /// WebSocket messages that have not come whole: 1013. Default 15.
    pub messages: u8,
    /// WebSocket messages that wait for the application: reading them stops, as past
    /// [`ws_max_receive_queue_size`](rookery_exchange::QueueLimits::ws_max_receive_queue_size). Default 5.
    pub waiting: u8,
    /// What waits to be sent to WebSockets: 1013; and of replies that come in pieces: they are cut off. Default 20.
    pub queues: u8,
    /// Replies larger than 8 KiB that are being sent, each counted as a quarter of this at most: 503, or the largest that
    /// is not read is cut off. Default 20.
    pub replies: u8,
    /// Compressors of replies larger than 64 KiB, at 512 KiB each: they leave uncompressed; and of WebSockets whose messages refer
    /// back to earlier ones: they do not then. Default 5.
    pub compressors: u8,
}

impl Default for Shares {
    fn default() -> Shares {
        Shares {
            connections: 20,
            requests: 15,
            messages: 15,
            waiting: 5,
            queues: 20,
            replies: 20,
            compressors: 5,
        }
    }
}
