//! One request, from its head to its reply.

use std::rc::Rc;
use std::sync::Arc;

use http::{HeaderMap, Request, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use rookery_exchange::{Event, Exchange, PushError};

use crate::connection::{Connection, Phase};
use crate::files;
use crate::hub::Hub;
use crate::overload::FREE;
use crate::pending::{Answer, Wait};
use crate::rejection::Rejection;
use crate::reply::{self, ReplyBody, Terms};
use crate::{request, spool};

/// The client has gone: there is nobody to answer.
#[derive(Debug)]
pub(crate) struct Gone;

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the client has gone")
    }
}

impl std::error::Error for Gone {}

/// Answers a request.
pub(crate) async fn answer(
    connection: Rc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Gone> {
    let response = reply_to(connection, request).await?;
    // Boxed, so that every connection is not as large as the few that need it.
    Ok(if response.body().is_plain() { Box::pin(reply::compressed(response)).await } else { response })
}

async fn reply_to(
    connection: Rc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Gone> {
    connection.enter(Phase::Body);
    connection.has_rest.set(false);
    let id = Hub::next_id();
    connection.hook.begin(id);
    // The hook is lent to each poll, never counted: the connection has one, the task's wrapper the other.
    debug_assert_eq!(Arc::strong_count(&connection.hook), 2);
    let (mut head, body) = request.into_parts();
    connection.line.begin(&connection.hub.log, connection.remote, (&head.method, &head.uri, head.version));
    let has_body = !body.is_end_stream();
    if let Err(rejection) = request::check(&mut head, has_body) {
        connection.has_rest.set(has_body);
        return Ok(reply::reject(&connection, head.headers, rejection));
    }
    let terms = Terms::of(&head);
    let is_upgrade = !has_body && request::is_websocket(&head);
    // Only what opens a WebSocket goes past the files: whatever else a client would upgrade to, the header is ignored.
    if !is_upgrade && !connection.site.files.is_empty() {
        connection.enter(Phase::Reply);
        if let Some(reply) = files::answer(&connection, &head, has_body, terms).await {
            return Ok(reply);
        }
        connection.enter(Phase::Body);
    }
    if body.size_hint().lower() > connection.hub.limits.body_bytes {
        connection.has_rest.set(true);
        return Ok(reply::reject(&connection, head.headers, Rejection::BodyTooLarge));
    }
    let mut exchange = connection.hub.begin(id, &connection);
    request::fill(&mut exchange, &head, &connection, is_upgrade);
    let headers = head.headers;
    connection.request_held.set(FREE);
    // A head in hyper's first buffer is small: what its exchange holds of earlier use has been the pool's.
    if connection.buffer.get() > FREE {
        if let Err(rejection) = connection.hold_request(&mut exchange, 0) {
            connection.hub.finish(exchange);
            connection.has_rest.set(has_body);
            return Ok(reply::reject(&connection, headers, rejection));
        }
    }

    if has_body {
        if connection.site.sees_heads {
            connection.enter(Phase::Application);
            match ask(&connection, exchange, Event::Head).await {
                Ok(Answer::Proceed(asked)) => exchange = asked,
                Ok(Answer::Reply(answered)) => {
                    // The body has not been read: nothing after it can be.
                    connection.has_rest.set(true);
                    return Ok(respond(&connection, answered, headers, terms));
                }
                Ok(Answer::Gone) => return Err(Gone),
                Err(unasked) => return Ok(busy(&connection, unasked, headers, true)),
            }
            connection.enter(Phase::Body);
        }
        let place = connection.hub.pending.guard(&exchange);
        match spool::read(body, exchange, &connection).await {
            Ok(filled) => {
                exchange = filled;
                place.keep();
            }
            Err(Some(rejection)) => {
                connection.has_rest.set(true);
                return Ok(reply::reject(&connection, headers, rejection));
            }
            Err(None) => return Err(Gone),
        }
    }

    connection.enter(Phase::Application);
    match ask(&connection, exchange, Event::Request).await {
        Ok(Answer::Reply(answered)) if is_upgrade && answered.reply().status() == 101 => {
            connection.upgrade.replace(Some(answered));
            // The connection is taken from hyper before this is polled again.
            std::future::pending().await
        }
        Ok(Answer::Reply(answered)) => Ok(respond(&connection, answered, headers, terms)),
        Ok(Answer::Proceed(_) | Answer::Gone) => Err(Gone),
        Err(unasked) => Ok(busy(&connection, unasked, headers, false)),
    }
}

/// Hands an exchange to the application and waits for it.
async fn ask(
    connection: &Rc<Connection>,
    exchange: Box<Exchange>,
    event: fn(Box<Exchange>) -> Event,
) -> Result<Answer, Box<Exchange>> {
    let wait = Wait::new(connection, &exchange);
    match connection.hub.push(event(exchange)) {
        Ok(()) => Ok(wait.await),
        Err(PushError::Full(exchange)) => {
            wait.cancel();
            Err(exchange)
        }
        Err(_) => {
            drop(wait);
            Ok(Answer::Gone)
        }
    }
}

fn respond(
    connection: &Rc<Connection>,
    mut exchange: Box<Exchange>,
    headers: HeaderMap,
    terms: Terms,
) -> Response<ReplyBody> {
    connection.enter(Phase::Reply);
    if exchange.reply().is_failure() {
        rookery_error::throw(Rejection::Application.error());
    }
    let response = reply::build(connection, &mut exchange, headers, terms);
    connection.hub.finish(exchange);
    response
}

fn busy(
    connection: &Rc<Connection>,
    exchange: Box<Exchange>,
    headers: HeaderMap,
    has_body: bool,
) -> Response<ReplyBody> {
    connection.hub.finish(exchange);
    connection.has_rest.set(has_body);
    reply::reject(connection, headers, Rejection::Busy)
}
