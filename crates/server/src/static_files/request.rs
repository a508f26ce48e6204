//! A request, as far as its head decides who answers it.

use http::HeaderMap;

/// What [`StaticFiles::decide`](super::StaticFiles::decide) looks at.
#[derive(Clone, Copy)]
pub struct RequestHead<'a> {
    /// The method as sent.
    pub method: &'a str,
    /// The raw target. A query may still be there; it is ignored.
    pub target: &'a [u8],
    /// Whether the request opens a WebSocket. An `Upgrade` to anything else is not looked at.
    pub is_upgrade: bool,
    /// What the head says about a body.
    pub body: BodyFraming,
    /// The headers.
    pub headers: &'a dyn RequestHeaders,
}

impl std::fmt::Debug for RequestHead<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RequestHead({} {}, {:?})", self.method, self.target.escape_ascii(), self.body)
    }
}

/// What a head says about the body (RFC 9112, 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFraming {
    /// Nothing.
    Absent,
    /// There is a `Transfer-Encoding`.
    Chunked,
    /// There is a `Content-Length`.
    Length(u64),
}

/// The headers of a request.
pub trait RequestHeaders {
    /// The value of the header with this name, given in lower case; several lines either joined by commas or as if absent.
    fn value(&self, lower_name: &str) -> Option<&[u8]>;
}

impl RequestHeaders for HeaderMap {
    /// Several lines are as if absent: none of the headers looked at here may be sent twice but If-None-Match, which is
    /// only an optimisation.
    fn value(&self, lower_name: &str) -> Option<&[u8]> {
        let mut lines = self.get_all(lower_name).iter();
        let first = lines.next()?;
        lines.next().is_none().then(|| first.as_bytes())
    }
}
