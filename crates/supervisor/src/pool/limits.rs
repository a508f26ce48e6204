//! The settings of the pool, which assigns requests to worker processes.

use std::time::Duration;

use super::balancing::session_affinity::SessionAffinity;

/// The settings of the pool, which assigns requests to worker processes: limits, timeouts and
/// switches.
#[derive(Debug, Clone)]
pub struct PoolLimits {
    /// The maximum number of requests that wait for a worker. Further requests get 503. Default:
    /// 1,024.
    pub max_queued_requests: usize,
    /// The maximum time that a request waits until R begins to process it. Time in the queue and
    /// time at a worker both count. After this time the client gets 503. Default: 10 s.
    pub queue_timeout: Duration,
    /// The maximum number of requests that a worker has at the same time, including requests that
    /// wait for a promise. Default: 64.
    pub max_in_flight: usize,
    /// The number of requests that may always wait at a worker whose R process is busy. Default: 0.
    /// In that case, only as many requests wait at a worker as R can process in about a
    /// millisecond.
    pub min_ahead: usize,
    /// The maximum number of bytes of a streamed response that wait to be written to the client.
    /// Default: 16 MiB.
    pub max_stream_queue_size: usize,
    /// Whether workers may compress their responses. If false, they do not learn which codings the
    /// client accepts. Default: yes.
    pub accepts_compressed: bool,
    /// The maximum number of sessions that one worker has. A session is an open WebSocket, or a
    /// page that was sent recently and will open a WebSocket. Requests for further sessions get
    /// 503, except that networks that have less than an equal part of the sessions may have some of
    /// as many again. Default: no limit.
    pub max_sessions: usize,
    /// The setting that determines whether all requests of a session are sent to the same worker.
    pub session_affinity: SessionAffinity,
    /// The suffix of the session cookie's name. It distinguishes several servers on one host.
    /// Default: empty.
    pub cookie_suffix: String,
    /// Whether pages of other sites may embed the app over HTTPS. Browsers then also send the
    /// session cookie in requests from those pages. Default: no.
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
            accepts_compressed: true,
            max_sessions: usize::MAX,
            session_affinity: SessionAffinity::Auto,
            cookie_suffix: String::new(),
            is_embedded: false,
        }
    }
}
