//! The client's side (RFC 6455, 4.1).

use std::fmt;
use std::io::Write as _;

use base64::Engine as _;

use crate::protocol::deflate::{Agreed, DeflateConfig, Offer, Refused};
use crate::protocol::extensions::is_token;
use crate::protocol::handshake::head::{BadHead, HEADERS_MAX};
use crate::protocol::handshake::{accept_key, elements};

/// A request for a WebSocket.
#[derive(Debug, Clone)]
pub struct ClientRequest {
    host: String,
    target: String,
    /// `Sec-WebSocket-Key`.
    key: [u8; 24],
    /// `Sec-WebSocket-Protocol`, the preferred one first.
    pub subprotocols: Vec<String>,
    /// permessage-deflate, if it is offered. Default: not.
    pub deflate: Option<DeflateConfig>,
    /// More header fields, such as `Origin` or `Cookie`.
    pub headers: Vec<(String, String)>,
}

/// What the server granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Established {
    /// The subprotocol it chose.
    pub subprotocol: Option<String>,
    /// What was agreed on compression.
    pub deflate: Option<Agreed>,
}

/// Why there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The request can not be written: a host, target, subprotocol or header field that HTTP does not allow.
    Request,
    /// The response's head.
    Head(BadHead),
    /// The server answered with this status.
    Status(u16),
    /// No `Upgrade: websocket`, or no `Connection: Upgrade`.
    NoUpgrade,
    /// `Sec-WebSocket-Accept` does not answer our key.
    Accept,
    /// A subprotocol that was not asked for, or two.
    Subprotocol,
    /// An extension that was not asked for, or on other terms.
    Extension(Refused),
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandshakeError::Request => f.write_str("the request holds what HTTP does not allow"),
            HandshakeError::Head(bad) => bad.fmt(f),
            HandshakeError::Status(status) => write!(f, "the server answered with status {status}"),
            HandshakeError::NoUpgrade => f.write_str("the server did not upgrade to websocket"),
            HandshakeError::Accept => f.write_str("Sec-WebSocket-Accept does not answer the key"),
            HandshakeError::Subprotocol => f.write_str("a subprotocol that was not asked for"),
            HandshakeError::Extension(refused) => refused.fmt(f),
        }
    }
}

impl std::error::Error for HandshakeError {}

impl ClientRequest {
    /// A request to `host` (with its port, if that is not the scheme's) for `target`, which begins with `/`. The nonce is
    /// fresh and random for each.
    pub fn new(host: impl Into<String>, target: impl Into<String>, nonce: [u8; 16]) -> ClientRequest {
        let mut key = [0; 24];
        base64::engine::general_purpose::STANDARD
            .encode_slice(nonce, &mut key)
            .expect("sixteen bytes are 24 characters");
        ClientRequest {
            host: host.into(),
            target: target.into(),
            key,
            subprotocols: Vec::new(),
            deflate: None,
            headers: Vec::new(),
        }
    }

    /// Appends the request's head.
    ///
    /// # Errors
    /// [`HandshakeError::Request`]; `out` is then as it was.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), HandshakeError> {
        let is_value = |text: &str| text.bytes().all(|byte| byte == b'\t' || (byte >= b' ' && byte != 0x7F));
        let is_word = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte > b' ' && byte != 0x7F);
        let is_name = |text: &str| !text.is_empty() && text.bytes().all(is_token);
        if !(is_word(&self.host)
            && is_word(&self.target)
            && self.target.starts_with('/')
            && self.subprotocols.iter().all(|name| is_name(name))
            && self.headers.iter().all(|(name, value)| is_name(name) && is_value(value)))
        {
            return Err(HandshakeError::Request);
        }
        let all = "a vector takes all";
        write!(out, "GET {} HTTP/1.1\r\nHost: {}\r\n", self.target, self.host).expect(all);
        out.extend_from_slice(b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n");
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
        Ok(())
    }

    /// Judges the response's head, which ends with its empty line.
    ///
    /// # Errors
    /// When the server did not agree, or not to what was asked; the connection is of no use then.
    pub fn check(&self, head: &[u8]) -> Result<Established, HandshakeError> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        match response.parse(head) {
            Ok(httparse::Status::Complete(n)) if n == head.len() => {}
            Ok(_) => return Err(HandshakeError::Head(BadHead::Malformed)),
            Err(error) => return Err(HandshakeError::Head(error.into())),
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
        let has = |name, wanted: &[u8]| {
            values(name).flat_map(elements).any(|element| element.eq_ignore_ascii_case(wanted))
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
