//! The parsing of literal IP addresses, which need no name resolution.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Parses a literal IP address such as `127.0.0.1` or `::1`, and combines it with `port`. An IPv6
/// address may have a zone, which is the name or number of a network interface (RFC 4007, 11).
/// Returns `None` for any other text, because host names are not resolved.
pub fn literal_address(host: &str, port: u16) -> Option<SocketAddr> {
    let Some((ip, zone)) = host.split_once('%') else {
        return Some(SocketAddr::new(host.parse::<IpAddr>().ok()?, port));
    };
    let ip = ip.parse::<Ipv6Addr>().ok()?;
    let index = zone.parse::<u32>().ok().or_else(|| interface_index(zone))?;
    (index != 0).then(|| SocketAddr::V6(SocketAddrV6::new(ip, port, 0, index)))
}

/// Returns the number of the network interface with a name, which is 0 if no interface has this
/// name.
#[cfg(unix)]
fn interface_index(name: &str) -> Option<u32> {
    let name = std::ffi::CString::new(name).ok()?;
    // SAFETY: `name` is a C string that lives until the call returns.
    Some(unsafe { libc::if_nametoindex(name.as_ptr()) })
}

/// Returns `None`, because Windows shows zones as numbers.
#[cfg(not(unix))]
fn interface_index(_: &str) -> Option<u32> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_ipv6_zones_of_existing_interfaces_only() {
        assert_eq!(literal_address("127.0.0.1", 80), Some(SocketAddr::from(([127, 0, 0, 1], 80))));
        let Some(SocketAddr::V6(address)) =
            literal_address(if cfg!(unix) { "::1%lo" } else { "::1%1" }, 80)
        else {
            panic!("::1%lo is an address")
        };
        assert_eq!((address.ip(), address.port()), (&Ipv6Addr::LOCALHOST, 80));
        assert_eq!(
            literal_address(&format!("::1%{}", address.scope_id()), 80),
            Some(SocketAddr::V6(address))
        );
        for wrong in
            ["localhost", "", "::/0", "127.0.0.1%lo", "::1%nowhere", "::1%", "::1%0", "::1%a\0b"]
        {
            assert_eq!(literal_address(wrong, 80), None, "{wrong:?}");
        }
    }
}
