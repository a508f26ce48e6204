//! What is called for each request: from its head to its reply.

use std::rc::Rc;

use http::request::Parts;
use http::{HeaderMap, Request, Response};
use rookery_error::ErrorHookFuture;
use rookery_exchange::{Event, Exchange, StreamEnd};
use rookery_worker_protocol::{HEAD_ACCEPTED, HEAD_UNDECIDED, WorkerHeader};

use crate::application::dispatch::{AppDecision, is_accepted, is_streamed};
use crate::http::connection::http_connection::HttpConnection;
use crate::http::request::body_collector;
use crate::http::request::head;
use crate::http::request::pending_response::{ClientDisconnected, Reading, Unanswered, ask};
use crate::http::request::request_body::RequestBody;
use crate::http::request::request_context::RequestContext;
use crate::http::request::stream::request_stream;
use crate::http::request::worker_header;
use crate::http::response::builder::{self, ResponseOptions};
use crate::http::response::https_redirect;
use crate::http::response::response_body::{ResponseBody, compressed};
use crate::http::response::static_file::{self, Answered};
use crate::http::response::stream::head::respond_streamed;
use crate::rejection::Rejection;
use crate::websocket::handshake;

/// Answers a request. What goes wrong on the way is thrown to the call's hook, which is lent to each poll.
pub(crate) fn answer<B: RequestBody>(
    connection: &Rc<HttpConnection>,
    request: Request<B>,
) -> impl Future<Output = Result<Response<ResponseBody>, ClientDisconnected>> + use<B> {
    let mut context = RequestContext::begin(connection);
    ErrorHookFuture::with_hook(Some(context.hook()), async move {
        let response = reply_to(context, request).await?;
        // Boxed, so that every connection is not as large as the few that need it.
        Ok(if response.body().is_plain() { Box::pin(compressed(response)).await } else { response })
    })
}

/// Answers a request that is not to be read any further.
pub(crate) fn refuse(
    connection: &Rc<HttpConnection>,
    head: Parts,
    rejection: Rejection,
) -> impl Future<Output = Response<ResponseBody>> + use<> {
    let mut context = RequestContext::begin(connection);
    ErrorHookFuture::with_hook(Some(context.hook()), async move {
        context.log(&head, None);
        builder::reject(context, head.headers, rejection)
    })
}

async fn reply_to<B: RequestBody>(
    mut context: RequestContext,
    request: Request<B>,
) -> Result<Response<ResponseBody>, ClientDisconnected> {
    let (mut head, body) = request.into_parts();
    let has_body = !body.is_end_stream();
    let said = match hear_and_check(&mut context, &mut head, has_body) {
        Ok(said) => said,
        Err(rejection) => {
            context.leaves_rest(has_body);
            return Ok(builder::reject(context, head.headers, rejection));
        }
    };
    let form = ResponseOptions::of(&head);
    if let Some(redirect) = context.connection.config.redirect.clone() {
        return Ok(https_redirect::answer(context, &redirect, head, has_body, form));
    }
    let is_upgrade = !has_body && handshake::is_opening_handshake(&head);
    if is_upgrade && is_foreign(&context, &head.headers) {
        return Ok(builder::reject(context, head.headers, Rejection::Origin));
    }
    // Only what opens a WebSocket goes past the files: whatever else a client would upgrade to, the header is ignored.
    if !is_upgrade && !context.connection.config.files.is_empty() {
        let answered = match static_file::answer(context, &mut head, has_body, form) {
            // Boxed, so that every connection is not as large as the few that need it.
            Answered::Wait(context, waiting) => {
                Box::pin(static_file::wait(context, waiting, &mut head, has_body, form)).await
            }
            answered => answered,
        };
        context = match answered {
            Answered::Reply(reply) => return Ok(reply),
            Answered::Application(context) | Answered::Wait(context, _) => context,
        };
        context.reads_request();
    }
    let announced = worker_header::announced(said.as_deref(), &mut head.headers);
    if announced.unwrap_or_else(|| body.size_hint().lower())
        > context.shared().connections.limits.body_bytes
    {
        context.leaves_rest(has_body);
        return Ok(builder::reject(context, head.headers, Rejection::BodyTooLarge));
    }
    let mut exchange = begin_exchange(&context, &head, said, is_upgrade);
    let mut headers = head.headers;
    // A head in hyper's first buffer is small: what its exchange holds of earlier use has been the pool's.
    if !context.connection.has_small_buffer() {
        if let Err(rejection) = context.hold_request(&mut exchange, 0) {
            context.shared().dispatch.finish(exchange);
            context.leaves_rest(has_body);
            return Ok(builder::reject(context, headers, rejection));
        }
        if context.connection.is_stream() {
            // A connection may have many such heads: they end here.
            headers = HeaderMap::new();
        }
    }

    if announced.is_some() {
        // Boxed, so that every connection is not as large as the few that need it.
        return Box::pin(show_head(context, exchange, headers, form)).await;
    }
    if has_body {
        if context.connection.config.sees_heads
            && context.shared().dispatch.application.wants_head(&exchange)
        {
            match ask(&mut context, exchange, Event::Head).await {
                Ok(AppDecision::ReadBody(asked)) => exchange = asked,
                Ok(AppDecision::Respond(answered)) => {
                    // The body has not been read: nothing after it can be.
                    context.leaves_rest(true);
                    return Ok(respond(context, answered, headers, form).await);
                }
                Err(Unanswered::ClientDisconnected) | Ok(AppDecision::StreamBody(_)) => {
                    return Err(ClientDisconnected);
                }
                Err(Unanswered::Overdue) => return Ok(overdue(context, headers, true)),
                Err(Unanswered::Refused(unasked)) => {
                    return Ok(busy(context, unasked, headers, true));
                }
                Err(Unanswered::Receives(asking)) => {
                    // Boxed, so that every connection is not as large as the few that need it.
                    return match Box::pin(request_stream::receive(context, body, asking)).await {
                        Ok((context, answered)) => {
                            Ok(respond(context, answered, headers, form).await)
                        }
                        Err((context, Some(rejection))) => {
                            Ok(builder::reject(context, headers, rejection))
                        }
                        Err((_, None)) => Err(ClientDisconnected),
                    };
                }
            }
            context.reads_request();
        }
        let reading = Reading::new(&context, &exchange);
        match body_collector::collect(body, exchange, &context).await {
            Ok(filled) => {
                exchange = filled;
                reading.done();
            }
            Err(Some(rejection)) => {
                context.leaves_rest(true);
                return Ok(builder::reject(context, headers, rejection));
            }
            Err(None) => return Err(ClientDisconnected),
        }
    }

    match ask(&mut context, exchange, Event::Request).await {
        Ok(AppDecision::Respond(answered)) if is_accepted(&answered) => {
            becomes_websocket(&mut context, answered);
            // The connection is taken from hyper before this is polled again.
            std::future::pending().await
        }
        Ok(AppDecision::Respond(answered)) => Ok(respond(context, answered, headers, form).await),
        Ok(AppDecision::ReadBody(_) | AppDecision::StreamBody(_))
        | Err(Unanswered::ClientDisconnected | Unanswered::Receives(_)) => Err(ClientDisconnected),
        Err(Unanswered::Overdue) => Ok(overdue(context, headers, false)),
        Err(Unanswered::Refused(unasked)) => Ok(busy(context, unasked, headers, false)),
    }
}

/// What a supervisor says of a request, if it comes from one.
///
/// # Errors
/// When that, or the head, is wrong.
fn hear_and_check(
    context: &mut RequestContext,
    head: &mut Parts,
    has_body: bool,
) -> Result<Option<Box<WorkerHeader>>, Rejection> {
    let said = worker_header::hear(context, head, has_body)?;
    head::check(head, has_body)?;
    if let Some(cookie) = context.connection.config.session_cookie.as_deref() {
        let gives = cookie.take(&mut head.headers);
        context.gives_cookie = gives;
    }
    Ok(said)
}

/// The application has accepted the handshake of a WebSocket.
fn becomes_websocket(context: &mut RequestContext, mut answered: Box<Exchange>) {
    if let Some(cookie) =
        context.connection.config.session_cookie.as_deref().filter(|_| context.gives_cookie)
    {
        // A name and a value of ours: they are not refused.
        let text = cookie.set_cookie(answered.is_https());
        let _ = answered.push_response_header(b"Set-Cookie", text.as_bytes());
    }
    let is_stream = context.connection.is_stream();
    context.pending_record().set_status(if is_stream { 200 } else { 101 });
    context.connection.upgrade.replace(Some(answered));
}

/// Shows the application a head whose body is to come later, and tells the supervisor whether it is.
async fn show_head(
    mut context: RequestContext,
    exchange: Box<Exchange>,
    headers: HeaderMap,
    form: ResponseOptions,
) -> Result<Response<ResponseBody>, ClientDisconnected> {
    if !context.connection.config.sees_heads {
        context.shared().dispatch.finish(exchange);
        return Ok(worker_header::say(context, headers, HEAD_ACCEPTED, form));
    }
    match ask(&mut context, exchange, Event::Head).await {
        Ok(AppDecision::ReadBody(asked)) => {
            context.shared().dispatch.finish(asked);
            Ok(worker_header::say(context, headers, HEAD_ACCEPTED, form))
        }
        Ok(AppDecision::Respond(answered)) => Ok(respond(context, answered, headers, form).await),
        Err(Unanswered::Receives(asking)) => {
            // Nothing of it comes here: what was to receive it ends as if the client had gone, and is made anew with the body.
            let (id, listener) = (context.id, context.connection.listener);
            context.shared().dispatch.notify(Event::BodyEnd {
                call: id,
                listener,
                reason: StreamEnd::Client,
            });
            drop(asking);
            Ok(worker_header::say(context, headers, HEAD_UNDECIDED, form))
        }
        Err(Unanswered::ClientDisconnected) | Ok(AppDecision::StreamBody(_)) => {
            Err(ClientDisconnected)
        }
        Err(Unanswered::Overdue) => Ok(overdue(context, headers, false)),
        Err(Unanswered::Refused(unasked)) => Ok(busy(context, unasked, headers, false)),
    }
}

/// The exchange of a request, with its head and with what is known of its client.
fn begin_exchange(
    context: &RequestContext,
    head: &Parts,
    said: Option<Box<WorkerHeader>>,
    is_upgrade: bool,
) -> Box<Exchange> {
    let connection = &context.connection;
    let mut exchange =
        context.shared().dispatch.begin(context.id, connection.listener, connection.key.get());
    let ends = said.as_deref().map_or_else(|| connection.ends.get(), worker_header::ends);
    head::fill(&mut exchange, head, ends, is_upgrade);
    exchange.set_logged(context.is_logged());
    if let Some(said) = said {
        worker_header::show(&mut exchange, *said);
    } else if connection.has_tls() || !connection.config.proxies.is_empty() {
        connection.show_transport(&mut exchange, &head.headers);
    }
    exchange
}

/// Whether the page that opens a WebSocket may not do so.
fn is_foreign(context: &RequestContext, headers: &HeaderMap) -> bool {
    let origins = context.connection.config.origins.as_ref();
    origins.is_some_and(|policy| !handshake::is_origin_allowed(policy, headers))
}

async fn respond(
    mut context: RequestContext,
    mut exchange: Box<Exchange>,
    headers: HeaderMap,
    form: ResponseOptions,
) -> Response<ResponseBody> {
    if is_streamed(&exchange) {
        // Boxed, so that every connection is not as large as the few that need it.
        return Box::pin(respond_streamed(context, exchange, headers, form)).await;
    }
    context.replies();
    if exchange.response().is_failure() {
        rookery_error::throw(Rejection::Application.error());
    }
    let shared = Rc::clone(&context.connection.shared);
    let response = builder::build(context, &mut exchange, headers, form);
    shared.dispatch.finish(exchange);
    response
}

fn overdue(context: RequestContext, headers: HeaderMap, has_body: bool) -> Response<ResponseBody> {
    context.leaves_rest(has_body);
    builder::reject(context, headers, Rejection::RequestTimeout)
}

fn busy(
    context: RequestContext,
    exchange: Box<Exchange>,
    headers: HeaderMap,
    has_body: bool,
) -> Response<ResponseBody> {
    context.shared().dispatch.finish(exchange);
    context.leaves_rest(has_body);
    builder::reject(context, headers, Rejection::Busy)
}
