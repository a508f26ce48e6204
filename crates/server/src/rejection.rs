//! The reasons for which the server rejects a request without passing it to the application. Each
//! reason has a response and an error message.

use std::fmt;

use rookery_error::{Error, Kind, Reports, StaticError};
use rookery_worker_protocol::MAX_REJECTIONS;

/// Defines the enum of rejections together with the list of all its variants, so that the list
/// cannot be incomplete.
macro_rules! rejections {
    ($(#[$attribute:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident,)* }) => {
        $(#[$attribute])*
        pub enum $name { $($(#[$doc])* $variant,)* }

        /// The list of all variants of the enum, in the order of their numbers.
        const ALL: &[$name] = &[$($name::$variant),*];
    };
}

rejections! {
    /// The reason for which the server rejects a request. [`Rejection::error`] converts it to an
    /// [`Error`] for the request's error hook, without allocating memory.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum Rejection {
        /// The request head is not valid HTTP/1.1 (RFC 9112, 3 and 5). Status 400.
        Unreadable,
        /// An HTTP/1.1 request has no valid Host header, or more than one (RFC 9112, 3.2). Status
        /// 400.
        Host,
        /// The request target is not allowed: the request is a CONNECT (RFC 9110, 9.3.6), its
        /// target has the form that only CONNECT may use (RFC 9112, 3.2.3), or its target is a URL
        /// with an invalid host or with a user name (RFC 9110, 4.2.4). Status 400.
        Target,
        /// The framing of the request body, such as its chunks, is invalid. Status 400.
        BodyUnreadable,
        /// The request body has a transfer coding other than `chunked` (RFC 9112, 6.1). Status 501.
        TransferCoding,
        /// An HTTP/2 request with extended CONNECT names a protocol other than WebSocket (RFC 8441,
        /// 4). Status 501.
        Protocol,
        /// The request head was not received in time. Status 408.
        HeadTimeout,
        /// The request body exceeds the size limit. Status 413.
        BodyTooLarge,
        /// The request head exceeds the limit on its size or its number of lines. Status 431.
        HeadTooLarge,
        /// The application failed to respond to the request. Status 500.
        Application,
        /// The queue of requests that wait for the application is full, or the memory for what
        /// clients send was needed for another client. Status 503.
        Busy,
        /// The request body cannot be spooled to a temporary file, because the disk is full, the
        /// reserve of free disk space would be exceeded, or the folder does not exist any more.
        /// Status 507.
        DiskFull,
        /// The client of a WebSocket does not read the messages that are sent to it. Close code
        /// 1013.
        Unread,
        /// The request body was received too slowly. Status 408.
        BodyTimeout,
        /// The application did not respond within the request timeout. Status 504.
        RequestTimeout,
        /// A WebSocket message was received too slowly. Close code 1008.
        MessageTimeout,
        /// The client of a WebSocket has not responded to pings. The WebSocket is dropped.
        Silent,
        /// The request is for a host name that is not among the names of the server
        /// ([`ListenerConfig::hosts`](crate::ListenerConfig::hosts)), as in an attack by DNS
        /// rebinding. Status 403.
        ForeignHost,
        /// The page that wants to open a WebSocket has an origin that is not allowed (RFC 6455,
        /// 10.2). Status 403.
        Origin,
        /// The TLS handshake failed (RFC 8446, 4; RFC 5246, 7). The connection is closed after an
        /// alert.
        Handshake,
        /// A client has sent plaintext HTTP to a port that requires TLS. Status 400.
        PlainOnTls,
        /// A connection does not begin with the required PROXY protocol header, or does not come
        /// from one of the proxies that may connect. The connection is closed.
        Proxy,
        /// A client has sent a TLS handshake to a port for plaintext HTTP. The connection is
        /// closed.
        TlsOnPlain,
        /// The client has violated HTTP/2 (RFC 9113, 5.4.1) or has made the server do useless work.
        /// The connection is closed with GOAWAY.
        Http2,
        /// An HTTP/2 request is for a host other than the host in its connection's TLS handshake,
        /// and the server has other certificates for the requested host (RFC 9110, 15.5.20). Status
        /// 421.
        Misdirected,
        /// A plaintext request cannot be redirected to HTTPS, because the server has no certificate
        /// for the requested host (RFC 9110, 15.5.20). Status 421.
        Elsewhere,
        /// The memory that clients may use for one purpose, such as request bodies, is used up
        /// ([`Limits::max_client_memory`](crate::Limits::max_client_memory)), or clients have as
        /// many files open as the descriptors of the process permit. Status 503, or close code
        /// 1013.
        Overload,
        /// The server has its maximum number of connections
        /// ([`Limits::max_connections`](crate::Limits::max_connections)) or no memory for another
        /// one, and this connection was refused, or was evicted for another one. Status 503, close
        /// code 1013, or a TLS alert.
        TooManyConnections,
        /// The address of the client has its maximum number of connections
        /// ([`Limits::max_connections_per_ip`](crate::Limits::max_connections_per_ip)), or the
        /// client has its maximum number of WebSockets, or its part of the requests of a trusted
        /// proxy's HTTP/2 connection. Status 503, or a TLS alert.
        TooManyFromIp,
    }
}

/// The errors of a server, counted by rejection.
pub type RejectionReports = Reports<Rejection>;

static ERRORS: [StaticError<Rejection>; ALL.len()] = {
    let mut errors = [const { StaticError::new(Rejection::Application) }; ALL.len()];
    let mut at = 0;
    while at < ALL.len() {
        errors[at] = StaticError::new(ALL[at]);
        at += 1;
    }
    errors
};

impl Rejection {
    /// Returns the status of the response to the rejected request. For a WebSocket, it is the
    /// status whose meaning is closest to that of the close code.
    pub fn status(self) -> u16 {
        match self {
            Rejection::Unreadable
            | Rejection::Host
            | Rejection::Target
            | Rejection::BodyUnreadable
            | Rejection::Handshake
            | Rejection::PlainOnTls
            | Rejection::Proxy
            | Rejection::Http2
            | Rejection::TlsOnPlain => 400,
            Rejection::Origin | Rejection::ForeignHost => 403,
            Rejection::HeadTimeout
            | Rejection::BodyTimeout
            | Rejection::MessageTimeout
            | Rejection::Silent => 408,
            Rejection::BodyTooLarge => 413,
            Rejection::Misdirected | Rejection::Elsewhere => 421,
            Rejection::HeadTooLarge => 431,
            Rejection::Application => 500,
            Rejection::TransferCoding | Rejection::Protocol => 501,
            Rejection::Busy
            | Rejection::Unread
            | Rejection::Overload
            | Rejection::TooManyConnections
            | Rejection::TooManyFromIp => 503,
            Rejection::RequestTimeout => 504,
            Rejection::DiskFull => 507,
        }
    }

    /// Returns the name of the rejection in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Rejection::Unreadable => "invalid_head",
            Rejection::Host => "invalid_host",
            Rejection::Target => "invalid_target",
            Rejection::BodyUnreadable => "invalid_body",
            Rejection::TransferCoding => "transfer_coding",
            Rejection::Protocol => "connect_protocol",
            Rejection::HeadTimeout => "head_timeout",
            Rejection::BodyTooLarge => "body_too_large",
            Rejection::HeadTooLarge => "head_too_large",
            Rejection::Application => "app_failed",
            Rejection::Busy => "queue_full",
            Rejection::DiskFull => "disk_full",
            Rejection::Unread => "websocket_unread",
            Rejection::BodyTimeout => "body_timeout",
            Rejection::RequestTimeout => "request_timeout",
            Rejection::MessageTimeout => "websocket_message_timeout",
            Rejection::Silent => "websocket_silent",
            Rejection::ForeignHost => "foreign_host",
            Rejection::Origin => "websocket_origin",
            Rejection::Handshake => "tls_handshake",
            Rejection::PlainOnTls => "plain_on_tls",
            Rejection::Proxy => "proxy_header",
            Rejection::TlsOnPlain => "tls_on_plain",
            Rejection::Http2 => "http2",
            Rejection::Misdirected => "misdirected",
            Rejection::Elsewhere => "redirect_host",
            Rejection::Overload => "memory",
            Rejection::TooManyConnections => "max_connections",
            Rejection::TooManyFromIp => "max_connections_per_ip",
        }
    }

    /// Returns all rejections, in the order of their [indices](Kind::index).
    pub fn all() -> &'static [Rejection] {
        ALL
    }

    /// Converts the rejection to an [`Error`], without allocating memory.
    pub fn error(self) -> Error {
        Error::from_static_error(&ERRORS[self as usize])
    }

    /// Returns the status line of the rejection's response, for responses that are written without
    /// hyper.
    pub(crate) fn status_line(self) -> &'static str {
        match self {
            Rejection::HeadTimeout | Rejection::BodyTimeout => "408 Request Timeout",
            Rejection::HeadTooLarge => "431 Request Header Fields Too Large",
            Rejection::Overload | Rejection::TooManyConnections => "503 Service Unavailable",
            _ => "400 Bad Request",
        }
    }

    /// Returns the body of the rejection's response. It tells a user of `curl` how to correct the
    /// request.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Rejection::Unreadable => "400 Bad Request\n",
            Rejection::Host => {
                "400 Bad Request: an HTTP/1.1 request needs one Host header, with a host and a port\n"
            }
            Rejection::Target => {
                "400 Bad Request: the target must be a path, because this server is not a proxy\n"
            }
            Rejection::BodyUnreadable => "400 Bad Request: the body could not be read\n",
            Rejection::Handshake | Rejection::Proxy | Rejection::TlsOnPlain | Rejection::Http2 => {
                "400 Bad Request: not HTTP\n"
            }
            Rejection::Misdirected => {
                "421 Misdirected Request: this host has other certificates and needs another connection\n"
            }
            Rejection::Elsewhere => {
                "421 Misdirected Request: this server has no certificate for this host\n"
            }
            Rejection::PlainOnTls => "400 Bad Request: this port speaks HTTPS\n",
            Rejection::ForeignHost => {
                "403 Forbidden: `rookery dev` does not serve this host name: use localhost or an IP \
                 address, or allow the name with `--dev-hosts`\n"
            }
            Rejection::Origin => {
                "403 Forbidden: pages of this origin may not open a WebSocket here\n"
            }
            Rejection::HeadTimeout
            | Rejection::BodyTimeout
            | Rejection::MessageTimeout
            | Rejection::Silent => "408 Request Timeout\n",
            Rejection::BodyTooLarge => "413 Content Too Large\n",
            Rejection::HeadTooLarge => "431 Request Header Fields Too Large\n",
            Rejection::Application => "500 Internal Server Error\n",
            Rejection::TransferCoding => {
                "501 Not Implemented: the only supported transfer coding of a request is chunked\n"
            }
            Rejection::Protocol => {
                "501 Not Implemented: the only protocol that CONNECT supports is websocket\n"
            }
            Rejection::Busy | Rejection::Unread | Rejection::Overload => {
                "503 Service Unavailable\n"
            }
            Rejection::TooManyConnections => "503 Service Unavailable: too many connections\n",
            Rejection::TooManyFromIp => {
                "503 Service Unavailable: too many connections from this address\n"
            }
            Rejection::RequestTimeout => "504 Gateway Timeout: the application took too long\n",
            Rejection::DiskFull => "507 Insufficient Storage\n",
        }
    }

    /// Returns true if the connection must be closed after the rejection's response, because the
    /// rest of the request is not read.
    pub(crate) fn ends_connection(self) -> bool {
        !matches!(
            self,
            Rejection::Busy
                | Rejection::Application
                | Rejection::RequestTimeout
                | Rejection::Elsewhere
        )
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rejection::Unreadable => "the request head is not HTTP/1.1",
            Rejection::Host => "an HTTP/1.1 request needs exactly one Host header",
            Rejection::Target => "the request target is not a path of this server",
            Rejection::BodyUnreadable => "the framing of the request body is invalid",
            Rejection::Handshake => "the TLS handshake failed",
            Rejection::PlainOnTls => "a plaintext HTTP request was sent to a port with TLS",
            Rejection::Proxy => {
                "a connection lacks the PROXY protocol header, or is not from a configured proxy"
            }
            Rejection::Http2 => "the client violated HTTP/2",
            Rejection::Misdirected => "the request is for another host than the TLS handshake",
            Rejection::Elsewhere => {
                "a request to be redirected to HTTPS is for a host without a certificate"
            }
            Rejection::TlsOnPlain => "a TLS handshake was sent to a port without TLS",
            Rejection::TransferCoding => {
                "the request body has another transfer coding than chunked"
            }
            Rejection::Protocol => "a CONNECT request is for another protocol than WebSocket",
            Rejection::HeadTimeout => "the request head was not received in time",
            Rejection::BodyTooLarge => "the request body is too large",
            Rejection::HeadTooLarge => "the request head is too large",
            Rejection::Application => "the application failed",
            Rejection::RequestTimeout => "the application did not respond in time",
            Rejection::Busy => "the queue of requests is full",
            Rejection::DiskFull => "the request body cannot be spooled to disk",
            Rejection::BodyTimeout => "the request body was received too slowly",
            Rejection::Overload => {
                "the memory budget or the file descriptors for clients are used up"
            }
            Rejection::MessageTimeout => "a WebSocket message was received too slowly",
            Rejection::Silent => "the client of a WebSocket did not respond to pings",
            Rejection::ForeignHost => "the request is for a host name that is not the server's",
            Rejection::Origin => "the origin of the page may not open a WebSocket",
            Rejection::Unread => "the client of a WebSocket does not read its messages",
            Rejection::TooManyConnections => "there are too many connections",
            Rejection::TooManyFromIp => "there are too many connections from one address",
        })
    }
}

impl std::error::Error for Rejection {}

// The scoreboard of a worker has a counter for each rejection.
const _: () = assert!(ALL.len() <= MAX_REJECTIONS);

impl Kind for Rejection {
    const COUNT: usize = ALL.len();

    /// Returns the rejection that `error` contains. Any other error counts as a failure of the
    /// application.
    fn of(error: &Error) -> Rejection {
        error.downcast_ref::<Rejection>().copied().unwrap_or(Rejection::Application)
    }

    fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rejection_is_its_own_error() {
        for (index, rejection) in ALL.iter().copied().enumerate() {
            assert_eq!(rejection.index(), index);
            assert_eq!(rejection.error().downcast_ref(), Some(&rejection));
            assert_eq!(Rejection::of(&rejection.error()), rejection);
            assert!(rejection.text().starts_with(&rejection.status().to_string()));
        }
        let names: std::collections::HashSet<_> =
            ALL.iter().map(|rejection| rejection.name()).collect();
        assert_eq!(names.len(), ALL.len());
    }
}
