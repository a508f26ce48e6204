//! The configuration of a server: every limit, its default, and the reason for the default.

use std::time::Duration;

/// The configuration of a server: its limits, and how it returns free memory to the operating
/// system.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The limits on what clients can make the server do: sizes, rates, times, numbers and memory.
    pub limits: Limits,
    /// The limits on requests and WebSocket messages that are queued for the application.
    pub queue: rookery_exchange::QueueLimits,
    /// A function that makes the program's allocator return free memory to the operating system.
    /// Its argument is true if all free memory is to be returned, and false if only the memory that
    /// can be returned at little cost. The I/O thread calls the function between bursts of
    /// connections, and serves no client meanwhile. A call should take at most a few milliseconds
    /// for each 10 MB of memory. `None` by default, because `malloc` has no cheap way to return
    /// memory.
    pub trim: Option<fn(bool)>,
}

impl Config {
    /// Sets the limit that users call `name`. Infinity means no limit. Returns false if users
    /// cannot set a limit of this name. They cannot set the other limits, because the defaults
    /// protect the server, and nobody has been seen to need other values.
    #[allow(clippy::cast_sign_loss, reason = "a negative number becomes 0")]
    pub fn set_limit(&mut self, name: &str, value: f64) -> bool {
        let limits = &mut self.limits;
        let time = || Duration::try_from_secs_f64(value).unwrap_or(Duration::MAX);
        // A number that is too large becomes the largest one.
        let count = value as usize;
        match name {
            "max_header_size" => limits.max_header_size = count,
            "max_body_size" => limits.max_body_size = value as u64,
            "header_timeout" => limits.header_timeout = time(),
            "idle_timeout" => limits.idle_timeout = time(),
            "request_timeout" => limits.request_timeout = time(),
            "max_connections" => limits.max_connections = count,
            "max_connections_per_ip" => limits.max_connections_per_ip = count,
            "ws_max_message_size" => limits.ws_max_message_size = value as u64,
            "max_client_memory" => limits.max_client_memory = Some(count),
            "max_queued_requests" => self.queue.max_queued_requests = count,
            _ => return false,
        }
        true
    }
}

/// The limits that apply to clients. The comment on each limit names the response status if the
/// limit is exceeded, or states that the connection is closed.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The maximum size of a request head, in bytes. A larger head is rejected with status 431.
    /// Default 96 KiB, because httpuv accepts 80 KiB, and some apps send cookies of that size. The
    /// size is only checked when the read buffer is full, so a slightly larger head may be
    /// accepted.
    pub max_header_size: usize,
    /// The maximum number of header lines of a request. A request with more lines is rejected with
    /// status 431. Default 2,000, the most that clients of httpuv have been seen to send. Values
    /// over 24,576 have the same effect as 24,576.
    // 24,576 is the capacity of the header table. For each head with more than 100 lines, the
    // server allocates a table for the maximum number of lines.
    pub max_headers: usize,
    /// The maximum size of an HTTP/2 request head, in bytes. Each header line counts 32 bytes more
    /// than its length (RFC 9113, 6.5.2). A larger head is rejected with status 431. A head that is
    /// three times as large may close the connection. Default 32 KiB. This is less than for
    /// HTTP/1.1, because a compressed header line can be as short as one byte, and a connection can
    /// have many requests at once.
    pub http2_max_header_list_size: usize,
    /// The maximum number of concurrent requests of an HTTP/2 connection. Requests that the client
    /// has cancelled still count while the application processes them. Further requests are refused
    /// in such a way that the client can retry them. Default 100, the smallest value that RFC 9113
    /// (6.5.2) recommends.
    pub http2_max_concurrent_streams: usize,
    /// The maximum size of a request body, in bytes. A larger body is rejected with status 413.
    /// Unlimited by default, as in httpuv, because Shiny and plumber have limits of their own.
    pub max_body_size: u64,
    /// The maximum size in bytes of a request body that is kept in memory. A longer body is spooled
    /// to a temporary file. Default 1 MiB.
    pub body_buffer_size: usize,
    /// The disk space in bytes that must remain free on the file system to which request bodies are
    /// spooled. A body that would leave less is rejected with status 507. Default 1 GiB, or a tenth
    /// of the file system if that is less.
    pub disk_reserve: u64,
    /// The divisor that limits [`disk_reserve`](Self::disk_reserve) on small file systems: the
    /// reserve is at most the size of the file system divided by this number. Default 10.
    pub disk_share: u64,
    /// The maximum time for a TLS handshake, counted from the acceptance of the connection. After
    /// that time the connection is closed. Default 10 s, which is about ten round trips on a bad
    /// link with lost segments.
    pub tls_handshake_timeout: Duration,
    /// The maximum time in which a client must send a request head. It is counted from the
    /// acceptance of the connection or, after a response, from the first byte of the next head.
    /// After that time the client gets status 408, or the connection is closed if no byte of the
    /// head was received. Default 30 s.
    pub header_timeout: Duration,
    /// The minimum rate at which a client must send a request head, in bytes per second. The client
    /// may fall behind this rate for [`header_grace`](Self::header_grace), and then gets status
    /// 408. 0 turns the check off. Default 32, at which an ordinary head takes 30 s.
    pub min_header_rate: u32,
    /// The maximum time for which a client may make no progress in sending a request head. Default
    /// 10 s, enough for three lost segments.
    pub header_grace: Duration,
    /// The minimum rate at which a client must send a request body, in bytes per second. The client
    /// may fall behind this rate for [`idle_timeout`](Self::idle_timeout), and then gets status
    /// 408. 0 turns the check off. Default 512, a tenth of what a mobile phone with bad reception
    /// sends.
    pub min_body_rate: u32,
    /// The minimum rate at which a client must read a response, in bytes per second. The client may
    /// fall behind this rate for [`idle_timeout`](Self::idle_timeout). After that its connection is
    /// closed. 0 turns the check off. Default 512.
    pub min_response_rate: u32,
    /// The maximum time for which a connection may be idle between requests, or make no progress in
    /// a request body or a response. After that time the connection is closed. Default 120 s, twice
    /// the time for which proxies usually keep connections.
    pub idle_timeout: Duration,
    /// The time in which the application must respond to a request that it has received. If the
    /// application reads the request body itself, the time begins when it receives the request
    /// head. After that time the client gets status 504. The application is not notified, and its
    /// response is discarded. No limit by default ([`Duration::MAX`]), as in httpuv, because some
    /// handlers compute for a long time, for example to fit a statistical model.
    pub request_timeout: Duration,
    /// The maximum number of concurrent connections. When it is reached, a new connection replaces
    /// one of the address that has the most connections, if its own address would have fewer.
    /// Otherwise, it replaces the slowest connection of the addresses that have the most, among
    /// those that have not sent their heads, have been idle for a second, or are behind their
    /// minimum rates. If there is none, the new one gets status 503. Default 10,000.
    pub max_connections: usize,
    /// Whether a connection is replaced as soon as the connection is idle or the server waits for
    /// its client, when [`max_connections`](Self::max_connections) is reached. For servers that
    /// must always respond to a new client and whose clients can connect again, such as one for
    /// health checks. If all connections are being served, a new one waits up to a second for its
    /// turn. False by default.
    pub evicts_at_once: bool,
    /// The maximum number of connections from one IPv4 address, or from one IPv6 network with a
    /// prefix of 64 bits. Further connections get status 503. No limit by default, because behind a
    /// proxy all clients have the same address.
    pub max_connections_per_ip: usize,
    /// The maximum size of a WebSocket message from a client, in bytes. A larger message closes the
    /// WebSocket with code 1009. Default 64 MiB, as in Shiny Server.
    pub ws_max_message_size: u64,
    /// The maximum number of bytes that are queued for the client of one WebSocket, in addition to
    /// the message that is being sent. When the queue grows beyond this maximum, the WebSocket is
    /// closed with code 1013, or dropped if the client does not read the close frame either.
    /// Default 64 MiB, the maximum size of one message.
    ///
    /// If the application answers each message with one of equal size, the maximum should be at
    /// least 12 MiB plus four times the largest message. With less, the WebSocket of a client that
    /// behaves well may be closed.
    // Once a quarter of this maximum is queued, the server reads only 256 KiB and the rest of the
    // current message from the client, until the client has read half of that quarter. Messages
    // that the application has not sent yet do not count. If an application answers each message
    // with one of equal size, the queue never exceeds 12 MiB plus four times the largest message,
    // with the default of `QueueLimits::ws_max_receive_queue_size`.
    pub ws_max_send_queue_size: usize,
    /// The minimum rate in bytes per second at which the client of a WebSocket must send a message
    /// that it has begun, and read the messages that are queued for it. The client may fall behind
    /// this rate for [`ws_stall_timeout`](Self::ws_stall_timeout). After that the WebSocket is
    /// closed with code 1008, or dropped if the client does not read. 0 turns the check off.
    /// Default 512.
    pub ws_min_rate: u32,
    /// The maximum time for which the client of a WebSocket may make no progress in sending a
    /// message or in reading the messages that are queued for it. Default 15 minutes, so that a
    /// laptop whose lid was closed finds its session again.
    pub ws_stall_timeout: Duration,
    /// The interval at which a ping is sent to each WebSocket, so that proxies do not close silent
    /// connections. Default 20 s.
    pub ws_ping_interval: Duration,
    /// The maximum time for which the client may send nothing after a WebSocket ping, to which
    /// WebSocket software responds automatically. After that time the WebSocket is dropped, and the
    /// application receives the close code 1006. Time in which the server does not read from the
    /// client is not counted. Default 15 minutes, so that a laptop whose lid is closed keeps its
    /// session.
    pub ws_ping_timeout: Duration,
    /// The maximum number of WebSockets that compress messages with context takeover, which means
    /// that each message reuses the compression window of the previous one. This needs 512 KiB of
    /// memory for each WebSocket. Further WebSockets compress each message separately. Default 64.
    pub kept_windows: usize,
    /// The maximum time for which the server waits for a client's response to a WebSocket close
    /// frame. The time starts again whenever the client reads some of the data that was queued
    /// before the frame. Default 5 s.
    pub ws_close_timeout: Duration,
    /// The maximum memory in bytes that all clients together can make the server use, without the
    /// memory of the application. It is divided into [shares](rookery_exchange::Share). When a
    /// share is used up, the client that uses the most of it, or the newest client, gets status 503
    /// or close code 1013. By default (`None`), the maximum is a quarter of the memory that the
    /// process may use, but at least 32 MiB. The process's memory is limited by the machine, its
    /// control groups and the limit on its address space.
    pub max_client_memory: Option<usize>,
    /// The maximum memory in bytes of exchanges (each a request with its response) that are kept
    /// for reuse. Default 8 MiB, because 1,024 exchanges of ordinary requests need 6 MiB.
    pub pool_bytes: usize,
    /// The maximum time for which a listener that is being stopped waits for its unfinished
    /// responses to be sent. Default 1 s.
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
            header_timeout: Duration::from_secs(30),
            min_header_rate: 32,
            header_grace: Duration::from_secs(10),
            min_body_rate: 512,
            min_response_rate: 512,
            idle_timeout: Duration::from_secs(120),
            request_timeout: Duration::MAX,
            max_connections: 10_000,
            evicts_at_once: false,
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
            pool_bytes: 8 << 20,
            stop_timeout: Duration::from_secs(1),
        }
    }
}
