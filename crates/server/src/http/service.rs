//! What is called for each request: from its head to its reply.

use std::rc::Rc;

use http::request::Parts;
use http::{HeaderMap, Request, Response};
use rookery_error::ErrorHookFuture;
use rookery_exchange::{Departure, Event, Exchange};
use rookery_worker::{ASK_AGAIN, Call as Said, GO_ON};

use super::asking::{Gone, Reading, Unanswered, ask};
use super::body::RequestBody;
use super::call::Call;
use super::connection::Connection;
use super::reply::{self, ReplyForm};
use super::reply_body::{ReplyBody, compressed};
use super::static_file::{self, Answered};
use super::{body, head, receiving, redirect, streaming, supervised};
use crate::application::dispatch::{Answer, is_accepted, is_streamed};
use crate::rejection::Rejection;
use crate::websocket::handshake;

/// Answers a request. What goes wrong on the way is thrown to the call's hook, which is lent to each poll.
pub(super) fn answer<B: RequestBody>(
    connection: &Rc<Connection>,
    request: Request<B>,
) -> impl Future<Output = Result<Response<ReplyBody>, Gone>> + use<B> {
    let mut call = Call::begin(connection);
    ErrorHookFuture::with_hook(Some(call.hook()), async move {
        let response = reply_to(call, request).await?;
        // Boxed, so that every connection is not as large as the few that need it.
        Ok(if response.body().is_plain() { Box::pin(compressed(response)).await } else { response })
    })
}

/// Answers a request that is not to be read any further.
pub(super) fn refuse(
    connection: &Rc<Connection>,
    head: Parts,
    rejection: Rejection,
) -> impl Future<Output = Response<ReplyBody>> + use<> {
    let mut call = Call::begin(connection);
    ErrorHookFuture::with_hook(Some(call.hook()), async move {
        call.log(&head, None);
        reply::reject(call, head.headers, rejection)
    })
}

async fn reply_to<B: RequestBody>(
    mut call: Call,
    request: Request<B>,
) -> Result<Response<ReplyBody>, Gone> {
    let (mut head, body) = request.into_parts();
    let has_body = !body.is_end_stream();
    let said = match hear_and_check(&mut call, &mut head, has_body) {
        Ok(said) => said,
        Err(rejection) => {
            call.leaves_rest(has_body);
            return Ok(reply::reject(call, head.headers, rejection));
        }
    };
    let form = ReplyForm::of(&head);
    if let Some(redirect) = call.connection.site.redirect.clone() {
        return Ok(redirect::answer(call, &redirect, head, has_body, form));
    }
    let is_upgrade = !has_body && handshake::is_opening(&head);
    if is_upgrade && is_foreign(&call, &head.headers) {
        return Ok(reply::reject(call, head.headers, Rejection::Origin));
    }
    // Only what opens a WebSocket goes past the files: whatever else a client would upgrade to, the header is ignored.
    if !is_upgrade && !call.connection.site.files.is_empty() {
        let answered = match static_file::answer(call, &mut head, has_body, form) {
            // Boxed, so that every connection is not as large as the few that need it.
            Answered::Wait(call, waiting) => {
                Box::pin(static_file::wait(call, waiting, &mut head, has_body, form)).await
            }
            answered => answered,
        };
        call = match answered {
            Answered::Reply(reply) => return Ok(reply),
            Answered::Application(call) | Answered::Wait(call, _) => call,
        };
        call.reads_request();
    }
    let announced = supervised::announced(said.as_deref(), &mut head.headers);
    if announced.unwrap_or_else(|| body.size_hint().lower())
        > call.http().connections.limits.body_bytes
    {
        call.leaves_rest(has_body);
        return Ok(reply::reject(call, head.headers, Rejection::BodyTooLarge));
    }
    let mut exchange = begin_exchange(&call, &head, said, is_upgrade);
    let mut headers = head.headers;
    // A head in hyper's first buffer is small: what its exchange holds of earlier use has been the pool's.
    if !call.connection.has_small_buffer() {
        if let Err(rejection) = call.hold_request(&mut exchange, 0) {
            call.http().dispatch.finish(exchange);
            call.leaves_rest(has_body);
            return Ok(reply::reject(call, headers, rejection));
        }
        if call.connection.is_stream() {
            // A connection may have many such heads: they end here.
            headers = HeaderMap::new();
        }
    }

    if announced.is_some() {
        // Boxed, so that every connection is not as large as the few that need it.
        return Box::pin(show_head(call, exchange, headers, form)).await;
    }
    if has_body {
        if call.connection.site.sees_heads && call.http().dispatch.application.sees_head(&exchange)
        {
            match ask(&mut call, exchange, Event::Head).await {
                Ok(Answer::Proceed(asked)) => exchange = asked,
                Ok(Answer::Reply(answered)) => {
                    // The body has not been read: nothing after it can be.
                    call.leaves_rest(true);
                    return Ok(respond(call, answered, headers, form).await);
                }
                Err(Unanswered::Gone) | Ok(Answer::Receive(_)) => return Err(Gone),
                Err(Unanswered::Overdue) => return Ok(overdue(call, headers, true)),
                Err(Unanswered::Refused(unasked)) => return Ok(busy(call, unasked, headers, true)),
                Err(Unanswered::Receives(asking)) => {
                    // Boxed, so that every connection is not as large as the few that need it.
                    return match Box::pin(receiving::receive(call, body, asking)).await {
                        Ok((call, answered)) => Ok(respond(call, answered, headers, form).await),
                        Err((call, Some(rejection))) => Ok(reply::reject(call, headers, rejection)),
                        Err((_, None)) => Err(Gone),
                    };
                }
            }
            call.reads_request();
        }
        let reading = Reading::new(&call, &exchange);
        match body::read(body, exchange, &call).await {
            Ok(filled) => {
                exchange = filled;
                reading.done();
            }
            Err(Some(rejection)) => {
                call.leaves_rest(true);
                return Ok(reply::reject(call, headers, rejection));
            }
            Err(None) => return Err(Gone),
        }
    }

    match ask(&mut call, exchange, Event::Request).await {
        Ok(Answer::Reply(answered)) if is_accepted(&answered) => {
            becomes_websocket(&mut call, answered);
            // The connection is taken from hyper before this is polled again.
            std::future::pending().await
        }
        Ok(Answer::Reply(answered)) => Ok(respond(call, answered, headers, form).await),
        Ok(Answer::Proceed(_) | Answer::Receive(_))
        | Err(Unanswered::Gone | Unanswered::Receives(_)) => Err(Gone),
        Err(Unanswered::Overdue) => Ok(overdue(call, headers, false)),
        Err(Unanswered::Refused(unasked)) => Ok(busy(call, unasked, headers, false)),
    }
}

/// What a supervisor says of a request, if it comes from one.
///
/// # Errors
/// When that, or the head, is wrong.
fn hear_and_check(
    call: &mut Call,
    head: &mut Parts,
    has_body: bool,
) -> Result<Option<Box<Said>>, Rejection> {
    let said = supervised::hear(call, head, has_body)?;
    head::check(head, has_body)?;
    if let Some(cookie) = call.connection.site.session_cookie.as_deref() {
        let gives = cookie.take(&mut head.headers);
        call.gives_cookie = gives;
    }
    Ok(said)
}

/// The application has accepted the handshake of a WebSocket.
fn becomes_websocket(call: &mut Call, mut answered: Box<Exchange>) {
    if let Some(cookie) =
        call.connection.site.session_cookie.as_deref().filter(|_| call.gives_cookie)
    {
        // A name and a value of ours: they are not refused.
        let text = cookie.set_cookie(answered.is_https());
        let _ = answered.push_reply_header(b"Set-Cookie", text.as_bytes());
    }
    let is_stream = call.connection.is_stream();
    call.pending_record().set_status(if is_stream { 200 } else { 101 });
    call.connection.upgrade.replace(Some(answered));
}

/// Shows the application a head whose body is to come later, and tells the supervisor whether it is.
async fn show_head(
    mut call: Call,
    exchange: Box<Exchange>,
    headers: HeaderMap,
    form: ReplyForm,
) -> Result<Response<ReplyBody>, Gone> {
    if !call.connection.site.sees_heads {
        call.http().dispatch.finish(exchange);
        return Ok(supervised::say(call, headers, GO_ON, form));
    }
    match ask(&mut call, exchange, Event::Head).await {
        Ok(Answer::Proceed(asked)) => {
            call.http().dispatch.finish(asked);
            Ok(supervised::say(call, headers, GO_ON, form))
        }
        Ok(Answer::Reply(answered)) => Ok(respond(call, answered, headers, form).await),
        Err(Unanswered::Receives(asking)) => {
            // Nothing of it comes here: what was to receive it ends as if the client had gone, and is made anew with the body.
            let (id, listener) = (call.id, call.connection.listener);
            call.http().dispatch.tell(Event::BodyEnd {
                call: id,
                listener,
                reason: Departure::Client,
            });
            drop(asking);
            Ok(supervised::say(call, headers, ASK_AGAIN, form))
        }
        Err(Unanswered::Gone) | Ok(Answer::Receive(_)) => Err(Gone),
        Err(Unanswered::Overdue) => Ok(overdue(call, headers, false)),
        Err(Unanswered::Refused(unasked)) => Ok(busy(call, unasked, headers, false)),
    }
}

/// The exchange of a request, with its head and with what is known of its client.
fn begin_exchange(
    call: &Call,
    head: &Parts,
    said: Option<Box<Said>>,
    is_upgrade: bool,
) -> Box<Exchange> {
    let connection = &call.connection;
    let mut exchange =
        call.http().dispatch.begin(call.id, connection.listener, connection.key.get());
    let ends = said.as_deref().map_or_else(|| connection.ends.get(), supervised::ends);
    head::fill(&mut exchange, head, ends, is_upgrade);
    exchange.set_logged(call.is_logged());
    if let Some(said) = said {
        supervised::show(&mut exchange, *said);
    } else if connection.has_tls() || !connection.site.proxies.is_empty() {
        connection.show_transport(&mut exchange, &head.headers);
    }
    exchange
}

/// Whether the page that opens a WebSocket may not do so.
fn is_foreign(call: &Call, headers: &HeaderMap) -> bool {
    let origins = call.connection.site.origins.as_ref();
    origins.is_some_and(|policy| !handshake::is_allowed(policy, headers))
}

async fn respond(
    mut call: Call,
    mut exchange: Box<Exchange>,
    headers: HeaderMap,
    form: ReplyForm,
) -> Response<ReplyBody> {
    if is_streamed(&exchange) {
        // Boxed, so that every connection is not as large as the few that need it.
        return Box::pin(streaming::respond(call, exchange, headers, form)).await;
    }
    call.replies();
    if exchange.reply().is_failure() {
        rookery_error::throw(Rejection::Application.error());
    }
    let http = Rc::clone(&call.connection.http);
    let response = reply::build(call, &mut exchange, headers, form);
    http.dispatch.finish(exchange);
    response
}

fn overdue(call: Call, headers: HeaderMap, has_body: bool) -> Response<ReplyBody> {
    call.leaves_rest(has_body);
    reply::reject(call, headers, Rejection::RequestTimeout)
}

fn busy(
    call: Call,
    exchange: Box<Exchange>,
    headers: HeaderMap,
    has_body: bool,
) -> Response<ReplyBody> {
    call.http().dispatch.finish(exchange);
    call.leaves_rest(has_body);
    reply::reject(call, headers, Rejection::Busy)
}
