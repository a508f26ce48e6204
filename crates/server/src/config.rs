//! The configuration of a server, with every limit, its default and the reason for the default.

use std::time::Duration;

pub use named_limits::{LimitKind, NamedLimit};

mod named_limits;

/// The configuration of a server.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The limits that apply to clients.
    pub limits: Limits,
    /// The limits on requests and messages that wait for the application.
    pub queue: rookery_exchange::QueueLimits,
    /// A function that makes the program's allocator return free memory to the system. Called on
    /// the I/O thread between bursts of connections. The argument is true if all free memory is to
    /// be returned, and false if only memory that can be returned at little cost is. The function
    /// may take some milliseconds for each 10 MB once per burst, and must not block. `None` by
    /// default, because `malloc` has no cheap way to do this.
    pub trim: Option<fn(bool)>,
}

/// The limits that apply to clients. For each, the comment names the status of the response when
/// the limit is exceeded, or states that the connection is closed.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The maximum size of a request head, in bytes. Status 431. Default 96 KiB, because httpuv
    /// accepts 80 KiB, and some apps send cookies of that size. The size is checked when the read
    /// buffer is full, so that a head may exceed the limit by the last read.
    pub max_header_size: usize,
    /// The maximum number of header lines of a request. Status 431. Default 2,000, the most that
    /// clients of httpuv have been seen to send. Values over 24,576 have the same effect as 24,576,
    /// the capacity of the header table. For a head with more than 100 lines, memory for the
    /// maximum is allocated.
    pub max_headers: usize,
    /// The maximum size of a request head over HTTP/2, in bytes, plus 32 for each line (RFC 9113,
    /// 6.5.2). Status 431; the connection is closed if a head is four times as large. Default 32
    /// KiB, which is less than over HTTP/1.1, because in HTTP/2 a client can send a header line
    /// with one byte and a connection can have many heads.
    pub http2_max_header_list_size: usize,
    /// The maximum number of concurrent requests of an HTTP/2 connection. Requests that the client
    /// has cancelled count while the application is processing them. Further requests are refused,
    /// so that the client can retry them. Default 100, the smallest value that RFC 9113 (6.5.2)
    /// recommends.
    pub http2_max_concurrent_streams: usize,
    /// The maximum size of a request body, in bytes. Status 413. Unlimited by default, as in
    /// httpuv, because Shiny and plumber have limits of their own.
    pub max_body_size: u64,
    /// The maximum size of a request body that is kept in memory, in bytes. A longer body is
    /// spooled to a temporary file. Default 1 MiB.
    pub body_buffer_size: usize,
    /// The bytes that spooled bodies must leave free on their file system. Status 507. Default 1
    /// GiB, or a tenth of the file system if that is less.
    pub disk_reserve: u64,
    /// The divisor that bounds the reserve on small file systems. The reserve is at most the size
    /// of the file system divided by this number. Default 10.
    pub disk_share: u64,
    /// The maximum time for the TLS handshake, from the acceptance of the connection. The
    /// connection is closed after that time. Default 10 s, which is about ten round trips on a bad
    /// link with lost segments.
    pub tls_handshake_timeout: Duration,
    /// The maximum number of concurrent TLS handshakes, not counting those that wait for the
    /// client. Further connections are not accepted until a handshake is done. Default 256, for
    /// which the I/O thread needs 40 ms, or 100 ms with RSA keys.
    pub tls_max_handshakes: usize,
    /// The maximum time for a request head, from the acceptance of the connection or, after a
    /// response, from the first byte of the head. Status 408, or the connection is closed if no
    /// byte was received. Default 30 s.
    pub header_timeout: Duration,
    /// The minimum rate for a request head, in bytes per second. The client may fall behind the
    /// rate for [`header_grace`](Self::header_grace). Status 408. 0 turns the check off. Default
    /// 32, so that an ordinary head may take 30 s, but a client cannot use that time by sending
    /// single bytes.
    pub min_header_rate: u32,
    /// The maximum time for which a request head may make no progress. Default 10 s, enough for
    /// three lost segments.
    pub header_grace: Duration,
    /// The minimum rate for a request body, in bytes per second. The client may fall behind the
    /// rate for [`idle_timeout`](Self::idle_timeout). Status 408. 0 turns the check off. Default
    /// 512, a tenth of what a mobile phone with bad reception sends.
    pub min_body_rate: u32,
    /// The minimum rate at which a client must read a response, in bytes per second. The client may
    /// fall behind the rate for [`idle_timeout`](Self::idle_timeout). The connection is closed. 0
    /// turns the check off. Default 512.
    pub min_response_rate: u32,
    /// The maximum time for which a connection may be idle between requests, or a body or a
    /// response may make no progress. The connection is closed. Default 120 s, twice the time for
    /// which proxies usually keep connections.
    pub idle_timeout: Duration,
    /// The time within which the application must respond after it has received the request, or the
    /// request head if it reads the body itself. Status 504. The application is not notified, and
    /// its response is discarded. No limit by default ([`Duration::MAX`]), as in httpuv, because
    /// some handlers fit models.
    pub request_timeout: Duration,
    /// The maximum number of concurrent connections. A further connection evicts the slowest one
    /// that is idle, has not sent its head within a second, or is behind its minimum rate. If all
    /// connections are being served, the status is 503. Default 10,000.
    pub max_connections: usize,
    /// The maximum number of connections of one IPv4 address, or of one IPv6 network with a prefix
    /// of 64 bits. Status 503. No limit by default, because behind a proxy all clients have one
    /// address.
    pub max_connections_per_ip: usize,
    /// The maximum size of a WebSocket message, in bytes. Close code 1009. Default 64 MiB, as in
    /// Shiny Server.
    pub ws_max_message_size: u64,
    /// The maximum number of bytes that are queued for one WebSocket, in addition to the message
    /// that is being sent. If it is exceeded, the client does not read, so that the WebSocket is
    /// closed with code 1013, or dropped if the client does not read the close frame either.
    /// Default 64 MiB, the maximum size of one message.
    ///
    /// Once a quarter of this is queued, the server reads only 256 KiB and the rest of the current
    /// message from the client, until the client has read half of that quarter. Responses that the
    /// application has not sent yet do not count. If an application sends, for each message, one of
    /// the same size, the queue never exceeds 12 MiB plus four times the largest message, with the
    /// default of
    /// [`ws_max_receive_queue_size`](rookery_exchange::QueueLimits::ws_max_receive_queue_size).
    /// A smaller limit may therefore close the WebSocket of a client that behaves well.
    pub ws_max_send_queue_size: usize,
    /// The minimum rate at which the client of a WebSocket must send the rest of a message and read
    /// queued messages, in bytes per second. The client may fall behind the rate for
    /// [`ws_stall_timeout`](Self::ws_stall_timeout). Close code 1008, or the WebSocket is dropped
    /// if the client does not read. 0 turns the check off. Default 512.
    pub ws_min_rate: u32,
    /// The maximum time for which the client of a WebSocket may make no progress within a message
    /// or in reading queued messages. Default 15 minutes, so that a laptop whose lid was closed
    /// finds its session again. With httpuv, the operating system gives up after about that time.
    pub ws_stall_timeout: Duration,
    /// The interval at which a ping is sent to each WebSocket, so that proxies do not close silent
    /// connections. Default 20 s.
    pub ws_ping_interval: Duration,
    /// The maximum time after a ping within which any byte must arrive from the client of a
    /// WebSocket, whose software responds to pings by itself. After that time the WebSocket is
    /// dropped, and the application receives the code 1006. Time in which the server does not read
    /// does not count. Default 15 minutes, as for [`ws_stall_timeout`](Self::ws_stall_timeout), so
    /// that a laptop whose lid is closed keeps its session.
    pub ws_ping_timeout: Duration,
    /// The maximum number of WebSockets that compress messages with context takeover, which needs
    /// 512 KiB for each. Messages of further WebSockets are compressed individually. Default 64.
    pub kept_windows: usize,
    /// The maximum time for a client to respond to a close frame, after it last read some of the
    /// data sent before. Default 5 s.
    pub ws_close_timeout: Duration,
    /// The memory that all clients together can make the server use, in bytes, without the memory
    /// that the application uses. When a share of it is used up, the client that uses the most, or
    /// the newest, gets status 503 or close code 1013. Default (`None`) a quarter of the memory
    /// that the process may use according to the machine, the control groups and the limit on
    /// address space, but at least 32 MiB.
    pub max_client_memory: Option<usize>,
    /// The division of [`max_client_memory`](Self::max_client_memory) into shares.
    pub shares: Shares,
    /// The memory of exchanges that is kept for reuse, in bytes. Default 8 MiB, of which 1,024
    /// exchanges of ordinary requests use 6 MiB.
    pub pool_bytes: usize,
    /// The time for which stopping a listener waits for responses that are being sent. Default 1 s.
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

/// The shares of [`Limits::max_client_memory`] for different purposes, in percent. They prevent
/// that one kind of attack uses the memory for all other work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// The share of connections, which use 32 KiB each (80 KiB with TLS) and more for longer heads.
    /// When it is used up, the slowest connection is evicted, or the status is 503. Default 20.
    pub connections: u8,
    /// The share of requests in memory that are larger than 8 KiB. When it is used up, the status
    /// is 503. Default 15.
    pub requests: u8,
    /// The share of WebSocket messages that have been received in part. When it is used up, the
    /// close code is 1013. Default 15.
    pub messages: u8,
    /// The share of WebSocket messages that wait for the application. When it is used up, the
    /// server stops reading messages, as it does for
    /// [`ws_max_receive_queue_size`](rookery_exchange::QueueLimits::ws_max_receive_queue_size).
    /// Default 5.
    pub waiting: u8,
    /// The share of data that is queued for WebSockets and streamed responses. When it is used up,
    /// a WebSocket is closed with code 1013, and a streamed response is cut off. Default 20.
    pub queues: u8,
    /// The share of responses larger than 8 KiB that are being sent. Each counts as at most a
    /// quarter of the share. When it is used up, the status is 503, or the largest response that
    /// its client does not read is cut off. Default 20.
    pub replies: u8,
    /// The share of compressors, which use 512 KiB each, for responses larger than 64 KiB and for
    /// WebSockets with context takeover. When it is used up, responses are sent uncompressed, and
    /// WebSockets do without context takeover. Default 5.
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
