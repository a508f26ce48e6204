//! The open files of clients, by the peers to which they are attributed. The file that is closed
//! for another one is thus found without a search over all connections, which clients could cause
//! with each request.

use std::cell::RefCell;
use std::cmp::Reverse;

use rookery_exchange::{ById, Peer};

/// The open files of clients: spooled bodies of requests, and files that responses consist of.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles(RefCell<Files>);

#[derive(Debug, Default)]
struct Files {
    peers: ById<PeerFiles>,
    /// The number of files of each network.
    networks: ById<usize>,
}

/// The files of one peer.
#[derive(Debug)]
struct PeerFiles {
    network: u64,
    /// The keys of the entries of the connection table that have the files, from the oldest to the
    /// newest file. An entry with several files has its key here several times.
    holders: Vec<usize>,
}

/// The rank of a peer among those of which a file may be closed for another peer: whether its
/// network is another one, the number of files of its network, the network, the number of its own
/// files, and its id.
type Rank = (bool, usize, u64, usize, u64);

impl OpenFiles {
    /// Counts a file of a peer, which the entry with this key has opened.
    pub(crate) fn add(&self, peer: Peer, key: usize) {
        let mut files = self.0.borrow_mut();
        let new = || PeerFiles { network: peer.network(), holders: Vec::new() };
        files.peers.entry(peer.id()).or_insert_with(new).holders.push(key);
        *files.networks.entry(peer.network()).or_default() += 1;
    }

    /// Ends the count of a file that [`add`](Self::add) has counted.
    pub(crate) fn remove(&self, peer: Peer, key: usize) {
        let files = &mut *self.0.borrow_mut();
        let Some(of_peer) = files.peers.get_mut(&peer.id()) else { return };
        let Some(at) = of_peer.holders.iter().rposition(|holder| *holder == key) else { return };
        of_peer.holders.remove(at);
        if of_peer.holders.is_empty() {
            files.peers.remove(&peer.id());
        }
        if let Some(count) = files.networks.get_mut(&peer.network()) {
            *count -= 1;
            if *count == 0 {
                files.networks.remove(&peer.network());
            }
        }
        if files.peers.is_empty() {
            *files = Files::default();
        }
    }

    /// Passes the keys of entries with files to `find`, until it returns a value. Passes only those
    /// of peers that have more files than `newcomer` would have with another one: as a network if
    /// theirs is another one, and otherwise themselves. The newest file of the largest peer, within
    /// the largest network, comes first.
    pub(super) fn find_larger<T>(
        &self,
        newcomer: Peer,
        find: impl Fn(usize) -> Option<T>,
    ) -> Option<T> {
        let files = self.0.borrow();
        let mut ranks = files.larger(newcomer);
        ranks.sort_unstable_by_key(|rank| Reverse(*rank));
        ranks.into_iter().find_map(|(.., id)| {
            let holders = files.peers.get(&id).map_or(&[][..], |it| &it.holders);
            holders.iter().rev().find_map(|key| find(*key))
        })
    }
}

impl Files {
    fn of_network(&self, network: u64) -> usize {
        self.networks.get(&network).copied().unwrap_or(0)
    }

    /// Returns the ranks of the peers that have more files than `newcomer` would have.
    fn larger(&self, newcomer: Peer) -> Vec<Rank> {
        let own_network = self.of_network(newcomer.network()) + 1;
        let own = self.peers.get(&newcomer.id()).map_or(0, |own| own.holders.len()) + 1;
        let ranks = self.peers.iter().filter_map(|(id, files)| {
            let (of_network, count) = (self.of_network(files.network), files.holders.len());
            let is_other = files.network != newcomer.network();
            let is_larger = if is_other { of_network > own_network } else { count > own };
            is_larger.then_some((is_other, of_network, files.network, count, *id))
        });
        ranks.collect()
    }
}
