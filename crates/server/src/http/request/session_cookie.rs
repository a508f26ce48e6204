//! The cookie by which a supervisor knows which worker a client belongs to: its names, and what a
//! worker does with it for clients whose connections it has accepted itself.

use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue};

/// The start of the cookie's name. Over HTTPS it is preceded by the prefix of cookies that pages of
/// other hosts cannot set.
const NAME: &str = "rookery";
const HOST_PREFIX: &str = "__Host-";

/// The names of a server's cookie. Browsers keep one jar for all ports of a host, so each server has names of
/// its own.
#[derive(Debug, Clone)]
pub struct CookieNames {
    plain: String,
    /// Over HTTPS.
    host: String,
}

impl CookieNames {
    /// The names for a server that is called so; `""` adds nothing to them.
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

    /// The name over HTTPS, and the one in the clear.
    pub fn both(&self) -> [&str; 2] {
        [&self.host, &self.plain]
    }

    /// Returns true if a pair of a `Cookie` header is this server's.
    pub fn has(&self, name: &[u8]) -> bool {
        self.both().iter().any(|own| name == own.as_bytes())
    }

    /// Returns the `Cookie` header without this server's cookie, for the app; `None` if the header
    /// does not contain this server's cookie.
    pub fn without_own(&self, cookies: &[u8]) -> Option<Vec<u8>> {
        if !pairs(cookies).any(|(name, _)| self.has(name)) {
            return None;
        }
        let others = cookies.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let others: Vec<&[u8]> = others.filter(|pair| !self.has(pair_of(pair).0)).collect();
        Some(others.join(&b"; "[..]))
    }

    /// Returns the value of a `Set-Cookie` header. `is_embedded`: pages may lie in those of other
    /// sites, each of which has a cookie of its own then. Browsers take one like that over HTTPS
    /// alone.
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

/// The names and values of a `Cookie` header.
pub fn pairs(cookies: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    cookies.split(|byte| *byte == b';').map(|pair| pair_of(pair.trim_ascii()))
}

fn pair_of(pair: &[u8]) -> (&[u8], &[u8]) {
    let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
    (pair[..at].trim_ascii(), pair.get(at + 1..).unwrap_or_default().trim_ascii())
}

/// The cookie that names one worker, as its supervisor has signed it. The worker gives it to clients that
/// have none of its own: while two generations of the app live, the supervisor's front end routes
/// by it. What it does not recognise, such as the cookie of a worker before, does no harm.
#[derive(Debug, Clone)]
pub struct SessionCookie {
    names: CookieNames,
    value: String,
    is_embedded: bool,
}

impl SessionCookie {
    /// A cookie with this value.
    pub fn new(names: CookieNames, value: String, is_embedded: bool) -> SessionCookie {
        SessionCookie { names, value, is_embedded }
    }

    /// Returns its text, for [`COOKIE`](rookery_worker_protocol::COOKIE).
    pub fn text(&self) -> String {
        format!("{} {} {}", self.names.plain, self.value, u8::from(self.is_embedded))
    }

    /// Reads what [`text`](Self::text) has written; `None` for anything else.
    pub fn read(text: &str) -> Option<SessionCookie> {
        let mut words = text.split(' ');
        let (name, value, is_embedded) = (words.next()?, words.next()?, words.next()?);
        // RFC 6265, 4.1.1.
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

    /// Takes the cookie out of a request's headers, which the app does not see. Returns true if
    /// the client is to be given this one, because it has another or none.
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

    /// Gives the cookie to a client with a reply, unless that is for caches which many share.
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

    /// The value of `Set-Cookie`, for the reply to a handshake.
    pub(crate) fn set_cookie(&self, is_https: bool) -> String {
        self.names.set_cookie(&self.value, is_https, self.is_embedded)
    }
}

/// Returns true if a `Cache-Control` header has a reply kept by caches that many share (RFC 9111, 5.2.2).
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
    fn the_app_sees_the_others() {
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
    fn a_worker_takes_the_cookie_out_and_gives_its_own_to_whoever_has_another() {
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
    fn only_what_a_supervisor_writes_is_read() {
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
