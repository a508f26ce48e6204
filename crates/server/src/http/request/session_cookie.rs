//! The session cookie by which a supervisor routes a client to its worker. This module defines the
//! names of the cookie, and how a worker reads and sets it.

use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue};

/// The beginning of the session cookie's name. Over HTTPS, the name has an additional prefix that
/// prevents pages of other hosts from setting the cookie.
const NAME: &str = "rookery";
const HOST_PREFIX: &str = "__Host-";

/// The names of a server's session cookie. Browsers share cookies between all ports of a host, so
/// each server needs names of its own.
#[derive(Debug, Clone)]
pub struct CookieNames {
    plain: String,
    /// The name of the session cookie over HTTPS, with its security prefix.
    host: String,
}

impl CookieNames {
    /// Creates the cookie names for the server with the given name, which becomes a suffix unless
    /// it is empty.
    pub fn new(server: &str) -> CookieNames {
        CookieNames::of(if server.is_empty() {
            NAME.to_owned()
        } else {
            format!("{NAME}-{server}")
        })
    }

    fn of(plain: String) -> CookieNames {
        CookieNames { host: format!("{HOST_PREFIX}{plain}"), plain }
    }

    /// Returns the cookie's name over HTTPS and its name over plaintext HTTP.
    pub fn both(&self) -> [&str; 2] {
        [&self.host, &self.plain]
    }

    /// Returns true if `name` is one of this server's cookie names.
    pub fn has(&self, name: &[u8]) -> bool {
        self.both().iter().any(|own| name == own.as_bytes())
    }

    /// Returns a `Cookie` header without this server's session cookie, or `None` if the header does
    /// not contain that cookie.
    pub fn without_own(&self, cookies: &[u8]) -> Option<Vec<u8>> {
        if !pairs(cookies).any(|(name, _)| self.has(name)) {
            return None;
        }
        let others = cookies.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let others: Vec<&[u8]> = others.filter(|pair| !self.has(pair_of(pair).0)).collect();
        Some(others.join(&b"; "[..]))
    }

    /// Returns the value of the `Set-Cookie` header that sets the session cookie. If `is_embedded`
    /// is true, pages of other sites may embed the app, and the browser keeps a separate cookie for
    /// each of these sites. `is_embedded` has an effect only over HTTPS, because browsers reject
    /// such cookies over plaintext HTTP.
    pub fn set_cookie(&self, value: &str, is_https: bool, is_embedded: bool) -> String {
        let CookieNames { plain, host } = self;
        if is_https && is_embedded {
            format!("{host}={value}; Path=/; HttpOnly; Secure; SameSite=None; Partitioned")
        } else if is_https {
            format!("{host}={value}; Path=/; HttpOnly; Secure; SameSite=Lax")
        } else {
            format!("{plain}={value}; Path=/; HttpOnly; SameSite=Lax")
        }
    }
}

/// Returns the name and value of each cookie in a `Cookie` header.
pub fn pairs(cookies: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    cookies.split(|byte| *byte == b';').map(|pair| pair_of(pair.trim_ascii()))
}

fn pair_of(pair: &[u8]) -> (&[u8], &[u8]) {
    let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
    (pair[..at].trim_ascii(), pair.get(at + 1..).unwrap_or_default().trim_ascii())
}

/// The signed session cookie that identifies one worker. The worker sets it for clients that do not
/// have it. The supervisor uses it to route requests while two generations of the app (before and
/// after a reload) are running.
#[derive(Debug, Clone)]
pub struct SessionCookie {
    names: CookieNames,
    value: String,
    is_embedded: bool,
}

impl SessionCookie {
    /// Creates a worker's session cookie, whose value is `value`. `is_embedded` is true if pages of
    /// other sites may embed the app.
    pub fn new(names: CookieNames, value: String, is_embedded: bool) -> SessionCookie {
        SessionCookie { names, value, is_embedded }
    }

    /// Encodes the session cookie as text. The supervisor passes this text to the worker in the
    /// environment variable [`COOKIE`](rookery_worker_protocol::COOKIE).
    pub fn text(&self) -> String {
        format!("{} {} {}", self.names.plain, self.value, u8::from(self.is_embedded))
    }

    /// Parses the text that [`text`](Self::text) returns. Returns `None` for any other text.
    pub fn read(text: &str) -> Option<SessionCookie> {
        let mut words = text.split(' ');
        let (name, value, is_embedded) = (words.next()?, words.next()?, words.next()?);
        // The characters are a subset of those that RFC 6265, 4.1.1 allows.
        let is_plain = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        };
        if words.next().is_some() || !is_plain(name) || !is_plain(value) {
            return None;
        }
        let is_embedded = match is_embedded {
            "0" => false,
            "1" => true,
            _ => return None,
        };
        Some(SessionCookie::new(CookieNames::of(name.to_owned()), value.to_owned(), is_embedded))
    }

    /// Removes the session cookie from a request's headers, so that the app does not see it.
    /// Returns true if the response must set the cookie, because the client has a different one or
    /// none.
    pub(crate) fn remove_from(&self, headers: &mut HeaderMap) -> bool {
        let mut has_own = false;
        let mut has_any = false;
        for value in headers.get_all(COOKIE) {
            for (name, value) in pairs(value.as_bytes()).filter(|(name, _)| self.names.has(name)) {
                has_any = true;
                has_own |= value == self.value.as_bytes() && !name.is_empty();
            }
        }
        if has_any {
            self.rewrite_cookies(headers);
        }
        !has_own
    }

    #[cold]
    fn rewrite_cookies(&self, headers: &mut HeaderMap) {
        let left: Vec<HeaderValue> = headers
            .get_all(COOKIE)
            .iter()
            .filter_map(|value| match self.names.without_own(value.as_bytes()) {
                None => Some(value.clone()),
                Some(others) if others.is_empty() => None,
                Some(others) => HeaderValue::from_bytes(&others).ok(),
            })
            .collect();
        headers.remove(COOKIE);
        for value in left {
            headers.append(COOKIE, value);
        }
    }

    /// Adds a `Set-Cookie` header with the session cookie to a response, unless shared caches may
    /// store the response.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap, is_https: bool) {
        let is_public = headers
            .get_all("cache-control")
            .iter()
            .any(|value| is_publicly_cacheable(value.as_bytes()));
        let text = self.names.set_cookie(&self.value, is_https, self.is_embedded);
        if let Some(value) = HeaderValue::try_from(text).ok().filter(|_| !is_public) {
            headers.append(SET_COOKIE, value);
        }
    }

    /// Returns the `Set-Cookie` value with which the response to a WebSocket opening handshake sets
    /// the session cookie.
    pub(crate) fn set_cookie(&self, is_https: bool) -> String {
        self.names.set_cookie(&self.value, is_https, self.is_embedded)
    }
}

/// Returns true if a `Cache-Control` header allows shared caches to store a response (RFC 9111,
/// 5.2.2).
pub fn is_publicly_cacheable(cache_control: &[u8]) -> bool {
    cache_control.split(|byte| *byte == b',').any(|word| {
        let name = word.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii();
        name.eq_ignore_ascii_case(b"public") || name.eq_ignore_ascii_case(b"s-maxage")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn app_sees_only_other_cookies() {
        let names = CookieNames::new("");
        for (cookies, others) in [
            ("a=b", None),
            ("", None),
            ("rookery-x=1", None),
            ("rookery=1", Some("")),
            ("a=b; rookery=1", Some("a=b")),
            ("rookery=1;a=b;  c = d ;__Host-rookery=2", Some("a=b; c = d")),
            ("rookery", Some("")),
        ] {
            let left = names.without_own(cookies.as_bytes());
            assert_eq!(left.as_deref(), others.map(str::as_bytes), "{cookies}");
        }
    }

    #[test]
    fn worker_removes_the_cookie_and_sets_its_own_if_it_differs() {
        let cookie = SessionCookie::read("rookery-shop AbC-_9 0").unwrap();
        for (cookies, needs_cookie, left) in [
            (&[][..], true, &[][..]),
            (&["a=b"], true, &["a=b"]),
            (&["rookery-shop=AbC-_9"], false, &[]),
            (&["__Host-rookery-shop=AbC-_9; a=b"], false, &["a=b"]),
            (&["rookery-shop=other; a=b", "c=d"], true, &["a=b", "c=d"]),
            (&["rookery=AbC-_9"], true, &["rookery=AbC-_9"]),
        ] {
            let mut headers = HeaderMap::new();
            for cookies in cookies {
                headers.append(COOKIE, HeaderValue::from_static(cookies));
            }
            assert_eq!(cookie.remove_from(&mut headers), needs_cookie, "{cookies:?}");
            let found: Vec<_> =
                headers.get_all(COOKIE).iter().map(|value| value.to_str().unwrap()).collect();
            assert_eq!(found, left);
        }
        let mut headers = HeaderMap::new();
        cookie.add_to(&mut headers, true);
        assert_eq!(
            headers[SET_COOKIE],
            "__Host-rookery-shop=AbC-_9; Path=/; HttpOnly; Secure; SameSite=Lax"
        );
        let mut headers = HeaderMap::new();
        headers.insert("cache-control", HeaderValue::from_static("max-age=60, public"));
        cookie.add_to(&mut headers, false);
        assert!(!headers.contains_key(SET_COOKIE));
    }

    #[test]
    fn parses_only_the_text_of_a_supervisor() {
        for text in ["rookery x 1", "rookery-shop AbC-_9 0"] {
            assert_eq!(SessionCookie::read(text).unwrap().text(), text);
        }
        for wrong in
            ["", "a", "a b", "a b 2", "a b 1 c", "a; b 1", "a b;c 1", " b 1", "a  1", "a b\n 1"]
        {
            assert!(SessionCookie::read(wrong).is_none(), "{wrong:?}");
        }
    }
}
