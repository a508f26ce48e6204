//! The server's side of a WebSocket's opening handshake (RFC 6455, 4.2).

use std::fmt;
use std::io::Write as _;

use base64::Engine as _;

use crate::protocol::deflate::{Agreed, DeflateConfig};
use crate::protocol::handshake::head::{BadHead, HEADERS_MAX};
use crate::protocol::handshake::{AcceptKey, OriginPolicy, accept_key, elements};

/// The settings with which a server accepts the opening handshakes of WebSockets.
///
/// ```
/// use rookery_websocket::protocol::handshake::{OriginPolicy, ServerConfig};
/// let server = ServerConfig::default().subprotocol("chat").origin(OriginPolicy::Any);
/// assert_eq!((server.subprotocols, server.deflate), (vec!["chat".to_owned()], None));
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ServerConfig {
    /// The subprotocols that the server supports. From the client's list, the server chooses the
    /// first subprotocol that it supports.
    pub subprotocols: Vec<String>,
    /// The compression settings, if the server grants permessage-deflate. Default: `None`, so that
    /// messages are not compressed.
    pub deflate: Option<DeflateConfig>,
    /// The origins of browser pages that the server accepts. Default: only those of the same host.
    pub origin: OriginPolicy,
}

/// An accepted handshake request, with the header values of the 101 response.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Accepted {
    /// The value of the response's header `Sec-WebSocket-Accept`.
    pub accept: AcceptKey,
    /// The value of the response's header `Sec-WebSocket-Protocol`: the chosen subprotocol, if any.
    pub subprotocol: Option<String>,
    /// The granted compression, if any. `Display` writes it as the value of the response's header
    /// `Sec-WebSocket-Extensions`.
    pub deflate: Option<Agreed>,
}

/// The reason why a server refuses a handshake request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The head of the request is malformed or too large.
    Head(BadHead),
    /// The method of the request is not GET.
    Method,
    /// The request's version is HTTP/1.0, which has no `Upgrade` (RFC 9110, 7.8).
    HttpVersion,
    /// The request has no `Host` header, or more than one.
    Host,
    /// The request has no `Upgrade: websocket` or no `Connection: Upgrade`.
    NoUpgrade,
    /// The request has no `Sec-WebSocket-Key`, more than one, or one that is not 16 bytes in
    /// base64.
    Key,
    /// The WebSocket version of the request is not 13.
    Version,
    /// The origin of the request is not allowed.
    Origin,
    /// The request announces a body. The bytes of the body would be taken for WebSocket frames.
    Body,
}

impl Refusal {
    /// Returns the HTTP status of the response for this refusal.
    pub fn status(self) -> u16 {
        match self {
            Refusal::Head(BadHead::TooLong | BadHead::TooManyHeaders) => 431,
            Refusal::Method => 405,
            Refusal::Version => 426,
            Refusal::Origin => 403,
            _ => 400,
        }
    }

    /// Appends the whole HTTP response for this refusal to `out`. The connection has to be closed
    /// after it. The response for [`Refusal::Version`] names the supported version (RFC 6455, 4.4).
    pub fn write_response(self, out: &mut Vec<u8>) {
        let (status, reason, header) = match self.status() {
            403 => (403, "Forbidden", ""),
            405 => (405, "Method Not Allowed", "Allow: GET\r\n"),
            426 => (
                426,
                "Upgrade Required",
                "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n",
            ),
            431 => (431, "Request Header Fields Too Large", ""),
            _ => (400, "Bad Request", ""),
        };
        let body = self.to_string();
        write!(
            out,
            "HTTP/1.1 {status} {reason}\r\n{header}Content-Type: text/plain\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
        .expect("writing to a vector cannot fail");
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Head(bad) => return bad.fmt(f),
            Refusal::Method => "the method has to be GET",
            Refusal::HttpVersion => "a WebSocket handshake needs HTTP/1.1",
            Refusal::Host => "the request needs exactly one Host header",
            Refusal::NoUpgrade => "the request does not upgrade to websocket",
            Refusal::Key => "Sec-WebSocket-Key is not 16 bytes in base64",
            Refusal::Version => "only WebSocket version 13 is supported",
            Refusal::Origin => "the origin is not allowed",
            Refusal::Body => "the request must not have a body",
        })
    }
}

impl std::error::Error for Refusal {}

impl ServerConfig {
    /// Adds a subprotocol that the server supports.
    #[must_use]
    pub fn subprotocol(mut self, name: impl Into<String>) -> ServerConfig {
        self.subprotocols.push(name.into());
        self
    }

    /// Sets the compression settings with which the server grants permessage-deflate.
    #[must_use]
    pub fn deflate(self, config: impl Into<Option<DeflateConfig>>) -> ServerConfig {
        ServerConfig { deflate: config.into(), ..self }
    }

    /// Sets the origins of browser pages that the server accepts.
    #[must_use]
    pub fn origin(self, origin: OriginPolicy) -> ServerConfig {
        ServerConfig { origin, ..self }
    }

    /// Checks a client's handshake request. `head` is the whole head of the request, with the empty
    /// line at its end.
    ///
    /// # Errors
    /// A [`Refusal`] if the head is not HTTP, or the request cannot be accepted.
    ///
    /// # Allocation
    /// One allocation for the chosen subprotocol, if any.
    pub fn answer_head(&self, head: &[u8]) -> Result<Accepted, Refusal> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(head) {
            Ok(httparse::Status::Complete(n)) if n == head.len() => {}
            Ok(_) => return Err(Refusal::Head(BadHead::Malformed)),
            Err(error) => return Err(Refusal::Head(BadHead::of(error))),
        }
        if request.method != Some("GET") {
            return Err(Refusal::Method);
        }
        if request.version != Some(1) {
            return Err(Refusal::HttpVersion);
        }
        self.answer(request.headers.iter().map(|header| (header.name, header.value)))
    }

    /// Checks a client's handshake request whose header fields were parsed by other code. It must
    /// be a GET request of HTTP/1.1.
    ///
    /// # Errors
    /// A [`Refusal`] if the request cannot be accepted.
    pub fn answer<'h>(
        &self,
        headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
    ) -> Result<Accepted, Refusal> {
        let mut fields = Fields::default();
        for (name, value) in headers {
            fields.add(self, name, value.trim_ascii())?;
        }
        fields.finish(self)
    }
}

/// The values of the header fields that the handshake needs, collected in one pass.
#[derive(Debug, Default)]
struct Fields<'h> {
    host: Option<&'h [u8]>,
    origin: Option<&'h [u8]>,
    key: Option<&'h [u8]>,
    asks_upgrade: bool,
    names_upgrade: bool,
    speaks_13: bool,
    subprotocol: Option<&'h [u8]>,
    deflate: Option<Agreed>,
}

impl<'h> Fields<'h> {
    fn add(&mut self, config: &ServerConfig, name: &str, value: &'h [u8]) -> Result<(), Refusal> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("host") {
            if self.host.replace(value).is_some() {
                return Err(Refusal::Host);
            }
        } else if is("upgrade") {
            self.asks_upgrade |=
                elements(value).any(|element| element.eq_ignore_ascii_case(b"websocket"));
        } else if is("connection") {
            self.names_upgrade |=
                elements(value).any(|element| element.eq_ignore_ascii_case(b"upgrade"));
        } else if is("origin") {
            // A request with two origins has no reliable one.
            if self.origin.replace(value).is_some() {
                return Err(Refusal::Origin);
            }
        } else if is("sec-websocket-key") {
            if self.key.replace(value).is_some() {
                return Err(Refusal::Key);
            }
        } else if is("sec-websocket-version") {
            self.speaks_13 |= elements(value).any(|element| element == b"13");
        } else if is("sec-websocket-protocol") {
            if self.subprotocol.is_none() {
                self.subprotocol = elements(value).find(|named| {
                    config.subprotocols.iter().any(|spoken| spoken.as_bytes() == *named)
                });
            }
        } else if is("sec-websocket-extensions") {
            if let (None, Some(deflate)) = (&self.deflate, &config.deflate) {
                self.deflate = deflate.choose(value);
            }
        } else if is("transfer-encoding") || (is("content-length") && value != b"0") {
            return Err(Refusal::Body);
        }
        Ok(())
    }

    fn finish(self, config: &ServerConfig) -> Result<Accepted, Refusal> {
        let host = self.host.ok_or(Refusal::Host)?;
        if !self.asks_upgrade || !self.names_upgrade {
            return Err(Refusal::NoUpgrade);
        }
        if !self.speaks_13 {
            return Err(Refusal::Version);
        }
        let key = self.key.filter(|key| is_key(key)).ok_or(Refusal::Key)?;
        if self.origin.is_some_and(|origin| !config.origin.allows(origin, host)) {
            return Err(Refusal::Origin);
        }
        let subprotocol = self.subprotocol.map(|name| String::from_utf8_lossy(name).into_owned());
        Ok(Accepted { accept: accept_key(key), subprotocol, deflate: self.deflate })
    }
}

fn is_key(key: &[u8]) -> bool {
    let mut decoded = [0; 18];
    let decoded = base64::engine::general_purpose::STANDARD.decode_slice(key, &mut decoded);
    key.len() == 24 && matches!(decoded, Ok(16))
}

impl Accepted {
    /// Appends the whole 101 response to `out`.
    pub fn write_response(&self, out: &mut Vec<u8>) {
        let start = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
            Connection: Upgrade\r\nSec-WebSocket-Accept: ";
        out.extend_from_slice(start);
        out.extend_from_slice(&self.accept);
        let all = "writing to a vector cannot fail";
        if let Some(subprotocol) = &self.subprotocol {
            write!(out, "\r\nSec-WebSocket-Protocol: {subprotocol}").expect(all);
        }
        if let Some(agreed) = &self.deflate {
            write!(out, "\r\nSec-WebSocket-Extensions: {agreed}").expect(all);
        }
        out.extend_from_slice(b"\r\n\r\n");
    }
}
