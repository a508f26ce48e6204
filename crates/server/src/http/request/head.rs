//! Validates the heads of requests, and copies each head into an exchange (the object that contains
//! a request and its response).

use std::net::{Ipv4Addr, Ipv6Addr};

use http::header::{HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use rookery_exchange::{Exchange, ExchangeId, RequestId, TraceContext, Version};

use crate::net::addresses::ConnectionAddresses;
use crate::rejection::Rejection;

/// The names of the headers with a request's trace context, which as text would be parsed for each
/// request.
pub(super) static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(super) static TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

pub(super) static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Returns the id of a request: the id that a trusted proxy has chosen, else the id of its trace,
/// else a new id.
pub(crate) fn request_id(
    id: ExchangeId,
    headers: &HeaderMap,
    is_trusted: bool,
    trace: Option<&TraceContext>,
) -> RequestId {
    let external_id = if is_trusted { only(headers, &X_REQUEST_ID) } else { None };
    RequestId::choose(id, external_id, || trace.copied())
}

/// The request headers that a record in the access log and a span use.
#[derive(Debug, Default)]
pub(crate) struct RecordedHeaders<'a> {
    /// The context in the `traceparent` header. `None` if there is no such header, several, or an
    /// invalid one.
    pub(crate) trace: Option<TraceContext>,
    /// The first `Referer` header, or an empty value.
    pub(crate) referer: &'a [u8],
    /// The first `User-Agent` header, or an empty value.
    pub(crate) user_agent: &'a [u8],
    /// The first `Host` header, or an empty value.
    pub(crate) host: &'a [u8],
}

impl<'a> RecordedHeaders<'a> {
    /// Finds the headers. One pass over all headers takes a third of the time of a search for each.
    pub(crate) fn of(headers: &'a HeaderMap) -> RecordedHeaders<'a> {
        let mut found = RecordedHeaders::default();
        let mut has_trace = false;
        for (name, value) in headers {
            match name.as_str() {
                "traceparent" => has_trace = true,
                "referer" if found.referer.is_empty() => found.referer = value.as_bytes(),
                "host" if found.host.is_empty() => found.host = value.as_bytes(),
                "user-agent" if found.user_agent.is_empty() => found.user_agent = value.as_bytes(),
                _ => {}
            }
        }
        found.trace = if has_trace { trace_context(headers) } else { None };
        found
    }
}

/// Returns the context in the `traceparent` header of a request. Returns `None` if there is no such
/// header, several, or an invalid one.
pub(crate) fn trace_context(headers: &HeaderMap) -> Option<TraceContext> {
    TraceContext::parse(only(headers, &TRACEPARENT)?)
}

/// Returns the value of a header that occurs only once. Empty values do not count.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut lines =
        headers.get_all(name).iter().map(HeaderValue::as_bytes).filter(|line| !line.is_empty());
    lines.next().filter(|_| lines.next().is_none())
}

/// Rejects request heads that hyper accepts but that this server must reject (RFC 9112, 3.2, 3.2.3
/// and 6.1; RFC 9110, 4.2.4 and 9.3.6). If the request target is an absolute URL, also replaces the
/// Host header by the host in the target (RFC 9112, 3.2.2).
pub(crate) fn check(head: &mut Parts, has_body: bool) -> Result<(), Rejection> {
    let mut hosts = head.headers.get_all(HOST).iter();
    let is_fine = match (hosts.next(), hosts.next()) {
        (None, _) => head.version < http::Version::HTTP_11,
        (Some(_), Some(_)) => false,
        (Some(host), None) => is_host(host.as_bytes()),
    };
    if !is_fine {
        return Err(Rejection::Host);
    }
    if head.method == Method::CONNECT
        || (head.uri.scheme().is_none() && head.uri.authority().is_some())
    {
        return Err(Rejection::Target);
    }
    if head.uri.scheme().is_some() {
        take_host(head)?;
    } else if !names_path(head) {
        return Err(Rejection::Target);
    }
    if has_body { check_coding(&head.headers) } else { Ok(()) }
}

/// Returns true if a request target without a host is valid: if it begins with a path, or is the
/// `*` of an OPTIONS request (RFC 9112, 3.2.1 and 3.2.4).
fn names_path(head: &Parts) -> bool {
    // The `http` crate also accepts a query without a path, and `*` with other methods.
    let target = head.uri.path_and_query().map_or("", |target| target.as_str());
    target.starts_with('/') || (target == "*" && head.method == Method::OPTIONS)
}

/// Replaces the Host header by the host in the request target, because proxies route requests by
/// the target. An application that used a different Host could be tricked into serving another
/// site.
fn take_host(head: &mut Parts) -> Result<(), Rejection> {
    let authority = head.uri.authority().map(http::uri::Authority::as_str);
    let host = authority.filter(|host| is_host(host.as_bytes()) && !host.starts_with(':'));
    let value = host.and_then(|host| HeaderValue::from_str(host).ok()).ok_or(Rejection::Target)?;
    head.headers.insert(HOST, value);
    Ok(())
}

/// Checks the transfer codings of a request body: only `chunked` is accepted, and only once. hyper
/// has already rejected request bodies whose last coding is not `chunked`.
fn check_coding(headers: &HeaderMap) -> Result<(), Rejection> {
    let lines = headers.get_all(TRANSFER_ENCODING);
    let codings = || {
        let items = lines.iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
        items.map(<[u8]>::trim_ascii).filter(|coding| !coding.is_empty())
    };
    let is_chunked = |coding: &[u8]| {
        let name = coding.split(|byte| *byte == b';').next().unwrap_or_default();
        name.trim_ascii_end().eq_ignore_ascii_case(b"chunked")
    };
    match (codings().filter(|coding| is_chunked(coding)).count(), codings().count()) {
        (2.., _) => Err(Rejection::BodyUnreadable),
        (chunked, all) if chunked < all => Err(Rejection::TransferCoding),
        _ => Ok(()),
    }
}

/// Returns true if the value of a Host header is valid: empty, or a host with an optional port (RFC
/// 9110, 7.2; RFC 3986, 3.2.2 and 3.2.3).
pub(crate) fn is_host(value: &[u8]) -> bool {
    let (is_fine, port) = if let Some(literal) = value.strip_prefix(b"[") {
        // The address within the brackets is not parsed. It is enough that it cannot be mistaken
        // for anything else.
        let Some(end) = literal.iter().position(|byte| *byte == b']') else { return false };
        let is_fine =
            end > 0 && literal[..end].iter().all(|byte| is_host_byte(*byte) || *byte == b':');
        (is_fine, &literal[end + 1..])
    } else {
        let end = value.iter().position(|byte| !is_host_byte(*byte)).unwrap_or(value.len());
        (has_whole_escapes(&value[..end]), &value[end..])
    };
    is_fine && (port.is_empty() || (port[0] == b':' && port[1..].iter().all(u8::is_ascii_digit)))
}

/// Returns true if the Host header contains a host name and not an IP address (RFC 6797, 8.1.1).
pub(crate) fn names_host(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.split(':').next().unwrap_or_default();
    !name.is_empty() && !name.starts_with('[') && name.parse::<Ipv4Addr>().is_err()
}

/// Returns true if a valid Host header contains `localhost` or a name below it, an IP address, or
/// one of `names`. In an attack by DNS rebinding, the header contains a name of the attacker. A
/// request without the header is not from a browser.
fn names_this_server(headers: &HeaderMap, names: &[String]) -> bool {
    let Some(host) = headers.get(HOST) else { return true };
    let Ok(host) = host.to_str() else { return false };
    if let Some((address, _)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let name = host.split(':').next().unwrap_or_default();
    let name = name.strip_suffix('.').unwrap_or(name).as_bytes();
    let is = |pattern: &str| match pattern.strip_prefix('*') {
        Some(end) => {
            name.len() > end.len()
                && name[name.len() - end.len()..].eq_ignore_ascii_case(end.as_bytes())
        }
        None => name.eq_ignore_ascii_case(pattern.as_bytes()),
    };
    is("localhost")
        || is("*.localhost")
        || std::str::from_utf8(name).is_ok_and(|name| name.parse::<Ipv4Addr>().is_ok())
        || names.iter().any(|name| is(name))
}

/// Rejects a request for a host name that is not among `names`, the names of the server.
pub(crate) fn check_host_name(
    headers: &HeaderMap,
    names: Option<&[String]>,
) -> Result<(), Rejection> {
    match names {
        Some(names) if !names_this_server(headers, names) => Err(Rejection::ForeignHost),
        _ => Ok(()),
    }
}

/// Returns true if a byte may occur in a Host header: `unreserved`, `sub-delims`, and the `%` of
/// `pct-encoded` (RFC 3986).
fn is_host_byte(byte: u8) -> bool {
    const MARKS: &[u8] = b"-._~!$&'()*+,;=%";
    const TABLE: [bool; 256] = {
        let mut table = [false; 256];
        let mut at = 0;
        while at < 256 {
            table[at] = (at as u8).is_ascii_alphanumeric();
            at += 1;
        }
        at = 0;
        while at < MARKS.len() {
            table[MARKS[at] as usize] = true;
            at += 1;
        }
        table
    };
    TABLE[usize::from(byte)]
}

/// Returns true if each `%` in a host is followed by two hexadecimal digits.
fn has_whole_escapes(host: &[u8]) -> bool {
    !host.contains(&b'%')
        || host.split(|byte| *byte == b'%').skip(1).all(|part| {
            part.len() >= 2 && part[0].is_ascii_hexdigit() && part[1].is_ascii_hexdigit()
        })
}

/// Returns true if a header value that is a comma-separated list contains `token`. Case is ignored.
pub(crate) fn has_token(list: &[u8], token: &[u8]) -> bool {
    list.split(|byte| *byte == b',').any(|item| item.trim_ascii().eq_ignore_ascii_case(token))
}

/// Copies the head of a request into its exchange, which the application reads. Leaves out the
/// client's identity headers unless `keeps_identity` is true.
pub(crate) fn fill(
    exchange: &mut Exchange,
    head: &Parts,
    ends: ConnectionAddresses,
    is_upgrade: bool,
    keeps_identity: bool,
) {
    let version =
        if head.version == http::Version::HTTP_10 { Version::Http10 } else { Version::Http11 };
    let method = head.method.as_str().as_bytes();
    // The absolute form keeps its scheme and authority, as in httpuv. Only clients of proxies send
    // it.
    let absolute = head.uri.scheme().map(|_| head.uri.to_string());
    let origin_form = || head.uri.path_and_query().map_or("/", |target| target.as_str());
    let target = absolute.as_deref().unwrap_or_else(origin_form);
    exchange.set_request_line(method, target.as_bytes(), version);
    for (name, value) in &head.headers {
        let name = name.as_str().as_bytes();
        if !is_removed(name, keeps_identity) {
            exchange.push_header(name, value.as_bytes());
        }
    }
    exchange.end_head(ends.remote, ends.local, is_upgrade);
}

/// Returns true if the application does not see the header with this lower-case name.
fn is_removed(name: &[u8], keeps_identity: bool) -> bool {
    // Most names have none of these lengths.
    match name.len() {
        // No standard defines this header, but CGI programs take it for a proxy's address
        // (httpoxy).
        5 => name == b"proxy",
        // Shiny takes the user and the groups of a session, and the proof that a request comes from
        // the front end that authenticates users, from these headers.
        19 => !keeps_identity && is_spelling(name, b"shiny-shared-secret"),
        24 => !keeps_identity && is_spelling(name, b"shiny-server-credentials"),
        _ => false,
    }
}

/// Returns true if two names are equal when `_` and `-` count as the same character, as in the CGI
/// names of headers.
fn is_spelling(name: &[u8], of: &[u8]) -> bool {
    name.iter().zip(of).all(|(a, b)| a == b || (*a == b'_' && *b == b'-'))
}

/// Returns true if the client used HTTPS. If `is_trusted` is true, the peer is a trusted proxy, and
/// the last value of its `X-Forwarded-Proto` header decides. (Earlier values may come from the
/// proxy's client.) Otherwise returns `is_own`, which is true if this connection uses TLS.
pub(crate) fn used_https(headers: &HeaderMap, is_own: bool, is_trusted: bool) -> bool {
    if !is_trusted {
        return is_own;
    }
    let last = headers.get_all("x-forwarded-proto").iter().next_back();
    let scheme = last.and_then(|value| value.as_bytes().rsplit(|byte| *byte == b',').next());
    // Some proxies send `wss` for a WebSocket.
    let is_secure = |scheme: &[u8]| {
        scheme.eq_ignore_ascii_case(b"https") || scheme.eq_ignore_ascii_case(b"wss")
    };
    scheme.map_or(is_own, |scheme| is_secure(scheme.trim_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_tokens_in_lists_ignoring_case() {
        for (list, expected) in [
            ("close", true),
            ("Close", true),
            ("keep-alive, close", true),
            ("closed", false),
            ("", false),
        ] {
            assert_eq!(has_token(list.as_bytes(), b"close"), expected, "{list}");
        }
    }

    #[test]
    fn trusted_proxy_determines_the_scheme() {
        let headers = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("x-forwarded-proto", HeaderValue::from_static(value));
            }
            headers
        };
        for (values, is_own, is_trusted, expected) in [
            (&["https"][..], false, false, false),
            (&["http"], true, false, true),
            (&["https"], false, true, true),
            (&["HTTPS"], false, true, true),
            (&["http"], true, true, false),
            (&["https, http"], true, true, false),
            (&["https", "http"], true, true, false),
            (&["http", "https"], false, true, true),
            (&["wss"], false, true, true),
            (&["ws"], true, true, false),
            (&[], true, true, true),
            (&[], false, true, false),
        ] {
            assert_eq!(used_https(&headers(values), is_own, is_trusted), expected, "{values:?}");
        }
    }

    #[test]
    fn removes_identity_headers_in_all_spellings() {
        for (name, is_identity) in [
            ("shiny-server-credentials", true),
            ("shiny_server_credentials", true),
            ("shiny-server_credentials", true),
            ("shiny-shared-secret", true),
            ("shiny_shared-secret", true),
            ("shiny_shared_secret", true),
            ("shiny-shared-secrets", false),
            ("shiny-shared.secret", false),
            ("shiny-server-credential", false),
            ("x-shiny-server-credentials", false),
            ("sec-websocket-protocol", false),
            ("if-unmodified-since", false),
        ] {
            assert_eq!(is_removed(name.as_bytes(), false), is_identity, "{name}");
            assert!(!is_removed(name.as_bytes(), true), "{name}");
        }
        assert!(is_removed(b"proxy", true) && is_removed(b"proxy", false));
    }

    #[test]
    fn distinguishes_host_names_from_addresses() {
        for (host, expected) in [
            ("a.example", true),
            ("localhost:8443", true),
            ("1.2.3.4.example", true),
            ("192.0.2.1", false),
            ("192.0.2.1:443", false),
            ("[::1]", false),
            ("[2001:db8::1]:443", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))]);
            assert_eq!(names_host(&headers), expected, "{host}");
        }
        assert!(!names_host(&HeaderMap::new()));
    }

    #[test]
    fn only_names_of_the_server_are_accepted() {
        let names = ["box".to_owned(), "*.tunnel.example".to_owned()];
        for (host, expected) in [
            ("localhost", true),
            ("LocalHost:8000", true),
            ("localhost.", true),
            ("app.localhost", true),
            ("127.0.0.1:8000", true),
            ("192.0.2.1", true),
            ("[::1]:8000", true),
            ("box:8000", true),
            ("BOX", true),
            ("a.tunnel.example", true),
            ("tunnel.example", false),
            (".tunnel.example", false),
            ("evil.example", false),
            ("box.evil.example", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("notlocalhost", false),
            ("evil-box", false),
            ("[evil.example]", false),
            ("", false),
            (":8000", false),
        ] {
            let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))]);
            let checked = check_host_name(&headers, Some(&names));
            assert_eq!(checked.is_ok(), expected, "{host}");
            assert_eq!(check_host_name(&headers, None), Ok(()));
        }
        assert_eq!(check_host_name(&HeaderMap::new(), Some(&names)), Ok(()));
    }

    #[test]
    fn requires_exactly_one_host_header() {
        let head = |version, hosts: &[&str]| {
            let mut request = http::Request::builder().version(version).uri("/");
            for host in hosts {
                request = request.header(HOST, *host);
            }
            request.body(()).unwrap().into_parts().0
        };
        for (version, hosts, expected) in [
            (http::Version::HTTP_11, &["a"][..], Ok(())),
            (http::Version::HTTP_11, &[], Err(Rejection::Host)),
            (http::Version::HTTP_11, &["a", "a"], Err(Rejection::Host)),
            (http::Version::HTTP_10, &[], Ok(())),
            (http::Version::HTTP_10, &["a", "b"], Err(Rejection::Host)),
        ] {
            assert_eq!(check(&mut head(version, hosts), false), expected, "{version:?} {hosts:?}");
        }
    }

    #[test]
    fn requires_a_path_in_the_target() {
        for (method, target, expected) in [
            ("GET", "/", Ok(())),
            ("GET", "/?x", Ok(())),
            ("GET", "http://a?x", Ok(())),
            ("OPTIONS", "*", Ok(())),
            ("GET", "*", Err(Rejection::Target)),
            ("GET", "?x", Err(Rejection::Target)),
            ("GET", "a", Err(Rejection::Target)),
        ] {
            // h2 accepts only a path. Over HTTP/1.1, hyper already rejects some of these targets.
            let path = http::uri::PathAndQuery::try_from(target).map(http::Uri::from);
            let uri = path.unwrap_or_else(|_| target.parse().unwrap());
            let request = http::Request::builder().method(method).uri(uri).header(HOST, "a");
            let mut head = request.body(()).unwrap().into_parts().0;
            assert_eq!(check(&mut head, false), expected, "{method} {target}");
        }
    }
}
