//! Requests in the clear that are sent on to HTTPS, but those of an authority that looks whose the host is.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, LOCATION};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::http::listener_config::Redirect;
use crate::http::request::request_context::RequestContext;
use crate::http::response::builder::{self, Framing, ResponseOptions};
use crate::http::response::response_body::{Content, ResponseBody};
use crate::rejection::Rejection;

const TEXT: &[u8] = b"308 Permanent Redirect\n";

/// The port that a URL of HTTPS does not name (RFC 9110, 4.2.2).
const HTTPS: u16 = 443;

/// Answers with where the request is to be sent: with the same method and body, once more (RFC 9110, 15.4.9). Its body is not read.
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
        headers.clear();
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
    headers.clear();
    headers.insert(LOCATION, location);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    let framing =
        Framing { closes: context.connection.closes_after_response(), declared_length: None };
    let content = Content::Whole(Bytes::from_static(TEXT));
    builder::finish(context, StatusCode::PERMANENT_REDIRECT, headers, content, &framing, options)
}

/// The URL over HTTPS. A client is sent to no host but those that are this server's: a cache between could keep the answer for others.
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
        // Nothing else has to be told in ASCII (RFC 3986, 2.1).
        if byte.is_ascii() {
            url.push(char::from(byte));
        } else {
            // A String takes everything.
            let _ = write!(url, "%{byte:02X}");
        }
    }
    HeaderValue::try_from(url).map_err(|_| Rejection::Target)
}

/// The host that a request is for, without a port; it has been seen to be one, but may be empty.
fn host(headers: &HeaderMap) -> Option<&str> {
    let host = headers.get(HOST)?.to_str().ok()?;
    let end = host.find(']').map(|end| end + 1).or_else(|| host.find(':')).unwrap_or(host.len());
    Some(&host[..end]).filter(|host| !host.is_empty())
}
