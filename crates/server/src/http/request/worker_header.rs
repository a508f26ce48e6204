//! The worker header, which the supervisor adds to a request that it forwards to a worker. The
//! header describes the client. A worker accepts it only on connections from its supervisor.
//!
//! The header also says whether the body is sent later. The supervisor first forwards only the head
//! of a large upload. An upload that the application refuses is thus never written to disk.

use std::sync::Arc;

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use rookery_exchange::{ClientCertificate, Exchange};
use rookery_worker_protocol::{BodyLength, BodyState, Ticket, WORKER_HEADER, WorkerHeader};

use crate::http::request::request_context::RequestContext;
use crate::http::response::builder::{self, Framing, ResponseOptions};
use crate::http::response::response_body::{Content, ResponseBody};
use crate::net::addresses::ConnectionAddresses;
use crate::rejection::Rejection;

const HEADER_NAME: HeaderName = HeaderName::from_static(WORKER_HEADER);

/// Reads the worker header, by which the supervisor describes the client of a request, and begins
/// the access log record.
///
/// # Errors
/// Returns [`Rejection::Unreadable`] if the worker header is invalid or does not fit the request.
pub(crate) fn read(
    context: &mut RequestContext,
    head: &mut Parts,
    has_body: bool,
) -> Result<Option<Box<WorkerHeader>>, Rejection> {
    let is_supervised = context.connection.config.is_supervised();
    let header = if is_supervised { take_from(&mut head.headers) } else { Ok(None) };
    context.begin_log(head, header.as_ref().ok().and_then(Option::as_deref));
    header.and_then(|header| {
        let is_both = has_body
            && header
                .as_deref()
                .is_some_and(|header| matches!(header.body, BodyState::Deferred(_)));
        if is_both { Err(Rejection::Unreadable) } else { Ok(header) }
    })
}

/// Removes the worker header from the request headers and parses it. Returns `None` if it is
/// missing, for example when a person sends a request to a worker's socket.
fn take_from(headers: &mut HeaderMap) -> Result<Option<Box<WorkerHeader>>, Rejection> {
    // Boxed, so that requests without the header need less memory.
    let mut values = headers.get_all(&HEADER_NAME).iter();
    let header = match (values.next(), values.next()) {
        (None, _) => return Ok(None),
        (Some(value), None) => {
            WorkerHeader::parse(value.as_bytes()).map_err(|_| Rejection::Unreadable)?
        }
        (Some(_), Some(_)) => return Err(Rejection::Unreadable),
    };
    headers.remove(&HEADER_NAME);
    Ok(Some(Box::new(header)))
}

/// Restores, for the application, the headers by which the client described the request body, if
/// the supervisor will send this body later. Returns the length of the body, or 0 if it is unknown.
/// Returns `None` if the supervisor has announced no body.
pub(crate) fn apply_announced_body(
    header: Option<&WorkerHeader>,
    headers: &mut HeaderMap,
) -> Option<u64> {
    let Some(BodyState::Deferred(announced)) = header.map(|header| header.body) else {
        return None;
    };
    headers.remove(CONTENT_LENGTH);
    match announced {
        BodyLength::Bytes(len) => {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
            return Some(len);
        }
        BodyLength::Chunked => {
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        BodyLength::Unknown => {}
    }
    Some(0)
}

/// Responds to a request head that the supervisor has sent without the body. `verdict` is the
/// application's decision. After [`HEAD_ACCEPTED`](rookery_worker_protocol::HEAD_ACCEPTED), the
/// supervisor sends the body. After [`HEAD_UNDECIDED`](rookery_worker_protocol::HEAD_UNDECIDED), it
/// sends the head again, together with the body.
pub(crate) fn respond_to_head(
    mut context: RequestContext,
    mut headers: HeaderMap,
    verdict: &'static str,
    options: ResponseOptions,
) -> Response<ResponseBody> {
    context.begin_response();
    headers.clear();
    headers.insert(HEADER_NAME, HeaderValue::from_static(verdict));
    let framing =
        Framing { closes: context.connection.closes_after_response(), declared_length: None };
    builder::finish(context, StatusCode::NO_CONTENT, headers, Content::Absent, &framing, options)
}

/// Returns the addresses of the client's connection to the supervisor, as the worker header states
/// them.
pub(crate) fn addresses(header: &WorkerHeader) -> ConnectionAddresses {
    ConnectionAddresses { remote: header.remote, local: header.local }
}

/// Copies information from the worker header into the exchange (the object of a request and its
/// response): the data about the client, the supervisor's ids, and whether the application has
/// already seen the request head.
pub(crate) fn apply(exchange: &mut Exchange, header: WorkerHeader) {
    if header.body == BodyState::HeadSeen {
        exchange.set_head_seen();
    }
    exchange.set_supervisor_ids(
        header.ticket.map_or(0, Ticket::word),
        header.id.as_deref().map(str::as_bytes),
    );
    let client = header.client.map(|client| {
        Arc::new(ClientCertificate { subject: client.subject, fingerprint: client.fingerprint })
    });
    exchange.set_transport(header.is_https, client);
}
