//! Who may sit down: how many connections an address has, and whose seat a newcomer gets when all are taken.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;

use crate::connection::Connection;
use crate::hub::Hub;

/// The seats of one I/O thread.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    /// Connections of each address; empty while they have no limit.
    addresses: RefCell<HashMap<IpAddr, usize>>,
    /// The slowest connections at the last look, the slowest of all last.
    slowest: RefCell<Vec<Slow>>,
    /// Connections so far.
    serial: Cell<u64>,
}

/// A connection that makes no use of its seat. In the order of its fields: the longer it has not, then the older.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Slow {
    ticks: u32,
    age: std::cmp::Reverse<u64>,
    key: usize,
}

/// Connections found slow by one look over all: under attack, with every seat taken, a newcomer costs a 64th of it.
const FOUND: usize = 64;

impl Seats {
    pub(crate) fn next_serial(&self) -> u64 {
        self.serial.set(self.serial.get() + 1);
        self.serial.get()
    }

    /// Ends the slowest of `connections`, for a newcomer. `false` when all of them are being served.
    pub(crate) fn take(&self, connections: &[Option<Rc<Connection>>], now: u32) -> bool {
        let mut slowest = self.slowest.borrow_mut();
        for is_new in [false, true] {
            if is_new {
                find(connections, now, &mut slowest);
            }
            while let Some(slow) = slowest.pop() {
                let Some(Some(connection)) = connections.get(slow.key) else { continue };
                // Since the look it may have been served, or be another one.
                let is_same = connection.serial == slow.age.0;
                if is_same && connection.slowness(now).is_some_and(|ticks| ticks >= slow.ticks) {
                    connection.give_seat();
                    return true;
                }
            }
        }
        false
    }
}

fn find(connections: &[Option<Rc<Connection>>], now: u32, slowest: &mut Vec<Slow>) {
    slowest.extend(connections.iter().enumerate().filter_map(|(key, connection)| {
        let connection = connection.as_ref()?;
        let ticks = connection.slowness(now)?;
        Some(Slow { ticks, age: std::cmp::Reverse(connection.serial), key })
    }));
    if slowest.len() > FOUND {
        let rest = slowest.len() - FOUND;
        slowest.select_nth_unstable(rest);
        slowest.drain(..rest);
        slowest.shrink_to(FOUND);
    }
    slowest.sort_unstable();
}

/// A place among the connections of an address; given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    hub: Rc<Hub>,
    address: IpAddr,
}

impl Seat {
    /// Counts a connection of `address`; `None` when it has `limit` already.
    pub(crate) fn take(hub: &Rc<Hub>, address: IpAddr, limit: usize) -> Option<Seat> {
        let address = network(address);
        let mut addresses = hub.seats.addresses.borrow_mut();
        let count = addresses.entry(address).or_default();
        if *count >= limit {
            // A limit of none leaves the entry made above.
            if *count == 0 {
                addresses.remove(&address);
            }
            return None;
        }
        *count += 1;
        Some(Seat { hub: Rc::clone(hub), address })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut addresses = self.hub.seats.addresses.borrow_mut();
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
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_an_ipv4_address_or_a_network_of_64_bits() {
        let same = |a: &str, b: &str| network(a.parse().unwrap()) == network(b.parse().unwrap());
        assert!(same("192.0.2.1", "::ffff:192.0.2.1"));
        assert!(!same("192.0.2.1", "192.0.2.2"));
        assert!(same("2001:db8:0:1::1", "2001:db8:0:1:ffff::2"));
        assert!(!same("2001:db8:0:1::1", "2001:db8:0:2::1"));
    }

    #[test]
    fn the_slowest_is_last_and_of_equals_the_oldest() {
        let slow = |ticks, serial| Slow { ticks, age: std::cmp::Reverse(serial), key: 0 };
        let mut all = [slow(5, 9), slow(7, 3), slow(7, 2), slow(0, 1)];
        all.sort_unstable();
        assert_eq!(all.map(|slow| slow.age.0), [1, 9, 3, 2]);
    }
}
