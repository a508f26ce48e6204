//! Responses on their way to the front end.

use std::fs::File;

use super::{Malformed, Reader, write_text};
use crate::exchange::Exchange;
use crate::exchange::response::{OwnedBody, ResponseBody, WebSocketCompression};
use crate::stream_flow_control::{StreamOptions, StreamedBody};

const IS_FAILURE: u8 = 1;
const HAS_COMPRESSION: u8 = 2;
const KEEPS_WINDOW: u8 = 4;

// The forms of a body.
const NONE: u8 = 0;
const INLINE: u8 = 1;
const FILE: u8 = 2;
const STREAM: u8 = 3;

const IS_PULLED: u8 = 1;
const SENDS_HEAD_FIRST: u8 = 2;
const IS_EVENTS: u8 = 4;
const IS_COMPRESSIBLE: u8 = 8;

/// The content of the record of a response.
#[derive(Debug)]
pub enum ResponseContent<'a> {
    /// The field of [`Up::Response`](super::Up::Response). The body is copied.
    Borrowed(&'a [u8]),
    /// The bytes of the whole record, whose memory becomes that of the body.
    Owned(Vec<u8>),
}

/// The number of bytes of a response's record before the content of the response: its two ids.
const IDS: usize = 16;

/// Returns the bytes of a response body that is in memory. They are the end of the response's
/// record.
pub fn response_body(exchange: &Exchange) -> &[u8] {
    match exchange.response().body() {
        ResponseBody::Copied => exchange.response_copy().unwrap_or_default(),
        ResponseBody::Lent(lease) => lease.as_bytes(),
        ResponseBody::Owned(body) => body.as_bytes(),
        ResponseBody::None
        | ResponseBody::Refused
        | ResponseBody::File { .. }
        | ResponseBody::Stream(_) => &[],
    }
}

/// Appends a response to `out`, which already contains the ids of the response. If `file_len` is
/// given, the body is a file of this length, which the caller sends beside the record. Otherwise
/// the caller sends [`response_body`] after these bytes.
pub(super) fn write(exchange: &Exchange, file_len: Option<u64>, out: &mut Vec<u8>) {
    let response = exchange.response();
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
    out.extend_from_slice(&(headers.len() as u32).to_le_bytes());
    for (name, value) in headers {
        write_text(name, out);
        write_text(value, out);
    }
    if let Some(len) = file_len {
        out.push(FILE);
        return out.extend_from_slice(&len.to_le_bytes());
    }
    match response.body() {
        ResponseBody::None | ResponseBody::Refused | ResponseBody::File { .. } => out.push(NONE),
        ResponseBody::Copied | ResponseBody::Lent(_) | ResponseBody::Owned(_) => out.push(INLINE),
        ResponseBody::Stream(stream) => {
            let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
            let rules = &stream.rules;
            out.push(STREAM);
            out.push(
                flag(rules.is_pulled, IS_PULLED)
                    | flag(rules.sends_head_first, SENDS_HEAD_FIRST)
                    | flag(rules.is_events, IS_EVENTS)
                    | flag(rules.is_compressible, IS_COMPRESSIBLE),
            );
            out.extend_from_slice(&rules.heartbeat.to_le_bytes());
        }
    }
}

/// Reads a response into the exchange of its request, and checks the response. `file` is the file
/// that was sent beside the record. At most `max_queue` bytes of a streamed response may wait for
/// the client.
///
/// # Errors
/// Returns an error if the bytes are no response.
pub fn read_response(
    content: ResponseContent<'_>,
    exchange: &mut Exchange,
    file: Option<File>,
    max_queue: usize,
) -> Result<(), Malformed> {
    match content {
        ResponseContent::Borrowed(content) => {
            if let Some(body) = read(content, exchange, file, max_queue)? {
                exchange.set_response_body(body);
            }
        }
        ResponseContent::Owned(record) => {
            let content = record.get(IDS..).ok_or(Malformed)?;
            if let Some(len) = read(content, exchange, file, max_queue)?.map(<[u8]>::len) {
                let body = ResponseBody::Owned(OwnedBody::from_end(record, len));
                exchange.response_mut().set_body(body);
            }
        }
    }
    Ok(())
}

/// Reads a response except for a body that is a part of the record. Returns that body.
fn read<'a>(
    content: &'a [u8],
    exchange: &mut Exchange,
    file: Option<File>,
    max_queue: usize,
) -> Result<Option<&'a [u8]>, Malformed> {
    let mut reader = Reader(content);
    let status = reader.u16()?;
    if !(100..=999).contains(&status) {
        return Err(Malformed);
    }
    exchange.begin_response(status);
    let flags = reader.u8()?;
    if flags & !(IS_FAILURE | HAS_COMPRESSION | KEEPS_WINDOW) != 0 {
        return Err(Malformed);
    }
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
    for _ in 0..reader.u32()? {
        let (name, value) = (reader.text()?, reader.text()?);
        exchange.push_response_header(name, value).map_err(|_| Malformed)?;
    }
    let form = reader.u8()?;
    if (form == FILE) != file.is_some() {
        return Err(Malformed);
    }
    match (form, file) {
        (NONE, _) => reader.end()?,
        (INLINE, _) => return Ok(Some(reader.rest())),
        (FILE, Some(file)) => {
            let len = reader.u64()?;
            // Reading a pipe or a device could wait forever.
            let metadata = file.metadata().map_err(|_| Malformed)?;
            if !metadata.is_file() {
                return Err(Malformed);
            }
            exchange.response_mut().set_body(ResponseBody::File { file, len, charge: None });
            reader.end()?;
        }
        // The response to an accepted handshake has no body.
        (STREAM, _) if !(exchange.is_upgrade() && status == 101) => {
            let (flags, heartbeat) = (reader.u8()?, reader.u16()?);
            if flags & !(IS_PULLED | SENDS_HEAD_FIRST | IS_EVENTS | IS_COMPRESSIBLE) != 0 {
                return Err(Malformed);
            }
            let rules = StreamOptions {
                is_pulled: flags & IS_PULLED != 0,
                sends_head_first: flags & SENDS_HEAD_FIRST != 0,
                is_events: flags & IS_EVENTS != 0,
                heartbeat,
                is_compressible: flags & IS_COMPRESSIBLE != 0,
            };
            exchange.set_response_stream(StreamedBody::new(rules, max_queue));
            reader.end()?;
        }
        _ => return Err(Malformed),
    }
    Ok(None)
}
