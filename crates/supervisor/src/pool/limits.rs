//! Settings of the pool.

use std::time::Duration;

use super::balancing::session_affinity::SessionAffinity;

/// Limits and choices of the pool.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "choices that have nothing to do with each other")]
pub struct PoolLimits {
    /// The maximum number of requests that wait for a worker. Further requests get 503. Default: 1,024,
    /// as in a server without workers.
    pub max_queued_requests: usize,
    /// The maximum time that a request waits, in the queue or in a worker whose R process has not begun
    /// it. After it the client gets 503. Default: 10 s, because a client that has waited that long has
    /// disconnected, or will not wait another such time.
    pub queue_timeout: Duration,
    /// The maximum number of requests that a worker has at a time, including those that wait for a
    /// promise. Default: 64.
    pub max_in_flight: usize,
    /// The minimum number of requests that a worker is sent before its R process is free for them.
    /// Default: 0, which means as many as take R a millisecond.
    pub min_ahead: usize,
    /// The maximum number of bytes of a streamed response that wait to be written. Default: 16 MiB, as in
    /// a server without workers.
    pub max_stream_queue_size: usize,
    /// The maximum number of WebSockets of a worker, including those that pages which it has just sent
    /// will open. Further sessions get 503. Default: no limit.
    pub max_sessions: usize,
    /// Whether a GET, HEAD or OPTIONS request is sent to another worker, once, if its worker ended after
    /// R had begun the request and before the head of the response. Default: no, because an app may have
    /// side effects for these methods as well.
    pub retry_safe_methods: bool,
    /// Whether a client that has sent a FIN after its request gets a response although the request had to
    /// wait. Default: no. Such a client counts as disconnected, as with `HAProxy`'s `abortonclose`,
    /// because most clients that send a FIN have disconnected.
    pub keep_half_closed: bool,
    /// Whether the requests of a session are sent to the same worker.
    pub session_affinity: SessionAffinity,
    /// The end of the name of the session cookie, in characters that a cookie's name may have (RFC 6265,
    /// 4.1.1). Default: empty, which is right for a host with one server.
    pub cookie_suffix: String,
    /// Whether pages of other sites may embed the app's pages over HTTPS, so that browsers have to send
    /// the session cookie from there. Default: no.
    pub is_embedded: bool,
}

impl Default for PoolLimits {
    fn default() -> PoolLimits {
        PoolLimits {
            max_queued_requests: 1024,
            queue_timeout: Duration::from_secs(10),
            max_in_flight: 64,
            min_ahead: 0,
            max_stream_queue_size: 16 << 20,
            max_sessions: usize::MAX,
            retry_safe_methods: false,
            keep_half_closed: false,
            session_affinity: SessionAffinity::Auto,
            cookie_suffix: String::new(),
            is_embedded: false,
        }
    }
}
