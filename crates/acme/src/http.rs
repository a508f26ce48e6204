//! The requests to a certificate authority (ACME), with their limits and headers.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{RETRY_AFTER, USER_AGENT};
use http::{HeaderValue, Method, Request};
use http_body_util::BodyExt as _;
use instant_acme::{BodyWrapper, BytesResponse, Error, Problem};
use rookery_http_client::{Endpoint, HttpError, Message, Response, ResponseLimits, send};
use rustls::ClientConfig;

use crate::failure::Failure;

/// The limits on a response of an ACME authority. The largest usual response, a certificate chain,
/// has about ten thousand bytes.
const LIMITS: ResponseLimits = ResponseLimits { time: Duration::from_secs(30), bytes: 1 << 20 };

/// The value of the `User-Agent` header. RFC 8555, 6.1 requires this header in each request to an
/// ACME authority.
const USER_AGENT_TEXT: HeaderValue =
    HeaderValue::from_static(concat!("rookery/", env!("CARGO_PKG_VERSION")));

/// The number of seconds for which a renewal window is valid if the authority sent no `Retry-After`
/// with it (RFC 9773, 4.3).
const DEFAULT_RETRY_AFTER: HeaderValue = HeaderValue::from_static("21600");

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

/// An HTTPS client that sends requests to an ACME authority. A response with an error status
/// becomes a [`Failure`].
#[derive(Debug, Clone)]
pub(crate) struct HttpClient(pub(crate) Arc<ClientConfig>);

impl HttpClient {
    async fn send(self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
        let (mut head, body) = request.into_parts();
        let mut endpoint = parse_endpoint(&head.uri.to_string())?;
        endpoint.set_proxy(&|name| std::env::var(name).ok()).map_err(Failure::new)?;
        head.headers.insert(USER_AGENT, USER_AGENT_TEXT);
        let Ok(body) = body.collect().await;
        let endpoint = &endpoint;
        let message = Message {
            method: head.method.clone(),
            headers: head.headers,
            body: body.to_bytes().to_vec(),
            endpoint,
        };
        let mut response = send(message, Some(&self.0), LIMITS).await.map_err(Failure::from)?;
        if response.is_cut {
            let host = endpoint.host();
            return Err(
                Failure::new(format!("{host} sent more than {} bytes", LIMITS.bytes)).into()
            );
        }
        if !response.status.is_success() {
            let failure = match serde_json::from_slice::<Problem>(&response.body) {
                Ok(problem) => Failure::from(&problem),
                Err(_) => Failure::new(format!(
                    "the authority responded with status {}",
                    response.status.as_u16()
                )),
            };
            // The request is signed again with another nonce.
            if !failure.is("badNonce") {
                return Err(Failure { retry_after: response.retry_after(), ..failure }.into());
            }
        }
        limit_retry_after(&mut response, &head.method);
        let mut answer = http::Response::new(BodyWrapper::from(response.body));
        *answer.status_mut() = response.status;
        *answer.headers_mut() = response.headers;
        Ok(answer.into())
    }
}

/// Replaces the `Retry-After` of a response with its limited number of seconds, because
/// instant-acme panics if it cannot add the seconds to the current time. Adds the default to an
/// answer about a renewal window, which instant-acme refuses without the header.
fn limit_retry_after(response: &mut Response, method: &Method) {
    if let Some(wait) = response.retry_after() {
        response.headers.insert(RETRY_AFTER, wait.as_secs().into());
    } else if method == Method::GET {
        response.headers.insert(RETRY_AFTER, DEFAULT_RETRY_AFTER);
    }
}

impl instant_acme::HttpClient for HttpClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        Box::pin(self.clone().send(request))
    }
}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Failure {
        Failure::new(error.to_string())
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error::Other(Box::new(failure))
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

    #[test]
    fn a_retry_after_of_any_length_is_limited_and_a_renewal_window_has_one() {
        let after = |method, sent: Option<&str>| {
            let headers = sent.map(|text| (RETRY_AFTER, text.parse().unwrap()));
            let headers = headers.into_iter().collect();
            let status = http::StatusCode::OK;
            let mut response = Response { status, headers, body: Vec::new(), is_cut: false };
            limit_retry_after(&mut response, &method);
            response.headers.get(RETRY_AFTER).map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(after(Method::POST, Some("120")).as_deref(), Some("120"));
        let longest = after(Method::POST, Some(&u64::MAX.to_string()));
        assert_eq!(longest.as_deref(), Some("2592000"));
        assert_eq!(after(Method::GET, Some("soon")).as_deref(), Some("21600"));
        assert_eq!(after(Method::GET, None).as_deref(), Some("21600"));
        assert_eq!(after(Method::POST, None), None);
    }
}
