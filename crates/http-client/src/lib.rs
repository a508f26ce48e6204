//! An HTTP/1.1 client for the few requests that the server itself sends: to a certificate
//! authority, and to a collector of traces.

mod client;
mod endpoint;
mod proxy;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{HeaderMap, Method, StatusCode};
use rookery_system::fork::ForkRegistry;
use rustls::ClientConfig;

pub use client::Client;
pub use endpoint::Endpoint;
pub use proxy::percent_decoded;

/// The maximum of a `Retry-After` header. Callers add the time to the current one, so it must not
/// be near the maximum of a `Duration`.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(30 * 24 * 3600);

/// The sockets of open connections, which a forked child closes by [`close_inherited`].
static SOCKETS: ForkRegistry = ForkRegistry::new();

/// Closes the sockets of open connections in a forked child, in which the thread that uses them
/// does not exist.
pub fn close_inherited() {
    SOCKETS.close_all();
}

/// The reason why a request has no response, in words.
#[derive(Debug)]
pub struct HttpError(String);

impl HttpError {
    fn new(reason: String) -> HttpError {
        HttpError(reason)
    }
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for HttpError {}

/// A request to send.
#[derive(Debug)]
pub struct Message<'a> {
    /// The method of the request.
    pub method: Method,
    /// The headers of the request. `Host` and `Content-Length` are added to them.
    pub headers: HeaderMap,
    /// The body of the request.
    pub body: Vec<u8>,
    /// The URL of the request.
    pub endpoint: &'a Endpoint,
}

/// The limits on a request's response.
#[derive(Debug, Clone, Copy)]
pub struct ResponseLimits {
    /// The maximum time from the beginning of the request to the end of the response.
    pub time: Duration,
    /// The maximum number of bytes of the response's body. A longer body is cut.
    pub bytes: usize,
}

/// The response to a request.
#[derive(Debug)]
pub struct Response {
    /// The status of the response.
    pub status: StatusCode,
    /// The headers of the response.
    pub headers: HeaderMap,
    /// The body of the response.
    pub body: Vec<u8>,
    /// True if the body was longer than the limit, and `body` is only its beginning.
    pub is_cut: bool,
}

impl Response {
    /// Returns the value of a response header, if it is valid text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns how long the `Retry-After` header of the response asks the client to wait. The
    /// header contains a number of seconds or a date (RFC 9110, 10.2.3). The result is at most 30
    /// days.
    pub fn retry_after(&self) -> Option<Duration> {
        let text = self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
        let wait = if let Ok(seconds) = text.parse() {
            Duration::from_secs(seconds)
        } else {
            let date = httpdate::parse_http_date(text).ok()?;
            date.duration_since(SystemTime::now()).unwrap_or_default()
        };
        Some(wait.min(MAX_RETRY_AFTER))
    }
}

/// Sends a request over a connection of its own and returns the response. `tls` is the TLS
/// configuration for an HTTPS URL.
///
/// # Errors
/// Returns an [`HttpError`] if there is no connection, the response is not complete within the
/// limits, or a URL needs TLS and there is no configuration.
pub async fn send(
    message: Message<'_>,
    tls: Option<&Arc<ClientConfig>>,
    limits: ResponseLimits,
) -> Result<Response, HttpError> {
    let Message { method, headers, body, endpoint } = message;
    Client::new(endpoint.clone(), tls.cloned()).send(&method, &headers, &body, limits).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let after = |text: &str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]);
            let (status, body) = (StatusCode::OK, Vec::new());
            Response { status, headers, body, is_cut: false }.retry_after()
        };
        assert_eq!(after(" 120 "), Some(Duration::from_secs(120)));
        assert_eq!(after("Fri, 31 Dec 1999 23:59:59 GMT"), Some(Duration::ZERO));
        let later = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(3600));
        assert!(after(&later).is_some_and(|wait| (3500..=3600).contains(&wait.as_secs())));
        assert_eq!(after("soon"), None);
        for far in [&*u64::MAX.to_string(), "Fri, 31 Dec 9999 23:59:59 GMT"] {
            assert_eq!(after(far), Some(MAX_RETRY_AFTER), "{far}");
        }
    }
}
