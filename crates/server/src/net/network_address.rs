//! The detection of this machine's IP address in its local network.

use std::net::{IpAddr, UdpSocket};

/// Returns the IP address of this machine in its local network, or `None` if it has no network. It
/// is the address from which the system would send a packet to another network, but no packet is
/// sent.
pub fn network_address() -> Option<IpAddr> {
    let route = |from: &str, to: &str| {
        let socket = UdpSocket::bind(from).ok()?;
        // Addresses for documentation (RFC 5737 and 3849).
        socket.connect(to).ok()?;
        socket.local_addr().ok().map(|address| address.ip())
    };
    let found = route("0.0.0.0:0", "192.0.2.1:9").or_else(|| route("[::]:0", "[2001:db8::1]:9"))?;
    (!found.is_loopback() && !found.is_unspecified()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_address_belongs_to_this_machine_and_is_not_loopback() {
        // A machine without a network has no such address.
        if let Some(own) = network_address() {
            assert!(!own.is_loopback() && !own.is_unspecified(), "{own}");
            UdpSocket::bind((own, 0)).unwrap();
        }
    }
}
