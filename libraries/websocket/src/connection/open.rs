//! The opening handshakes of WebSocket clients and servers.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::connection::Connection;
use crate::connection::config::Config;
use crate::connection::core::Core;
use crate::connection::error::Error;
use crate::connection::happy_eyeballs::connect_any;
use crate::connection::inbound::Inbound;
use crate::connection::mask_keys::next_nonce;
use crate::connection::timer::FAR;
use crate::protocol::deflate::{Agreed, DeflateConfig, Deflater, Inflater};
use crate::protocol::handshake::{
    Accepted, BadHead, BadRequest, ClientRequest, Established, HandshakeError, HeadReader, Refusal,
    ServerConfig,
};
use crate::protocol::{Decoder, Role};

/// The parts of a WebSocket connection after its opening handshake. Use them if other code, such as
/// an HTTP server, performs the handshake.
#[derive(Debug)]
#[non_exhaustive]
pub struct Parts<S> {
    /// The transport of the connection, such as a socket.
    pub io: S,
    /// Whether this side of the connection is the client or the server.
    pub role: Role,
    /// The compression that was negotiated in the handshake, and this side's compression settings.
    pub deflate: Option<(Agreed, DeflateConfig)>,
    /// The bytes after the handshake that have already been read from the transport. They are the
    /// beginning of the WebSocket's frames.
    pub leftover: Vec<u8>,
}

impl<S> Parts<S> {
    /// Returns the parts of a server's connection, without compression and without leftover bytes.
    pub fn server(io: S) -> Parts<S> {
        Parts { io, role: Role::Server, deflate: None, leftover: Vec::new() }
    }

    /// Returns the parts of a client's connection, without compression and without leftover bytes.
    pub fn client(io: S) -> Parts<S> {
        Parts { io, role: Role::Client, deflate: None, leftover: Vec::new() }
    }

    /// Sets the compression that was negotiated in the handshake, and this side's compression
    /// settings.
    #[must_use]
    pub fn deflate(self, deflate: impl Into<Option<(Agreed, DeflateConfig)>>) -> Parts<S> {
        Parts { deflate: deflate.into(), ..self }
    }

    /// Sets the bytes after the handshake that have already been read from the transport.
    #[must_use]
    pub fn leftover(self, leftover: Vec<u8>) -> Parts<S> {
        Parts { leftover, ..self }
    }

    /// Makes an open WebSocket connection from these parts.
    #[expect(clippy::needless_pass_by_value, reason = "a connection owns its settings")]
    pub fn connection(self, config: Config) -> Connection<S> {
        let Parts { io, role, deflate, leftover } = self;
        let (decoder, deflater) = match deflate {
            None => (Decoder::new(role, config.limits), None),
            Some((agreed, deflate)) => (
                Decoder::with_inflater(
                    role,
                    config.limits,
                    Inflater::new(agreed.receiver_takeover(role)),
                ),
                Deflater::new(&agreed, role, &deflate),
            ),
        };
        Connection {
            core: Core::new(io, role, deflater, &config),
            inbound: Inbound::new(decoder, &leftover),
        }
    }
}

/// Performs the server's opening handshake on a new transport, and returns the open connection.
///
/// # Errors
/// [`Error::Refused`] after a refusal was sent to the client, [`Error::HandshakeTimeout`], and
/// [`Error::Io`] when the transport fails.
pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
    mut io: S,
    server: &ServerConfig,
    config: Config,
) -> Result<(Connection<S>, Accepted), Error> {
    let limit = config.handshake_timeout;
    let handshake = async {
        let (head, leftover) = match read_head(&mut io).await {
            Ok(read) => read,
            Err(HeadError::Io(error)) => return Err(Error::Io(error)),
            Err(HeadError::Bad(bad)) => return refuse(&mut io, Refusal::Head(bad)).await,
        };
        match server.answer_head(&head) {
            Ok(accepted) => {
                let mut response = Vec::new();
                accepted.write_response(&mut response);
                io.write_all(&response).await?;
                io.flush().await?;
                Ok((accepted, leftover))
            }
            Err(refusal) => refuse(&mut io, refusal).await,
        }
    };
    // On the heap: memory that only the handshake needs must not stay in the task of an idle
    // connection.
    let (accepted, leftover) = Box::pin(within(limit, handshake)).await?;
    let deflate = accepted.deflate.zip(server.deflate);
    let parts = Parts { io, role: Role::Server, deflate, leftover };
    Ok((parts.connection(config), accepted))
}

/// The settings of a WebSocket client: what it requests in the opening handshake, and the settings
/// of its connection.
///
/// ```
/// use rookery_websocket::ClientConfig;
/// let config = ClientConfig::default().subprotocol("chat").header("Origin", "https://example.org");
/// assert!(config.request("example.org", "/").is_ok());
/// assert!(config.header("Sec-WebSocket-Key", "mine").request("example.org", "/").is_err());
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ClientConfig {
    /// The subprotocols that the client offers to the server, in order of preference.
    pub subprotocols: Vec<String>,
    /// The compression (permessage-deflate) that the client offers to the server, if any. Default:
    /// none.
    pub deflate: Option<DeflateConfig>,
    /// Additional header fields of the handshake request, such as `Origin` or `Cookie`.
    pub headers: Vec<(String, String)>,
    /// The limits and timeouts of the client's connection.
    pub connection: Config,
}

impl ClientConfig {
    /// Appends a subprotocol to those that the client offers to the server.
    #[must_use]
    pub fn subprotocol(mut self, name: impl Into<String>) -> ClientConfig {
        self.subprotocols.push(name.into());
        self
    }

    /// Sets the compression (permessage-deflate) that the client offers to the server.
    #[must_use]
    pub fn deflate(self, config: impl Into<Option<DeflateConfig>>) -> ClientConfig {
        ClientConfig { deflate: config.into(), ..self }
    }

    /// Adds a header field to the handshake request.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> ClientConfig {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the limits and timeouts of the client's connection.
    #[must_use]
    pub fn connection(self, connection: Config) -> ClientConfig {
        ClientConfig { connection, ..self }
    }

    /// Makes the handshake request for the path `target` on `host`, with a new nonce.
    ///
    /// # Errors
    /// A [`BadRequest`] that names the part of the request that HTTP does not allow.
    pub fn request(&self, host: &str, target: &str) -> Result<ClientRequest, BadRequest> {
        let mut request = ClientRequest::new(host, target, next_nonce())?;
        for name in &self.subprotocols {
            request = request.subprotocol(name)?;
        }
        for (name, value) in &self.headers {
            request = request.header(name, value)?;
        }
        Ok(request.deflate(self.deflate))
    }
}

/// Connects a WebSocket client to `ws://host[:port][/path][?query]`. If the host has several IP
/// addresses, uses the first one that accepts the connection ([`connect_any`]).
///
/// # Errors
/// [`Error::Address`] if the address has another form; [`Error::Handshake`] if the request is
/// malformed (nothing is sent then) or the server refuses it; [`Error::HandshakeTimeout`]; and
/// [`Error::Io`] when the transport fails.
pub async fn connect(
    address: &str,
    config: &ClientConfig,
) -> Result<(Connection<TcpStream>, Established), Error> {
    let (authority, target) = split_address(address, "ws").ok_or(Error::Address)?;
    let request = config.request(authority, &target).map_err(HandshakeError::Request)?;
    establish(connect_tcp(authority, 80), &request, config).await
}

/// Connects to `host[:port]`, at `default_port` if there is no port.
#[allow(clippy::disallowed_methods, reason = "the runtime and its threads belong to the caller")]
pub(crate) async fn connect_tcp(authority: &str, default_port: u16) -> io::Result<TcpStream> {
    let host = host_of(authority);
    let io = if has_port(authority) {
        connect_any(tokio::net::lookup_host(authority).await?).await?
    } else {
        connect_any(tokio::net::lookup_host((host, default_port)).await?).await?
    };
    // Each message is written whole, so waiting for a full segment would only delay it.
    io.set_nodelay(true)?;
    Ok(io)
}

fn has_port(authority: &str) -> bool {
    authority.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'))
}

/// Returns the host in `host[:port]`, without the brackets of an IPv6 address.
pub(crate) fn host_of(authority: &str) -> &str {
    let host = match authority.rsplit_once(':') {
        Some((host, _)) if has_port(authority) => host,
        _ => authority,
    };
    host.trim_matches(['[', ']'])
}

/// Performs the client's opening handshake over a transport that is already connected.
///
/// # Errors
/// [`Error::Handshake`] if the request is malformed (nothing is sent then) or the server refuses
/// it; [`Error::HandshakeTimeout`]; and [`Error::Io`] when the transport fails.
pub async fn client<S: AsyncRead + AsyncWrite + Unpin>(
    io: S,
    host: &str,
    target: &str,
    config: &ClientConfig,
) -> Result<(Connection<S>, Established), Error> {
    let request = config.request(host, target).map_err(HandshakeError::Request)?;
    establish(std::future::ready(Ok(io)), &request, config).await
}

/// Connects and performs the client's opening handshake, within [`Config::handshake_timeout`].
pub(crate) async fn establish<S: AsyncRead + AsyncWrite + Unpin>(
    connecting: impl Future<Output = io::Result<S>>,
    request: &ClientRequest,
    config: &ClientConfig,
) -> Result<(Connection<S>, Established), Error> {
    let handshake = async {
        let mut io = connecting.await?;
        let mut head = Vec::new();
        request.write(&mut head);
        io.write_all(&head).await?;
        io.flush().await?;
        let (head, leftover) = match read_head(&mut io).await {
            Ok(read) => read,
            Err(HeadError::Io(error)) => return Err(Error::Io(error)),
            Err(HeadError::Bad(bad)) => return Err(Error::Handshake(HandshakeError::Head(bad))),
        };
        let established = request.check(&head).map_err(Error::Handshake)?;
        Ok((io, established, leftover))
    };
    // On the heap: memory that only the handshake needs must not stay in the task of an idle
    // connection.
    let shaken = Box::pin(within(config.connection.handshake_timeout, handshake));
    let (io, established, leftover) = shaken.await?;
    let deflate = established.deflate.zip(config.deflate);
    let parts = Parts { io, role: Role::Client, deflate, leftover };
    Ok((parts.connection(config.connection.clone()), established))
}

enum HeadError {
    Io(io::Error),
    Bad(BadHead),
}

/// Reads the head of the handshake request or response. Returns it with the bytes that were read
/// after it.
async fn read_head<S: AsyncRead + Unpin>(io: &mut S) -> Result<(Vec<u8>, Vec<u8>), HeadError> {
    let mut head = Vec::with_capacity(1024);
    let mut reader = HeadReader::default();
    loop {
        if let Some(end) = reader.find(&head).map_err(HeadError::Bad)? {
            let leftover = head.split_off(end);
            return Ok((head, leftover));
        }
        if io.read_buf(&mut head).await.map_err(HeadError::Io)? == 0 {
            return Err(HeadError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
    }
}

async fn refuse<S: AsyncRead + AsyncWrite + Unpin, T>(
    io: &mut S,
    refusal: Refusal,
) -> Result<T, Error> {
    let mut response = Vec::new();
    refusal.write_response(&mut response);
    io.write_all(&response).await?;
    io.shutdown().await?;
    // The client's remaining input is read, at most as much as a head, because unread input could
    // make the system reset the connection before the client has read the response.
    let mut rest = [0; 1024];
    for _ in 0..64 {
        match tokio::time::timeout(Duration::from_millis(100), io.read(&mut rest)).await {
            Ok(Ok(n)) if n > 0 => {}
            _ => break,
        }
    }
    Err(Error::Refused(refusal))
}

async fn within<T>(
    limit: Duration,
    handshake: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(limit.min(FAR), handshake).await {
        Ok(done) => done,
        Err(_) => Err(Error::HandshakeTimeout),
    }
}

/// Splits an address with the scheme `expected` into its authority (host and port) and its target
/// (path and query), without the fragment.
pub(crate) fn split_address<'a>(address: &'a str, expected: &str) -> Option<(&'a str, String)> {
    let (scheme, rest) = address.split_once("://")?;
    if !scheme.eq_ignore_ascii_case(expected) {
        return None;
    }
    let rest = rest.split('#').next()?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    if authority.is_empty() || authority.contains('@') {
        return None;
    }
    let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
    Some((authority, target))
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    /// Checks that the time for connecting and the time for the handshake together count towards
    /// the handshake timeout.
    #[tokio::test(start_paused = true)]
    async fn the_handshake_timeout_counts_once() {
        let config = ClientConfig::default();
        let limit = config.connection.handshake_timeout;
        let request = config.request("host", "/").unwrap();
        let (here, _there) = tokio::io::duplex(1024);
        let connecting = async {
            sleep(limit / 4 * 3).await;
            Ok(here)
        };
        let start = Instant::now();
        let established = establish(connecting, &request, &config).await;
        assert!(matches!(established, Err(Error::HandshakeTimeout)));
        assert_eq!(start.elapsed(), limit);
    }

    #[tokio::test]
    async fn a_request_that_cannot_be_written_is_an_error_before_anything_is_sent() {
        let (here, mut there) = tokio::io::duplex(1024);
        let config = ClientConfig::default().header("Sec-WebSocket-Key", "x");
        let refused = client(here, "host", "/", &config).await.map(|_| ());
        let reserved = BadRequest::ReservedHeader("Sec-WebSocket-Key".to_owned());
        let reserved = HandshakeError::Request(reserved);
        assert!(matches!(refused, Err(Error::Handshake(error)) if error == reserved));
        let mut sent = Vec::new();
        there.read_to_end(&mut sent).await.unwrap();
        assert!(sent.is_empty());
        // Nothing connects to port 0 first, because that would be another error.
        let refused =
            connect("ws://127.0.0.1:0/\u{fc}", &ClientConfig::default()).await.map(|_| ());
        let target = HandshakeError::Request(BadRequest::Target);
        assert!(matches!(refused, Err(Error::Handshake(error)) if error == target));
    }

    #[test]
    fn addresses_are_split() {
        let table: &[(&str, Option<(&str, &str)>)] = &[
            ("ws://host", Some(("host", "/"))),
            ("WS://host:80/a?b#c", Some(("host:80", "/a?b"))),
            ("ws://[::1]:9?x", Some(("[::1]:9", "/?x"))),
            ("wss://host", None),
            ("ws:///a", None),
            ("ws://user@host/", None),
            ("host", None),
        ];
        for (address, expected) in table {
            let split = split_address(address, "ws");
            let split = split.as_ref().map(|(authority, target)| (*authority, target.as_str()));
            assert_eq!(split, *expected, "{address}");
        }
        assert!(split_address("wss://host", "wss").is_some());
        for (authority, host) in [("a", "a"), ("a:1", "a"), ("[::1]", "::1"), ("[::1]:1", "::1")] {
            assert_eq!(host_of(authority), host);
        }
    }
}
