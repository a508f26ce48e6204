//! A client that keeps its connection, and the connections themselves.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use http::header::{HOST, PROXY_AUTHORIZATION};
use http::{HeaderMap, Method, Request};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::rt::ReadBufCursor;
use rookery_system::blocking::lookup_host;
use rookery_system::fork::CloseInChild;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::endpoint::Endpoint;
use crate::proxy::Proxy;
use crate::{HttpError, Response, ResponseLimits, SOCKETS};

/// The maximum time for connecting to one IP address of a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// The time after which an unused connection is not used again, because routers may have dropped
/// it without a notice.
const MAX_IDLE: Duration = Duration::from_secs(30);

/// A client for requests to one URL. It keeps the connection open between requests.
pub struct Client {
    endpoint: Endpoint,
    tls: Option<Arc<ClientConfig>>,
    idle: Option<Connection>,
}

/// An open connection.
struct Connection {
    // Dropped before the socket is closed.
    _close_in_child: CloseInChild,
    sender: SendRequest<OneChunk>,
    /// The connection's I/O, which is polled only during a request.
    io: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_over: bool,
    /// Whether a part of the last request has not been sent.
    is_blocked: Arc<AtomicBool>,
    used_at: Instant,
}

impl Client {
    /// Creates a client without a connection. `tls` is the TLS configuration for an HTTPS URL.
    pub fn new(endpoint: Endpoint, tls: Option<Arc<ClientConfig>>) -> Client {
        Client { endpoint, tls, idle: None }
    }

    /// Sends a request and returns the response. Uses the connection of the last request if that is
    /// still open, and otherwise opens another one. `Host` and `Content-Length` are added to the
    /// headers. A request that fails on a connection of an earlier request is sent again, because
    /// the server may have closed that connection; so the server may receive it twice.
    ///
    /// # Errors
    /// Returns an [`HttpError`] if there is no connection, the response is not complete within the
    /// limits, or a URL needs TLS and there is no configuration.
    ///
    /// # Cancel safety
    /// The connection is closed if the future is dropped.
    pub async fn send(
        &mut self,
        method: &Method,
        headers: &HeaderMap,
        body: &[u8],
        limits: ResponseLimits,
    ) -> Result<Response, HttpError> {
        let host = self.endpoint.host().to_owned();
        let sent = self.send_unlimited(method, headers, body, limits.bytes);
        tokio::time::timeout(limits.time, sent).await.unwrap_or_else(|_| {
            let limit = limits.time.as_secs_f64();
            Err(HttpError::new(format!("{host} did not respond within {limit} s")))
        })
    }

    async fn send_unlimited(
        &mut self,
        method: &Method,
        headers: &HeaderMap,
        body: &[u8],
        max_bytes: usize,
    ) -> Result<Response, HttpError> {
        let request = || self.endpoint.request(method, headers, body);
        if let Some(idle) = self.idle.take().filter(|idle| idle.used_at.elapsed() < MAX_IDLE) {
            if let Ok((response, open)) = idle.exchange(request()?, &self.endpoint, max_bytes).await
            {
                self.idle = open;
                return Ok(response);
            }
        }
        let new = Connection::open(&self.endpoint, self.tls.as_ref()).await?;
        let (response, open) = new.exchange(request()?, &self.endpoint, max_bytes).await?;
        self.idle = open;
        Ok(response)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Makes a request to this URL.
    fn request(
        &self,
        method: &Method,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Request<OneChunk>, HttpError> {
        // A proxy gets the whole URL of a plaintext request (RFC 9112, 3.2.2).
        let proxy = self.proxy().filter(|_| !self.is_secure());
        let target = match proxy {
            Some(_) => format!("http://{}{}", self.authority(), self.target()),
            None => self.target().to_owned(),
        };
        let mut request = Request::builder()
            .method(method)
            .uri(target)
            .header(HOST, self.authority())
            .body(OneChunk(Some(body.to_vec())))
            .map_err(|error| {
                let host = self.authority();
                HttpError::new(format!("no request can be sent to {host}: {error}"))
            })?;
        request.headers_mut().extend(headers.clone());
        if let Some(value) = proxy.and_then(Proxy::authorization) {
            request.headers_mut().insert(PROXY_AUTHORIZATION, value.clone());
        }
        Ok(request)
    }
}

impl Connection {
    /// Opens a connection to the server of a URL, through the URL's proxy if it has one.
    async fn open(
        endpoint: &Endpoint,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<Connection, HttpError> {
        let (host, port) = match endpoint.proxy() {
            Some(proxy) => (proxy.host(), proxy.port()),
            None => (endpoint.host(), endpoint.port()),
        };
        let tcp = connect(host, port)
            .await
            .map_err(|error| HttpError::new(format!("cannot connect to {host}:{port}: {error}")))?;
        let close_in_child = SOCKETS.mark(&tcp);
        if !endpoint.is_secure() {
            return Connection::start(tcp, close_in_child, host).await;
        }
        let tcp = match endpoint.proxy() {
            Some(proxy) => tunnel(tcp, endpoint, proxy).await?,
            None => tcp,
        };
        let host = endpoint.host();
        let tls = tls.ok_or_else(|| HttpError::new(format!("no TLS configuration for {host}")))?;
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| HttpError::new(format!("{host} is not a valid server name")))?;
        let tls = TlsConnector::from(Arc::clone(tls))
            .connect(name, tcp)
            .await
            .map_err(|error| HttpError::new(format!("TLS with {host} failed: {error}")))?;
        Connection::start(tls, close_in_child, host).await
    }

    /// Makes an HTTP connection of a byte stream to `host`.
    async fn start<T>(
        io: T,
        close_in_child: CloseInChild,
        host: &str,
    ) -> Result<Connection, HttpError>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let is_blocked = Arc::<AtomicBool>::default();
        let (sender, io) = handshake(HyperIo { stream: io, is_blocked: Arc::clone(&is_blocked) })
            .await
            .map_err(|error| interrupted(host, &error))?;
        // An error of the connection also fails the response.
        let io = Box::pin(async move { drop(io.await) });
        let used_at = Instant::now();
        Ok(Connection {
            _close_in_child: close_in_child,
            sender,
            io,
            is_over: false,
            is_blocked,
            used_at,
        })
    }

    /// Sends a request. Returns the response, and the connection if it can be used again.
    async fn exchange(
        mut self,
        request: Request<OneChunk>,
        endpoint: &Endpoint,
        max_bytes: usize,
    ) -> Result<(Response, Option<Connection>), HttpError> {
        let response = self.receive(request, endpoint, max_bytes).await?;
        // The connection notices the end of the response.
        self.poll_io_once().await;
        // The server may have answered before it has read the whole request.
        let is_sent = !self.is_blocked.load(Ordering::Relaxed);
        let is_open = is_sent && !self.is_over && !response.is_cut && self.sender.is_ready();
        self.used_at = Instant::now();
        Ok((response, is_open.then_some(self)))
    }

    async fn receive(
        &mut self,
        request: Request<OneChunk>,
        endpoint: &Endpoint,
        max_bytes: usize,
    ) -> Result<Response, HttpError> {
        let failed = |error: hyper::Error| interrupted(endpoint.host(), &error);
        // A connection that has ended meanwhile is noticed before the request is passed to it.
        self.poll_io_once().await;
        let sent = self.sender.send_request(request);
        let mut response = std::pin::pin!(async {
            let (head, body) = sent.await.map_err(failed)?.into_parts();
            let (body, is_cut) = read_body(body, endpoint, max_bytes).await?;
            Ok(Response { status: head.status, headers: head.headers, body, is_cut })
        });
        std::future::poll_fn(|cx| {
            self.poll_io(cx);
            response.as_mut().poll(cx)
        })
        .await
    }

    async fn poll_io_once(&mut self) {
        std::future::poll_fn(|cx| {
            self.poll_io(cx);
            Poll::Ready(())
        })
        .await;
    }

    fn poll_io(&mut self, cx: &mut Context<'_>) {
        if !self.is_over {
            self.is_over = self.io.as_mut().poll(cx).is_ready();
        }
    }
}

/// Connects through a proxy to the server of an HTTPS URL (RFC 9110, 9.3.6).
async fn tunnel(
    tcp: TcpStream,
    endpoint: &Endpoint,
    proxy: &Proxy,
) -> Result<TcpStream, HttpError> {
    let failed = |error: hyper::Error| interrupted(proxy.host(), &error);
    let io = HyperIo { stream: tcp, is_blocked: Arc::default() };
    let (mut sender, connection) = handshake(io).await.map_err(failed)?;
    let host = endpoint.host();
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let target = format!("{host}:{}", endpoint.port());
    let mut request = Request::builder()
        .method(Method::CONNECT)
        .uri(&target)
        .header(HOST, &target)
        .body(OneChunk(None))
        .map_err(|error| HttpError::new(format!("no tunnel to {target}: {error}")))?;
    if let Some(value) = proxy.authorization() {
        request.headers_mut().insert(PROXY_AUTHORIZATION, value.clone());
    }
    let connection = connection.without_shutdown();
    let mut response = std::pin::pin!(sender.send_request(request));
    let mut connection = std::pin::pin!(connection);
    let mut is_accepted = false;
    // The connection ends with the response that opens the tunnel.
    let parts = std::future::poll_fn(|cx| {
        let io = connection.as_mut().poll(cx).map_err(failed);
        if !is_accepted {
            match response.as_mut().poll(cx).map_err(failed)? {
                Poll::Ready(response) if response.status().is_success() => is_accepted = true,
                Poll::Ready(response) => {
                    let (host, code) = (proxy.host(), response.status().as_u16());
                    let error = format!("the proxy {host} has answered with status {code}");
                    return Poll::Ready(Err(HttpError::new(error)));
                }
                Poll::Pending => {}
            }
        }
        io
    })
    .await?;
    Ok(parts.io.stream)
}

fn interrupted(host: &str, error: &hyper::Error) -> HttpError {
    HttpError::new(format!("the connection to {host} failed: {error}"))
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

/// Reads a body of at most `max_bytes`. Returns true if it is longer, and its rest is not read.
async fn read_body(
    mut body: Incoming,
    endpoint: &Endpoint,
    max_bytes: usize,
) -> Result<(Vec<u8>, bool), HttpError> {
    let mut bytes = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|error| interrupted(endpoint.host(), &error))?;
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
struct HyperIo<T> {
    stream: T,
    /// Whether the stream has not accepted all that hyper has to write.
    is_blocked: Arc<AtomicBool>,
}

impl<T: AsyncRead + Unpin> hyper::rt::Read for HyperIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut scratch = [0; 8 << 10];
        let capacity = buffer.remaining().min(scratch.len());
        let mut read = ReadBuf::new(&mut scratch[..capacity]);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read))?;
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
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.is_blocked.store(written.is_pending(), Ordering::Relaxed);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
