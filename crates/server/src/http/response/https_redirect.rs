//! Redirects from plaintext HTTP to HTTPS, and responses to the challenges by which certificate
//! authorities check that the server controls a name.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, LOCATION};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::http::listener_config::Redirect;
use crate::http::request::kept_headers;
use crate::http::request::request_context::RequestContext;
use crate::http::response::builder::{self, Framing, ResponseOptions};
use crate::http::response::response_body::{Content, ResponseBody};
use crate::rejection::Rejection;

const TEXT: &[u8] = b"308 Permanent Redirect\n";

/// The default port of HTTPS, which `https` URLs omit (RFC 9110, 4.2.2).
const HTTPS: u16 = 443;

/// Responds to a plaintext request with a 308 redirect to HTTPS, without reading the request body.
/// The client then repeats the request with the same method and body (RFC 9110, 15.4.9).
pub(crate) fn redirect(
    context: RequestContext,
    redirect: &Redirect,
    head: Parts,
    has_body: bool,
    options: ResponseOptions,
) -> Response<ResponseBody> {
    context.set_unread_body(has_body);
    if let Some(answer) = redirect.tls.challenge(head.uri.path()) {
        let mut headers = head.headers;
        kept_headers::clear(&mut headers);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        let framing =
            Framing { closes: context.connection.closes_after_response(), declared_length: None };
        return builder::finish(
            context,
            StatusCode::OK,
            headers,
            Content::Whole(Bytes::from(answer)),
            &framing,
            options,
        );
    }
    let location = match location(redirect, &head, context.connection.ends.get().local) {
        Ok(location) => location,
        Err(rejection) => return builder::reject(context, head.headers, rejection),
    };
    let mut headers = head.headers;
    kept_headers::clear(&mut headers);
    headers.insert(LOCATION, location);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    let framing =
        Framing { closes: context.connection.closes_after_response(), declared_length: None };
    let content = Content::Whole(Bytes::from_static(TEXT));
    builder::finish(context, StatusCode::PERMANENT_REDIRECT, headers, content, &framing, options)
}

/// Returns the `https` URL that a plaintext request is redirected to. The requested host must
/// belong to this server, because a cache could store a redirect to another host and send it to
/// other clients.
fn location(
    redirect: &Redirect,
    head: &Parts,
    local: Option<SocketAddr>,
) -> Result<HeaderValue, Rejection> {
    let host = host(&head.headers).ok_or(Rejection::Host)?;
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_ours = match address.parse::<IpAddr>() {
        Ok(address) => {
            let address = address.to_canonical();
            local.is_some_and(|local| local.ip() == address)
                || redirect.tls.names_host(&address.to_string())
        }
        Err(_) => redirect.tls.covers_host(host),
    };
    if !is_ours {
        return Err(Rejection::Elsewhere);
    }
    let port = if redirect.port == HTTPS { String::new() } else { format!(":{}", redirect.port) };
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let mut url = format!("https://{host}{port}");
    if !target.starts_with('/') {
        url.push('/');
    }
    for byte in target.trim_start_matches('*').bytes() {
        // RFC 3986 (2.1) requires percent-encoding. Other characters that should be encoded are
        // passed on as browsers send them.
        if !byte.is_ascii() || matches!(byte, b'"' | b'<' | b'>') {
            // Writing to a `String` cannot fail.
            let _ = write!(url, "%{byte:02X}");
        } else {
            url.push(char::from(byte));
        }
    }
    HeaderValue::try_from(url).map_err(|_| Rejection::Target)
}

/// Returns the host of a request without its port, or `None` if the host is empty. The Host header
/// has already been validated.
fn host(headers: &HeaderMap) -> Option<&str> {
    let host = headers.get(HOST)?.to_str().ok()?;
    let end = host.find(']').map(|end| end + 1).or_else(|| host.find(':')).unwrap_or(host.len());
    Some(&host[..end]).filter(|host| !host.is_empty())
}
