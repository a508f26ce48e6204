//! The number of connections of each IP address, for
//! [`Limits::max_connections_per_ip`](crate::Limits::max_connections_per_ip).

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;

/// The number of open connections of each IP address. The map is empty if the number is not
/// limited.
#[derive(Debug, Default)]
pub(crate) struct ConnectionsPerIp(RefCell<HashMap<IpAddr, usize>>);

/// A guard that counts a connection for its IP address until the guard is dropped.
#[derive(Debug)]
pub(crate) struct CountedConnection {
    addresses: Rc<ConnectionsPerIp>,
    address: IpAddr,
}

impl ConnectionsPerIp {
    /// Counts a new connection from `address` until the returned guard is dropped. Returns `None`
    /// if the address already has `limit` connections.
    pub(crate) fn admit(
        self: &Rc<Self>,
        address: IpAddr,
        limit: usize,
    ) -> Option<CountedConnection> {
        let address = network(address);
        let mut addresses = self.0.borrow_mut();
        let count = addresses.entry(address).or_default();
        if *count >= limit {
            // A limit of 0 leaves the new entry empty.
            if *count == 0 {
                addresses.remove(&address);
            }
            return None;
        }
        *count += 1;
        Some(CountedConnection { addresses: Rc::clone(self), address })
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut addresses = self.addresses.0.borrow_mut();
        if let Some(count) = addresses.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                addresses.remove(&self.address);
            }
        }
    }
}

/// Returns the address under which a client's connections are counted. For IPv6 it is the /64
/// network of the client, because an IPv6 client usually has such a network of its own (RFC 6177).
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_ipv4_addresses_and_ipv6_networks_of_64_bits() {
        let same = |a: &str, b: &str| network(a.parse().unwrap()) == network(b.parse().unwrap());
        assert!(same("192.0.2.1", "::ffff:192.0.2.1"));
        assert!(!same("192.0.2.1", "192.0.2.2"));
        assert!(same("2001:db8:0:1::1", "2001:db8:0:1:ffff::2"));
        assert!(!same("2001:db8:0:1::1", "2001:db8:0:2::1"));
    }
}
