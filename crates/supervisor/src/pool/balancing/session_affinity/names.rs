//! The names of the session cookie.

use rookery_server::cookies::{pairs, split};

/// The beginning of the session cookie's name. Over HTTPS, the name has an additional prefix that
/// prevents pages of other hosts from setting the cookie.
const NAME: &str = "rookery";
const HOST_PREFIX: &str = "__Host-";

/// The names of a server's session cookie. Browsers share cookies between all ports of a host, so
/// each server needs names of its own.
#[derive(Debug, Clone)]
pub(in crate::pool) struct Names {
    plain: String,
    /// The name of the session cookie over HTTPS, with its security prefix.
    host: String,
}

impl Names {
    /// Creates the cookie names for the server with the given name, which becomes a suffix unless
    /// it is empty.
    pub(in crate::pool) fn new(server: &str) -> Names {
        Names::of(if server.is_empty() { NAME.to_owned() } else { format!("{NAME}-{server}") })
    }

    fn of(plain: String) -> Names {
        Names { host: format!("{HOST_PREFIX}{plain}"), plain }
    }

    /// Returns the cookie's name over HTTPS and its name over plaintext HTTP.
    pub(in crate::pool) fn both(&self) -> [&str; 2] {
        [&self.host, &self.plain]
    }

    /// Returns true if `name` is one of this server's cookie names.
    pub(in crate::pool) fn has(&self, name: &[u8]) -> bool {
        self.both().iter().any(|own| name == own.as_bytes())
    }

    /// Returns a `Cookie` header without this server's session cookie, or `None` if the header does
    /// not contain that cookie.
    pub(in crate::pool) fn without_own(&self, cookies: &[u8]) -> Option<Vec<u8>> {
        if !pairs(cookies).any(|(name, _)| self.has(name)) {
            return None;
        }
        let others = cookies.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let others: Vec<&[u8]> = others.filter(|pair| !self.has(split(pair).0)).collect();
        Some(others.join(&b"; "[..]))
    }

    /// Returns the value of the `Set-Cookie` header that sets the session cookie. If `is_embedded`
    /// is true, pages of other sites may embed the app, and the browser keeps a separate cookie for
    /// each of these sites. `is_embedded` has an effect only over HTTPS, because browsers reject
    /// such cookies over plaintext HTTP.
    pub(in crate::pool) fn set_cookie(
        &self,
        value: &str,
        is_https: bool,
        is_embedded: bool,
    ) -> String {
        let Names { plain, host } = self;
        if is_https && is_embedded {
            format!("{host}={value}; Path=/; HttpOnly; Secure; SameSite=None; Partitioned")
        } else if is_https {
            format!("{host}={value}; Path=/; HttpOnly; Secure; SameSite=Lax")
        } else {
            format!("{plain}={value}; Path=/; HttpOnly; SameSite=Lax")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn app_sees_only_other_cookies() {
        let names = Names::new("");
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
}
