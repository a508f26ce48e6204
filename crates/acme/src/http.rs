//! The requests to a certificate authority (ACME), with their limits and headers.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method};
use rookery_http_client::{Endpoint, HttpError, Message, Response, ResponseLimits, send};
use rustls::ClientConfig;

use crate::failure::Failure;

/// The limits on a response of an ACME authority. The largest usual response, a certificate chain,
/// has about ten thousand bytes.
const LIMITS: ResponseLimits = ResponseLimits { time: Duration::from_secs(30), bytes: 1 << 20 };

/// The value of the `User-Agent` header. RFC 8555, 6.1 requires this header in each request to an
/// ACME authority.
const USER_AGENT_TEXT: &str = concat!("rookery/", env!("CARGO_PKG_VERSION"));

/// Parses a URL of an ACME authority. Accepts HTTPS URLs (RFC 8555, 6.1), and HTTP URLs with a
/// loopback address.
pub(crate) fn parse_endpoint(url: &str) -> Result<Endpoint, Failure> {
    let is_allowed = |endpoint: &Endpoint| {
        let address = endpoint.host().parse::<IpAddr>();
        endpoint.is_secure() || address.is_ok_and(|address| address.is_loopback())
    };
    Endpoint::parse(url)
        .filter(is_allowed)
        .ok_or_else(|| Failure::new(format!("{url} is not the URL of an ACME authority")))
}

/// An HTTPS client that sends requests to an ACME authority.
#[derive(Debug, Clone)]
pub(crate) struct HttpClient(pub(crate) Arc<ClientConfig>);

impl HttpClient {
    pub(crate) async fn request(
        &self,
        method: Method,
        url: &str,
        body: Option<String>,
    ) -> Result<Response, Failure> {
        let mut endpoint = parse_endpoint(url)?;
        endpoint.set_proxy(&|name| std::env::var(name).ok()).map_err(Failure::new)?;
        let endpoint = &endpoint;
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static(USER_AGENT_TEXT));
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/jose+json"));
        }
        let body = body.unwrap_or_default().into_bytes();
        let message = Message { method, headers, body, endpoint };
        let response = send(message, Some(&self.0), LIMITS).await?;
        if response.is_cut {
            let host = endpoint.host();
            return Err(Failure::new(format!("{host} sent more than {} bytes", LIMITS.bytes)));
        }
        Ok(response)
    }
}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Failure {
        Failure::new(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_and_loopback_urls_are_accepted() {
        for right in ["https://ca.example/acme?x", "https://[::1]:14000/dir", "http://127.0.0.1:1/"]
        {
            assert!(parse_endpoint(right).is_ok(), "{right}");
        }
        for wrong in ["http://ca.example/", "http://localhost/", "/dir", "ws://127.0.0.1/"] {
            assert!(parse_endpoint(wrong).is_err(), "{wrong}");
        }
    }
}
