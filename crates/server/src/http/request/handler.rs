//! The handler that serves a request, from its head to its response.

use std::future::poll_fn;
use std::rc::Rc;

use http::request::Parts;
use http::{HeaderMap, Request, Response};
use rookery_error::ErrorHookFuture;
use rookery_exchange::{Event, Exchange};

use crate::application::dispatch::{AppDecision, is_accepted, is_streamed};
use crate::connections::client_task;
use crate::connections::peers::{Counted, MAX_WEBSOCKETS};
use crate::http::connection::http_connection::HttpConnection;
use crate::http::request::body_collector;
use crate::http::request::head;
use crate::http::request::kept_headers;
use crate::http::request::pending_response::{
    BodyReadGuard, ClientDisconnected, NoResponse, send_to_application,
};
use crate::http::request::request_body::{RequestBody, with_body_held};
use crate::http::request::request_context::RequestContext;
use crate::http::request::stream::request_stream;
use crate::http::response::builder::{self, ResponseOptions};
use crate::http::response::https_redirect;
use crate::http::response::page_script;
use crate::http::response::response_body::{ResponseBody, compress_body};
use crate::http::response::static_file::{self, StaticOutcome};
use crate::http::response::stream::head::respond_streamed;
use crate::net::addresses::ConnectionAddresses;
use crate::rejection::Rejection;
use crate::websocket::handshake;

/// Serves a request and returns its response. Errors that occur while the request is served are
/// passed to its error hook.
pub(crate) fn handle<B: RequestBody>(
    connection: &Rc<HttpConnection>,
    request: Request<B>,
) -> impl Future<Output = Result<Response<ResponseBody>, ClientDisconnected>> + use<B> {
    let mut context = RequestContext::begin(connection);
    ErrorHookFuture::with_hook(Some(context.hook()), async move {
        poll_fn(client_task::poll_may_serve).await;
        let response = handle_request(context, request).await?;
        // Boxed, so that only the few connections that need this future pay for its size.
        Ok(if response.body().needs_compression() {
            Box::pin(compress_body(response)).await
        } else {
            response
        })
    })
}

/// Builds the error response to a request whose body is not read.
pub(crate) fn reject(
    connection: &Rc<HttpConnection>,
    head: Parts,
    rejection: Rejection,
) -> impl Future<Output = Response<ResponseBody>> + use<> {
    let mut context = RequestContext::begin(connection);
    ErrorHookFuture::with_hook(Some(context.hook()), async move {
        context.begin_log(&head);
        builder::reject(context, head.headers, rejection)
    })
}

async fn handle_request<B: RequestBody>(
    mut context: RequestContext,
    request: Request<B>,
) -> Result<Response<ResponseBody>, ClientDisconnected> {
    let (mut head, mut body) = request.into_parts();
    let has_body = !body.is_end_stream();
    if let Err(rejection) = check_request(&mut context, &mut head, has_body) {
        context.set_unread_body(has_body);
        return Ok(builder::reject(context, head.headers, rejection));
    }
    let options = ResponseOptions::of(&head, &context.connection.config);
    if let Some(redirect) = context.connection.config.redirect.clone() {
        return Ok(https_redirect::redirect(context, &redirect, head, has_body, options));
    }
    let is_upgrade = !has_body && handshake::is_opening_handshake(&head);
    // The open WebSocket counts itself.
    let _counted = match is_upgrade.then(|| begin_handshake(&context, &head.headers)).transpose() {
        Ok(counted) => counted,
        Err(rejection) => return Ok(builder::reject(context, head.headers, rejection)),
    };
    // Opening handshakes of WebSockets bypass static files. An `Upgrade` to any other protocol is
    // ignored.
    let own = static_file::own_files(&context, &head);
    let files = own.as_ref().unwrap_or(&context.connection.config.files);
    if !is_upgrade && !files.is_empty() {
        let outcome =
            match static_file::try_respond(context, own.as_ref(), &mut head, has_body, options) {
                // Boxed, so that only the few connections that need this future pay for its size.
                StaticOutcome::Pending(context, waiting) => {
                    let responding = Box::pin(static_file::respond_when_ready(
                        context, waiting, &mut head, has_body, options,
                    ));
                    with_body_held(&mut body, responding).await
                }
                outcome => outcome,
            };
        context = match outcome {
            StaticOutcome::Response(response) => return Ok(response),
            StaticOutcome::Application(context) | StaticOutcome::Pending(context, _) => context,
        };
        context.begin_reading();
    }
    if body.size_hint().lower() > context.shared().connections.limits().max_body_size {
        context.set_unread_body(has_body);
        return Ok(builder::reject(context, head.headers, Rejection::BodyTooLarge));
    }
    let mut exchange = begin_exchange(&context, &head, is_upgrade);
    let mut headers = head.headers;
    // A head that fits into hyper's first buffer and has few lines is not charged: memory that its
    // exchange kept from earlier use belongs to the pool.
    let is_large = kept_headers::is_large(&headers);
    if is_large || !context.connection.has_small_buffer() {
        if let Err(rejection) = context.charge_request(&mut exchange, 0) {
            context.shared().dispatch.finish(exchange);
            context.set_unread_body(has_body);
            return Ok(builder::reject(context, headers, rejection));
        }
        // Frees the headers early, because an HTTP/2 connection may have many such heads.
        if is_large || context.connection.is_http2_stream() {
            headers = kept_headers::compact(&headers);
        }
    }

    if has_body {
        if context.connection.config.sees_heads
            && context.shared().dispatch.application.wants_head(&exchange)
        {
            let deciding = send_to_application(&mut context, exchange, Event::Head);
            match with_body_held(&mut body, deciding).await {
                Ok(AppDecision::ReadBody(returned)) => exchange = returned,
                Ok(AppDecision::Respond(exchange)) => {
                    // The body has not been read, so no further request can be read after it.
                    context.set_unread_body(true);
                    drop(body);
                    return Ok(respond(context, exchange, headers, options).await);
                }
                Err(NoResponse::Disconnected)
                | Ok(AppDecision::StreamBody(_) | AppDecision::Displaced(_)) => {
                    return Err(ClientDisconnected);
                }
                Err(NoResponse::Rejected(rejection)) => {
                    context.set_unread_body(true);
                    return Ok(builder::reject(context, headers, rejection));
                }
                Err(NoResponse::QueueFull(exchange)) => {
                    return Ok(reject_busy(context, exchange, headers, true));
                }
                Err(NoResponse::StreamsBody(pending)) => {
                    // Boxed, so that only the few connections that need this future pay for its
                    // size.
                    return match Box::pin(request_stream::stream_to_application(
                        context, body, pending,
                    ))
                    .await
                    {
                        Ok((context, exchange)) => {
                            Ok(respond(context, exchange, headers, options).await)
                        }
                        Err((context, Some(rejection))) => {
                            Ok(builder::reject(context, headers, rejection))
                        }
                        Err((_, None)) => Err(ClientDisconnected),
                    };
                }
            }
            context.begin_reading();
        }
        let reading = BodyReadGuard::new(&context, &exchange);
        match body_collector::collect(body, exchange, &context).await {
            Ok(filled) => {
                exchange = filled;
                reading.done();
            }
            Err(Some(rejection)) => {
                context.set_unread_body(true);
                return Ok(builder::reject(context, headers, rejection));
            }
            Err(None) => return Err(ClientDisconnected),
        }
    }

    match send_to_application(&mut context, exchange, Event::Request).await {
        Ok(AppDecision::Respond(exchange)) if is_accepted(&exchange) => {
            accept_websocket(&mut context, exchange);
            // The driver takes the connection from hyper before this future is polled again.
            std::future::pending().await
        }
        Ok(AppDecision::Respond(exchange)) => {
            Ok(respond(context, exchange, headers, options).await)
        }
        Ok(AppDecision::ReadBody(_) | AppDecision::StreamBody(_) | AppDecision::Displaced(_))
        | Err(NoResponse::Disconnected | NoResponse::StreamsBody(_)) => Err(ClientDisconnected),
        Err(NoResponse::Rejected(rejection)) => Ok(builder::reject(context, headers, rejection)),
        Err(NoResponse::QueueFull(exchange)) => Ok(reject_busy(context, exchange, headers, false)),
    }
}

/// Begins the access log record, and validates the request head.
///
/// # Errors
/// Returns the rejection to respond with if the head is invalid.
fn check_request(
    context: &mut RequestContext,
    head: &mut Parts,
    has_body: bool,
) -> Result<(), Rejection> {
    context.begin_log(head);
    head::check(head, has_body)?;
    head::check_host_name(&head.headers, context.connection.config.hosts.as_deref())?;
    if context.connection.config.page_script.is_some() {
        page_script::remove_conditions(head);
    }
    Ok(())
}

/// Passes an accepted WebSocket opening handshake to the connection's driver, which completes it.
fn accept_websocket(context: &mut RequestContext, exchange: Box<Exchange>) {
    context.set_response(&exchange);
    let is_stream = context.connection.is_http2_stream();
    context.set_status(if is_stream { 200 } else { 101 });
    context.connection.accepted_websocket.replace(Some(exchange));
}

/// Creates the exchange (the shared object of a request and its response), and fills in the request
/// head and the information about the client.
fn begin_exchange(context: &RequestContext, head: &Parts, is_upgrade: bool) -> Box<Exchange> {
    let connection = &context.connection;
    let mut exchange =
        context.shared().dispatch.begin(context.id, connection.listener, connection.key.get());
    exchange.set_peer(context.peer());
    let keeps_identity = connection.is_proxy() || connection.config.keeps_identity_headers;
    let ends = ConnectionAddresses { remote: context.client(), ..connection.ends.get() };
    head::fill(&mut exchange, head, ends, is_upgrade, keeps_identity);
    context.apply_trace(&mut exchange, head);
    exchange.set_logged(context.is_logged() || connection.config.sends_timing);
    if connection.has_tls() || !connection.config.proxies.is_empty() {
        connection.set_transport_info(&mut exchange, &head.headers);
    }
    exchange
}

/// Counts the opening handshake of a WebSocket for its peer, until the returned guard is dropped.
///
/// # Errors
/// Returns the rejection to respond with if the origin of the web page may not open WebSockets on
/// this listener, or if the peer has the maximum number of WebSockets.
fn begin_handshake(context: &RequestContext, headers: &HeaderMap) -> Result<Counted, Rejection> {
    let origins = context.connection.config.origins.as_ref();
    if origins.is_some_and(|policy| !handshake::is_origin_allowed(policy, headers)) {
        return Err(Rejection::Origin);
    }
    let peers = &context.shared().connections.peers;
    peers.count_websocket(context.peer(), MAX_WEBSOCKETS).ok_or(Rejection::TooManyFromIp)
}

async fn respond(
    mut context: RequestContext,
    mut exchange: Box<Exchange>,
    headers: HeaderMap,
    options: ResponseOptions,
) -> Response<ResponseBody> {
    context.set_response(&exchange);
    if is_streamed(&exchange) {
        // Boxed, so that only the few connections that need this future pay for its size.
        return Box::pin(respond_streamed(context, exchange, headers, options)).await;
    }
    context.begin_response();
    if exchange.response().is_failure() {
        rookery_error::throw(Rejection::Application.error());
    }
    let shared = Rc::clone(&context.connection.shared);
    let response = builder::build(context, &mut exchange, headers, options);
    shared.dispatch.finish(exchange);
    response
}

fn reject_busy(
    context: RequestContext,
    exchange: Box<Exchange>,
    headers: HeaderMap,
    has_body: bool,
) -> Response<ResponseBody> {
    context.shared().dispatch.finish(exchange);
    context.set_unread_body(has_body);
    builder::reject(context, headers, Rejection::Busy)
}
