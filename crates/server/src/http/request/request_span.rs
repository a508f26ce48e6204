//! The SERVER span of a request, with the attributes of OpenTelemetry's conventions for HTTP.

use std::net::SocketAddr;
use std::sync::Arc;

use http::header::{HOST, USER_AGENT};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};
use rookery_exchange::{
    StreamEnd, TraceContext, is_secret_name, is_trace_state, write_masked, write_masked_query,
};
use rookery_trace::{Kind, Parent, Span, Tracer};
use rookery_worker_protocol::RouteName;

use crate::http::request::head;

/// The maximum number of bytes of a path, query or user agent in a span.
const MAX_TEXT: usize = 2048;

/// The text that replaces a secret in a query, as the conventions have it.
const REDACTED: &str = "REDACTED";

/// The texts before the name of a parameter in a URL that is the value of a parameter, in lower
/// case.
const SEPARATORS: [&str; 8] = ["&", ";", "?", "#", "%26", "%3b", "%3f", "%23"];

/// How many times a URL in a value may be percent-encoded so that its parameters are recognised.
const MAX_ENCODINGS: usize = 4;

/// Returns true if the client's `tracestate` header is passed on: if it is valid and belongs to a
/// valid `traceparent`.
pub(crate) fn keeps_trace_state(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(&head::TRACESTATE).iter();
    match (lines.next(), lines.next()) {
        (None, _) => true,
        (Some(line), None) => {
            head::trace_context(headers).is_some() && is_trace_state(line.as_bytes())
        }
        (Some(_), Some(_)) => {
            let lines: Vec<_> =
                headers.get_all(&head::TRACESTATE).iter().map(HeaderValue::as_bytes).collect();
            head::trace_context(headers).is_some() && is_trace_state(&lines.join(&b','))
        }
    }
}

/// The client of a request, as a span describes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client {
    /// The address of the client, which a proxy may have named.
    pub(crate) address: Option<SocketAddr>,
    /// The peer of the connection, or `None` if its address is not known.
    pub(crate) peer: Option<SocketAddr>,
    /// True if the client used HTTPS.
    pub(crate) is_https: bool,
}

/// The SERVER span of a request that is not complete yet.
#[derive(Debug)]
pub(crate) struct RequestSpan {
    tracer: Arc<Tracer>,
    span: Span,
    status: u16,
    aborted: Option<StreamEnd>,
}

impl RequestSpan {
    /// Begins the span of a request whose head has been read. Boxed, because only few requests are
    /// recorded.
    pub(crate) fn begin(
        tracer: &Arc<Tracer>,
        context: TraceContext,
        head: &Parts,
        client: &Client,
    ) -> Box<RequestSpan> {
        let method = known_method(&head.method);
        let parent = head::trace_context(&head.headers);
        let parent = parent.map(|it| Parent { span_id: it.span_id, is_remote: true });
        let mut span = Span::begin(method.unwrap_or("HTTP"), Kind::Server, context, parent);
        span.set_text("http.request.method", method.unwrap_or("_OTHER"));
        if method.is_none() {
            span.set_text("http.request.method_original", cut(head.method.as_str()));
        }
        span.set_text("url.path", &masked(head.uri.path(), write_masked));
        if let Some(query) = head.uri.query().filter(|query| !query.is_empty()) {
            span.set_text("url.query", &redacted(query));
        }
        span.set_text("url.scheme", if client.is_https { "https" } else { "http" });
        span.set_text(
            "network.protocol.version",
            match head.version {
                http::Version::HTTP_10 => "1.0",
                http::Version::HTTP_2 => "2",
                _ => "1.1",
            },
        );
        if let Some(address) = client.address {
            span.set_text("client.address", &address.ip().to_string());
        }
        if let Some(peer) = client.peer {
            span.set_text("network.peer.address", &peer.ip().to_string());
            span.set_number("network.peer.port", peer.port().into());
        }
        let header = |name| head.headers.get(name).and_then(|value| value.to_str().ok());
        // An absolute URI takes precedence over the Host header (RFC 9112, 3.2.2).
        let authority = head.uri.authority().map(http::uri::Authority::as_str);
        let authority = authority.and_then(|it| it.rsplit('@').next());
        if let Some((host, port)) = authority.or_else(|| header(HOST)).and_then(host_and_port) {
            span.set_text("server.address", cut(host));
            let default = if client.is_https { 443 } else { 80 };
            span.set_number("server.port", port.unwrap_or(default).into());
        }
        if let Some(agent) = header(USER_AGENT) {
            span.set_text("user_agent.original", cut(agent));
        }
        if keeps_trace_state(&head.headers) {
            let mut lines = head.headers.get_all(&head::TRACESTATE).iter();
            if let (Some(line), None) = (lines.next(), lines.next()) {
                span.set_trace_state(line.as_bytes());
            }
        }
        let tracer = Arc::clone(tracer);
        Box::new(RequestSpan { tracer, span, status: 0, aborted: None })
    }

    /// Names the span after the route that the application has set, if it has set one.
    pub(crate) fn set_route(&mut self, route: &[u8]) {
        let route = RouteName::of_pattern(route);
        if !route.as_bytes().is_empty() {
            self.span.set_route(&String::from_utf8_lossy(route.as_bytes()));
        }
    }

    pub(crate) fn set_status(&mut self, status: u16) {
        self.status = status;
    }

    /// Records that the response is incomplete, and why.
    pub(crate) fn abort(&mut self, reason: StreamEnd) {
        self.aborted = Some(reason);
    }

    /// Ends the span.
    pub(crate) fn end(mut self) {
        if self.status != 0 {
            self.span.set_number("http.response.status_code", self.status.into());
        }
        match self.aborted {
            // A client that leaves is no error of the server.
            None | Some(StreamEnd::Client | StreamEnd::Done | StreamEnd::Stop) => {
                if self.status >= 500 {
                    self.span.set_error(&self.status.to_string());
                }
            }
            Some(reason) => self.span.set_error(reason.name()),
        }
        self.tracer.end(self.span);
    }
}

/// Returns the name of a method that the conventions list, so that clients cannot make up names of
/// spans.
fn known_method(method: &Method) -> Option<&'static str> {
    const KNOWN: [&str; 10] =
        ["GET", "POST", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "QUERY"];
    KNOWN.into_iter().find(|known| *known == method.as_str())
}

/// Returns the host in a Host header without brackets, and the port if there is one.
fn host_and_port(value: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match value.strip_prefix('[') {
        Some(literal) => {
            let (host, port) = literal.split_once(']')?;
            (host, port.strip_prefix(':'))
        }
        None => value.split_once(':').map_or((value, None), |(host, port)| (host, Some(port))),
    };
    (!host.is_empty()).then(|| (host, port.and_then(|port| port.parse().ok())))
}

fn cut(text: &str) -> &str {
    let most = text.len().min(MAX_TEXT);
    let end = (0..=most).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

/// Returns a part of the target, in which `write` masks the secrets as in the access log.
fn masked(part: &str, write: fn(&[u8], usize, &mut Vec<u8>)) -> String {
    let mut bytes = Vec::with_capacity(part.len().min(MAX_TEXT));
    write(part.as_bytes(), MAX_TEXT, &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the query, in which the values of secret parameters are replaced.
fn redacted(query: &str) -> String {
    let mut out = String::with_capacity(query.len().min(MAX_TEXT));
    // Some applications separate parameters by semicolons.
    for part in masked(query, write_masked_query).split_inclusive(['&', ';']) {
        let item = part.trim_end_matches(['&', ';']);
        match item.split_once('=') {
            Some((name, value)) if is_secret(name) || has_secret(value) => {
                out.push_str(name);
                out.push('=');
                out.push_str(REDACTED);
            }
            _ => out.push_str(item),
        }
        out.push_str(&part[item.len()..]);
    }
    out
}

/// Returns true if the value of a query parameter contains a parameter that is a secret, such as
/// the URL of a redirect does.
fn has_secret(value: &str) -> bool {
    if !value.contains(['=', '%']) {
        return false;
    }
    let mut value = value.to_ascii_lowercase();
    for _ in 1..MAX_ENCODINGS {
        value = value.replace("%25", "%");
    }
    let value = value.replace("%3d", "=");
    let mut names: Vec<_> = value.split('=').collect();
    // The text after the last `=` is no name.
    names.pop();
    names.into_iter().any(|text| {
        let start = |separator: &&str| text.rfind(separator).map(|at| at + separator.len());
        is_secret(&text[SEPARATORS.iter().filter_map(start).max().unwrap_or(0)..])
    })
}

/// Returns true if the value of a query parameter is a secret. A name with percent codes is one in
/// any case, because it could be any name.
fn is_secret(name: &str) -> bool {
    name.contains('%') || is_secret_name(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_a_query_are_redacted() {
        for (query, expected) in [
            ("a=b&c=d", "a=b&c=d"),
            (
                "Signature=x&sig=y&AWSAccessKeyId=z&X-Goog-Signature=w",
                "Signature=REDACTED&sig=REDACTED&AWSAccessKeyId=REDACTED&X-Goog-Signature=REDACTED",
            ),
            ("access_token=x&Password=y&q=z", "access_token=REDACTED&Password=REDACTED&q=z"),
            ("code=x&zipcode=1", "code=REDACTED&zipcode=1"),
            ("%74oken=x", "%74oken=REDACTED"),
            ("token", "token"),
            ("token=a=b", "token=REDACTED"),
            ("w=0123456789abcdef0123", "w=<...>"),
            // Whether a semicolon belongs to the secret is unknown.
            ("a=1;token=x;b=2&&sid=y;", "a=1;token=REDACTED&&sid=REDACTED"),
            (
                "ticket=a&SAMLResponse=b&client_assertion=c",
                "ticket=REDACTED&SAMLResponse=REDACTED&client_assertion=REDACTED",
            ),
            ("to=https%3A%2F%2Fa%2F%3Fq%3D1%26token%3Dx&b=1", "to=REDACTED&b=1"),
            ("to=%2Fa%23access_token%3dx", "to=REDACTED"),
            ("to=%252Fa%253Fcode%253Dx", "to=REDACTED"),
            ("to=/a?code=x", "to=REDACTED"),
            ("to=%2Fa%3Fpage%3D1", "to=%2Fa%3Fpage%3D1"),
            ("to=/token/a%20b", "to=/token/a%20b"),
        ] {
            assert_eq!(redacted(query), expected, "{query}");
        }
        assert_eq!(redacted(&"x".repeat(5000)).len(), MAX_TEXT);
        assert_eq!(
            masked("/session/0123456789abcdef0123456789abcdef/x", write_masked),
            "/session/<...>/x"
        );
    }

    #[test]
    fn host_headers_are_divided() {
        for (value, expected) in [
            ("a.example", Some(("a.example", None))),
            ("a:8080", Some(("a", Some(8080)))),
            ("a:", Some(("a", None))),
            ("[::1]:80", Some(("::1", Some(80)))),
            ("[::1]", Some(("::1", None))),
            ("", None),
            ("[::1", None),
        ] {
            assert_eq!(host_and_port(value), expected, "{value}");
        }
        assert_eq!(cut(&"\u{e9}".repeat(MAX_TEXT)).len(), MAX_TEXT);
    }
}
