//! Exchanges as plain data: a request on its way to the process that runs the application, and the
//! response on its way back. Numbers are little-endian, and texts have their length before them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::exchange::response::{ResponseBody, WebSocketCompression};
use crate::exchange::{Exchange, Version};
use crate::ids::{ExchangeId, ListenerId};

/// The kinds of records that the two processes exchange. A record about a WebSocket begins with the
/// WebSocket's id in the front end.
pub mod kind {
    /// Down: a request, from [`write_request`](super::write_request).
    pub const REQUEST: u8 = 1;
    /// Down: a text message from a WebSocket. Up: one to it.
    pub const TEXT: u8 = 2;
    /// Down: a binary message from a WebSocket. Up: one to it.
    pub const BINARY: u8 = 3;
    /// Down: a WebSocket has ended; the close code, 1 if it was clean, and the reason. Up: closes
    /// it; the code, 0, and the reason.
    pub const CLOSE: u8 = 4;
    /// Up: a response, from [`write_response`](super::write_response).
    pub const RESPONSE: u8 = 5;
    /// Up: sends a ping.
    pub const PING: u8 = 6;
    /// Up: closes the connection.
    pub const ABORT: u8 = 7;
}

/// The error for bytes that describe no request or response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// The reason why a response cannot be written as plain data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsupported;

const IS_HTTPS: u8 = 1;
const IS_UPGRADE: u8 = 2;
const IS_HTTP_10: u8 = 4;
const IS_HEAD_SEEN: u8 = 8;

const IS_FAILURE: u8 = 1;
const HAS_COMPRESSION: u8 = 2;
const KEEPS_WINDOW: u8 = 4;

/// Appends a request to `out`. `ticket` and `queued_at` are the values that the exchange has in the
/// other process. `header` returns the value to send for a request header, or `None` to leave the
/// header out.
pub fn write_request<'a>(
    exchange: &'a Exchange,
    (ticket, queued_at): (u64, u64),
    out: &mut Vec<u8>,
    mut header: impl FnMut(&'a [u8], &'a [u8], &mut dyn FnMut(&[u8])),
) {
    out.extend_from_slice(&exchange.id().to_le_bytes());
    out.extend_from_slice(&ticket.to_le_bytes());
    out.extend_from_slice(&queued_at.to_le_bytes());
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    out.push(
        flag(exchange.is_https(), IS_HTTPS)
            | flag(exchange.is_upgrade(), IS_UPGRADE)
            | flag(exchange.version() == Version::Http10, IS_HTTP_10)
            | flag(exchange.is_head_seen(), IS_HEAD_SEEN),
    );
    write_address(exchange.remote(), out);
    write_address(exchange.local(), out);
    write_text(exchange.method(), out);
    let (path, query) = (exchange.path(), exchange.query());
    out.extend_from_slice(&((path.len() + query.len()) as u32).to_le_bytes());
    out.extend_from_slice(path);
    out.extend_from_slice(query);
    write_text(exchange.request_id().as_bytes(), out);
    let count_at = out.len();
    out.extend_from_slice(&[0; 2]);
    let mut count = 0_u16;
    for line in exchange.headers() {
        header(line.name, line.value, &mut |value| {
            write_text(line.name, out);
            write_text(value, out);
            count += 1;
        });
    }
    out[count_at..count_at + 2].copy_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&(exchange.body().len() as u32).to_le_bytes());
    exchange.body().segments().for_each(|segment| out.extend_from_slice(segment));
}

/// Reads a request that [`write_request`] has written. `number` gives the exchange's id in this
/// process from its id in the other one.
///
/// # Errors
/// Returns an error if the bytes are no request.
pub fn read_request(
    bytes: &[u8],
    listener: ListenerId,
    number: impl FnOnce(ExchangeId) -> ExchangeId,
    exchange: &mut Exchange,
) -> Result<(), Malformed> {
    let mut reader = Reader(bytes);
    let (id, ticket, queued_at) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let flags = reader.u8()?;
    let (remote, local) = (reader.address()?, reader.address()?);
    exchange.begin(number(id), listener, 0);
    let version = if flags & IS_HTTP_10 == 0 { Version::Http11 } else { Version::Http10 };
    let (method, target, request_id) = (reader.text()?, reader.text()?, reader.text()?);
    exchange.set_request_line(method, target, version);
    exchange.set_supervisor_ids(ticket, Some(request_id));
    exchange.set_queued_at(queued_at);
    for _ in 0..reader.u16()? {
        let (name, value) = (reader.text()?, reader.text()?);
        exchange.push_header(name, value);
    }
    exchange.end_head(remote, local, flags & IS_UPGRADE != 0);
    exchange.set_transport(flags & IS_HTTPS != 0, None);
    if flags & IS_HEAD_SEEN != 0 {
        exchange.set_head_seen();
    }
    exchange.push_body(reader.text()?);
    reader.end()
}

/// Appends a response to `out`. `id` and `ticket` are those of the request.
///
/// # Errors
/// Returns an error if the response is not in memory.
pub fn write_response(
    exchange: &Exchange,
    (id, ticket): (ExchangeId, u64),
    out: &mut Vec<u8>,
) -> Result<(), Unsupported> {
    let response = exchange.response();
    let body = match response.body() {
        ResponseBody::None => &[][..],
        ResponseBody::Copied => exchange.response_copy().unwrap_or_default(),
        ResponseBody::Lent(lease) => lease.as_bytes(),
        ResponseBody::File { .. } | ResponseBody::Stream(_) => return Err(Unsupported),
    };
    out.extend_from_slice(&id.to_le_bytes());
    out.extend_from_slice(&ticket.to_le_bytes());
    out.extend_from_slice(&response.status().to_le_bytes());
    let mut flags = if response.is_failure() { IS_FAILURE } else { 0 };
    if let Some(compression) = response.compression() {
        flags |= HAS_COMPRESSION | if compression.keeps_window { KEEPS_WINDOW } else { 0 };
    }
    out.push(flags);
    if let Some(compression) = response.compression() {
        out.push(compression.level);
        out.extend_from_slice(&(compression.threshold as u64).to_le_bytes());
    }
    let headers = exchange.response_headers();
    out.extend_from_slice(&(headers.len() as u16).to_le_bytes());
    for (name, value) in headers {
        write_text(name, out);
        write_text(value, out);
    }
    let has_body = !matches!(response.body(), ResponseBody::None);
    out.push(u8::from(has_body));
    write_text(body, out);
    Ok(())
}

/// Returns the request's id and ticket, with which [`write_response`] begins.
pub fn read_ids(bytes: &[u8]) -> Result<(ExchangeId, u64), Malformed> {
    let mut reader = Reader(bytes);
    Ok((reader.u64()?, reader.u64()?))
}

/// Reads a response that [`write_response`] has written, and checks it.
///
/// # Errors
/// Returns an error if the bytes are no response.
pub fn read_response(bytes: &[u8], exchange: &mut Exchange) -> Result<(), Malformed> {
    let mut reader = Reader(bytes);
    reader.u64()?;
    reader.u64()?;
    let status = reader.u16()?;
    if !(100..=999).contains(&status) {
        return Err(Malformed);
    }
    exchange.begin_response(status);
    let flags = reader.u8()?;
    if flags & IS_FAILURE != 0 {
        exchange.response_mut().set_failure();
    }
    if flags & HAS_COMPRESSION != 0 {
        let (level, threshold) = (reader.u8()?, reader.u64()?);
        if !(1..=9).contains(&level) {
            return Err(Malformed);
        }
        exchange.response_mut().set_compression(WebSocketCompression {
            level,
            threshold: usize::try_from(threshold).unwrap_or(usize::MAX),
            keeps_window: flags & KEEPS_WINDOW != 0,
        });
    }
    for _ in 0..reader.u16()? {
        let (name, value) = (reader.text()?, reader.text()?);
        exchange.push_response_header(name, value).map_err(|_| Malformed)?;
    }
    let has_body = reader.u8()? != 0;
    let body = reader.text()?;
    if has_body {
        exchange.set_response_body(body);
    }
    reader.end()
}

fn write_text(text: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text);
}

fn write_address(address: Option<SocketAddr>, out: &mut Vec<u8>) {
    let Some(address) = address else { return out.push(0) };
    match address.ip() {
        IpAddr::V4(ip) => {
            out.push(4);
            out.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(6);
            out.extend_from_slice(&ip.octets());
        }
    }
    out.extend_from_slice(&address.port().to_le_bytes());
}

/// A reader of plain data, which fails where the data end too early.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*first)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Result<&'a [u8], Malformed> {
        let len = u32::from_le_bytes(self.array()?) as usize;
        let (text, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(text)
    }

    fn address(&mut self) -> Result<Option<SocketAddr>, Malformed> {
        let ip = match self.u8()? {
            0 => return Ok(None),
            4 => IpAddr::from(self.array::<4>()?),
            6 => IpAddr::from(Ipv6Addr::from(self.array::<16>()?)),
            _ => return Err(Malformed),
        };
        Ok(Some(SocketAddr::new(ip, self.u16()?)))
    }

    fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Box<Exchange> {
        let mut exchange = Exchange::new();
        exchange.begin(77, 1, 3);
        exchange.set_request_line(b"POST", b"/a/b?c=d", Version::Http10);
        exchange.push_header(b"x-mine", b"1");
        exchange.push_header(b"host", b"example.org");
        exchange.push_header(b"connection", b"close");
        exchange.end_head(
            Some("192.0.2.1:5".parse().unwrap()),
            Some("[::1]:80".parse().unwrap()),
            true,
        );
        exchange.set_transport(true, None);
        exchange.push_body(b"the ");
        exchange.push_body(b"body");
        exchange
    }

    fn written(exchange: &Exchange) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_request(exchange, (9, 8), &mut bytes, |name, value, keep| {
            if name != b"connection" {
                keep(value);
            }
        });
        bytes
    }

    #[test]
    fn a_request_arrives_as_it_was_sent() {
        let sent = request();
        let mut arrived = Exchange::new();
        read_request(&written(&sent), 5, |id| id + 1, &mut arrived).unwrap();
        assert_eq!((arrived.id(), arrived.listener(), arrived.ticket()), (78, 5, 9));
        assert_eq!(arrived.queue_and_start_times(), (8, 0));
        assert_eq!((arrived.method(), arrived.path()), (&b"POST"[..], &b"/a/b"[..]));
        assert_eq!((arrived.query(), arrived.version()), (&b"?c=d"[..], Version::Http10));
        assert_eq!((arrived.remote(), arrived.local()), (sent.remote(), sent.local()));
        assert!(arrived.is_https() && arrived.is_upgrade() && !arrived.is_head_seen());
        assert_eq!(arrived.request_id().as_bytes(), sent.request_id().as_bytes());
        let headers: Vec<_> = arrived.headers().map(|line| (line.name, line.value)).collect();
        assert_eq!(headers, [(&b"host"[..], &b"example.org"[..]), (b"x-mine", b"1")]);
        assert_eq!(arrived.body().segments().collect::<Vec<_>>().concat(), b"the body");
    }

    #[test]
    fn a_response_arrives_as_it_was_sent() {
        let mut sent = request();
        sent.begin_response(201);
        sent.push_response_header(b"Content-Type", b"text/plain").unwrap();
        sent.set_response_body(b"hello");
        sent.response_mut().set_failure();
        let compression = WebSocketCompression { level: 3, threshold: 1000, keeps_window: true };
        sent.response_mut().set_compression(compression);
        let mut bytes = Vec::new();
        write_response(&sent, (77, 9), &mut bytes).unwrap();
        assert_eq!(read_ids(&bytes), Ok((77, 9)));
        let mut arrived = request();
        read_response(&bytes, &mut arrived).unwrap();
        let response = arrived.response();
        assert_eq!((response.status(), response.is_failure()), (201, true));
        assert_eq!(response.compression(), Some(compression));
        assert_eq!(arrived.response_copy(), Some(&b"hello"[..]));
        let headers: Vec<_> = arrived.response_headers().collect();
        assert_eq!(headers, [(&b"Content-Type"[..], &b"text/plain"[..])]);
    }

    #[test]
    fn truncated_and_changed_bytes_never_panic() {
        let mut sent = request();
        let request = written(&sent);
        sent.begin_response(200);
        sent.push_response_header(b"a", b"b").unwrap();
        sent.set_response_body(b"hello");
        let mut response = Vec::new();
        write_response(&sent, (1, 2), &mut response).unwrap();
        let mut exchange = Exchange::new();
        for len in 0..request.len() {
            let read = read_request(&request[..len], 1, |id| id, &mut exchange);
            assert_eq!(read, Err(Malformed), "{len}");
        }
        for len in 0..response.len() {
            assert_eq!(read_response(&response[..len], &mut exchange), Err(Malformed), "{len}");
        }
        for at in 0..response.len() {
            for byte in [0, 1, 0x7F, 0xFF] {
                let mut changed = response.clone();
                changed[at] = byte;
                let _ = read_response(&changed, &mut exchange);
            }
        }
    }
}
