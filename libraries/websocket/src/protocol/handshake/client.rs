//! The client's side of a WebSocket's opening handshake (RFC 6455, 4.1).

use std::fmt;
use std::io::Write as _;

use base64::Engine as _;

use crate::protocol::deflate::{Agreed, DeflateConfig, Offer, Refused};
use crate::protocol::extensions::is_token;
use crate::protocol::handshake::head::{BadHead, HEADERS_MAX};
use crate::protocol::handshake::{accept_key, elements};

/// A client's request for opening a WebSocket. Each part was checked to be valid in HTTP.
///
/// ```
/// use rookery_websocket::protocol::handshake::{BadRequest, ClientRequest};
/// let nonce = [7; 16]; // random, and another for each request
/// let request = ClientRequest::new("example.org", "/chat?room=1", nonce)?
///     .subprotocol("chat.v1")?
///     .header("Origin", "https://example.org")?;
/// let mut head = Vec::new();
/// request.write(&mut head);
/// assert!(head.starts_with(b"GET /chat?room=1 HTTP/1.1\r\nHost: example.org\r\n"));
///
/// let refused = ClientRequest::new("example.org", "/\u{fc}", nonce);
/// assert_eq!(refused.unwrap_err(), BadRequest::Target);
/// # Ok::<(), BadRequest>(())
/// ```
#[derive(Debug, Clone)]
pub struct ClientRequest {
    host: String,
    target: String,
    /// The value of the header `Sec-WebSocket-Key`: a random nonce in base64.
    key: [u8; 24],
    subprotocols: Vec<String>,
    deflate: Option<DeflateConfig>,
    headers: Vec<(String, String)>,
}

/// The reason why a client's handshake request is invalid and cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadRequest {
    /// The host is empty, or has characters that are not valid in the host and port of a URI (RFC
    /// 3986, 3.2).
    Host,
    /// The request target does not begin with `/`, has characters that are not valid in a path and
    /// query (RFC 3986, 3.3 and 3.4), or has a `%` without two hexadecimal digits after it.
    Target,
    /// A subprotocol is not a token (RFC 9110, 5.6.2), or occurs twice.
    Subprotocol(String),
    /// The name of this header field is not a token (RFC 9110, 5.6.2).
    HeaderName(String),
    /// The value of the header field with this name contains control characters.
    HeaderValue(String),
    /// The header field with this name cannot be set, because the handshake sets it or because it
    /// announces a body.
    ReservedHeader(String),
}

/// The result of a client's successful opening handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Established {
    /// The subprotocol that the server chose, if any.
    pub subprotocol: Option<String>,
    /// The parameters of the negotiated compression (permessage-deflate), if any.
    pub deflate: Option<Agreed>,
}

/// The reason why a client's opening handshake failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The client's request is malformed, and nothing was sent.
    Request(BadRequest),
    /// The head of the server's response is malformed or too large.
    Head(BadHead),
    /// The server refused the request: it responded with this HTTP status instead of 101.
    Status(u16),
    /// The server's response has no `Upgrade: websocket` or no `Connection: Upgrade`.
    NoUpgrade,
    /// The `Sec-WebSocket-Accept` of the server's response does not match the key of the request.
    Accept,
    /// The server chose a subprotocol that was not requested, or more than one.
    Subprotocol,
    /// The server granted an extension that was not offered, or one with other parameters.
    Extension(Refused),
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandshakeError::Request(bad) => bad.fmt(f),
            HandshakeError::Head(bad) => bad.fmt(f),
            HandshakeError::Status(status) => write!(f, "the server answered with status {status}"),
            HandshakeError::NoUpgrade => f.write_str("the server did not upgrade to websocket"),
            HandshakeError::Accept => f.write_str("Sec-WebSocket-Accept does not match the key"),
            HandshakeError::Subprotocol => {
                f.write_str("the server chose a subprotocol that was not requested")
            }
            HandshakeError::Extension(refused) => refused.fmt(f),
        }
    }
}

impl std::error::Error for HandshakeError {}

impl From<BadRequest> for HandshakeError {
    fn from(bad: BadRequest) -> HandshakeError {
        HandshakeError::Request(bad)
    }
}

impl fmt::Display for BadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadRequest::Host => {
                f.write_str("the host is empty or has characters that are invalid in a host")
            }
            BadRequest::Target => f.write_str(
                "the target has to begin with /, and characters that RFC 3986 does not allow in a \
                 path or query have to be percent-encoded",
            ),
            BadRequest::Subprotocol(name) => {
                write!(
                    f,
                    "the subprotocol {name:?} occurs twice or has characters that are invalid"
                )
            }
            BadRequest::HeaderName(name) => {
                write!(f, "the header name {name:?} has characters that HTTP does not allow")
            }
            BadRequest::HeaderValue(name) => {
                write!(f, "the value of the header {name} has characters that HTTP does not allow")
            }
            BadRequest::ReservedHeader(name) if is_named(name, "sec-websocket-protocol") => {
                write!(f, "the handshake sends the header {name}; use the setting for subprotocols")
            }
            BadRequest::ReservedHeader(name) => {
                write!(f, "the header {name} is sent by the handshake and cannot be set")
            }
        }
    }
}

impl std::error::Error for BadRequest {}

impl ClientRequest {
    /// Makes a handshake request for `target`, a path that begins with `/`, on `host`. `host`
    /// includes the port unless that is the scheme's default. Each request needs a fresh random
    /// nonce.
    ///
    /// # Errors
    /// [`BadRequest::Host`] or [`BadRequest::Target`] if that part is not valid.
    pub fn new(
        host: impl Into<String>,
        target: impl Into<String>,
        nonce: [u8; 16],
    ) -> Result<ClientRequest, BadRequest> {
        let (host, target) = (host.into(), target.into());
        if host.is_empty() || !host.bytes().all(is_host_byte) {
            return Err(BadRequest::Host);
        }
        if !is_target(target.as_bytes()) {
            return Err(BadRequest::Target);
        }
        let mut key = [0; 24];
        base64::engine::general_purpose::STANDARD
            .encode_slice(nonce, &mut key)
            .expect("sixteen bytes are 24 characters");
        Ok(ClientRequest {
            host,
            target,
            key,
            subprotocols: Vec::new(),
            deflate: None,
            headers: Vec::new(),
        })
    }

    /// Appends a subprotocol to those that the client offers to the server.
    ///
    /// # Errors
    /// [`BadRequest::Subprotocol`] if the name is not a token or occurs twice.
    pub fn subprotocol(mut self, name: impl Into<String>) -> Result<ClientRequest, BadRequest> {
        let name = name.into();
        // RFC 6455, 4.1: each subprotocol occurs once.
        if !is_name(&name) || self.subprotocols.contains(&name) {
            return Err(BadRequest::Subprotocol(name));
        }
        self.subprotocols.push(name);
        Ok(self)
    }

    /// Adds a header field, such as `Origin` or `Cookie`, to the handshake request.
    ///
    /// # Errors
    /// [`BadRequest::HeaderName`], [`BadRequest::HeaderValue`] or [`BadRequest::ReservedHeader`] if
    /// the field is not allowed.
    pub fn header(
        mut self,
        name: impl Into<String>,
        value: impl Into<String>,
    ) -> Result<ClientRequest, BadRequest> {
        let (name, value) = (name.into(), value.into());
        if !is_name(&name) {
            return Err(BadRequest::HeaderName(name));
        }
        if RESERVED.iter().any(|reserved| is_named(&name, reserved))
            || has_prefix(&name, "sec-websocket-")
        {
            return Err(BadRequest::ReservedHeader(name));
        }
        if !value.bytes().all(|byte| byte == b'\t' || (byte >= b' ' && byte != 0x7F)) {
            return Err(BadRequest::HeaderValue(name));
        }
        self.headers.push((name, value));
        Ok(self)
    }

    /// Sets the compression (permessage-deflate) that the client offers to the server. Default:
    /// none.
    #[must_use]
    pub fn deflate(self, config: impl Into<Option<DeflateConfig>>) -> ClientRequest {
        ClientRequest { deflate: config.into(), ..self }
    }

    /// Appends the head of the handshake request to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let all = "writing to a vector cannot fail";
        write!(out, "GET {} HTTP/1.1\r\nHost: {}\r\n", self.target, self.host).expect(all);
        out.extend_from_slice(
            b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n",
        );
        out.extend_from_slice(b"Sec-WebSocket-Key: ");
        out.extend_from_slice(&self.key);
        if !self.subprotocols.is_empty() {
            write!(out, "\r\nSec-WebSocket-Protocol: {}", self.subprotocols.join(", ")).expect(all);
        }
        if let Some(deflate) = self.deflate {
            write!(out, "\r\nSec-WebSocket-Extensions: {}", Offer(deflate)).expect(all);
        }
        for (name, value) in &self.headers {
            write!(out, "\r\n{name}: {value}").expect(all);
        }
        out.extend_from_slice(b"\r\n\r\n");
    }

    /// Checks the server's response to the handshake request. `head` is the whole head of the
    /// response, with the empty line at its end.
    ///
    /// # Errors
    /// A [`HandshakeError`] if the server refused, or granted something that was not requested.
    /// After an error, the connection cannot be used.
    pub fn check(&self, head: &[u8]) -> Result<Established, HandshakeError> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        match response.parse(head) {
            Ok(httparse::Status::Complete(n)) if n == head.len() => {}
            Ok(_) => return Err(HandshakeError::Head(BadHead::Malformed)),
            Err(error) => return Err(HandshakeError::Head(BadHead::of(error))),
        }
        let status = response.code.unwrap_or_default();
        if status != 101 {
            return Err(HandshakeError::Status(status));
        }
        let values = |name: &'static str| {
            response
                .headers
                .iter()
                .filter(move |header| header.name.eq_ignore_ascii_case(name))
                .map(|header| header.value.trim_ascii())
        };
        let has = |name, mode: &[u8]| {
            values(name).flat_map(elements).any(|element| element.eq_ignore_ascii_case(mode))
        };
        if !has("upgrade", b"websocket") || !has("connection", b"upgrade") {
            return Err(HandshakeError::NoUpgrade);
        }
        if !values("sec-websocket-accept").eq([&accept_key(&self.key)[..]]) {
            return Err(HandshakeError::Accept);
        }
        let mut subprotocol = None;
        for named in values("sec-websocket-protocol") {
            let asked = self.subprotocols.iter().find(|asked| asked.as_bytes() == named);
            let asked = asked.ok_or(HandshakeError::Subprotocol)?;
            if subprotocol.replace(asked.clone()).is_some() {
                return Err(HandshakeError::Subprotocol);
            }
        }
        let lines = values("sec-websocket-extensions");
        let deflate = match &self.deflate {
            Some(config) => config.check(lines).map_err(HandshakeError::Extension)?,
            None if lines.flat_map(elements).next().is_some() => {
                return Err(HandshakeError::Extension(Refused::Unasked));
            }
            None => None,
        };
        Ok(Established { subprotocol, deflate })
    }
}

/// The names of header fields that a caller cannot add to a handshake request. Either the handshake
/// sets these fields itself, or they would announce a body, or a connection option other than
/// `Upgrade`. All names that begin with `Sec-WebSocket-` are reserved as well.
const RESERVED: [&str; 10] = [
    "host",
    "upgrade",
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "content-length",
    "expect",
];

fn is_named(name: &str, known: &str) -> bool {
    name.eq_ignore_ascii_case(known)
}

fn has_prefix(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_token)
}

/// Returns true if `byte` is valid in a host with an optional port (RFC 3986, 3.2.2 and 3.2.3).
fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(&byte)
}

/// Returns true if `target` is a valid path with or without a query (RFC 9112, 3.2.1). Brackets are
/// allowed, because all clients send them unescaped in queries.
fn is_target(target: &[u8]) -> bool {
    let is_allowed =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?[]%".contains(byte);
    target.starts_with(b"/")
        && target.iter().all(is_allowed)
        && target.split(|byte| *byte == b'%').skip(1).all(|after| {
            after.get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        })
}
