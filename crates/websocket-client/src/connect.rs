//! Opening a WebSocket connection of a client, including name lookup, TLS and the opening
//! handshake.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rookery_system::blocking::lookup_host;
use rookery_system::fork::{CloseInChild, ForkRegistry};
use rookery_websocket::protocol::handshake::HandshakeError;
use rookery_websocket::{Connection, Error, client, connect_any};
use rustls::CertificateError;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::address::Address;
use crate::settings::Settings;
use crate::tls::Tls;

/// The sockets of this process's WebSocket clients. A forked child process closes its copies of
/// them.
static SOCKETS: ForkRegistry = ForkRegistry::new();

/// Closes the sockets that a forked child process inherited from its parent's WebSocket clients.
/// Afterwards the child must forget (`std::mem::forget`) its copy of [`Clients`](crate::Clients),
/// and may create a new one. Takes no lock and allocates no memory.
pub fn close_inherited() {
    SOCKETS.close_all();
}

/// The IP addresses of `localhost`, in the order that most systems use.
const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// The byte stream that carries a WebSocket: a TCP connection or a TLS session.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Transport for T {}

/// A WebSocket connection over TCP or TLS.
pub(crate) type OpenConnection = Connection<Box<dyn Transport>>;

/// The reason why a client could not open a connection, with the HTTP status of the server's
/// response if there was one.
#[derive(Debug)]
pub(crate) struct ConnectError {
    pub(crate) message: String,
    pub(crate) status: Option<u16>,
}

impl ConnectError {
    pub(crate) fn new(message: impl Into<String>) -> ConnectError {
        ConnectError { message: message.into(), status: None }
    }
}

/// Opens a WebSocket connection. Returns it with the subprotocol that the server chose. Takes at
/// most [`Settings::connect_timeout`].
///
/// # Cancel safety
/// Dropping the future closes the socket. Only a blocking name lookup may continue in the
/// background.
pub(crate) async fn connect(
    address: &Address,
    settings: &Settings,
    tls: Option<Tls>,
) -> Result<(OpenConnection, Option<String>), ConnectError> {
    let all = async {
        let io = open_transport(address, tls).await?;
        let config = settings.client_config();
        match client(io, &address.authority, &address.target, &config).await {
            Ok((connection, established)) => Ok((connection, established.subprotocol)),
            Err(error) => Err(handshake_failure(&error)),
        }
    };
    match tokio::time::timeout(settings.connect_timeout, all).await {
        Ok(connected) => connected,
        Err(_) => Err(ConnectError::new(format!(
            "{}:{} did not respond within {} s",
            address.host,
            address.port,
            settings.connect_timeout.as_secs_f64()
        ))),
    }
}

async fn open_transport(
    address: &Address,
    tls: Option<Tls>,
) -> Result<Box<dyn Transport>, ConnectError> {
    let Address { host, port, .. } = address;
    let unreachable =
        |error: io::Error| ConnectError::new(format!("cannot connect to {host}:{port}: {error}"));
    let tcp = if is_localhost(host) {
        connect_any(LOOPBACK.map(|address| SocketAddr::new(address, *port))).await
    } else {
        connect_any(lookup_host(host, *port).await.map_err(unreachable)?).await
    };
    let tcp = tcp.map_err(unreachable)?;
    // Each message is written as a whole, so Nagle's algorithm would only delay it.
    tcp.set_nodelay(true).map_err(unreachable)?;
    let socket = Socket { _mark: SOCKETS.mark(&tcp), tcp };
    let Some(tls) = tls else { return Ok(Box::new(socket)) };
    let name = ServerName::try_from(host.clone())
        .map_err(|_| ConnectError::new(format!("{host} is not a valid server name")))?;
    let secured = TlsConnector::from(Arc::clone(&tls)).connect(name, socket).await;
    Ok(Box::new(secured.map_err(|error| tls_failure(host, &error))?))
}

/// Returns true if `host` is a name of this machine. Such names are resolved without a lookup (RFC
/// 6761, 6.3), because a container may have no `/etc/hosts`.
fn is_localhost(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

/// Describes a failed TLS handshake for the user, with a remedy for common problems.
fn tls_failure(host: &str, error: &io::Error) -> ConnectError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(inner) = inner else {
        return ConnectError::new(format!("TLS with {host} failed: {error}"));
    };
    let remedy = match inner {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            ": its certificate authority is not trusted here; \
             give the authority's certificate as `ca`"
        }
        rustls::Error::InvalidMessage(_) => {
            ": the server may not use TLS on this port; without TLS the address begins with ws://"
        }
        _ => "",
    };
    ConnectError::new(format!("TLS with {host} failed: {inner}{remedy}"))
}

fn handshake_failure(error: &Error) -> ConnectError {
    match error {
        Error::Handshake(HandshakeError::Status(status)) => {
            let redirect =
                if (300..400).contains(status) { "; redirects are not followed" } else { "" };
            ConnectError {
                message: format!(
                    "the server responded to the handshake with status {status}{redirect}"
                ),
                status: Some(*status),
            }
        }
        Error::Handshake(HandshakeError::Request(bad)) => ConnectError::new(bad.to_string()),
        Error::Handshake(error) => {
            ConnectError::new(format!("the server's response to the handshake is invalid: {error}"))
        }
        Error::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            ConnectError::new("the server closed the connection during the handshake")
        }
        error => ConnectError::new(format!("the handshake failed: {error}")),
    }
}

/// A TCP connection that is closed in forked child processes.
struct Socket {
    // Before `tcp`, so that the entry in the registry for forks is dropped before the socket.
    _mark: CloseInChild,
    tcp: TcpStream,
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(cx, out)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_names_of_this_machine() {
        for name in ["localhost", "LocalHost", "localhost.", "app.localhost", "a.b.LOCALHOST."] {
            assert!(is_localhost(name), "{name}");
        }
        for name in ["localhost.example", "notlocalhost", "127.0.0.1", "", ".", "localhost.."] {
            assert!(!is_localhost(name), "{name}");
        }
    }
}
