//! The check of the origin of a handshake request, which is the site of the page that opens the
//! WebSocket in a browser (RFC 6455, 10.2).

/// The origins from which a server accepts WebSockets. A request without an `Origin` header is not
/// from a browser and is always accepted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OriginPolicy {
    /// Accepts only pages whose host is the host of the request. This is the default, because a
    /// browser sends the user's cookies with the requests of any page, even one of another host.
    #[default]
    SameHost,
    /// Accepts pages whose host is the host of the request or is in this list. An element of the
    /// list has the form `host` or `host:port`. `*.example.org` means every name below
    /// `example.org`. A port that is the default of the origin's scheme may be given or omitted:
    /// `example.org:443` allows `https://example.org`, but not `http://example.org`.
    Hosts(Vec<String>),
    /// Accepts pages of any origin.
    Any,
}

impl OriginPolicy {
    /// Returns true if the request with these `Origin` headers may open a WebSocket to `host`. A
    /// request without the header does not come from a page. A request with two is not allowed.
    pub fn allows_request<'a>(
        &self,
        mut origins: impl Iterator<Item = &'a [u8]>,
        host: &[u8],
    ) -> bool {
        let Some(origin) = origins.next() else { return true };
        origins.next().is_none() && self.allows(origin, host)
    }

    /// Returns true if a page of the origin `origin` may open a WebSocket to `host`.
    pub fn allows(&self, origin: &[u8], host: &[u8]) -> bool {
        if *self == OriginPolicy::Any {
            return true;
        }
        // `null`, and any other value without an authority, matches no host.
        let Some(at) = origin.windows(3).position(|three| three == b"://") else { return false };
        let (scheme, authority) = (&origin[..at], &origin[at + 3..]);
        let authority = without_default_port(authority, scheme);
        let is_same = authority.eq_ignore_ascii_case(without_default_port(host, scheme));
        let OriginPolicy::Hosts(hosts) = self else { return is_same };
        let is_listed =
            |host: &String| matches(without_default_port(host.as_bytes(), scheme), authority);
        is_same || hosts.iter().any(is_listed)
    }
}

fn matches(pattern: &[u8], authority: &[u8]) -> bool {
    match pattern {
        [b'*', suffix @ ..] if suffix.starts_with(b".") => {
            authority.len() > suffix.len()
                && authority[authority.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
        }
        _ => pattern.eq_ignore_ascii_case(authority),
    }
}

fn without_default_port<'a>(authority: &'a [u8], scheme: &[u8]) -> &'a [u8] {
    // Other schemes have no default port.
    let port: &[u8] = if scheme.eq_ignore_ascii_case(b"https") {
        b":443"
    } else if scheme.eq_ignore_ascii_case(b"http") {
        b":80"
    } else {
        return authority;
    };
    authority.strip_suffix(port).unwrap_or(authority)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_host_whatever_its_default_port() {
        let table: &[(&str, &str, bool)] = &[
            ("http://localhost:8080", "localhost:8080", true),
            ("http://localhost:8080", "localhost", false),
            ("https://Example.org", "example.org", true),
            ("https://example.org", "example.org:443", true),
            ("http://example.org:80", "example.org", true),
            ("http://evil.org", "example.org", false),
            ("http://example.org.evil.org", "example.org", false),
            ("null", "example.org", false),
            ("", "", false),
        ];
        for (origin, host, expected) in table {
            let allows = OriginPolicy::SameHost.allows(origin.as_bytes(), host.as_bytes());
            assert_eq!(allows, *expected, "{origin} at {host}");
        }
        assert!(OriginPolicy::Any.allows(b"null", b"example.org"));
    }

    #[test]
    fn a_listed_default_port_is_that_of_the_origins_scheme() {
        for (listed, origin, expected) in [
            ("b.org:443", "https://b.org", true),
            ("b.org:443", "https://b.org:443", true),
            ("b.org:443", "http://b.org", false),
            ("b.org:443", "http://b.org:443", true),
            ("b.org:80", "http://b.org", true),
            ("b.org:80", "https://b.org", false),
            ("b.org:8080", "http://b.org:8080", true),
            ("b.org:8080", "http://b.org", false),
            ("*.b.org:443", "https://a.b.org", true),
            ("*.b.org:443", "https://b.org", false),
            ("[::1]:443", "https://[::1]", true),
            ("b.org", "https://b.org:8443", false),
            ("b.org:80", "app://b.org", false),
        ] {
            let policy = OriginPolicy::Hosts(vec![listed.to_owned()]);
            assert_eq!(policy.allows(origin.as_bytes(), b"here"), expected, "{listed}: {origin}");
        }
    }

    #[test]
    fn listed_hosts_and_names_below() {
        let policy = OriginPolicy::Hosts(vec!["a.org".to_owned(), "*.b.org".to_owned()]);
        for (origin, expected) in [
            ("https://a.org", true),
            ("https://x.a.org", false),
            ("https://x.b.org", true),
            ("https://x.y.b.org", true),
            ("https://b.org", false),
            ("https://evilb.org", false),
            ("https://here", true),
        ] {
            assert_eq!(policy.allows(origin.as_bytes(), b"here"), expected, "{origin}");
        }
    }
}
