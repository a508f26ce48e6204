//! Sends HTTPS requests to a certificate authority (ACME) and reads the responses. Each request
//! opens a new connection, because the client sends only about a dozen requests in two months.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use http::header::{CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::uri::Scheme;
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::rt::ReadBufCursor;
use rookery_server::close_in_child;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::failure::Failure;

/// The maximum time that an ACME authority may take to respond to a request.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum time for connecting to one IP address of an ACME authority.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// The maximum size in bytes of a response from an ACME authority. The largest usual response, a
/// certificate chain, has about ten thousand bytes.
const MAX_RESPONSE_SIZE: usize = 1 << 20;

/// The value of the `User-Agent` header. RFC 8555, 6.1 requires this header in each request to an
/// ACME authority.
const USER_AGENT_TEXT: &str = concat!("rookery/", env!("CARGO_PKG_VERSION"));

/// The parsed URL of a request to an ACME authority.
#[derive(Debug)]
pub(crate) struct Endpoint {
    uri: Uri,
    host: String,
    port: u16,
    is_secure: bool,
}

impl Endpoint {
    /// Parses a URL of an ACME authority. Accepts HTTPS URLs (RFC 8555, 6.1), and HTTP URLs with a
    /// loopback address.
    pub(crate) fn parse(url: &str) -> Result<Endpoint, Failure> {
        let wrong = || Failure::new(format!("{url} is not the URL of an ACME authority"));
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let is_here = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        let is_secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP && is_here => false,
            _ => return Err(wrong()),
        };
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        Ok(Endpoint { uri, host, port, is_secure })
    }
}

/// An HTTP response of an ACME authority.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// Returns the value of a response header, if it is valid text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns how long the `Retry-After` header of the response asks the client to wait. The
    /// header contains a number of seconds or a date (RFC 9110, 10.2.3).
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let text = self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
        if let Ok(seconds) = text.parse() {
            return Some(Duration::from_secs(seconds));
        }
        let date = httpdate::parse_http_date(text).ok()?;
        Some(date.duration_since(SystemTime::now()).unwrap_or_default())
    }
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
        let endpoint = Endpoint::parse(url)?;
        let all = self.send(&endpoint, method, body);
        match tokio::time::timeout(RESPONSE_TIMEOUT, all).await {
            Ok(response) => response,
            Err(_) => Err(Failure::new(format!(
                "{} did not respond within {} s",
                endpoint.host,
                RESPONSE_TIMEOUT.as_secs()
            ))),
        }
    }

    async fn send(
        &self,
        endpoint: &Endpoint,
        method: Method,
        body: Option<String>,
    ) -> Result<Response, Failure> {
        let Endpoint { host, port, .. } = endpoint;
        let unreachable =
            |error: io::Error| Failure::new(format!("cannot connect to {host}:{port}: {error}"));
        let tcp = connect(host, *port).await.map_err(unreachable)?;
        let _close_in_child = close_in_child(&tcp);
        if !endpoint.is_secure {
            return exchange(tcp, endpoint, method, body).await;
        }
        let name = ServerName::try_from(host.clone())
            .map_err(|_| Failure::new(format!("{host} is not a valid server name")))?;
        let connecting = TlsConnector::from(Arc::clone(&self.0)).connect(name, tcp);
        let tls = connecting
            .await
            .map_err(|error| Failure::new(format!("TLS with {host} failed: {error}")))?;
        exchange(tls, endpoint, method, body).await
    }
}

/// Connects to the first IP address of `host` that responds. Each address has its own time limit,
/// so that an address that does not respond does not block the others.
async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in tokio::net::lookup_host((host, port)).await? {
        match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(tcp)) => return Ok(tcp),
            Ok(Err(error)) => failed = error,
            Err(_) => failed = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failed)
}

async fn exchange<T>(
    io: T,
    endpoint: &Endpoint,
    method: Method,
    body: Option<String>,
) -> Result<Response, Failure>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let interrupted = |error: hyper::Error| {
        Failure::new(format!("the connection to {} failed: {error}", endpoint.host))
    };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(HyperIo(io)).await.map_err(interrupted)?;
    let target = endpoint.uri.path_and_query().map_or("/", |target| target.as_str());
    let authority = endpoint.uri.authority().map_or("", |authority| authority.as_str());
    let mut request = Request::builder()
        .method(method)
        .uri(target)
        .header(HOST, authority)
        .header(USER_AGENT, USER_AGENT_TEXT);
    if body.is_some() {
        request = request.header(CONTENT_TYPE, "application/jose+json");
    }
    let request = request
        .body(body.unwrap_or_default())
        .map_err(|error| Failure::new(format!("no request can be sent to {authority}: {error}")))?;
    let response = async {
        let response = sender.send_request(request).await.map_err(interrupted)?;
        let (head, body) = response.into_parts();
        Ok(Response {
            status: head.status,
            headers: head.headers,
            body: read_body(body, endpoint).await?,
        })
    };
    // The connection is polled while the response is being read, and dropped afterwards.
    let mut response = std::pin::pin!(response);
    let mut connection = std::pin::pin!(connection);
    let mut is_over = false;
    std::future::poll_fn(|cx| {
        if !is_over {
            // An error of the connection also fails the response.
            is_over = connection.as_mut().poll(cx).is_ready();
        }
        response.as_mut().poll(cx)
    })
    .await
}

async fn read_body(mut body: Incoming, endpoint: &Endpoint) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|error| {
            Failure::new(format!("the connection to {} failed: {error}", endpoint.host))
        })?;
        if let Ok(data) = frame.into_data() {
            if bytes.len() + data.len() > MAX_RESPONSE_SIZE {
                return Err(Failure::new(format!(
                    "{} sent more than {MAX_RESPONSE_SIZE} bytes",
                    endpoint.host
                )));
            }
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes)
}

/// An adapter that implements hyper's I/O traits for a stream with tokio's I/O traits.
struct HyperIo<T>(T);

impl<T: AsyncRead + Unpin> hyper::rt::Read for HyperIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut scratch = [0; 8 << 10];
        let capacity = buffer.remaining().min(scratch.len());
        let mut read = ReadBuf::new(&mut scratch[..capacity]);
        ready!(Pin::new(&mut self.0).poll_read(cx, &mut read))?;
        buffer.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> hyper::rt::Write for HyperIo<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_and_loopback_urls_are_accepted() {
        let endpoint = Endpoint::parse("https://ca.example/acme?x").unwrap();
        assert_eq!(
            (endpoint.host.as_str(), endpoint.port, endpoint.is_secure),
            ("ca.example", 443, true)
        );
        let endpoint = Endpoint::parse("https://[::1]:14000/dir").unwrap();
        assert_eq!((endpoint.host.as_str(), endpoint.port), ("::1", 14000));
        assert!(!Endpoint::parse("http://127.0.0.1:8080/dir").unwrap().is_secure);
        for wrong in [
            "http://ca.example/",
            "http://localhost/",
            "/dir",
            "https:///dir",
            "ws://127.0.0.1/",
            "a b",
        ] {
            assert!(Endpoint::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let after = |text: &str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]);
            Response { status: StatusCode::OK, headers, body: Vec::new() }.retry_after()
        };
        assert_eq!(after(" 120 "), Some(Duration::from_secs(120)));
        assert_eq!(after("Fri, 31 Dec 1999 23:59:59 GMT"), Some(Duration::ZERO));
        let later = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(3600));
        assert!(after(&later).is_some_and(|wait| (3500..=3600).contains(&wait.as_secs())));
        assert_eq!(after("soon"), None);
    }
}
