//! How a connection comes to be.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::connection::Connection;
use crate::connection::config::Config;
use crate::connection::core::Core;
use crate::connection::error::Error;
use crate::connection::inbound::Inbound;
use crate::connection::masks::next_nonce;
use crate::connection::timer::FAR;
use crate::protocol::deflate::{Agreed, DeflateConfig, Deflater, Inflater};
use crate::protocol::handshake::{
    Accepted, BadHead, ClientRequest, Established, HandshakeError, HeadReader, Refusal, ServerConfig,
};
use crate::protocol::{Decoder, Role};

/// What a connection is made of when somebody else did the handshake, an HTTP server for instance.
#[derive(Debug)]
pub struct Parts<S> {
    /// The transport.
    pub io: S,
    /// Our side.
    pub role: Role,
    /// What was agreed on compression, and how to compress.
    pub deflate: Option<(Agreed, DeflateConfig)>,
    /// What was read behind the head.
    pub leftover: Vec<u8>,
}

impl<S> Parts<S> {
    /// The server's side, without compression or leftover.
    pub fn server(io: S) -> Parts<S> {
        Parts { io, role: Role::Server, deflate: None, leftover: Vec::new() }
    }

    /// The client's side, without compression or leftover.
    pub fn client(io: S) -> Parts<S> {
        Parts { io, role: Role::Client, deflate: None, leftover: Vec::new() }
    }

    /// An open connection.
    #[expect(clippy::needless_pass_by_value, reason = "a connection owns its settings")]
    pub fn connection(self, config: Config) -> Connection<S> {
        let Parts { io, role, deflate, leftover } = self;
        let (decoder, deflater) = match deflate {
            None => (Decoder::new(role, config.limits), None),
            Some((agreed, deflate)) => (
                Decoder::with_inflater(role, config.limits, Inflater::new(agreed.receiver_takeover(role))),
                Deflater::new(&agreed, role, &deflate),
            ),
        };
        Connection { core: Core::new(io, role, deflater, &config), inbound: Inbound::new(decoder, &leftover) }
    }
}

/// Takes a client's handshake on a fresh transport.
///
/// # Errors
/// [`Error::Refused`], after the client was told why; [`Error::HandshakeTimeout`]; a failed transport.
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
    // On the heap: what only the handshake needs must not stay in the task of an idle connection.
    let (accepted, leftover) = Box::pin(within(limit, handshake)).await?;
    let deflate = accepted.deflate.zip(server.deflate);
    let parts = Parts { io, role: Role::Server, deflate, leftover };
    Ok((parts.connection(config), accepted))
}

/// What a client asks for beyond the address.
#[derive(Debug, Clone, Default)]
pub struct ClientConfig {
    /// The subprotocols, the preferred one first.
    pub subprotocols: Vec<String>,
    /// permessage-deflate, if it is offered. Default: not.
    pub deflate: Option<DeflateConfig>,
    /// More header fields, such as `Origin` or `Cookie`.
    pub headers: Vec<(String, String)>,
    /// The connection's settings.
    pub connection: Config,
}

/// Connects to `ws://host[:port][/path][?query]`.
///
/// # Errors
/// [`Error::Address`]; [`Error::Handshake`]; [`Error::HandshakeTimeout`]; a failed transport.
pub async fn connect(
    address: &str,
    config: &ClientConfig,
) -> Result<(Connection<TcpStream>, Established), Error> {
    let (authority, target) = split_address(address).ok_or(Error::Address)?;
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    let connecting = async {
        let io = if has_port {
            TcpStream::connect(authority).await?
        } else {
            TcpStream::connect((authority.trim_matches(['[', ']']), 80)).await?
        };
        // A message is written whole; waiting to fill a segment would only delay it.
        io.set_nodelay(true)?;
        Ok(io)
    };
    let io = Box::pin(within(config.connection.handshake_timeout, connecting)).await?;
    client(io, authority, &target, config).await
}

/// Asks for a WebSocket over a transport that is connected already.
///
/// # Errors
/// [`Error::Handshake`]; [`Error::HandshakeTimeout`]; a failed transport.
pub async fn client<S: AsyncRead + AsyncWrite + Unpin>(
    mut io: S,
    host: &str,
    target: &str,
    config: &ClientConfig,
) -> Result<(Connection<S>, Established), Error> {
    let mut request = ClientRequest::new(host, target, next_nonce());
    request.subprotocols.clone_from(&config.subprotocols);
    request.deflate = config.deflate;
    request.headers.clone_from(&config.headers);
    let handshake = async {
        let mut head = Vec::new();
        request.write(&mut head).map_err(Error::Handshake)?;
        io.write_all(&head).await?;
        io.flush().await?;
        let (head, leftover) = match read_head(&mut io).await {
            Ok(read) => read,
            Err(HeadError::Io(error)) => return Err(Error::Io(error)),
            Err(HeadError::Bad(bad)) => return Err(Error::Handshake(HandshakeError::Head(bad))),
        };
        let established = request.check(&head).map_err(Error::Handshake)?;
        Ok((established, leftover))
    };
    let (established, leftover) = Box::pin(within(config.connection.handshake_timeout, handshake)).await?;
    let deflate = established.deflate.zip(config.deflate);
    let parts = Parts { io, role: Role::Client, deflate, leftover };
    Ok((parts.connection(config.connection.clone()), established))
}

enum HeadError {
    Io(std::io::Error),
    Bad(BadHead),
}

/// A head, and what was read behind it.
async fn read_head<S: AsyncRead + Unpin>(io: &mut S) -> Result<(Vec<u8>, Vec<u8>), HeadError> {
    let mut head = Vec::with_capacity(1024);
    let mut reader = HeadReader::default();
    loop {
        if let Some(end) = reader.find(&head).map_err(HeadError::Bad)? {
            let leftover = head.split_off(end);
            return Ok((head, leftover));
        }
        if io.read_buf(&mut head).await.map_err(HeadError::Io)? == 0 {
            return Err(HeadError::Io(std::io::ErrorKind::UnexpectedEof.into()));
        }
    }
}

async fn refuse<S: AsyncRead + AsyncWrite + Unpin, T>(io: &mut S, refusal: Refusal) -> Result<T, Error> {
    let mut response = Vec::new();
    refusal.write_response(&mut response);
    io.write_all(&response).await?;
    io.shutdown().await?;
    // What has come is read, so that the answer is not overtaken by a reset; no more than a head's worth.
    let mut rest = [0; 1024];
    for _ in 0..64 {
        match tokio::time::timeout(Duration::from_millis(100), io.read(&mut rest)).await {
            Ok(Ok(n)) if n > 0 => {}
            _ => break,
        }
    }
    Err(Error::Refused(refusal))
}

async fn within<T>(limit: Duration, handshake: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match tokio::time::timeout(limit.min(FAR), handshake).await {
        Ok(done) => done,
        Err(_) => Err(Error::HandshakeTimeout),
    }
}

/// The authority and target of `ws://...`, without the fragment.
fn split_address(address: &str) -> Option<(&str, String)> {
    let (scheme, rest) = address.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("ws") {
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
    use super::split_address;

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
            let split = split_address(address);
            let split = split.as_ref().map(|(authority, target)| (*authority, target.as_str()));
            assert_eq!(split, *expected, "{address}");
        }
    }
}
