//! What the server answers by itself when a request cannot be served, and how that is reported.

use std::fmt;

use rookery_error::{Error, Kind, StaticError};

/// An enum, and the list of its variants: none can be forgotten there.
macro_rules! rejections {
    ($(#[$attribute:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident,)* }) => {
        $(#[$attribute])*
        pub enum $name { $($(#[$doc])* $variant,)* }

        /// All of them, in the order of their numbers.
        const ALL: &[$name] = &[$($name::$variant),*];
    };
}

rejections! {
    /// Why a request is not served. Each is an [`Error`] that costs no allocation, thrown to the hook of its request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum Rejection {
        /// The head is not HTTP/1.1 (RFC 9112, 3 and 5): 400.
        Unreadable,
        /// HTTP/1.1 without exactly one Host, or one that is no host (RFC 9112, 3.2): 400.
        Host,
        /// CONNECT (RFC 9110, 9.3.6), the target that only it has (RFC 9112, 3.2.3), or an absolute one whose authority is more
        /// than a host and a port (RFC 9110, 4.2.4): 400.
        Target,
        /// The body was framed wrongly: 400.
        BodyUnreadable,
        /// The body has a transfer coding beside chunked (RFC 9112, 6.1): 501.
        TransferCoding,
        /// CONNECT over HTTP/2 to another protocol than WebSockets (RFC 8441, 4): 501.
        Protocol,
        /// The head took longer than its time: 408.
        HeadTimeout,
        /// The body has more bytes than its limit: 413.
        BodyTooLarge,
        /// The head has more bytes or lines than its limits: 431.
        HeadTooLarge,
        /// The application failed: 500.
        Application,
        /// The queue to the application is full: 503.
        Busy,
        /// The folder of spooled bodies is full, keeps its reserve, or has gone: 507.
        DiskFull,
        /// A WebSocket's peer does not read what it is sent: close code 1013.
        Unread,
        /// The body came too slowly: 408.
        BodyTimeout,
        /// The application took longer than its time: 504.
        RequestTimeout,
        /// A message of a WebSocket came too slowly: close code 1008.
        MessageTimeout,
        /// A WebSocket's peer has answered no ping: it is dropped.
        Silent,
        /// A page of this origin may not open a WebSocket (RFC 6455, 10.2): 403.
        Origin,
        /// The handshake of TLS failed (RFC 8446, 4; RFC 5246, 7): the connection is closed after an alert.
        Handshake,
        /// A request in the clear where TLS is spoken: 400.
        PlainOnTls,
        /// No header of the PROXY protocol where there has to be one, or from a peer that is none of the proxies: the
        /// connection is closed.
        Proxy,
        /// TLS where HTTP is spoken in the clear: the connection is closed.
        TlsOnPlain,
        /// The peer broke the rules of HTTP/2 (RFC 9113, 5.4.1), or has the server work for nothing: the connection ends with
        /// GOAWAY.
        Http2,
        /// A host over an HTTP/2 connection that TLS was told another name for (RFC 9110, 15.5.20): 421.
        Misdirected,
        /// A host that is not this server's, of a request that would be sent on to HTTPS (RFC 9110, 15.5.20): 421.
        Elsewhere,
        /// What peers make the server hold is used up, see [`Limits::max_client_memory`](crate::Limits::max_client_memory): 503, or close code 1013.
        Overload,
    }
}

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
    /// The status it is answered with; for a WebSocket, the one that stands for its close code.
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
            Rejection::Origin => 403,
            Rejection::HeadTimeout
            | Rejection::BodyTimeout
            | Rejection::MessageTimeout
            | Rejection::Silent => 408,
            Rejection::BodyTooLarge => 413,
            Rejection::Misdirected | Rejection::Elsewhere => 421,
            Rejection::HeadTooLarge => 431,
            Rejection::Application => 500,
            Rejection::TransferCoding | Rejection::Protocol => 501,
            Rejection::Busy | Rejection::Unread | Rejection::Overload => 503,
            Rejection::RequestTimeout => 504,
            Rejection::DiskFull => 507,
        }
    }

    /// As an error. Allocates nothing.
    pub fn error(self) -> Error {
        Error::from_static_error(&ERRORS[self as usize])
    }

    /// The status line, for what is answered without hyper.
    pub(crate) fn status_line(self) -> &'static str {
        match self {
            Rejection::HeadTimeout | Rejection::BodyTimeout => "408 Request Timeout",
            Rejection::HeadTooLarge => "431 Request Header Fields Too Large",
            Rejection::Overload => "503 Service Unavailable",
            _ => "400 Bad Request",
        }
    }

    /// The body of the answer: what a person with `curl` needs to find the remedy.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Rejection::Unreadable => "400 Bad Request\n",
            Rejection::Host => {
                "400 Bad Request: an HTTP/1.1 request needs one Host header, with a host and a port\n"
            }
            Rejection::Target => {
                "400 Bad Request: a target is a path of this server, which is no proxy\n"
            }
            Rejection::BodyUnreadable => "400 Bad Request: the body could not be read\n",
            Rejection::Handshake | Rejection::Proxy | Rejection::TlsOnPlain | Rejection::Http2 => {
                "400 Bad Request: no HTTP\n"
            }
            Rejection::Misdirected => {
                "421 Misdirected Request: this host has certificates of its own, ask it over a connection of its own\n"
            }
            Rejection::Elsewhere => {
                "421 Misdirected Request: this server has no certificate for this host, use a name that it has one for\n"
            }
            Rejection::PlainOnTls => "400 Bad Request: this port speaks HTTPS\n",
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
                "501 Not Implemented: the only transfer coding of a request is chunked\n"
            }
            Rejection::Protocol => {
                "501 Not Implemented: the only protocol that CONNECT opens is websocket\n"
            }
            Rejection::Busy | Rejection::Unread | Rejection::Overload => {
                "503 Service Unavailable\n"
            }
            Rejection::RequestTimeout => "504 Gateway Timeout: the answer took too long\n",
            Rejection::DiskFull => "507 Insufficient Storage\n",
        }
    }

    /// Whether the connection must end with the answer: the rest of the request is not wanted.
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
            Rejection::Unreadable => "the head of the request is not HTTP/1.1",
            Rejection::Host => "an HTTP/1.1 request needs exactly one Host header",
            Rejection::Target => "this server is no proxy",
            Rejection::BodyUnreadable => "the body of the request could not be read",
            Rejection::Handshake => "the handshake of TLS failed",
            Rejection::PlainOnTls => "a request in the clear on a port that speaks TLS",
            Rejection::Proxy => "no header of the PROXY protocol, or from a peer that is no proxy",
            Rejection::Http2 => "the peer broke the rules of HTTP/2",
            Rejection::Misdirected => "a host that TLS was told another name for",
            Rejection::Elsewhere => {
                "a host that there is no certificate for, of a request for HTTPS"
            }
            Rejection::TlsOnPlain => "a client that speaks TLS on a port that does not",
            Rejection::TransferCoding => {
                "the body of the request has a transfer coding beside chunked"
            }
            Rejection::Protocol => "CONNECT to another protocol than WebSockets",
            Rejection::HeadTimeout => "the head of the request took too long",
            Rejection::BodyTooLarge => "the body of the request is too large",
            Rejection::HeadTooLarge => "the head of the request is too large",
            Rejection::Application => "the application failed",
            Rejection::RequestTimeout => "the application took too long",
            Rejection::Busy => "the queue of requests is full",
            Rejection::DiskFull => {
                "the folder of spooled bodies cannot take the body of the request"
            }
            Rejection::BodyTimeout => "the body of the request came too slowly",
            Rejection::Overload => {
                "the memory for what connections make the server hold is used up"
            }
            Rejection::MessageTimeout => "a message of a WebSocket came too slowly",
            Rejection::Silent => "the peer of a WebSocket has answered no ping",
            Rejection::Origin => "a page of this origin may not open a WebSocket",
            Rejection::Unread => "the peer of a WebSocket does not read what it is sent",
        })
    }
}

impl std::error::Error for Rejection {}

impl Kind for Rejection {
    const COUNT: usize = ALL.len();

    /// What is no rejection of the server's is a failure of the application.
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
    }
}
