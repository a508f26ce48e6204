//! The access token, without which a browser gets neither the live page nor anything else that is
//! not meant for everyone who reaches the address.
//!
//! The URL that the server prints at its start contains the token. The first request with this URL
//! exchanges the token for a cookie, so the token appears in no bookmark and no `Referer` header. A
//! Unix socket needs no token, because the permissions of its file protect it.
//!
//! Browsers send a cookie to all ports of a host, and so to other servers there, for every URL
//! below the path of the cookie. The path of the live page's cookie is one that hardly any other
//! server has.
//!
//! Three checks keep out the web pages of strangers, which a browser on the same machine may run:
//!
//! - the `Host` header at a loopback address, against DNS rebinding ([`is_host_expected`]),
//! - `SameSite=Strict`, so that the pages of other sites send no cookie,
//! - `Sec-Fetch-Site` and `Origin` of requests that change something, because pages at another port
//!   of the same host belong to the same site. The rules are those of Go's
//!   `net/http.CrossOriginProtection`, except that a request without either header is refused.

use std::fmt::{self, Write as _};
use std::hint::black_box;
use std::net::IpAddr;

use ring::rand::{SecureRandom as _, SystemRandom};
use rookery_exchange::Exchange;
use rookery_server::cookies;

use crate::format::html_text;

/// The number of random bytes in a token.
const TOKEN_BYTES: usize = 24;

/// The name of the query parameter that contains the token.
const PARAMETER: &[u8] = b"token=";

/// The beginning of the cookie's name. The port follows, because browsers share cookies between all
/// ports of a host.
const COOKIE: &str = "rookery-token-";

/// A random secret that gives access to the pages below one path of a server, as long as the server
/// runs.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessToken {
    secret: String,
    /// The path below which browsers send the cookie.
    path: &'static str,
}

/// The decision about a request for something that needs the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// The client may have what it requests.
    Granted,
    /// The URL contains the token. The client gets the token as a cookie, and a page that leads to
    /// the same URL without the token.
    ///
    /// The response is a page with status 200 and not a redirect. If the user has followed a link
    /// on another site, browsers would not send the `SameSite=Strict` cookie with the redirected
    /// request.
    Exchanged {
        /// The page, in HTML.
        page: String,
        /// The value of the `Set-Cookie` header.
        cookie: String,
    },
    /// The request is refused.
    Refused {
        /// The HTTP status of the response.
        status: u16,
        /// The reason, as a sentence for people.
        why: &'static str,
    },
}

impl AccessToken {
    /// Makes a token from random numbers of the operating system. Browsers send it to URLs whose
    /// paths begin with `path`, which begins and ends with a slash.
    ///
    /// # Errors
    /// Returns an error if the operating system has no random numbers.
    pub fn generate(path: &'static str) -> std::io::Result<AccessToken> {
        let mut bytes = [0; TOKEN_BYTES];
        SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_| std::io::Error::other("the system has no random numbers"))?;
        let mut secret = String::with_capacity(2 * TOKEN_BYTES);
        for byte in bytes {
            let _ = write!(secret, "{byte:02x}");
        }
        Ok(AccessToken { secret, path })
    }

    /// Returns the URL with the token. `base` is the URL of the server, without a path.
    pub fn url(&self, base: &str) -> String {
        format!("{base}{}?token={}", self.path, self.secret)
    }

    /// Decides whether a request gets something that needs the token.
    pub fn check(&self, exchange: &Exchange) -> Access {
        if !is_host_expected(exchange) {
            return Access::Refused {
                status: 421,
                why: "The Host header must be localhost or an IP address.",
            };
        }
        let is_safe = matches!(exchange.method(), b"GET" | b"HEAD");
        if !is_safe && !is_same_origin(exchange) {
            return Access::Refused { status: 403, why: "The request comes from another origin." };
        }
        let Some(local) = exchange.local() else { return Access::Granted };
        let name = format!("{COOKIE}{}", local.port());
        if let Some(given) = parameter(exchange.query()).filter(|_| is_safe) {
            return if self.matches(given) {
                let secure = if exchange.is_https() { "; Secure" } else { "" };
                Access::Exchanged {
                    page: page_to(&location(exchange)),
                    cookie: format!(
                        "{name}={}; Path={}; HttpOnly; SameSite=Strict{secure}",
                        self.secret, self.path
                    ),
                }
            } else {
                Access::Refused { status: 403, why: "The token is not that of this server." }
            };
        }
        let cookies = exchange.header(b"cookie").unwrap_or_default();
        let is_known = cookies::pairs(cookies)
            .any(|(found, value)| found == name.as_bytes() && self.matches(value));
        if is_known {
            Access::Granted
        } else {
            Access::Refused { status: 403, why: "The request has no token." }
        }
    }

    /// Compares the token with bytes from a client, in a time that does not depend on how many of
    /// them are right.
    fn matches(&self, given: &[u8]) -> bool {
        let own = self.secret.as_bytes();
        given.len() == own.len()
            && own.iter().zip(given).fold(0, |wrong, (a, b)| black_box(wrong | (a ^ b))) == 0
    }
}

/// Hides the token, because debug output may end up in a log.
impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessToken")
    }
}

/// Returns true unless a request arrived at a loopback address for a host name other than
/// `localhost`. Only programs on this machine can connect to such an address, but one of them may
/// be a browser that runs a stranger's page, whose domain name resolves to this machine (DNS
/// rebinding).
pub fn is_host_expected(exchange: &Exchange) -> bool {
    let is_loopback = exchange.local().is_some_and(|local| local.ip().to_canonical().is_loopback());
    !is_loopback || exchange.header(b"host").is_none_or(is_of_this_machine)
}

fn is_of_this_machine(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(name, _)| name),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// Returns true if a request that changes something comes from a page of the server itself. Over a
/// Unix socket, it may also come from a client without an origin, such as curl.
fn is_same_origin(exchange: &Exchange) -> bool {
    if let Some(site) = exchange.header(b"sec-fetch-site") {
        return site == b"same-origin";
    }
    let host = exchange.header(b"host").unwrap_or_default();
    match exchange.header(b"origin") {
        // A proxy may add or remove TLS, so only the host and the port are compared.
        Some(origin) => {
            let origin = origin.strip_prefix(b"https://").or(origin.strip_prefix(b"http://"));
            !host.is_empty() && origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host))
        }
        None => exchange.local().is_none(),
    }
}

/// Returns the value of the token parameter in a query, which begins with `?` unless it is empty.
fn parameter(query: &[u8]) -> Option<&[u8]> {
    parameters(query).find_map(|pair| pair.strip_prefix(PARAMETER))
}

fn parameters(query: &[u8]) -> impl Iterator<Item = &[u8]> {
    query.get(1..).unwrap_or_default().split(|byte| *byte == b'&')
}

/// Returns the URL of a request without the host and without the token.
fn location(exchange: &Exchange) -> String {
    // Two slashes at the beginning would name a host, and browsers read a backslash as a slash.
    let path = exchange.path();
    let is_slash = |byte: &u8| matches!(byte, b'/' | b'\\');
    let path = &path[path.iter().take_while(|byte| is_slash(byte)).count()..];
    let others: Vec<&[u8]> = parameters(exchange.query())
        .filter(|pair| !pair.is_empty() && !pair.starts_with(PARAMETER))
        .collect();
    let query =
        if others.is_empty() { Vec::new() } else { [&b"?"[..], &others.join(&b'&')].concat() };
    format!("/{}{}", String::from_utf8_lossy(path), String::from_utf8_lossy(&query))
}

/// Returns a page that leads to a URL at once. The URL of the page contains the token and must
/// appear in no `Referer` header.
fn page_to(location: &str) -> String {
    let url = html_text(location);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta http-equiv=\"refresh\" content=\"0;url={url}\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>Rookery</title>\n<a href=\"{url}\">Continue</a>\n"
    )
}

#[cfg(test)]
mod tests {
    use rookery_exchange::Version;

    use super::*;

    const HOST: (&str, &str) = ("host", "localhost:9100");
    const LOOPBACK: Option<&str> = Some("127.0.0.1:9100");

    fn exchange(
        local: Option<&str>,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
    ) -> Box<Exchange> {
        let mut exchange = Exchange::new();
        exchange.begin(1, 1, 0);
        exchange.set_request_line(method.as_bytes(), target.as_bytes(), Version::Http11);
        for (name, value) in headers {
            exchange.push_header(name.as_bytes(), value.as_bytes());
        }
        exchange.end_head(None, local.map(|local| local.parse().unwrap()), false);
        exchange
    }

    fn status(access: &Access) -> u16 {
        match access {
            Access::Granted => 200,
            Access::Exchanged { .. } => 0,
            Access::Refused { status, .. } => *status,
        }
    }

    /// Returns a token and the `Cookie` header of a client that has it, among other cookies.
    fn token_and_cookie() -> (AccessToken, String) {
        let token = AccessToken::generate("/live/").unwrap();
        let cookie = format!("a=b; rookery-token-9100={}; rookery=c", token.secret);
        (token, cookie)
    }

    #[test]
    fn tokens_are_long_and_differ() {
        let [one, other] = [(); 2].map(|()| AccessToken::generate("/live/").unwrap());
        assert_ne!(one, other);
        assert_eq!(one.secret.len(), 2 * TOKEN_BYTES);
        assert!(!format!("{one:?}").contains(&one.secret));
    }

    #[test]
    fn the_url_exchanges_the_token_for_a_cookie() {
        let (token, _) = token_and_cookie();
        let url = token.url("http://127.0.0.1:9100");
        let target = url.strip_prefix("http://127.0.0.1:9100").unwrap();
        let Access::Exchanged { page, cookie } =
            token.check(&exchange(LOOPBACK, "GET", target, &[HOST]))
        else {
            panic!("refused")
        };
        assert!(page.contains("content=\"0;url=/live/\""), "{page}");
        assert!(!page.contains(&token.secret));
        let (pair, attributes) = cookie.split_once("; ").unwrap();
        assert_eq!(attributes, "Path=/live/; HttpOnly; SameSite=Strict");
        let with_cookie = exchange(LOOPBACK, "GET", "/live/", &[HOST, ("cookie", pair)]);
        assert_eq!(token.check(&with_cookie), Access::Granted);
        let mut https = exchange(LOOPBACK, "GET", target, &[HOST]);
        https.set_transport(true, None);
        let Access::Exchanged { cookie, .. } = token.check(&https) else { panic!("refused") };
        assert!(cookie.ends_with("; Secure"), "{cookie}");
    }

    #[test]
    fn the_page_after_the_exchange_keeps_the_rest_of_the_url_and_stays_on_the_host() {
        let (token, _) = token_and_cookie();
        for (target, expected) in [
            ("/errors?a=1&token=T&b=2", "/errors?a=1&amp;b=2"),
            ("/?token=T&token=T", "/"),
            ("//evil.example/x?token=T", "/evil.example/x"),
            ("/\\evil.example?token=T", "/evil.example"),
            ("/?token=T&a=\"><script>'", "/?a=&quot;&gt;&lt;script&gt;&#39;"),
        ] {
            let target = target.replace('T', &token.secret);
            let access = token.check(&exchange(LOOPBACK, "GET", &target, &[HOST]));
            let Access::Exchanged { page, .. } = access else { panic!("{target}: {access:?}") };
            assert!(page.contains(&format!("content=\"0;url={expected}\"")), "{page}");
        }
    }

    #[test]
    fn without_the_token_everything_is_refused() {
        let (token, cookie) = token_and_cookie();
        let other_port = cookie.replace("9100", "9101");
        let cut = &cookie[..cookie.len() - "x; rookery=c".len()];
        for cookie in ["", "rookery-token-9100=", &other_port, cut, "rookery-token-9100"] {
            for method in ["GET", "HEAD", "POST"] {
                let headers = [HOST, ("cookie", cookie), ("origin", "http://localhost:9100")];
                let access = token.check(&exchange(LOOPBACK, method, "/", &headers));
                assert_eq!(status(&access), 403, "{method} {cookie}");
            }
        }
        let other = AccessToken::generate("/live/").unwrap().url("");
        for target in ["/?token=", "/?token", &other, &format!("/?xtoken={}", token.secret)] {
            let access = token.check(&exchange(LOOPBACK, "GET", target, &[HOST]));
            assert_eq!(status(&access), 403, "{target}");
        }
        // A form of another site may contain the token only if the token is known there, but a POST
        // needs the cookie nevertheless.
        let target = token.url("");
        let headers = [HOST, ("origin", "http://localhost:9100")];
        assert_eq!(status(&token.check(&exchange(LOOPBACK, "POST", &target, &headers))), 403);
    }

    #[test]
    fn a_request_that_changes_something_must_come_from_the_own_origin() {
        let (token, cookie) = token_and_cookie();
        let post = |local, headers: &[(&str, &str)]| {
            let headers = [&[HOST, ("cookie", &cookie)], headers].concat();
            status(&token.check(&exchange(local, "POST", "/actions/reload", &headers)))
        };
        for (headers, expected) in [
            (&[("origin", "http://localhost:9100")][..], 200),
            (&[("origin", "https://LOCALHOST:9100")], 200),
            (&[("origin", "http://localhost:9101")], 403),
            (&[("origin", "http://evil.example")], 403),
            (&[("origin", "http://evil.example/localhost:9100")], 403),
            (&[("origin", "null")], 403),
            (&[("origin", "")], 403),
            (&[], 403),
            (&[("sec-fetch-site", "same-origin")], 200),
            (&[("sec-fetch-site", "same-site")], 403),
            (&[("sec-fetch-site", "cross-site"), ("origin", "http://localhost:9100")], 403),
        ] {
            assert_eq!(post(LOOPBACK, headers), expected, "{headers:?}");
        }
        assert_eq!(post(None, &[]), 200, "curl --unix-socket");
        assert_eq!(post(None, &[("origin", "http://evil.example")]), 403, "a proxy's clients");
    }

    #[test]
    fn only_the_names_of_this_machine_are_answered_at_a_loopback_address() {
        let (token, cookie) = token_and_cookie();
        let get = |local, host| {
            let headers = [("host", host), ("cookie", cookie.as_str())];
            status(&token.check(&exchange(local, "GET", "/", &headers)))
        };
        for host in ["127.0.0.1:9100", "[::1]:9100", "[::1]", "LOCALHOST", "10.1.2.3"] {
            assert_eq!(get(LOOPBACK, host), 200, "{host}");
        }
        for host in ["evil.example:9100", "", "127.0.0.1.evil.example", "[", "localhost.evil"] {
            assert_eq!(get(LOOPBACK, host), 421, "{host}");
        }
        assert_eq!(get(Some("10.0.0.1:9100"), "rookery.svc"), 200);
        assert_eq!(get(None, "any"), 200);
    }

    #[test]
    fn a_unix_socket_needs_no_token() {
        let (token, _) = token_and_cookie();
        assert_eq!(token.check(&exchange(None, "GET", "/", &[HOST])), Access::Granted);
    }
}
