//! Apps that keep something for each client, as Shiny does for its sessions: which worker a request has to come to.

mod cookie;
mod keys;
mod url;

use rookery_exchange::Exchange;

pub(super) use cookie::{Cookie, Keys, Named, without_ours};
pub use keys::{CookieKeys, WrongKeys};
pub(super) use url::{Told, is_ours_alone, told};

use crate::roster::Standing;

/// Whether clients come back to the worker that they began with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sticky {
    /// Where the app asks for it: Shiny.
    #[default]
    Auto,
    /// They do not.
    None,
    /// They do, by a cookie.
    Cookie,
}

/// What a request is, as far as its way depends on that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    /// For a page, with which something new may begin.
    Page,
    /// To open a WebSocket.
    Socket,
    /// To open a WebSocket for a page that has lost one, with which a new session begins.
    Again,
    /// For something of one Shiny session, which only its R has.
    Session,
    /// For anything else.
    Other,
}

/// Where a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// To the worker that it names.
    There,
    /// To the worker with the fewest sessions; with a cookie for the next time, or not.
    Fewest { tells: bool },
    /// Nowhere: what it asks for has gone with its worker.
    Gone,
}

/// What a request asks for, of which its URL has `told` something.
pub(super) fn asks(exchange: &Exchange, is_shiny: bool, told: Told) -> Asks {
    if exchange.is_upgrade() {
        return if told == Told::Anew { Asks::Again } else { Asks::Socket };
    }
    if is_shiny && is_of_session(exchange.path()) {
        return Asks::Session;
    }
    let is_page = match exchange.header(b"sec-fetch-mode") {
        Some(mode) => mode == b"navigate",
        // A client that is no browser, or an old one.
        None => exchange.header(b"accept").is_none_or(|accept| {
            accept.split(|byte| *byte == b',').any(|range| {
                let kind = range.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
                kind.eq_ignore_ascii_case(b"text/html") || kind == b"*/*"
            })
        }),
    };
    if exchange.method() == b"GET" && is_page { Asks::Page } else { Asks::Other }
}

/// `session/` and a token in hexadecimal digits, as Shiny has it in the URLs of a session's downloads and uploads.
fn is_of_session(path: &[u8]) -> bool {
    let mut parts = path.split(|byte| *byte == b'/');
    parts.any(|part| part == b"session")
        && parts.next().is_some_and(|token| token.len() >= 16 && token.iter().all(u8::is_ascii_hexdigit))
}

/// Where a request goes that names a worker with this standing; `None`: it names none, or one that has ended.
pub(super) fn way(asks: Asks, named: Option<Standing>) -> Way {
    match (asks, named) {
        (_, Some(Standing::Ready)) => Way::There,
        // What it has begun it finishes; something new begins elsewhere.
        (Asks::Page | Asks::Again, _) => Way::Fewest { tells: true },
        (_, Some(Standing::Draining | Standing::Suspended)) => Way::There,
        // Shiny's client begins a new session.
        (Asks::Socket, _) => Way::Fewest { tells: true },
        (Asks::Session, _) => Way::Gone,
        (Asks::Other, _) => Way::Fewest { tells: false },
    }
}

#[cfg(test)]
mod tests {
    use rookery_exchange::Version;

    use super::*;

    fn of(method: &str, path: &str, headers: &[(&str, &str)], is_upgrade: bool) -> Asks {
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
            ("GET", "/", &[html][..], Asks::Page),
            ("GET", "/", &[], Asks::Page),
            ("GET", "/", &[("accept", "*/*")], Asks::Page),
            ("GET", "/", &[("accept", "image/png"), ("sec-fetch-mode", "navigate")], Asks::Page),
            ("GET", "/app.css", &[("accept", "*/*"), ("sec-fetch-mode", "no-cors")], Asks::Other),
            ("GET", "/x.json", &[("accept", "application/json")], Asks::Other),
            ("POST", "/", &[html], Asks::Other),
            ("GET", "/session/0123456789abcdef0123456789abcdef/download/x?w=", &[html], Asks::Session),
            ("POST", "/app/session/0123456789abcdef0123456789abcdef/upload/x", &[], Asks::Session),
            ("GET", "/session/list", &[html], Asks::Page),
            ("GET", "/session", &[html], Asks::Page),
        ] {
            assert_eq!(of(method, path, headers, false), expected, "{method} {path}");
        }
        assert_eq!(of("GET", "/websocket/", &[], true), Asks::Socket);
        assert_eq!(of("GET", "/websocket/?w=00112233445566778899aabbccddeeff", &[], true), Asks::Socket);
        assert_eq!(of("GET", "/websocket/?w=", &[], true), Asks::Again);
        assert_eq!(of("GET", "/?w=", &[], false), Asks::Page);
    }

    #[test]
    fn the_table_of_ways() {
        use Standing::{Draining, Ready, Suspended};
        let fewest = |tells| Way::Fewest { tells };
        for (asks, ready, draining, suspended, none) in [
            (Asks::Page, Way::There, fewest(true), fewest(true), fewest(true)),
            (Asks::Again, Way::There, fewest(true), fewest(true), fewest(true)),
            (Asks::Socket, Way::There, Way::There, Way::There, fewest(true)),
            (Asks::Session, Way::There, Way::There, Way::There, Way::Gone),
            (Asks::Other, Way::There, Way::There, Way::There, fewest(false)),
        ] {
            assert_eq!(way(asks, Some(Ready)), ready, "{asks:?}");
            assert_eq!(way(asks, Some(Draining)), draining, "{asks:?}");
            assert_eq!(way(asks, Some(Suspended)), suspended, "{asks:?}");
            assert_eq!(way(asks, None), none, "{asks:?}");
        }
    }
}
