//! The URL of a request.

use std::fmt;

use http::Uri;
use http::uri::Scheme;

use crate::proxy::Proxy;

/// The parsed URL of a request.
#[derive(Clone)]
pub struct Endpoint {
    uri: Uri,
    host: String,
    port: u16,
    is_secure: bool,
    proxy: Option<Proxy>,
}

impl Endpoint {
    /// Parses a URL with the scheme `http` or `https`. Returns `None` if the text is no such URL.
    pub fn parse(url: &str) -> Option<Endpoint> {
        let uri: Uri = url.parse().ok()?;
        let host = uri.host().filter(|host| !host.is_empty())?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let is_secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return None,
        };
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        Some(Endpoint { uri, host, port, is_secure, proxy: None })
    }

    /// Makes requests to the URL go through the proxy that environment variables name for it. The
    /// variables are those that curl and the SDKs of OpenTelemetry use: `HTTPS_PROXY` for HTTPS
    /// URLs, `HTTP_PROXY` for others, and `NO_PROXY`, a list of hosts, domains and networks that
    /// need no proxy. Each name may be in lower case, which takes precedence. Loopback addresses
    /// and `localhost` need no proxy. `get` returns the values of the variables.
    ///
    /// # Errors
    /// Returns the reason if the proxy's URL is invalid or not supported.
    pub fn set_proxy(&mut self, get: &dyn Fn(&str) -> Option<String>) -> Result<(), String> {
        self.proxy = Proxy::of_environment(self.is_secure, &self.host, self.port, get)?;
        Ok(())
    }

    /// Returns the proxy through which requests to the URL go, if there is one.
    pub(crate) fn proxy(&self) -> Option<&Proxy> {
        self.proxy.as_ref()
    }

    /// Returns the port in the URL, or the default of its scheme.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the host in the URL, an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns true if the scheme of the URL is `https`.
    pub fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// Returns the user information of the URL, such as `user:password`, in which characters may be
    /// percent-encoded. Requests do not send it.
    pub fn user_info(&self) -> Option<&str> {
        Some(self.uri.authority()?.as_str().rsplit_once('@')?.0)
    }

    /// Returns the host and port as they are in the URL, without a user name and password.
    pub(crate) fn authority(&self) -> &str {
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        authority.rsplit('@').next().unwrap_or_default()
    }

    pub(crate) fn target(&self) -> &str {
        self.uri.path_and_query().map_or("/", |target| target.as_str())
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_secure { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.target())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_urls_are_endpoints() {
        let endpoint = Endpoint::parse("https://ca.example/acme?x").unwrap();
        assert_eq!(
            (endpoint.host(), endpoint.port, endpoint.is_secure()),
            ("ca.example", 443, true)
        );
        let endpoint = Endpoint::parse("http://[::1]:14000/dir").unwrap();
        assert_eq!((endpoint.host(), endpoint.port, endpoint.is_secure()), ("::1", 14000, false));
        for wrong in ["/dir", "https:///dir", "ws://127.0.0.1/", "a b", "localhost:4318", ""] {
            assert!(Endpoint::parse(wrong).is_none(), "{wrong}");
        }
    }
}
