//! Responds to requests for static files, without calling the application.

use std::fmt::Write as _;
use std::rc::Rc;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, COOKIE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Uri};
use rookery_exchange::{Charge, Share};
use rookery_system::blocking;

use crate::http::request::kept_headers;
use crate::http::request::request_context::RequestContext;
use crate::http::response::builder::{self, Framing, ResponseOptions, ServerError};
use crate::http::response::compress;
use crate::http::response::error_page::Form;
use crate::http::response::page_script;
use crate::http::response::response_body::{self, Content, ResponseBody};
use crate::http::response::sendfile::SentFile;
use crate::rejection::Rejection;
use crate::static_files::{
    BodyFraming, Cacheable, CachedFile, Fetched, Found, FoundNonblocking, Header, Lookup, Outcome,
    Reading, RequestHead, Route, StaticFiles, WHOLE, content_range, error_body, read_up_to,
    unsatisfiable,
};

/// The number of bytes that a static file lookup counts against the memory budget while it waits
/// for a background thread. They cover the request target, the options of the static path and the
/// conditions of the request.
const LOOKUP_BYTES: usize = 1 << 10;

/// The result of looking for the static file that a request names.
pub(crate) enum StaticOutcome {
    /// The server responds with this response, which contains the static file or an error.
    Response(Response<ResponseBody>),
    /// The application must respond to the request, because no static file is served for it.
    Application(RequestContext),
    /// The response is not known yet, because a background thread must open or read the static
    /// file.
    Pending(RequestContext, Box<PendingLookup>),
}

/// The rest of a static file lookup, which must run on a thread that may block.
#[expect(clippy::large_enum_variant, reason = "handed on once")]
pub(crate) enum PendingLookup {
    Open(Lookup),
    /// A small file is already open, and its content must be read.
    Read(Found, Option<Box<Cacheable>>),
}

/// Returns the static paths that apply to a request in place of those of its listener, if the
/// application has such paths.
pub(crate) fn own_files(context: &RequestContext, head: &Parts) -> Option<StaticFiles> {
    let query = head.uri.query().unwrap_or_default().as_bytes();
    let mut cookies = head.headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes);
    context.shared().dispatch.application.static_files(query, &mut cookies)
}

/// Responds with a static file if that is possible without waiting for a disk. `own` are the static
/// paths that apply in place of those of the listener. The response reuses the request's header
/// map.
pub(crate) fn try_respond(
    mut context: RequestContext,
    own: Option<&StaticFiles>,
    head: &mut Parts,
    has_body: bool,
    options: ResponseOptions,
) -> StaticOutcome {
    if let Some(script) = &context.connection.config.page_script {
        if script.is_reserved(head.uri.path()) {
            return StaticOutcome::Application(context);
        }
    }
    context.begin_response();
    let request = RequestHead {
        method: head.method.as_str(),
        target: head.uri.path_and_query().map_or("/", |target| target.as_str()).as_bytes(),
        is_upgrade: false,
        body: framing(&head.headers),
        headers: &head.headers,
    };
    let files = own.unwrap_or(&context.connection.config.files);
    let lookup = match files.route(&request) {
        Route::Application => return StaticOutcome::Application(context),
        Route::Refuse(status) => {
            context.set_unread_body(has_body);
            let mut headers = Vec::new();
            if status == StatusCode::METHOD_NOT_ALLOWED {
                headers.push(Header::own("Allow", &b"GET, HEAD"[..]));
            }
            let found = Found::Status { status, headers };
            return build_outcome(context, head, found, None, true, options);
        }
        Route::Open(lookup) => lookup,
    };
    let shared = Rc::clone(&context.connection.shared);
    let (out, _) = context.buffer_and_names();
    // For HEAD, the bytes are only needed to determine the compressed length.
    let out = (!options.is_head() || options.accepts_gzip()).then_some(out);
    let now = SystemTime::now();
    let found = lookup.open_nonblocking(&mut shared.file_cache.borrow_mut(), now, out);
    match found {
        FoundNonblocking::Ready(file, outcome) => StaticOutcome::Response(respond_from_memory(
            context,
            take_emptied(head),
            &file,
            outcome,
            options,
        )),
        FoundNonblocking::Found(found, Reading::Done(bytes)) => {
            build_outcome(context, head, found, Some(bytes), true, options)
        }
        FoundNonblocking::Found(found, Reading::None)
            if options.inserts_script() && size_limit(&found) > WHOLE =>
        {
            StaticOutcome::Pending(context, Box::new(PendingLookup::Read(found, None)))
        }
        FoundNonblocking::Found(found, Reading::None) => {
            build_outcome(context, head, found, None, true, options)
        }
        FoundNonblocking::Found(found, Reading::WouldBlock(cacheable)) => {
            StaticOutcome::Pending(context, Box::new(PendingLookup::Read(found, cacheable)))
        }
        FoundNonblocking::WouldBlock(lookup) => {
            StaticOutcome::Pending(context, Box::new(PendingLookup::Open(lookup)))
        }
    }
}

/// Opens or reads a static file on a background thread and responds with it. Returns the request
/// context if the application must respond instead.
pub(crate) async fn respond_when_ready(
    context: RequestContext,
    pending: Box<PendingLookup>,
    head: &mut Parts,
    has_body: bool,
    options: ResponseOptions,
) -> StaticOutcome {
    let connections = &context.shared().connections;
    // The file may be open for a long time before this task is polled again.
    let charges = connections
        .try_charge(context.peer(), Share::Incoming, LOOKUP_BYTES)
        .and_then(|charge| Some((charge, context.charge_response_file().ok()?)));
    let Some((charge, descriptor)) = charges else {
        context.set_unread_body(has_body);
        return StaticOutcome::Response(builder::reject(
            context,
            HeaderMap::new(),
            Rejection::Overload,
        ));
    };
    let now = SystemTime::now();
    let is_page = options.inserts_script();
    let fetching = blocking::start_for(context.peer(), move || {
        Ok((fetch(*pending, now, is_page, charge)?, descriptor))
    });
    let Ok((fetched, descriptor)) = fetching.await else {
        return StaticOutcome::Response(builder::reject(
            context,
            HeaderMap::new(),
            Rejection::Application,
        ));
    };
    // The file is closed here, or charged as that of the response.
    context.release_response_file(descriptor);
    let Fetched { found, bytes, cacheable, local } = fetched;
    {
        let mut files = context.shared().file_cache.borrow_mut();
        if let Some(device) = local {
            files.learn_local(device, now);
        }
        if let (Some(cacheable), Some(bytes)) = (cacheable, &bytes) {
            files.keep(cacheable, bytes.clone());
        }
    }
    build_outcome(context, head, found, bytes, local.is_some(), options)
}

/// Opens or reads a file on a thread that may block. If `is_page` is true, also reads an HTML page
/// as a whole, so that the page script can be inserted.
fn fetch(
    pending: PendingLookup,
    now: SystemTime,
    is_page: bool,
    charge: Charge,
) -> std::io::Result<Fetched> {
    let mut fetched = match pending {
        PendingLookup::Open(lookup) => lookup.fetch(now),
        PendingLookup::Read(found, cacheable) => read_up_to(&found, WHOLE).map(|bytes| Fetched {
            found,
            bytes,
            cacheable: cacheable.map(|cacheable| *cacheable),
            local: None,
        }),
    };
    if let Some(fetched) = fetched.as_mut().ok().filter(|it| is_page && it.bytes.is_none()) {
        fetched.bytes = read_up_to(&fetched.found, size_limit(&fetched.found))?;
    }
    drop(charge);
    fetched
}

/// Returns the maximum size in bytes up to which a file is read into memory as a whole. The limit
/// is higher for HTML pages, so that the page script can be inserted.
fn size_limit(found: &Found) -> u64 {
    let is_html =
        |header: &Header| header.is("content-type") && page_script::is_html(header.value());
    match found {
        Found::File { headers, .. } if headers.iter().any(is_html) => page_script::MAX_PAGE_SIZE,
        _ => WHOLE,
    }
}

fn framing(headers: &HeaderMap) -> BodyFraming {
    if headers.contains_key(http::header::TRANSFER_ENCODING) {
        return BodyFraming::Chunked;
    }
    let len = headers
        .get(http::header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    len.map_or(BodyFraming::Absent, BodyFraming::Length)
}

/// Responds with a static file that is cached in memory.
fn respond_from_memory(
    context: RequestContext,
    mut headers: HeaderMap,
    file: &Rc<CachedFile>,
    outcome: Outcome,
    options: ResponseOptions,
) -> Response<ResponseBody> {
    let plain = file.plain();
    let (status, content) = match outcome {
        Outcome::Failed => {
            if let Some(etag) = file.etag() {
                let (name, value) = etag.clone().into_http();
                headers.append(name, value);
            }
            (StatusCode::PRECONDITION_FAILED, error_content(StatusCode::PRECONDITION_FAILED))
        }
        Outcome::NotModified if options.accepts_gzip() => {
            let make = || {
                let mut headers: HeaderMap = file.not_modified().iter().cloned().collect();
                let whole = plain.headers.iter().cloned().collect();
                mark_not_modified(&mut headers, &whole, plain.bytes.len() as u64);
                response_body::header_lines(&headers)
            };
            fill(&mut headers, file.not_modified_gzip(make));
            (StatusCode::NOT_MODIFIED, Content::Absent)
        }
        Outcome::NotModified => {
            fill(&mut headers, file.not_modified());
            (StatusCode::NOT_MODIFIED, Content::Absent)
        }
        Outcome::NotFound => {
            let is_type = |line: &&(HeaderName, HeaderValue)| line.0 == CONTENT_TYPE;
            headers.extend(plain.headers.iter().find(is_type).cloned());
            (StatusCode::NOT_FOUND, Content::Whole(plain.bytes.clone()))
        }
        Outcome::Whole => match file.gzip() {
            Some(gzip) if options.accepts_gzip() => {
                fill(&mut headers, &gzip.headers);
                return finish(
                    context,
                    StatusCode::OK,
                    headers,
                    Content::Whole(gzip.bytes.clone()),
                    options.without_gzip(),
                );
            }
            _ => {
                fill(&mut headers, &plain.headers);
                (StatusCode::OK, Content::Ready(Rc::clone(file)))
            }
        },
        Outcome::Partial(range) => {
            fill(&mut headers, &plain.headers);
            let (name, value) = content_range(&range, plain.bytes.len() as u64).into_http();
            headers.append(name, value);
            let part = plain.bytes.slice(range.start as usize..range.end as usize);
            (StatusCode::PARTIAL_CONTENT, Content::Whole(part))
        }
        Outcome::Unsatisfiable => {
            let (name, value) = unsatisfiable(plain.bytes.len() as u64).into_http();
            headers.append(name, value);
            (StatusCode::RANGE_NOT_SATISFIABLE, error_content(StatusCode::RANGE_NOT_SATISFIABLE))
        }
    };
    finish(context, status, headers, content, options)
}

fn fill(headers: &mut HeaderMap, lines: &[(HeaderName, HeaderValue)]) {
    for (name, value) in lines {
        headers.append(name.clone(), value.clone());
    }
}

/// Adapts the headers of a 304 response (not modified) to the compressed form of the file, if the
/// client would have received that form. `whole` contains the headers of a response with the file,
/// and `len` is the length of the file.
fn mark_not_modified(headers: &mut HeaderMap, whole: &HeaderMap, len: u64) {
    if compress::is_compressible_response(StatusCode::OK, whole, Some(len)) {
        compress::mark(headers);
        headers.remove(CONTENT_ENCODING);
    }
}

fn build_outcome(
    context: RequestContext,
    head: &mut Parts,
    found: Found,
    bytes: Option<Bytes>,
    is_local: bool,
    options: ResponseOptions,
) -> StaticOutcome {
    let (status, lines, content) = match (found, bytes) {
        (Found::Application, _) => return StaticOutcome::Application(context),
        (Found::File { status, headers, .. }, Some(bytes)) => {
            (status, headers, Content::Whole(bytes))
        }
        (Found::File { file, offset, len, status, headers }, None) => (
            status,
            headers,
            Content::File { file: SentFile::named(file, is_local), at: offset, len },
        ),
        (Found::NotModified { headers: lines, whole, len }, _) => {
            let mut headers = take_emptied(head);
            headers.extend(lines.into_iter().map(Header::into_http));
            if options.accepts_gzip() {
                let whole = whole.into_iter().map(Header::into_http).collect();
                mark_not_modified(&mut headers, &whole, len);
            }
            let response =
                finish(context, StatusCode::NOT_MODIFIED, headers, Content::Absent, options);
            return StaticOutcome::Response(response);
        }
        (Found::Folder, _) => {
            let status = StatusCode::MOVED_PERMANENTLY;
            (status, vec![Header::own("Location", with_slash(&head.uri))], error_content(status))
        }
        (Found::Status { status, headers }, _) if !describes_file(status) => {
            return StaticOutcome::Response(respond_error(context, head, status, headers, options));
        }
        (Found::Status { status, headers }, _) => (status, headers, error_content(status)),
    };
    let mut headers = take_emptied(head);
    fill_lines(&mut headers, lines);
    StaticOutcome::Response(finish(context, status, headers, content, options))
}

/// Responds with an error that concerns no existing file.
fn respond_error(
    context: RequestContext,
    head: &mut Parts,
    status: StatusCode,
    lines: Vec<Header>,
    options: ResponseOptions,
) -> Response<ResponseBody> {
    let form = Form::preferred(&head.headers);
    let id = form.map(|_| context.request_id(&head.headers));
    let mut headers = take_emptied(head);
    fill_lines(&mut headers, lines);
    let Some((form, id)) = form.zip(id) else {
        return finish(context, status, headers, error_content(status), options);
    };
    let error = ServerError { status: status.as_u16(), text: error_body(status), id };
    let closes = context.connection.closes_after_response();
    let framing = Framing { closes, declared_length: None };
    builder::respond_error_page(context, headers, &error, form, &framing, options)
}

fn fill_lines(headers: &mut HeaderMap, lines: Vec<Header>) {
    for line in lines {
        let (name, value) = line.into_http();
        headers.append(name, value);
    }
}

/// Returns true if the headers of a response with this status describe an existing file.
fn describes_file(status: StatusCode) -> bool {
    matches!(status, StatusCode::PRECONDITION_FAILED | StatusCode::RANGE_NOT_SATISFIABLE)
}

/// Returns a reference to the URL of a folder with a slash at its end, with the query of the
/// request. The reference is relative to the last segment of the path. It therefore stays on the
/// host of the request, even if the path begins with `//`, and is also correct if a proxy has
/// removed the first segments of the path.
fn with_slash(uri: &Uri) -> String {
    let name = uri.path().rsplit('/').next().unwrap_or_default();
    // Without the first segment, a name with a colon would be read as a scheme.
    let mut reference = String::from("./");
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    for char in name.chars().chain(['/']).chain(query.chars()) {
        let is_safe = char.is_ascii_graphic() && !matches!(char, '"' | '<' | '>' | '\\');
        if is_safe {
            reference.push(char);
        } else {
            for byte in char.encode_utf8(&mut [0; 4]).bytes() {
                // Writing to a `String` cannot fail.
                let _ = write!(reference, "%{byte:02X}");
            }
        }
    }
    reference
}

/// Takes the request's header map, and clears it for reuse in the response.
fn take_emptied(head: &mut Parts) -> HeaderMap {
    let mut headers = std::mem::take(&mut head.headers);
    kept_headers::clear(&mut headers);
    headers
}

fn error_content(status: StatusCode) -> Content {
    Content::Whole(Bytes::from_static(error_body(status).as_bytes()))
}

fn finish(
    context: RequestContext,
    status: StatusCode,
    headers: HeaderMap,
    content: Content,
    options: ResponseOptions,
) -> Response<ResponseBody> {
    let declared_length = match &content {
        Content::Absent => None,
        content => Some(content.len()),
    };
    let framing = Framing { closes: context.connection.closes_after_response(), declared_length };
    // These headers describe the file, so the short error text must not be compressed.
    let options = if describes_file(status) { options.without_gzip() } else { options };
    builder::finish(context, status, headers, content, &framing, options)
}
