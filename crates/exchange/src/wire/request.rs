//! Requests on their way to the worker.

use std::fs::File;
use std::sync::Arc;

use super::{MAX_ARENA_BODY, Malformed, Reader, write_address, write_text};
use crate::exchange::body_buffer::BodyBufferPool;
use crate::exchange::request_body::BodySource;
use crate::exchange::{ClientCertificate, Exchange, Version};
use crate::ids::{ExchangeId, ListenerId};

const IS_HTTPS: u8 = 1;
const IS_UPGRADE: u8 = 2;
const IS_HTTP_10: u8 = 4;
const IS_HEAD_SEEN: u8 = 8;
const HAS_CERTIFICATE: u8 = 16;
const IS_BODY_FILE: u8 = 32;

/// Appends a request to `out`. The caller must send a body in a file beside the record. `ticket`
/// and `queued_at` are the values that the exchange will have in the worker, and `query` is sent
/// instead of the query of the exchange. The headers `added` are sent in addition to those of the
/// client. `header` is called with the name and the value of each header of the client, and with a
/// function. If `header` calls this function, the header is sent with the value that the function
/// is given; otherwise the header is left out.
pub fn write_request<'a>(
    exchange: &'a Exchange,
    query: &[u8],
    (ticket, queued_at): (u64, u64),
    out: &mut Vec<u8>,
    added: &[(&[u8], &[u8])],
    mut header: impl FnMut(&'a [u8], &'a [u8], &mut dyn FnMut(&[u8])),
) {
    out.extend_from_slice(&exchange.id().to_le_bytes());
    out.extend_from_slice(&ticket.to_le_bytes());
    out.extend_from_slice(&queued_at.to_le_bytes());
    let is_file = matches!(exchange.body().source(), BodySource::File(_));
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    out.push(
        flag(exchange.is_https(), IS_HTTPS)
            | flag(exchange.is_upgrade(), IS_UPGRADE)
            | flag(exchange.version() == Version::Http10, IS_HTTP_10)
            | flag(exchange.is_head_seen(), IS_HEAD_SEEN)
            | flag(exchange.client().is_some(), HAS_CERTIFICATE)
            | flag(is_file, IS_BODY_FILE),
    );
    write_address(exchange.remote(), out);
    write_address(exchange.local(), out);
    write_text(exchange.method(), out);
    let path = exchange.path();
    out.extend_from_slice(&((path.len() + query.len()) as u32).to_le_bytes());
    out.extend_from_slice(path);
    out.extend_from_slice(query);
    write_text(exchange.request_id().as_bytes(), out);
    if let Some(client) = exchange.client() {
        write_text(client.subject.as_bytes(), out);
        write_text(client.fingerprint.as_bytes(), out);
    }
    let count_at = out.len();
    out.extend_from_slice(&[0; 2]);
    let mut count = added.len() as u16;
    for (name, value) in added {
        write_text(name, out);
        write_text(value, out);
    }
    for line in exchange.headers() {
        header(line.name, line.value, &mut |value| {
            write_text(line.name, out);
            write_text(value, out);
            count += 1;
        });
    }
    out[count_at..count_at + 2].copy_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&exchange.body().len().to_le_bytes());
    exchange.body().segments().for_each(|segment| out.extend_from_slice(segment));
}

/// Reads a request that [`write_request`] has written. `number` converts the id that the exchange
/// has in the front end to the id in this process. `file` is the file that was sent beside the
/// record, and `blocks` is the pool of buffers for large bodies in memory. If not `has_body`, only
/// the head is read.
///
/// # Errors
/// Returns an error if the bytes are no request.
pub fn read_request(
    bytes: &[u8],
    listener: ListenerId,
    number: impl FnOnce(ExchangeId) -> ExchangeId,
    exchange: &mut Exchange,
    (file, has_body): (Option<File>, bool),
    blocks: &Arc<BodyBufferPool>,
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
    let client = if flags & HAS_CERTIFICATE == 0 {
        None
    } else {
        let (subject, fingerprint) = (reader.text()?, reader.text()?);
        let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        let (subject, fingerprint) = (text(subject), text(fingerprint));
        Some(Arc::new(ClientCertificate { subject, fingerprint }))
    };
    for _ in 0..reader.u16()? {
        let (name, value) = (reader.text()?, reader.text()?);
        exchange.push_header(name, value);
    }
    exchange.end_head(remote, local, flags & IS_UPGRADE != 0);
    exchange.set_transport(flags & IS_HTTPS != 0, client);
    if flags & IS_HEAD_SEEN != 0 {
        exchange.set_head_seen();
    }
    if !has_body {
        return Ok(());
    }
    let len = reader.u64()?;
    if flags & IS_BODY_FILE != 0 {
        exchange.body_mut().set_file(file.ok_or(Malformed)?, len, None);
        return reader.end();
    }
    let body = reader.rest();
    if body.len() as u64 != len || file.is_some() {
        return Err(Malformed);
    }
    if body.len() > MAX_ARENA_BODY {
        // R can use a body in a buffer of the pool without copying the body.
        if let Some(block) = blocks.take(body.len()) {
            exchange.body_mut().use_block(block);
        }
    }
    exchange.push_body(body);
    Ok(())
}
