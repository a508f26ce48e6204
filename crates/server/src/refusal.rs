//! What the server answers by itself when a request cannot be served.

/// Why a request is not served. The texts are what a person with `curl` needs to find the remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The head is not HTTP/1.1 (RFC 9112, 3 and 5).
    Unreadable,
    /// HTTP/1.1 without exactly one Host (RFC 9112, 3.2).
    Host,
    /// CONNECT, or a target that is none.
    Target,
    /// The head took longer than its time.
    HeadTimeout,
    /// The head has more bytes or lines than its limits.
    HeadTooLarge,
    /// The body has more bytes than its limit.
    BodyTooLarge,
    /// The body broke off or was framed wrongly.
    BodyUnreadable,
    /// The disk of temporary files is full, or keeps its reserve.
    DiskFull,
    /// The queue to the application is full.
    Busy,
    /// The application answered with something that cannot be sent, or a file that cannot be read.
    Application,
}

impl Refusal {
    pub(crate) fn status(self) -> u16 {
        match self {
            Refusal::Unreadable | Refusal::Host | Refusal::Target | Refusal::BodyUnreadable => 400,
            Refusal::HeadTimeout => 408,
            Refusal::BodyTooLarge => 413,
            Refusal::HeadTooLarge => 431,
            Refusal::Application => 500,
            Refusal::Busy => 503,
            Refusal::DiskFull => 507,
        }
    }

    /// Status code and reason phrase.
    pub(crate) fn status_line(self) -> &'static str {
        match self {
            Refusal::HeadTimeout => "408 Request Timeout",
            Refusal::HeadTooLarge => "431 Request Header Fields Too Large",
            _ => "400 Bad Request",
        }
    }

    /// The body of the answer.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Refusal::Unreadable => "400 Bad Request\n",
            Refusal::Host => "400 Bad Request: an HTTP/1.1 request needs exactly one Host header\n",
            Refusal::Target => "400 Bad Request: this server is no proxy\n",
            Refusal::BodyUnreadable => "400 Bad Request: the body could not be read\n",
            Refusal::HeadTimeout => "408 Request Timeout\n",
            Refusal::BodyTooLarge => "413 Content Too Large\n",
            Refusal::HeadTooLarge => "431 Request Header Fields Too Large\n",
            Refusal::Application => "500 Internal Server Error\n",
            Refusal::Busy => "503 Service Unavailable\n",
            Refusal::DiskFull => "507 Insufficient Storage\n",
        }
    }

    /// Whether the connection must end with the answer: the rest of the request is not wanted.
    pub(crate) fn ends_connection(self) -> bool {
        !matches!(self, Refusal::Busy | Refusal::Application)
    }
}
