//! What a supervisor says of a request that it passes on: in a header that its connections alone may have. Of a large body it passes on the
//! head before it takes the rest, so that what the application refuses has not been written to a disk first.

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

/// Hears what the supervisor says of a request, if it comes from one, and begins the log's entry with it.
///
/// # Errors
/// What no supervisor says.
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

/// Takes it out of the headers; `None` when nothing was said, as by a person who looks at a worker's socket. Boxed, so that calls without it
/// are no larger.
fn take_from(headers: &mut HeaderMap) -> Result<Option<Box<WorkerHeader>>, Rejection> {
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

/// Bytes of a body that is to come later, as far as the client has said, if it is. The application sees it in the headers, as if there
/// were nobody between.
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

/// Says to the supervisor what became of a head whose body is to come later: [`HEAD_ACCEPTED`](rookery_worker_protocol::HEAD_ACCEPTED), or
/// [`HEAD_UNDECIDED`](rookery_worker_protocol::HEAD_UNDECIDED).
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

/// The two ends of the client's connection.
pub(crate) fn addresses(header: &WorkerHeader) -> ConnectionAddresses {
    ConnectionAddresses { remote: header.remote, local: header.local }
}

/// Tells the application how the client came, who it is, and whether the head is new to it.
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
