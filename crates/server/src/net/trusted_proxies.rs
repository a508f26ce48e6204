//! The trusted proxies of a listener. The server uses forwarding headers (such as
//! `X-Forwarded-For`) only in requests from these proxies.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The trusted proxies of a listener, whose forwarding headers (such as `X-Forwarded-For`) the
/// server uses. Each is an IP address, a network, or `unix` for all clients of a Unix socket. By
/// default no proxy is trusted, because any client can send forwarding headers.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies(Option<Arc<[TrustedProxy]>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TrustedProxy {
    Network(IpAddr, u8),
    Unix,
}

/// The error for a text that does not describe a trusted proxy.
#[derive(Debug, PartialEq, Eq)]
pub struct InvalidProxy(String);

impl fmt::Display for InvalidProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\" is not a valid proxy: use an address (\"192.0.2.1\"), a network \
             (\"10.0.0.0/8\"), or \"unix\" for all connections over a Unix socket",
            self.0
        )
    }
}

impl std::error::Error for InvalidProxy {}

impl TrustedProxies {
    /// Parses the trusted proxies from texts such as `192.0.2.1`, `2001:db8::/32` and `unix`.
    ///
    /// # Errors
    /// Returns the first text that is neither an address, nor a network, nor `unix`.
    pub fn parse<'a>(
        texts: impl IntoIterator<Item = &'a str>,
    ) -> Result<TrustedProxies, InvalidProxy> {
        let proxies: Result<Vec<_>, _> = texts
            .into_iter()
            .map(|text| TrustedProxy::parse(text).ok_or_else(|| InvalidProxy(text.to_owned())))
            .collect();
        Ok(TrustedProxies(Some(proxies?).filter(|proxies| !proxies.is_empty()).map(Arc::from)))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns true if a client with this address is a trusted proxy. `None` stands for a client of
    /// a Unix socket.
    pub(crate) fn contains(&self, client: Option<IpAddr>) -> bool {
        self.0.iter().flat_map(|proxies| proxies.iter()).any(|proxy| match (proxy, client) {
            (TrustedProxy::Unix, None) => true,
            (TrustedProxy::Network(network, bits), Some(client)) => {
                is_in_network(client.to_canonical(), *network, *bits)
            }
            _ => false,
        })
    }
}

impl TrustedProxy {
    fn parse(text: &str) -> Option<TrustedProxy> {
        if text == "unix" {
            return Some(TrustedProxy::Unix);
        }
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let max_bits = if address.is_ipv4() { 32 } else { 128 };
        Some(TrustedProxy::Network(address, bits.unwrap_or(max_bits)))
            .filter(|_| bits.is_none_or(|bits: u8| bits <= max_bits))
    }
}

/// Returns true if the first `bits` bits of `address` are equal to those of `network`.
fn is_in_network(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    // `checked_shr` returns `None` if the shift has the full width, which means that no bits are
    // compared.
    let same = |a: u128, b: u128, max_bits: u32| {
        (a ^ b).checked_shr(max_bits - u32::from(bits)).unwrap_or(0) == 0
    };
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_addresses_networks_and_unix_sockets() {
        let proxies =
            TrustedProxies::parse(["192.0.2.1", "10.0.0.0/8", "2001:db8::/32", "::1", "unix"])
                .unwrap();
        for (client, expected) in [
            ("192.0.2.1", true),
            ("192.0.2.2", false),
            ("::ffff:192.0.2.1", true),
            ("10.255.0.1", true),
            ("11.0.0.1", false),
            ("2001:db8:ffff::1", true),
            ("2001:db9::1", false),
            ("::1", true),
            ("::2", false),
        ] {
            assert_eq!(proxies.contains(Some(client.parse().unwrap())), expected, "{client}");
        }
        assert!(proxies.contains(None));
        let all = TrustedProxies::parse(["0.0.0.0/0"]).unwrap();
        assert!(all.contains(Some("8.8.8.8".parse().unwrap())));
        assert!(!all.contains(Some("::1".parse().unwrap())) && !all.contains(None));
        let none = TrustedProxies::parse([]).unwrap();
        assert!(none.is_empty() && !none.contains(None));
        for wrong in ["", "localhost", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/x", "/8"] {
            assert_eq!(TrustedProxies::parse([wrong]).unwrap_err(), InvalidProxy(wrong.to_owned()));
        }
    }
}
