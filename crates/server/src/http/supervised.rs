//! What a supervisor says of a request that it passes on: in a header that its connections alone may have.

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, HeaderName};
use rookery_exchange::{ClientCertificate, Exchange};
use rookery_worker::{CALL_HEADER, Call as Said, Ticket};

use super::call::Call;
use crate::net::listen::Ends;
use crate::rejection::Rejection;

const NAME: HeaderName = HeaderName::from_static(CALL_HEADER);

/// Hears what the supervisor says of a request, if it comes from one, and begins the log's entry with it.
///
/// # Errors
/// What no supervisor says.
pub(super) fn hear(call: &mut Call, head: &mut Parts) -> Result<Option<Box<Said>>, Rejection> {
    let is_supervised = call.connection.site.is_supervised();
    let said = if is_supervised { take(&mut head.headers) } else { Ok(None) };
    call.log(head, said.as_ref().ok().and_then(Option::as_deref));
    said
}

/// Takes it out of the headers; `None` when nothing was said, as by a person who looks at a worker's socket. Boxed, so that calls without it
/// are no larger.
fn take(headers: &mut HeaderMap) -> Result<Option<Box<Said>>, Rejection> {
    let mut values = headers.get_all(&NAME).iter();
    let said = match (values.next(), values.next()) {
        (None, _) => return Ok(None),
        (Some(value), None) => Said::parse(value.as_bytes()).map_err(|_| Rejection::Unreadable)?,
        (Some(_), Some(_)) => return Err(Rejection::Unreadable),
    };
    headers.remove(&NAME);
    Ok(Some(Box::new(said)))
}

/// The two ends of the client's connection.
pub(super) fn ends(said: &Said) -> Ends {
    Ends { remote: said.remote, local: said.local }
}

/// Tells the application how the client came, and who it is.
pub(super) fn show(exchange: &mut Exchange, said: Said) {
    exchange.set_supervised(said.ticket.map_or(0, Ticket::word), said.id.as_deref().map(str::as_bytes));
    let client = said.client.map(|client| {
        Arc::new(ClientCertificate { subject: client.subject, fingerprint: client.fingerprint })
    });
    exchange.set_transport(said.is_https, client);
}
