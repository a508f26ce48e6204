//! The proxy for a request, which environment variables name.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::uri::Scheme;
use http::{HeaderValue, Uri};

/// An HTTP proxy.
#[derive(Debug, Clone)]
pub(crate) struct Proxy {
    host: String,
    port: u16,
    /// The value of `Proxy-Authorization`, from the user information of the proxy's URL.
    authorization: Option<HeaderValue>,
}

impl Proxy {
    /// Returns the proxy for requests to a host and port over HTTPS or plaintext HTTP. Returns
    /// `None` if they need none. `get` returns the values of the environment variables
    /// ([`Endpoint::set_proxy`](crate::Endpoint::set_proxy)).
    pub(crate) fn of_environment(
        is_secure: bool,
        host: &str,
        port: u16,
        get: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Proxy>, String> {
        let value = |name: &str| {
            let value = get(&name.to_ascii_lowercase()).or_else(|| get(name));
            value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        let name = if is_secure { "HTTPS_PROXY" } else { "HTTP_PROXY" };
        let Some(url) = value(name) else { return Ok(None) };
        let is_loopback = host.eq_ignore_ascii_case("localhost")
            || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        let excluded = value("NO_PROXY").unwrap_or_default();
        if is_loopback || excluded.split(',').any(|entry| matches(entry, host, port)) {
            return Ok(None);
        }
        // The URL may contain a password, so the message does not show it.
        let error = || {
            format!(
                "{name} is not the URL of a proxy with the scheme http, such as \
                 http://proxy.example:3128"
            )
        };
        Proxy::parse(&url).ok_or_else(error).map(Some)
    }

    /// Parses the URL of a proxy. The scheme may be missing.
    fn parse(url: &str) -> Option<Proxy> {
        let prefix = if url.contains("://") { "" } else { "http://" };
        let uri: Uri = format!("{prefix}{url}").parse().ok()?;
        let is_http = uri.scheme().is_some_and(|scheme| *scheme == Scheme::HTTP);
        let host = uri.host().filter(|host| is_http && !host.is_empty())?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let authorization = match uri.authority()?.as_str().rsplit_once('@') {
            Some((user, _)) => {
                let credentials = STANDARD.encode(percent_decoded(user));
                let mut value = HeaderValue::try_from(format!("Basic {credentials}")).ok()?;
                value.set_sensitive(true);
                Some(value)
            }
            None => None,
        };
        Some(Proxy { host, port: uri.port_u16().unwrap_or(80), authorization })
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }
}

/// Returns true if an entry of `NO_PROXY` names the host: `*`, an IP address, a network such as
/// `10.0.0.0/8`, or a domain, which also matches its subdomains. An entry may end with a port.
fn matches(entry: &str, host: &str, port: u16) -> bool {
    let entry = entry.trim();
    if entry == "*" {
        return true;
    }
    let address = host.parse::<IpAddr>();
    if let (Some((network, bits)), Ok(address)) = (entry.split_once('/'), &address) {
        let network = network.parse::<IpAddr>();
        return network.is_ok_and(|network| is_within(*address, network, bits));
    }
    // An IPv6 address has colons, and needs brackets before a port.
    let bare = entry.trim_start_matches('[').trim_end_matches(']');
    let (name, only_port) = match entry.rsplit_once(':') {
        Some((name, only)) if bare.parse::<IpAddr>().is_err() => (name, only.parse::<u16>().ok()),
        _ => (entry, None),
    };
    if only_port.is_some_and(|only| only != port) {
        return false;
    }
    let name = name.trim_start_matches('[').trim_end_matches(']');
    if let (Ok(one), Ok(other)) = (&address, name.parse::<IpAddr>()) {
        return *one == other;
    }
    let domain = name.trim_start_matches("*.").trim_start_matches('.').to_ascii_lowercase();
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let is_below = host.strip_suffix(&domain).is_some_and(|rest| rest.ends_with('.'));
    !domain.is_empty() && address.is_err() && (host == domain || is_below)
}

/// Returns true if the first `bits` bits of an address are those of the network.
fn is_within(address: IpAddr, network: IpAddr, bits: &str) -> bool {
    let Ok(bits) = bits.parse::<u32>() else { return false };
    let (one, other, len) = match (address, network) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            (u128::from(one.to_bits()), u128::from(other.to_bits()), 32)
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits(), other.to_bits(), 128),
        _ => return false,
    };
    bits <= len && (one ^ other).checked_shr(len - bits).unwrap_or(0) == 0
}

/// Decodes the percent codes in a text. Invalid ones stay as they are.
pub fn percent_decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        let hex = others.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        let code = hex
            .filter(|pair| *first == b'%' && pair.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .and_then(|pair| u8::from_str_radix(pair, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &others[2..] } else { others };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy_of(
        (is_secure, host): (bool, &str),
        variables: &[(&str, &str)],
    ) -> Result<Option<Proxy>, String> {
        let get = |name: &str| {
            variables.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned())
        };
        Proxy::of_environment(is_secure, host, 4318, &get)
    }

    #[test]
    fn the_variable_of_the_scheme_names_the_proxy() {
        let all = [("HTTP_PROXY", "http://plain:1"), ("HTTPS_PROXY", "secure:2")];
        let host_of = |target: (bool, &str), variables: &[(&str, &str)]| {
            proxy_of(target, variables).unwrap().map(|proxy| (proxy.host, proxy.port))
        };
        assert_eq!(host_of((false, "c.example"), &all), Some(("plain".to_owned(), 1)));
        assert_eq!(host_of((true, "c.example"), &all), Some(("secure".to_owned(), 2)));
        assert_eq!(host_of((true, "c.example"), &all[..1]), None);
        let lower = [all[0], ("http_proxy", "http://[::1]:3")];
        assert_eq!(host_of((false, "c.example"), &lower), Some(("::1".to_owned(), 3)));
        assert_eq!(host_of((false, "c.example"), &[("HTTP_PROXY", " ")]), None);
        for local in ["127.0.0.2", "localhost", "::1"] {
            assert_eq!(host_of((false, local), &all), None, "{local}");
        }
        for wrong in ["socks5://a:1", "https://a:1", "http://", "a b"] {
            let error = proxy_of((false, "c"), &[("HTTP_PROXY", wrong)]).unwrap_err();
            assert!(error.starts_with("HTTP_PROXY "), "{error}");
        }
    }

    #[test]
    fn credentials_of_a_proxy_are_sent_and_never_shown() {
        let found = proxy_of((false, "c"), &[("HTTP_PROXY", "http://me:s%3Acret@p:1")]).unwrap();
        let proxy = found.unwrap();
        let expected = format!("Basic {}", STANDARD.encode("me:s:cret"));
        assert_eq!(proxy.authorization().unwrap(), &expected);
        assert!(!format!("{proxy:?}").contains("cret"));
        let wrong = proxy_of((false, "c"), &[("HTTP_PROXY", "ftp://me:secret@p:1")]).unwrap_err();
        assert!(!wrong.contains("secret"), "{wrong}");
    }

    #[test]
    fn hosts_domains_and_networks_need_no_proxy() {
        for (excluded, host, is_excluded) in [
            ("*", "a.example", true),
            ("example", "a.example", true),
            (".example", "a.example", true),
            ("*.example", "a.example", true),
            ("a.EXAMPLE", "A.example", true),
            ("a.example ", "a.example", true),
            ("xample", "a.example", false),
            ("a.example.", "a.example", false),
            ("a.example:4318", "a.example", true),
            ("a.example:80", "a.example", false),
            ("", "a.example", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.0.0.0/16", "10.1.2.3", false),
            ("0.0.0.0/0", "10.1.2.3", true),
            ("10.0.0.0/33", "10.1.2.3", false),
            ("fd00::/8", "fd12::1", true),
            ("fd12::1", "fd12::1", true),
            ("[fd12::1]:4318", "fd12::1", true),
            ("2.3", "10.1.2.3", false),
        ] {
            assert_eq!(matches(excluded, host, 4318), is_excluded, "{excluded} {host}");
        }
    }
}
