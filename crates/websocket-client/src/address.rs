//! Parsing of WebSocket addresses (RFC 6455, 3).

use std::fmt;

use http::Uri;
use rookery_websocket::protocol::handshake::ClientRequest;

/// The address of a WebSocket: `ws://host[:port][/path][?query]`, or with `wss` instead of `ws`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// True if the address begins with `wss://`, which requires TLS.
    pub is_tls: bool,
    /// The host name in the address, or the IP address without brackets.
    pub host: String,
    /// The port in the address. If there is none, 80 for `ws` and 443 for `wss`.
    pub port: u16,
    /// The value of the `Host` header: the host, followed by the port if it is not the default of
    /// the scheme.
    pub authority: String,
    /// The path and query of the address, which begin with `/`.
    pub target: String,
}

/// The reason why a text is not a valid WebSocket address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressError {
    /// The address begins with neither `ws://` nor `wss://`.
    Scheme,
    /// The address contains a fragment (`#`), which must not be sent (RFC 6455, 3).
    Fragment,
    /// The address contains a user name, which is not allowed.
    UserInfo,
    /// The address contains characters that are not allowed, or lacks a part.
    Malformed,
}

impl Address {
    /// Parses a WebSocket address.
    ///
    /// # Errors
    /// Returns an [`AddressError`] if the text is not a valid address.
    pub fn parse(text: &str) -> Result<Address, AddressError> {
        let has_scheme = |scheme: &str| {
            text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        };
        let is_tls = has_scheme("wss://");
        if !is_tls && !has_scheme("ws://") {
            return Err(AddressError::Scheme);
        }
        if text.contains('#') {
            return Err(AddressError::Fragment);
        }
        let uri: Uri = text.parse().map_err(|_| AddressError::Malformed)?;
        let authority = uri.authority().ok_or(AddressError::Malformed)?;
        if authority.as_str().contains('@') {
            return Err(AddressError::UserInfo);
        }
        let named = authority.host();
        let host = named.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(named);
        // "host:" has a port without digits, and "host:99999" an invalid one.
        let (port, shown) = match (authority.port(), authority.as_str().len() - named.len()) {
            (None, 0) => (if is_tls { 443 } else { 80 }, named.to_owned()),
            (Some(port), _) if port.as_u16() == if is_tls { 443 } else { 80 } => {
                (port.as_u16(), named.to_owned())
            }
            (Some(port), _) => (port.as_u16(), format!("{named}:{port}")),
            (None, _) => return Err(AddressError::Malformed),
        };
        if host.is_empty() {
            return Err(AddressError::Malformed);
        }
        let target = match uri.path_and_query().map(http::uri::PathAndQuery::as_str) {
            None | Some("") => "/".to_owned(),
            Some(target) if target.starts_with('/') => target.to_owned(),
            Some(query) => format!("/{query}"),
        };
        // `Uri` accepts more than may be sent, such as characters outside ASCII.
        if ClientRequest::new(shown.as_str(), target.as_str(), [0; 16]).is_err() {
            return Err(AddressError::Malformed);
        }
        Ok(Address { is_tls, host: host.to_owned(), port, authority: shown, target })
    }
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AddressError::Scheme => "it must begin with ws:// or wss://",
            AddressError::Fragment => {
                "it contains a fragment (#...), which cannot be sent to a server: \
                 leave it out"
            }
            AddressError::UserInfo => {
                "it contains a user name or password: send these in a header, such as Authorization"
            }
            AddressError::Malformed => {
                "it does not have the form ws://host[:port][/path][?query], or \
                 contains characters that must be percent-encoded"
            }
        })
    }
}

impl std::error::Error for AddressError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_addresses() {
        // The columns are address, TLS, host, port, authority and target.
        let table = [
            ("ws://host", false, "host", 80, "host", "/"),
            ("WSS://Host", true, "Host", 443, "Host", "/"),
            ("ws://host:80/a?b", false, "host", 80, "host", "/a?b"),
            ("wss://host:80/a/", true, "host", 80, "host:80", "/a/"),
            ("ws://[::1]:9?x=1", false, "::1", 9, "[::1]:9", "/?x=1"),
            ("wss://[::1]/%20", true, "::1", 443, "[::1]", "/%20"),
            ("ws://127.0.0.1:8000/", false, "127.0.0.1", 8000, "127.0.0.1:8000", "/"),
        ];
        for (text, is_tls, host, port, authority, target) in table {
            let address = Address::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let wanted = Address {
                is_tls,
                host: host.to_owned(),
                port,
                authority: authority.to_owned(),
                target: target.to_owned(),
            };
            assert_eq!(address, wanted, "{text}");
        }
    }

    #[test]
    fn rejects_invalid_addresses() {
        let table = [
            ("", AddressError::Scheme),
            ("http://host/", AddressError::Scheme),
            ("ws:/host", AddressError::Scheme),
            ("wss", AddressError::Scheme),
            ("é", AddressError::Scheme),
            ("ws://host/#top", AddressError::Fragment),
            ("ws://user@host/", AddressError::UserInfo),
            ("ws://user:word@host/", AddressError::UserInfo),
            ("ws://", AddressError::Malformed),
            ("ws:///path", AddressError::Malformed),
            ("ws://host:/", AddressError::Malformed),
            ("ws://host:99999/", AddressError::Malformed),
            ("ws://host:x/", AddressError::Malformed),
            ("ws://:80/", AddressError::Malformed),
            ("ws://host/a b", AddressError::Malformed),
            ("ws://host/\r\nX: y", AddressError::Malformed),
            ("ws://ho st/", AddressError::Malformed),
            ("ws://[::1/", AddressError::Malformed),
            ("ws://host/\u{fc}", AddressError::Malformed),
            ("ws://host/?q=\u{20ac}", AddressError::Malformed),
            ("ws://h\u{fc}/", AddressError::Malformed),
            ("ws://host/{}", AddressError::Malformed),
            ("ws://host/?\"", AddressError::Malformed),
            ("ws://host/100%", AddressError::Malformed),
        ];
        for (text, wanted) in table {
            assert_eq!(Address::parse(text), Err(wanted), "{text}");
        }
    }
}
