//! The parts of a request head that decide whether a static file is served.

use std::borrow::Cow;

use http::HeaderMap;

/// The parts of a request that [`StaticFiles::route`](super::StaticFiles::route) reads.
#[derive(Clone, Copy)]
pub struct RequestHead<'a> {
    /// The method of the request in its original spelling.
    pub method: &'a str,
    /// The request target, not decoded. Its query is ignored.
    pub target: &'a [u8],
    /// True if the request opens a WebSocket. A request to upgrade to another protocol does not
    /// count.
    pub is_upgrade: bool,
    /// The framing of the request body: whether there is one, and its length.
    pub body: BodyFraming,
    /// The headers of the request.
    pub headers: &'a dyn RequestHeaders,
}

impl std::fmt::Debug for RequestHead<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RequestHead({} {}, {:?})", self.method, self.target.escape_ascii(), self.body)
    }
}

/// The framing of a request body, as the request head declares it (RFC 9112, 6.3): whether there is
/// a body, and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFraming {
    /// The request has no body.
    Absent,
    /// The request has a body, which is declared by a `Transfer-Encoding` header.
    Chunked,
    /// The request has a body, whose length in bytes is declared by a `Content-Length` header.
    Length(u64),
}

/// Access to the headers of a request by name.
pub trait RequestHeaders {
    /// Returns the value of a request header. `lower_name` is its name in lower case. If the
    /// request has the header more than once, an implementation returns either the values joined by
    /// commas, or `None`.
    fn value(&self, lower_name: &str) -> Option<&[u8]>;

    /// Returns the value of a request header that is a list. Repeated headers are joined by commas
    /// (RFC 9110, 5.3).
    fn list(&self, lower_name: &str) -> Option<Cow<'_, [u8]>> {
        self.value(lower_name).map(Cow::Borrowed)
    }
}

impl RequestHeaders for HeaderMap {
    /// Returns the value of a request header. Returns `None` if the request has the header more
    /// than once, because no header that is read with this function may be repeated.
    fn value(&self, lower_name: &str) -> Option<&[u8]> {
        let mut lines = self.get_all(lower_name).iter();
        let first = lines.next()?;
        lines.next().is_none().then(|| first.as_bytes())
    }

    fn list(&self, lower_name: &str) -> Option<Cow<'_, [u8]>> {
        let mut lines = self.get_all(lower_name).iter().map(http::HeaderValue::as_bytes);
        let first = lines.next()?;
        let Some(second) = lines.next() else { return Some(Cow::Borrowed(first)) };
        let all: Vec<&[u8]> = [first, second].into_iter().chain(lines).collect();
        Some(Cow::Owned(all.join(&b", "[..])))
    }
}
