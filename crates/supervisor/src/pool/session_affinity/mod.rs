//! Apps that keep something for each client, as Shiny does for its sessions: which worker a request has to come to.

mod cookie;
mod url;

use rookery_exchange::Exchange;

pub use cookie::server_name;
pub(super) use cookie::{Cookie, CookieTarget, Keys};
pub(super) use rookery_server::session_cookie::CookieNames as Names;
pub(super) use url::{UrlAffinity, is_ours_alone, told};

/// Whether clients come back to the worker that they began with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SessionAffinity {
    /// Where the app asks for it: Shiny.
    #[default]
    Auto,
    /// They do not.
    None,
    /// They do, by a cookie.
    Cookie,
}

/// The kind of a request, as far as routing depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// For a page, with which something new may begin.
    Page,
    /// For what may be a page: a GET of a program that says nothing of what it takes.
    Undeclared,
    /// To open a WebSocket.
    WebSocket,
    /// To open a WebSocket for a page that has lost one, with which a new session begins.
    Reconnect,
    /// For something of one Shiny session, which only its R has.
    SessionResource,
    /// For anything else.
    Other,
}

/// How the worker that a request names can handle the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AffinityState {
    /// The worker answers requests.
    Ready,
    /// The worker's R process has been busy with one task for longer than a request may wait.
    Stuck,
    /// The worker is draining: it finishes what it has begun.
    Draining,
    /// The worker does not answer.
    Suspended,
}

/// Where a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination {
    /// To the worker that it names.
    NamedBackend,
    /// To a worker that is free, with a cookie for the next time.
    AnyBackend,
    /// Nowhere: what it asks for has gone with its worker.
    NotFound,
}

/// What a request asks for, of which its URL has `told` something.
pub(super) fn asks(exchange: &Exchange, is_shiny: bool, told: UrlAffinity) -> RequestKind {
    if exchange.is_upgrade() {
        return if told == UrlAffinity::NewSession {
            RequestKind::Reconnect
        } else {
            RequestKind::WebSocket
        };
    }
    if is_shiny && is_of_session(exchange.path()) {
        return RequestKind::SessionResource;
    }
    if exchange.method() != b"GET" {
        return RequestKind::Other;
    }
    if let Some(mode) = exchange.header(b"sec-fetch-mode") {
        return if mode == b"navigate" { RequestKind::Page } else { RequestKind::Other };
    }
    // Browsers that are not on HTTPS send no `Sec-Fetch-Mode`. They name HTML for a page, and `*/*` for what
    // belongs to it, as most programs do.
    match exchange.header(b"accept") {
        None => RequestKind::Undeclared,
        Some(accept) if names_html(accept) => RequestKind::Page,
        Some(_) => RequestKind::Other,
    }
}

fn names_html(accept: &[u8]) -> bool {
    accept.split(|byte| *byte == b',').any(|range| {
        let kind = range.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        [&b"text/html"[..], b"application/xhtml+xml"]
            .iter()
            .any(|html| kind.eq_ignore_ascii_case(html))
    })
}

/// Returns true if a session begins with such a request, where its worker is new to the client.
pub(super) fn begins(asks: RequestKind) -> bool {
    matches!(asks, RequestKind::Page | RequestKind::Undeclared | RequestKind::WebSocket)
}

/// Returns true if another worker may serve such a request when its own does not begin it.
pub(super) fn may_move(asks: RequestKind) -> bool {
    way(asks, Some(AffinityState::Stuck)) == Destination::AnyBackend
}

/// `session/` and a token in hexadecimal digits, as Shiny has it in the URLs of a session's downloads and uploads.
fn is_of_session(path: &[u8]) -> bool {
    let mut parts = path.split(|byte| *byte == b'/');
    parts.any(|part| part == b"session")
        && parts
            .next()
            .is_some_and(|token| token.len() >= 16 && token.iter().all(u8::is_ascii_hexdigit))
}

/// Returns where a request goes that names a worker with this bond; `None`: it names none, or one that has
/// ended.
pub(super) fn way(asks: RequestKind, named: Option<AffinityState>) -> Destination {
    match (asks, named) {
        (_, Some(AffinityState::Ready)) => Destination::NamedBackend,
        // What a worker has begun it finishes; a new page or session begins elsewhere.
        (RequestKind::Page | RequestKind::Reconnect, _)
        | (RequestKind::Undeclared, Some(AffinityState::Stuck | AffinityState::Suspended))
        // With a WebSocket, Shiny's client begins a new session.
        | (RequestKind::WebSocket | RequestKind::Undeclared | RequestKind::Other, None) => Destination::AnyBackend,
        (_, Some(AffinityState::Draining | AffinityState::Stuck | AffinityState::Suspended)) => Destination::NamedBackend,
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
        asks(&exchange, true, told(exchange.query()))
    }

    #[test]
    fn what_a_request_asks_for() {
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
    fn only_pages_leave_a_worker_that_is_stuck_and_only_declared_ones_a_worker_that_drains() {
        use Destination::{AnyBackend, NamedBackend, NotFound};
        let bonds = [
            AffinityState::Ready,
            AffinityState::Stuck,
            AffinityState::Draining,
            AffinityState::Suspended,
        ];
        for (asks, named, none) in [
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
            for (bond, expected) in bonds.into_iter().zip(named) {
                assert_eq!(way(asks, Some(bond)), expected, "{asks:?} {bond:?}");
            }
            assert_eq!(way(asks, None), none, "{asks:?}");
            assert_eq!(may_move(asks), named[1] == AnyBackend, "{asks:?}");
        }
    }
}
