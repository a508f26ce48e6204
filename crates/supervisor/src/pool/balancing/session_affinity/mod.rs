//! Session affinity, which sends all requests of a session to the same worker. Apps such as Shiny
//! need it, because they keep the state of a session in one R process.

mod cookie;
mod names;
mod url;

use rookery_exchange::Exchange;

pub use cookie::server_name;
pub(in crate::pool) use cookie::{Cookie, CookieTarget, Keys};
pub(in crate::pool) use names::Names;
pub(in crate::pool) use url::{UrlAffinity, is_only_affinity, read_query};

/// The setting that determines whether the requests of a session are sent to the same worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SessionAffinity {
    /// Session affinity is used only if the workers report that their app has sessions, as Shiny
    /// apps have.
    #[default]
    Auto,
    /// Session affinity is not used: any worker may get a request of a session.
    None,
    /// Session affinity is always used, by means of a cookie.
    Cookie,
}

/// The kind of a request, as far as it matters for session affinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) enum RequestKind {
    /// A request for a page. A new session may begin with it.
    Page,
    /// A GET request without an `Accept` header, as some programs send it. It may or may not be for
    /// a page.
    Undeclared,
    /// The opening handshake of any WebSocket other than one with which a page
    /// [reconnects](Self::Reconnect).
    WebSocket,
    /// The opening handshake of a WebSocket with which a page reconnects after it has lost its
    /// previous WebSocket. It begins a new session.
    Reconnect,
    /// A request for a resource of one Shiny session. Only the R process of that session has the
    /// resource.
    SessionResource,
    /// A request that is not for a page, a WebSocket or a resource of a Shiny session.
    Other,
}

/// The state of the worker that a request names in its cookie or URL. It determines whether the
/// worker can process the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) enum AffinityState {
    /// The worker is ready and can process the request.
    Ready,
    /// The worker's R process has been busy with one task for longer than a request may wait.
    Stuck,
    /// The worker is draining: it finishes the requests and sessions that it has begun.
    Draining,
    /// The worker does not respond.
    Suspended,
}

/// The destination of a request if session affinity is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) enum Destination {
    /// The worker that the request names in its cookie or URL.
    NamedBackend,
    /// Any free worker. The response gets a cookie that names the chosen worker, so that the
    /// client's further requests are sent there too.
    AnyBackend,
    /// No worker, because the requested resource belonged to a worker that has ended. The client
    /// gets 404.
    NotFound,
}

/// Returns the kind of a request for session affinity. `url` is the result of reading the `w=`
/// parameter of the request's URL.
pub(in crate::pool) fn classify(
    exchange: &Exchange,
    is_shiny: bool,
    url: UrlAffinity,
) -> RequestKind {
    if exchange.is_upgrade() {
        return if url == UrlAffinity::NewSession {
            RequestKind::Reconnect
        } else {
            RequestKind::WebSocket
        };
    }
    if is_shiny && is_session_path(exchange.path()) {
        return RequestKind::SessionResource;
    }
    if exchange.method() != b"GET" {
        return RequestKind::Other;
    }
    if let Some(mode) = exchange.header(b"sec-fetch-mode") {
        return if mode == b"navigate" { RequestKind::Page } else { RequestKind::Other };
    }
    // Browsers send no `Sec-Fetch-Mode` over plaintext HTTP. Their `Accept` header contains HTML
    // for a page, and `*/*` for resources of a page. Most programs send `*/*` too.
    match exchange.header(b"accept") {
        None => RequestKind::Undeclared,
        Some(accept) if names_html(accept) => RequestKind::Page,
        Some(_) => RequestKind::Other,
    }
}

/// Returns true if an `Accept` header includes HTML.
fn names_html(accept: &[u8]) -> bool {
    accept.split(|byte| *byte == b',').any(|range| {
        let kind = range.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        [&b"text/html"[..], b"application/xhtml+xml"]
            .iter()
            .any(|html| kind.eq_ignore_ascii_case(html))
    })
}

/// Returns true if a request of this kind begins a new session when it is sent to any free worker.
pub(in crate::pool) fn begins_session(kind: RequestKind) -> bool {
    matches!(kind, RequestKind::Page | RequestKind::Undeclared | RequestKind::WebSocket)
}

/// Returns true if another worker may process a request of this kind when the worker that it names
/// is stuck.
pub(in crate::pool) fn may_move(kind: RequestKind) -> bool {
    destination(kind, Some(AffinityState::Stuck)) == Destination::AnyBackend
}

/// Returns true if a path contains `session/` followed by a token of hexadecimal digits. Shiny's
/// URLs for the downloads and uploads of a session have this form.
fn is_session_path(path: &[u8]) -> bool {
    let mut parts = path.split(|byte| *byte == b'/');
    parts.any(|part| part == b"session")
        && parts
            .next()
            .is_some_and(|token| token.len() >= 16 && token.iter().all(u8::is_ascii_hexdigit))
}

/// Returns the destination of a request with session affinity. `named` is the state of the worker
/// that the request names. It is `None` if the request names no worker or if that worker has ended.
pub(in crate::pool) fn destination(kind: RequestKind, named: Option<AffinityState>) -> Destination {
    match (kind, named) {
        (_, Some(AffinityState::Ready)) => Destination::NamedBackend,
        // A worker that is not ready keeps the sessions that it has. A new page or session begins
        // on another worker.
        (RequestKind::Page | RequestKind::Reconnect, _)
        | (RequestKind::Undeclared, Some(AffinityState::Stuck | AffinityState::Suspended))
        // Shiny's client begins a new session with a WebSocket.
        | (RequestKind::WebSocket | RequestKind::Undeclared | RequestKind::Other, None) => {
            Destination::AnyBackend
        }
        (_, Some(AffinityState::Draining | AffinityState::Stuck | AffinityState::Suspended)) => {
            Destination::NamedBackend
        }
        (RequestKind::SessionResource, None) => Destination::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use rookery_exchange::Version;

    use super::*;

    fn of(method: &str, path: &str, headers: &[(&str, &str)], is_upgrade: bool) -> RequestKind {
        let mut exchange = Exchange::new();
        exchange.begin(1, 1, 0);
        exchange.set_request_line(method.as_bytes(), path.as_bytes(), Version::Http11);
        for (name, value) in headers {
            exchange.push_header(name.as_bytes(), value.as_bytes());
        }
        exchange.end_head(None, None, is_upgrade);
        classify(&exchange, true, read_query(exchange.query()))
    }

    #[test]
    fn classifies_requests() {
        let html = ("accept", "text/html,application/xhtml+xml;q=0.9");
        for (method, path, headers, expected) in [
            ("GET", "/", &[html][..], RequestKind::Page),
            ("GET", "/", &[("accept", "application/xhtml+xml")], RequestKind::Page),
            ("GET", "/", &[], RequestKind::Undeclared),
            ("GET", "/", &[("accept", "*/*")], RequestKind::Other),
            (
                "GET",
                "/",
                &[("accept", "text/html"), ("sec-fetch-mode", "cors")],
                RequestKind::Other,
            ),
            ("HEAD", "/", &[html], RequestKind::Other),
            (
                "GET",
                "/",
                &[("accept", "image/png"), ("sec-fetch-mode", "navigate")],
                RequestKind::Page,
            ),
            (
                "GET",
                "/app.css",
                &[("accept", "*/*"), ("sec-fetch-mode", "no-cors")],
                RequestKind::Other,
            ),
            ("GET", "/x.json", &[("accept", "application/json")], RequestKind::Other),
            ("POST", "/", &[html], RequestKind::Other),
            (
                "GET",
                "/session/0123456789abcdef0123456789abcdef/download/x?w=",
                &[html],
                RequestKind::SessionResource,
            ),
            (
                "POST",
                "/app/session/0123456789abcdef0123456789abcdef/upload/x",
                &[],
                RequestKind::SessionResource,
            ),
            ("GET", "/session/list", &[html], RequestKind::Page),
            ("GET", "/session", &[html], RequestKind::Page),
        ] {
            assert_eq!(of(method, path, headers, false), expected, "{method} {path}");
        }
        assert_eq!(of("GET", "/websocket/", &[], true), RequestKind::WebSocket);
        assert_eq!(
            of("GET", "/websocket/?w=00112233445566778899aabbccddeeff", &[], true),
            RequestKind::WebSocket
        );
        assert_eq!(of("GET", "/websocket/?w=", &[], true), RequestKind::Reconnect);
        assert_eq!(of("GET", "/?w=", &[html], false), RequestKind::Page);
    }

    #[test]
    fn only_pages_leave_a_stuck_worker_and_only_declared_pages_leave_a_draining_worker() {
        use Destination::{AnyBackend, NamedBackend, NotFound};
        let states = [
            AffinityState::Ready,
            AffinityState::Stuck,
            AffinityState::Draining,
            AffinityState::Suspended,
        ];
        for (kind, named, none) in [
            (RequestKind::Page, [NamedBackend, AnyBackend, AnyBackend, AnyBackend], AnyBackend),
            (
                RequestKind::Reconnect,
                [NamedBackend, AnyBackend, AnyBackend, AnyBackend],
                AnyBackend,
            ),
            (
                RequestKind::Undeclared,
                [NamedBackend, AnyBackend, NamedBackend, AnyBackend],
                AnyBackend,
            ),
            (RequestKind::WebSocket, [NamedBackend; 4], AnyBackend),
            (RequestKind::SessionResource, [NamedBackend; 4], NotFound),
            (RequestKind::Other, [NamedBackend; 4], AnyBackend),
        ] {
            for (state, expected) in states.into_iter().zip(named) {
                assert_eq!(destination(kind, Some(state)), expected, "{kind:?} {state:?}");
            }
            assert_eq!(destination(kind, None), none, "{kind:?}");
            assert_eq!(may_move(kind), named[1] == AnyBackend, "{kind:?}");
        }
    }
}
