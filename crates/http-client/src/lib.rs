//! An HTTP/1.1 client for the few requests that the server itself sends: to a certificate
//! authority, and to a collector of traces. Each request opens a new connection.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use http::header::{HOST, RETRY_AFTER};
use http::uri::Scheme;
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::rt::ReadBufCursor;
use rookery_system::blocking::lookup_host;
use rookery_system::fork::ForkRegistry;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The maximum time for connecting to one IP address of a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// The maximum of a `Retry-After` header. Callers add the time to the current one, so it must not
/// be near the maximum of a `Duration`.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(30 * 24 * 3600);

/// The sockets of requests in progress, which a forked child closes by [`close_inherited`].
static SOCKETS: ForkRegistry = ForkRegistry::new();

/// Closes the sockets of requests in progress in a forked child, in which the thread that uses them
/// does not exist.
pub fn close_inherited() {
    SOCKETS.close_all();
}

/// The reason why a request has no response, in words.
#[derive(Debug)]
pub struct HttpError(String);

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for HttpError {}

/// The parsed URL of a request.
#[derive(Clone)]
pub struct Endpoint {
    uri: Uri,
    host: String,
    port: u16,
    is_secure: bool,
}

impl Endpoint {
    /// Parses a URL with the scheme `http` or `https`. Returns `None` if the text is no such URL.
    pub fn parse(url: &str) -> Option<Endpoint> {
        let uri: Uri = url.parse().ok()?;
        let host = uri.host().filter(|host| !host.is_empty())?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let is_secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return None,
        };
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        Some(Endpoint { uri, host, port, is_secure })
    }

    /// Returns the host in the URL, an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns true if the scheme of the URL is `https`.
    pub fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// Returns the user information of the URL, such as `user:password`, in which characters may be
    /// percent-encoded. Requests do not send it.
    pub fn user_info(&self) -> Option<&str> {
        Some(self.uri.authority()?.as_str().rsplit_once('@')?.0)
    }

    /// Returns the host and port as they are in the URL, without a user name and password.
    fn authority(&self) -> &str {
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        authority.rsplit('@').next().unwrap_or_default()
    }

    fn target(&self) -> &str {
        self.uri.path_and_query().map_or("/", |target| target.as_str())
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_secure { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.target())
    }
}

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

/// Sends a request and returns the response. `tls` is the TLS configuration for an HTTPS URL.
///
/// # Errors
/// Returns an [`HttpError`] if there is no connection, the response is not complete within the
/// limits, or a URL needs TLS and there is no configuration.
pub async fn send(
    message: Message<'_>,
    tls: Option<&Arc<ClientConfig>>,
    limits: ResponseLimits,
) -> Result<Response, HttpError> {
    let host = &message.endpoint.host;
    match tokio::time::timeout(limits.time, connect_and_send(message, tls, limits.bytes)).await {
        Ok(response) => response,
        Err(_) => {
            Err(HttpError(format!("{host} did not respond within {} s", limits.time.as_secs_f64())))
        }
    }
}

async fn connect_and_send(
    message: Message<'_>,
    tls: Option<&Arc<ClientConfig>>,
    max_bytes: usize,
) -> Result<Response, HttpError> {
    let Endpoint { host, port, is_secure, .. } = message.endpoint;
    let unreachable =
        |error: io::Error| HttpError(format!("cannot connect to {host}:{port}: {error}"));
    let tcp = connect(host, *port).await.map_err(unreachable)?;
    let _close_in_child = SOCKETS.mark(&tcp);
    if !is_secure {
        return exchange(tcp, message, max_bytes).await;
    }
    let tls = tls.ok_or_else(|| HttpError(format!("no TLS configuration for {host}")))?;
    let name = ServerName::try_from(host.clone())
        .map_err(|_| HttpError(format!("{host} is not a valid server name")))?;
    let tls = TlsConnector::from(Arc::clone(tls))
        .connect(name, tcp)
        .await
        .map_err(|error| HttpError(format!("TLS with {host} failed: {error}")))?;
    exchange(tls, message, max_bytes).await
}

/// Connects to the first IP address of `host` that responds. Each address has its own time limit,
/// so that an address that does not respond does not block the others.
async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in lookup_host(host, port).await? {
        match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(tcp)) => return Ok(tcp),
            Ok(Err(error)) => failed = error,
            Err(_) => failed = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failed)
}

async fn exchange<T>(io: T, message: Message<'_>, max_bytes: usize) -> Result<Response, HttpError>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let Message { method, headers, body, endpoint } = message;
    let interrupted = |error: hyper::Error| {
        HttpError(format!("the connection to {} failed: {error}", endpoint.host))
    };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(HyperIo(io)).await.map_err(interrupted)?;
    let host = endpoint.authority();
    let mut request = Request::builder()
        .method(method)
        .uri(endpoint.target())
        .header(HOST, host)
        .body(OneChunk(Some(body)))
        .map_err(|error| HttpError(format!("no request can be sent to {host}: {error}")))?;
    request.headers_mut().extend(headers);
    let response = async {
        let response = sender.send_request(request).await.map_err(interrupted)?;
        let (head, body) = response.into_parts();
        let (body, is_cut) = read_body(body, endpoint, max_bytes).await?;
        Ok(Response { status: head.status, headers: head.headers, body, is_cut })
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

/// Reads a body of at most `max_bytes`. Returns true if it is longer, and its rest is not read.
async fn read_body(
    mut body: Incoming,
    endpoint: &Endpoint,
    max_bytes: usize,
) -> Result<(Vec<u8>, bool), HttpError> {
    let mut bytes = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|error| {
            HttpError(format!("the connection to {} failed: {error}", endpoint.host))
        })?;
        if let Ok(data) = frame.into_data() {
            let rest = max_bytes - bytes.len();
            bytes.extend_from_slice(&data[..data.len().min(rest)]);
            if data.len() > rest {
                return Ok((bytes, true));
            }
        }
    }
    Ok((bytes, false))
}

/// A request body that is sent as one chunk.
struct OneChunk(Option<Vec<u8>>);

impl Body for OneChunk {
    type Data = io::Cursor<Vec<u8>>;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(io::Cursor::new(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Vec::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, Vec::len) as u64)
    }
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
    fn only_http_urls_are_endpoints() {
        let endpoint = Endpoint::parse("https://ca.example/acme?x").unwrap();
        assert_eq!(
            (endpoint.host(), endpoint.port, endpoint.is_secure()),
            ("ca.example", 443, true)
        );
        let endpoint = Endpoint::parse("http://[::1]:14000/dir").unwrap();
        assert_eq!((endpoint.host(), endpoint.port, endpoint.is_secure()), ("::1", 14000, false));
        for wrong in ["/dir", "https:///dir", "ws://127.0.0.1/", "a b", "localhost:4318", ""] {
            assert!(Endpoint::parse(wrong).is_none(), "{wrong}");
        }
    }

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
