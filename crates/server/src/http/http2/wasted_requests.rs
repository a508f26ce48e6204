//! The requests that are wasted on an HTTP/2 connection. A client that wastes too many loses its
//! connection. A client behind a trusted proxy is refused for a while instead, because the requests
//! of all clients depend on the proxy's connection.

use rookery_exchange::{ById, Peer};

/// The number of requests that a client may waste on an HTTP/2 connection before it can count as
/// abusive. A request is wasted if it is malformed or if the client resets it. Beyond this number,
/// a client counts as abusive only if it wastes more than half of its requests, because a browser
/// that leaves a page resets all requests under way.
const MAX_WASTED: u64 = 100;

/// Returns true if a client that has opened and wasted these numbers of requests is abusive.
pub(super) fn is_wasteful(wasted: u64, opened: u64) -> bool {
    wasted > MAX_WASTED && wasted > opened / 2
}

/// The number of clock ticks after which the server forgets what a client has wasted. A tick is at
/// most a second.
const FORGOTTEN_AFTER: u32 = 60;

/// The number of clients for which a connection counts requests. If more waste requests within
/// [`FORGOTTEN_AFTER`], each of them wastes few, and all counts are reset.
const MAX_COUNTED: usize = 1024;

/// The requests of the clients behind a trusted proxy, counted for each client that has wasted one.
#[derive(Debug, Default)]
pub(super) struct WastedByClient(ById<Counts>);

#[derive(Debug)]
struct Counts {
    /// The clock tick of the first wasted request.
    since: u32,
    opened: u64,
    wasted: u64,
}

impl Counts {
    fn is_outdated(&self, now: u32) -> bool {
        now.wrapping_sub(self.since) >= FORGOTTEN_AFTER
    }
}

impl WastedByClient {
    /// Counts a request that a client has reset or that was malformed.
    pub(super) fn count_wasted(&mut self, peer: Peer, now: u32) {
        if self.0.len() >= MAX_COUNTED && !self.0.contains_key(&peer.id()) {
            self.0.retain(|_, counts| !counts.is_outdated(now));
            if self.0.len() >= MAX_COUNTED {
                self.0.clear();
            }
        }
        let first = || Counts { since: now, opened: 1, wasted: 0 };
        self.0.entry(peer.id()).or_insert_with(first).wasted += 1;
    }

    /// Counts a new request of a client. Returns false, and does not count the request, if the
    /// client has wasted too many.
    pub(super) fn admits(&mut self, peer: Peer, now: u32) -> bool {
        // Most connections have no such client.
        if self.0.is_empty() {
            return true;
        }
        let Some(counts) = self.0.get_mut(&peer.id()) else { return true };
        if counts.is_outdated(now) {
            self.0.remove(&peer.id());
            return true;
        }
        if is_wasteful(counts.wasted, counts.opened) {
            return false;
        }
        counts.opened += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waste(clients: &mut WastedByClient, peer: Peer, times: u64) {
        for _ in 0..times {
            assert!(clients.admits(peer, 7));
            clients.count_wasted(peer, 7);
        }
    }

    #[test]
    fn a_client_that_wastes_its_requests_is_refused_for_a_while() {
        let mut clients = WastedByClient::default();
        let [wasteful, other] = [1, 2].map(|id| Peer::new(id, id));
        waste(&mut clients, other, MAX_WASTED);
        waste(&mut clients, wasteful, MAX_WASTED + 1);
        assert!(!clients.admits(wasteful, 7 + FORGOTTEN_AFTER - 1));
        assert!(clients.admits(other, 7) && clients.admits(Peer::new(3, 3), 7));
        assert!(clients.admits(wasteful, 7 + FORGOTTEN_AFTER));
    }

    #[test]
    fn a_client_that_wastes_less_than_half_of_its_requests_is_served() {
        let (mut clients, peer) = (WastedByClient::default(), Peer::new(1, 1));
        for _ in 0..1000 {
            clients.count_wasted(peer, 7);
            assert!((0..3).all(|_| clients.admits(peer, 7)));
        }
    }

    #[test]
    fn the_number_of_counted_clients_is_limited() {
        let mut clients = WastedByClient::default();
        for id in 0..100_000 {
            clients.count_wasted(Peer::new(id, id), 7);
            assert!(clients.0.len() <= MAX_COUNTED);
        }
    }
}
