//! Builds responses for hyper or h2. The status, the headers and the body come either from the
//! application or from the server itself.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH,
    CONTENT_TYPE, RETRY_AFTER, STRICT_TRANSPORT_SECURITY, TRANSFER_ENCODING,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use hyper::ext::ReasonPhrase;
use rookery_exchange::{
    EVENTS_RETRY, Exchange, RequestId, ResponseBody as AppBody, Share, accepts_events,
};

use crate::blocking::unnamed_file::UnnamedFile;
use crate::http::listener_config::ListenerConfig;
use crate::http::request::context_pool::MAX_POOLED_BUFFER;
use crate::http::request::head::has_token;
use crate::http::request::kept_headers;
use crate::http::request::request_context::RequestContext;
use crate::http::response::compress::{self, Candidate};
use crate::http::response::error_page::{self, Form};
use crate::http::response::page_script;
use crate::http::response::response_body::{Content, ResponseBody, Source};
use crate::http::response::sendfile::SentFile;
use crate::http::response::stream::response_stream::Detachable;
use crate::rejection::Rejection;

/// The `Retry-After` value in seconds of the response that is sent when the application's queue is
/// full.
const RETRY_SECONDS: &str = "1";

/// The name of the response header that contains the request id.
static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const SERVER_TIMING: &str = "server-timing";

/// The maximum length of a request id.
const MAX_REQUEST_ID: usize = 128;

/// The length for which the value of `Server-Timing` has room without another allocation.
const MAX_TIMING: usize = 80;

/// The properties of a request that determine how its response is built.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseOptions {
    is_head: bool,
    accepts_gzip: bool,
    /// The number of folders in the URL of a page into which the listener's page script is to be
    /// inserted.
    page_depth: Option<u16>,
}

impl ResponseOptions {
    pub(crate) fn of(head: &http::request::Parts, config: &ListenerConfig) -> ResponseOptions {
        let any = Candidate {
            // A response to HEAD has the headers of a response to GET.
            method: &Method::GET,
            version: head.version,
            status: StatusCode::OK,
            headers: &HeaderMap::new(),
            len: None,
        };
        let accepted = head.headers.get(ACCEPT_ENCODING).map(HeaderValue::as_bytes);
        let page_depth = config.page_script.as_ref().and_then(|_| page_script::page_depth(head));
        ResponseOptions {
            is_head: head.method == Method::HEAD,
            // A script can be inserted only into a page that is not compressed.
            accepts_gzip: accepted.is_some()
                && page_depth.is_none()
                && compress::negotiate(accepted, &any),
            page_depth,
        }
    }

    pub(crate) fn is_head(self) -> bool {
        self.is_head
    }

    /// Returns true if the page script is inserted into the response in case it is an HTML page.
    pub(crate) fn inserts_script(self) -> bool {
        self.page_depth.is_some()
    }

    pub(crate) fn accepts_gzip(self) -> bool {
        self.accepts_gzip
    }

    /// Returns these options with compression turned off, for a response body that is already
    /// compressed.
    pub(crate) fn without_gzip(self) -> ResponseOptions {
        ResponseOptions { accepts_gzip: false, ..self }
    }
}

/// The framing of a response body: the properties by which the client finds its end.
#[derive(Debug)]
pub(crate) struct Framing {
    pub(crate) closes: bool,
    /// The `Content-Length` that the application declared for the response body.
    pub(crate) declared_length: Option<u64>,
}

impl Framing {
    /// Returns true if the server sends this header of the application's response unchanged.
    /// Returns false for headers about framing and the connection, which the server sets itself
    /// (RFC 9110, 7.6.1). Stores the values of `Content-Length` and `Connection: close` in `self`.
    fn filter(&mut self, name: &HeaderName, value: &[u8]) -> bool {
        match name.as_str() {
            "connection" => {
                self.closes |= has_token(value, b"close");
                false
            }
            "content-length" => {
                self.declared_length =
                    std::str::from_utf8(value).ok().and_then(|value| value.trim().parse().ok());
                false
            }
            "keep-alive" | "transfer-encoding" | "upgrade" | "proxy-connection" | "trailer" => {
                false
            }
            _ => true,
        }
    }
}

/// Builds the application's response to a request. `headers` is the header map of the request,
/// which is cleared and reused for the response. The response is copied out of the exchange (the
/// object of the request and its response), so that the exchange can be reused immediately.
pub(crate) fn build(
    mut context: RequestContext,
    exchange: &mut Exchange,
    mut headers: HeaderMap,
    options: ResponseOptions,
) -> Response<ResponseBody> {
    let Ok(status) = StatusCode::from_u16(exchange.response().status()) else {
        return reject(context, headers, Rejection::Application);
    };
    if exchange.response().is_server_error() {
        if let Some(form) = Form::preferred(&headers) {
            return build_error_page(context, exchange, headers, options, form);
        }
    }
    let is_stream = matches!(exchange.response().body(), AppBody::Stream(_));
    // hyper obeys this header itself, but a stream that continues without hyper needs to know.
    let requests_close =
        || headers.get_all(CONNECTION).iter().any(|value| has_token(value.as_bytes(), b"close"));
    let is_last = is_stream && requests_close();
    // hyper closes the connection after a request with both Transfer-Encoding and Content-Length
    // (RFC 9112, 6.1), and removes its Content-Length. Only hyper can therefore decide whether the
    // connection may be reused after a request with a Transfer-Encoding.
    let needs_hyper = is_stream && headers.contains_key(TRANSFER_ENCODING);
    headers.clear();
    let mut framing =
        Framing { closes: context.connection.closes_after_response(), declared_length: None };
    let config = &context.connection.config;
    let sends_id = config.sends_request_id;
    let sends_timing = config.sends_timing;
    let body = {
        let copied = exchange.response_copy().unwrap_or_default();
        let total =
            exchange.response_headers().map(|(_, value)| value.len()).sum::<usize>() + copied.len();
        let (out, names) = context.buffer_and_names();
        // The server's own values are in the same buffer.
        let own =
            if sends_id { MAX_REQUEST_ID } else { 0 } + if sends_timing { MAX_TIMING } else { 0 };
        out.reserve(total + own);
        for (name, value) in exchange.response_headers() {
            let Some(name) = names.get(name) else { continue };
            if framing.filter(&name, value) {
                out.put_slice(value);
                if let Ok(value) = HeaderValue::from_maybe_shared(out.split().freeze()) {
                    headers.append(name, value);
                }
            }
        }
        out.put_slice(copied);
        let body = out.split().freeze();
        if sends_id && !headers.contains_key(&REQUEST_ID) {
            out.put_slice(exchange.request_id().as_bytes());
            if let Ok(mut value) = HeaderValue::from_maybe_shared(out.split().freeze()) {
                // HTTP/2 does not add sensitive values to its compression table. A request id
                // rarely occurs twice, so it would only displace other entries there, and each
                // entry with the same name costs a comparison.
                value.set_sensitive(true);
                headers.insert(REQUEST_ID.clone(), value);
            }
        }
        if sends_timing {
            if let Some(value) = server_timing(exchange, out) {
                headers.append(HeaderName::from_static(SERVER_TIMING), value);
            }
        }
        let (out, _) = context.buffer_and_names();
        if total > MAX_POOLED_BUFFER {
            // Even if it is empty, the rest of the buffer would keep all of its memory in the pool.
            *out = BytesMut::new();
        }
        body
    };
    let content = match exchange.response_mut().take_body() {
        AppBody::None => Content::Absent,
        AppBody::Copied => Content::Whole(body),
        AppBody::Lent(lease) => Content::Whole(Bytes::from_owner(lease)),
        AppBody::Owned(body) => {
            let (body, charge) = body.without_charge();
            if let Some(charge) = charge {
                context.keep_response_charge(&charge);
            }
            Content::Whole(Bytes::from_owner(body))
        }
        AppBody::Refused => return reject(context, headers, Rejection::Overload),
        // Charged again below, for its client.
        AppBody::File { file, len, .. } => {
            Content::File { file: SentFile::unnamed(UnnamedFile::new(file)), at: 0, len }
        }
        AppBody::Stream(_) => match context.connection.response_stream() {
            Some(stream) => {
                // Over HTTP/1.0, a body without a length ends when the connection closes.
                let is_old = exchange.version() == rookery_exchange::Version::Http10;
                framing.closes |= is_old && stream.length().is_none();
                let is_chunked = !is_old && stream.length().is_none();
                if is_chunked && !needs_hyper && !context.connection.is_http2_stream() {
                    stream.set_detachable(if framing.closes || is_last {
                        Detachable::Close
                    } else {
                        Detachable::KeepAlive
                    });
                }
                Content::Stream(stream)
            }
            None => Content::Absent,
        },
    };
    finish(context, status, headers, content, &framing, options)
}

/// Builds an error page from a response that consists of the plain text of an error.
#[cold]
fn build_error_page(
    context: RequestContext,
    exchange: &Exchange,
    mut headers: HeaderMap,
    options: ResponseOptions,
    form: Form,
) -> Response<ResponseBody> {
    headers.clear();
    for (name, value) in exchange.response_headers() {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
        {
            headers.append(name, value);
        }
    }
    let status = exchange.response().status();
    let text = std::str::from_utf8(exchange.response_copy().unwrap_or_default());
    let error = ServerError { status, text: text.unwrap_or_default(), id: exchange.request_id() };
    let framing =
        Framing { closes: context.connection.closes_after_response(), declared_length: None };
    respond_error_page(context, headers, &error, form, &framing, options)
}

/// An error of the server itself, with the texts that its page shows.
pub(crate) struct ServerError<'a> {
    pub(crate) status: u16,
    pub(crate) text: &'a str,
    pub(crate) id: RequestId,
}

/// Completes a response that consists of an error page. `headers` are the other headers of the
/// response.
#[cold]
pub(crate) fn respond_error_page(
    context: RequestContext,
    mut headers: HeaderMap,
    error: &ServerError<'_>,
    form: Form,
    framing: &Framing,
    options: ResponseOptions,
) -> Response<ResponseBody> {
    let config = &context.connection.config;
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let (id, own) = (error.id.as_bytes(), config.error_pages.as_deref());
    let page = error_page::render(form, status, error.text, id, own, &mut headers);
    if config.sends_request_id {
        if let Ok(id) = HeaderValue::from_bytes(id) {
            headers.insert(REQUEST_ID.clone(), id);
        }
    }
    finish(context, status, headers, Content::Whole(page), framing, options)
}

/// Returns the value of `Server-Timing` (W3C Server Timing) with the milliseconds that the request
/// has waited for the application and that the application took, or `None` if they are unknown.
/// The value is written to `out`.
fn server_timing(exchange: &Exchange, out: &mut BytesMut) -> Option<HeaderValue> {
    let times = exchange.app_times()?;
    let queued = exchange.upstream_log().map_or(Duration::ZERO, |upstream| upstream.queued);
    let [queue, app] = [times.queue + queued, times.app].map(|time| time.as_secs_f64() * 1000.0);
    write!(out, "queue;dur={queue:.3}, r;dur={app:.3}").ok()?;
    HeaderValue::from_maybe_shared(out.split().freeze()).ok()
}

/// Returns true if a response with this status code has no body (RFC 9110, 6.4.1; for 205, 15.3.6).
pub(crate) fn is_bodiless(status: u16) -> bool {
    matches!(status, 204 | 205 | 304) || status < 200
}

/// Completes a response: adds the headers that the server sets, and compresses the body if the
/// client accepts it.
pub(crate) fn finish(
    mut context: RequestContext,
    status: StatusCode,
    mut headers: HeaderMap,
    mut content: Content,
    framing: &Framing,
    options: ResponseOptions,
) -> Response<ResponseBody> {
    if let (Some(depth), Some(bytes)) = (options.page_depth, content.bytes()) {
        let config = &context.connection.config;
        let page = config.page_script.as_ref().filter(|_| !is_bodiless(status.as_u16()));
        let page =
            page.and_then(|it| it.insert(depth, status, &mut headers, bytes, config.notice.0));
        content = page.map_or(content, Content::Whole);
    }
    let held = if options.is_head { 0 } else { content.held_bytes() };
    if context.charge_response(held).is_err() {
        drop(content);
        return reject(context, headers, Rejection::Overload);
    }
    if let (Content::File { file, .. }, false) = (&mut content, options.is_head) {
        if !file.is_charged() {
            match context.charge_response_file() {
                Ok(charge) => file.set_charge(charge),
                Err(rejection) => {
                    drop(content);
                    return reject(context, headers, rejection);
                }
            }
        }
    }
    context.set_status(status.as_u16());
    if framing.closes {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if let Some(hsts) = context.hsts() {
        headers.entry(STRICT_TRANSPORT_SECURITY).or_insert_with(|| hsts.clone());
    }
    let is_bodiless = is_bodiless(status.as_u16());
    // Many frameworks handle HEAD as GET and remove the body, but keep its length.
    let removed_len = match content {
        Content::Stream(_) => None,
        _ if options.is_head && content.len() == 0 => framing.declared_length,
        _ => None,
    };
    let may_compress = match removed_len {
        Some(_) => compress::is_compressible_response(status, &headers, removed_len),
        None => may_compress(&content, status, &headers),
    };
    let mut is_gzip = options.accepts_gzip && may_compress;
    // For HEAD, a body is compressed only if the compressed length becomes known.
    let is_measured =
        options.is_head && is_gzip && removed_len.is_none() && content.is_compressed_whole();
    let is_made = !options.is_head || is_measured;
    let permit = match content {
        Content::Stream(_) if is_gzip && is_made => {
            context.shared().response_streams.reserve_compressor()
        }
        _ => None,
    };
    is_gzip &= permit.is_some() || !is_made || !matches!(content, Content::Stream(_));
    // If there is no memory for a compressor, the body is sent uncompressed.
    let connections = &context.shared().connections;
    let compressor = (is_gzip && is_made)
        .then(|| connections.try_charge_optional(Share::Outgoing, content.compressor_bytes()))
        .flatten();
    let source = if is_bodiless {
        if status == StatusCode::RESET_CONTENT {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
        }
        if let (StatusCode::NOT_MODIFIED, Some(len)) = (status, framing.declared_length) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
        }
        Source::Empty
    } else if let Some(charge) = compressor {
        compress::mark(&mut headers);
        content.into_compressed_source(&context.shared().gzip, charge, permit)
    } else if options.is_head {
        // The same headers as for GET, without the body (RFC 9110, 9.3.2). The length is unknown
        // and left out if the body would be compressed while it is sent, or if the application has
        // removed it and has not declared its length.
        let len = match &content {
            _ if is_gzip && !is_measured => None,
            Content::Absent | Content::Stream(_) => framing.declared_length,
            content if content.len() == 0 => framing.declared_length,
            content => Some(content.len()),
        };
        if is_gzip && !is_measured {
            compress::mark(&mut headers);
        }
        if let Some(len) = len {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
        }
        Source::Empty
    } else {
        content.into_source()
    };
    let source = match source {
        Source::Whole(bytes) if options.is_head => {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
            Source::Empty
        }
        plain @ Source::CompressFirst(..) if options.is_head => {
            Source::MeasureFirst(Box::new(plain))
        }
        source => source,
    };
    let mut response = Response::new(ResponseBody::new(context, source));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    if status == StatusCode::PAYLOAD_TOO_LARGE {
        // The `http` crate uses the reason phrase of RFC 7231. The current one differs (RFC 9110,
        // 15.5.14).
        response.extensions_mut().insert(ReasonPhrase::from_static(b"Content Too Large"));
    }
    response
}

/// Returns true if the server compresses this response for clients that accept gzip.
fn may_compress(content: &Content, status: StatusCode, headers: &HeaderMap) -> bool {
    let len = match content {
        // The application declared the uncompressed length. Events are compressed if the
        // application asked for it, whatever their type.
        Content::Stream(stream) if !stream.rules.is_compressible || stream.length().is_some() => {
            return false;
        }
        Content::Stream(stream) if stream.rules.is_events => {
            return !headers.contains_key(CONTENT_ENCODING);
        }
        Content::Stream(_) => None,
        content => Some(content.len()),
    };
    compress::is_compressible_response(status, headers, len)
}

/// Builds the error response for a request that the server rejects.
pub(crate) fn reject(
    mut context: RequestContext,
    mut headers: HeaderMap,
    rejection: Rejection,
) -> Response<ResponseBody> {
    rookery_error::throw(rejection.error());
    context.begin_response();
    let is_temporary = matches!(rejection, Rejection::Busy | Rejection::Overload);
    let is_for_events = is_temporary
        && headers.get_all(ACCEPT).iter().any(|value| accepts_events(value.as_bytes()));
    let form = if is_for_events { None } else { Form::preferred(&headers) };
    let id = form.map(|_| context.request_id(&headers));
    kept_headers::clear(&mut headers);
    if is_temporary && !is_for_events {
        headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_SECONDS));
    }
    let closes = rejection.ends_connection() || context.connection.closes_after_response();
    let framing = Framing { closes, declared_length: None };
    let options = ResponseOptions { is_head: false, accepts_gzip: false, page_depth: None };
    if let Some((form, id)) = form.zip(id) {
        let error = ServerError { status: rejection.status(), text: rejection.text(), id };
        return respond_error_page(context, headers, &error, form, &framing, options);
    }
    let (status, kind, text) = if is_for_events {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        (200, "text/event-stream", EVENTS_RETRY)
    } else {
        (rejection.status(), "text/plain", rejection.text())
    };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let content = Content::Whole(Bytes::from_static(text.as_bytes()));
    finish(context, status, headers, content, &framing, options)
}
