//! How many connections each address has.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;

/// Connections of each address; empty while they have no limit.
#[derive(Debug, Default)]
pub(crate) struct ConnectionsPerIp(RefCell<HashMap<IpAddr, usize>>);

/// A connection among those of its address; given up when it is dropped.
#[derive(Debug)]
pub(crate) struct CountedConnection {
    addresses: Rc<ConnectionsPerIp>,
    address: IpAddr,
}

impl ConnectionsPerIp {
    /// Counts a connection of `address`; `None` when it has `limit` already.
    pub(crate) fn admit(
        self: &Rc<Self>,
        address: IpAddr,
        limit: usize,
    ) -> Option<CountedConnection> {
        let address = network(address);
        let mut addresses = self.0.borrow_mut();
        let count = addresses.entry(address).or_default();
        if *count >= limit {
            // A limit of none leaves the entry made above.
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

/// What counts as one address: an IPv6 client has a /64 to itself (RFC 6177).
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
