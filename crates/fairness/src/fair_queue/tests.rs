//! Tests of the fair queue: examples, and a model test with arbitrary peers.

use std::collections::{HashMap, HashSet};

use rookery_test_support::Random;

use super::*;

/// The number of steps of the model test, unless the environment sets another.
const STEPS: usize = 20_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    /// A request or message, with its number.
    Request(usize),
    Message(usize),
    /// An item that no limit counts, such as the end of a WebSocket.
    End(usize),
}

impl Item {
    fn number(self) -> usize {
        match self {
            Item::Request(number) | Item::Message(number) | Item::End(number) => number,
        }
    }
}

impl Queued for Item {
    fn load(&self) -> Load {
        match self {
            Item::Request(_) => Load { requests: 1, ..Load::default() },
            Item::Message(number) => Load { messages: 1, bytes: number % 100, requests: 0 },
            Item::End(_) => Load::default(),
        }
    }
}

fn peer(id: u64) -> Peer {
    Peer::new(id, id / 10)
}

fn numbers(queue: &mut FairQueue<Item>) -> Vec<usize> {
    std::iter::from_fn(|| queue.pop()).map(|(_, item)| item.number()).collect()
}

fn of(items: &[(u64, usize)]) -> FairQueue<Item> {
    let mut queue = FairQueue::default();
    for (id, number) in items {
        queue.push(peer(*id), Item::Request(*number));
    }
    queue
}

#[test]
fn peers_take_turns_and_the_items_of_each_keep_their_order() {
    let mut queue = of(&[(1, 1), (1, 2), (1, 3), (2, 4), (2, 5), (3, 6)]);
    assert_eq!((queue.len(), queue.peers(), queue.held(peer(1)).requests), (6, 3, 3));
    assert_eq!(numbers(&mut queue), [1, 4, 6, 2, 5, 3]);
    assert!(queue.is_empty() && queue.load() == Load::default());
}

#[test]
fn an_item_that_is_put_back_is_the_next() {
    let mut queue = of(&[(1, 1), (2, 2), (3, 3)]);
    let (first, item) = queue.pop().unwrap();
    queue.push(first, Item::Request(4));
    queue.put_back(first, item, |_| true);
    assert_eq!(numbers(&mut queue), [1, 2, 3, 4]);
}

#[test]
fn an_item_is_inserted_among_those_of_its_peer() {
    let mut queue = of(&[(1, 1), (1, 5), (2, 2)]);
    queue.insert(peer(1), Item::Request(3), |other| other.number() > 3);
    assert_eq!(numbers(&mut queue), [1, 2, 3, 5]);
}

#[test]
fn only_the_peer_of_the_first_wanted_item_loses_its_turn() {
    let mut queue = of(&[(1, 1), (2, 2), (2, 3), (3, 4)]);
    let all = |_| true;
    assert_eq!(queue.take_first(all, |item| item.number() > 2), Some((peer(2), Item::Request(3))));
    assert_eq!(queue.take_first(all, |item| item.number() > 9), None);
    assert_eq!(queue.take_first(|of| of == peer(2), |item| item.number() > 2), None);
    queue.push(peer(2), Item::Request(5));
    assert_eq!(numbers(&mut queue), [1, 4, 2, 5]);
}

#[test]
fn all_wanted_items_are_taken() {
    let mut queue = of(&[(1, 1), (1, 2), (1, 3), (2, 4), (3, 5)]);
    let taken = queue.take_all(|item| item.number() % 2 == 0);
    assert_eq!(taken, [Item::Request(2), Item::Request(4)]);
    assert_eq!((queue.load().requests, queue.peers(), queue.heads().count()), (3, 2, 2));
    assert_eq!(numbers(&mut queue), [1, 5, 3]);
}

#[test]
fn the_newest_request_of_the_largest_peer_in_the_largest_network_makes_place() {
    // The network of peers 1 and 2 has five requests, and peer 11 alone has four.
    let mut queue = of(&[(11, 1), (11, 2), (11, 3), (11, 4), (1, 5), (1, 6), (1, 7), (2, 8)]);
    queue.push(peer(2), Item::Request(9));
    queue.push(peer(1), Item::End(10));
    assert_eq!(queue.displace(peer(21)), Some(Item::Request(7)));
    // Now both networks have four.
    assert_eq!(queue.displace(peer(11)), None, "it has no fewer");
    assert_eq!(queue.displace(peer(21)), Some(Item::Request(9)));
    // In its own network, a peer that has fewer gets the place of the one that has most.
    queue.push(peer(1), Item::Request(11));
    queue.push(peer(2), Item::Request(12));
    assert_eq!(queue.displace(peer(1)), None);
    assert_eq!(queue.displace(peer(2)), None);
    assert_eq!(queue.displace(peer(3)), Some(Item::Request(11)));
    // The turns stay as they were.
    assert_eq!(numbers(&mut queue), [1, 5, 2, 8, 3, 6, 4, 12, 10]);
}

#[test]
fn two_queues_with_one_limit_displace_as_one_queue_would() {
    let mut queues = [of(&[(1, 1), (1, 2), (11, 3)]), of(&[(1, 4), (2, 5), (11, 6), (21, 7)])];
    let mut displace = |peer| {
        let [first, second] = &mut queues;
        FairQueue::displace_from(&mut [first, second], peer)
    };
    // The network of peers 1 and 2 has four requests, and that of peer 11 has two.
    assert_eq!(displace(peer(11)), Some(Item::Request(2)));
    assert_eq!(displace(peer(11)), None);
    assert_eq!(displace(peer(1)), None);
    assert_eq!(displace(peer(31)), Some(Item::Request(1)));
    assert_eq!(displace(peer(32)), Some(Item::Request(3)), "the networks have two each");
}

#[test]
fn a_message_that_is_longer_than_the_limit_keeps_no_other_network_out() {
    let limit = Load { messages: 100, bytes: 10, requests: 0 };
    let mut queue = of(&[(1, 1)]);
    queue.push(peer(1), Item::Message(99));
    assert!(!queue.admits_message(peer(1), limit) && !queue.admits_message(peer(2), limit));
    assert!(queue.admits_message(peer(11), limit));
    queue.push(peer(11), Item::Message(1));
    assert!(!queue.admits_message(peer(11), limit) && !queue.admits_message(peer(12), limit));
}

#[test]
fn networks_share_the_places_for_messages_equally() {
    let limit = Load { messages: 100, bytes: 1000, requests: 0 };
    let mut queue = FairQueue::default();
    let fill = |queue: &mut FairQueue<Item>, peers: &mut dyn Iterator<Item = Peer>| {
        let before = queue.len();
        while let Some(peer) = peers.next().filter(|peer| queue.admits_message(*peer, limit)) {
            queue.push(peer, Item::Message(100));
        }
        queue.len() - before
    };
    let [first, second, third] =
        [1, 2, 11].map(|id| fill(&mut queue, &mut std::iter::repeat(peer(id))));
    assert_eq!((first, first + second), (50, 67), "a peer, and two of one network");
    assert_eq!(third, 17, "another network shares the rest in the same way");
    let many = fill(&mut queue, &mut (1000..).map(|id| Peer::new(id, 1000)));
    assert_eq!(67 + third + many, 150, "peers without messages may add one, up to this load");
    assert!(!queue.admits_message(peer(2), limit), "its network has messages");
    let networks = fill(&mut queue, &mut (2000..).map(|id| Peer::new(id, id)));
    assert_eq!(networks, 50, "a network without messages may add one, up to twice the limit");
    let (first, _) = queue.pop().unwrap();
    assert!(queue.admits_message(Peer::new(3000, 3000), limit));
    assert!(!queue.admits_message(first, limit));
}

#[test]
fn an_item_waits_for_one_of_each_other_network_and_of_each_peer_of_its_own() {
    let mut queue = FairQueue::default();
    for id in 0..1000 {
        (0..3).for_each(|number| queue.push(Peer::new(id, 1), Item::Request(number)));
    }
    for id in [1001, 1002, 1003] {
        (0..3).for_each(|number| queue.push(Peer::new(id, 2), Item::Request(number)));
    }
    let honest = [Peer::new(2001, 3), Peer::new(2002, 4), Peer::new(2003, 4)];
    for peer in honest {
        queue.push(peer, Item::Request(0));
    }
    let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(peer, _)| peer).collect();
    let places = honest.map(|peer| order.iter().position(|other| *other == peer).unwrap());
    // The second peer of a network waits for a second turn of the networks.
    assert_eq!(places, [2, 3, 6]);
    assert_eq!(order.len(), 3 * 1003 + 3);
}

#[test]
fn an_empty_queue_keeps_little_memory() {
    let mut queue = FairQueue::default();
    for id in 0..5000 {
        queue.push(Peer::new(id, id), Item::End(0));
    }
    (0..1000).for_each(|_| queue.push(Peer::new(0, 0), Item::End(0)));
    while queue.pop().is_some() {}
    assert_eq!(queue.lanes.len() + queue.networks.len(), 0);
    assert_eq!(queue.lanes.allocated() + queue.networks.allocated(), 0);
    // A peer alone needs no lane.
    (0..1000).for_each(|_| queue.push(Peer::new(0, 0), Item::End(0)));
    while queue.pop().is_some() {}
    assert_eq!(queue.lanes.allocated(), 0);
    (0..1000).for_each(|_| queue.push(Peer::new(0, 0), Item::End(0)));
    (0..1000).for_each(|_| queue.push(Peer::new(1, 0), Item::End(0)));
    while queue.pop().is_some() {}
    assert_eq!(queue.lanes.allocated(), 2);
    let kept = [&queue.alone, &queue.lanes[0].items, &queue.lanes[1].items];
    assert!(kept.iter().all(|items| items.capacity() <= KEPT_ITEMS), "{kept:?}");
}

/// The items that have overtaken others: for each peer or network that has items, the number of
/// items of each other one that were taken since its last turn.
#[derive(Default)]
struct Overtaken(HashMap<u64, HashMap<u64, usize>>);

impl Overtaken {
    /// Records that one had its turn while `waiting` waited.
    fn on_turn(&mut self, of: u64, waiting: impl Iterator<Item = u64>) {
        self.0.remove(&of);
        for other in waiting.filter(|other| *other != of) {
            let overtaken = self.0.entry(other).or_default().entry(of).or_default();
            *overtaken += 1;
            assert!(*overtaken <= 1, "{other} waits for more than one item of {of}");
        }
    }
}

/// The items in the queue, by peer, and the turns that others had.
#[derive(Default)]
struct Model {
    waiting: HashMap<u64, VecDeque<Item>>,
    peers: Overtaken,
    networks: Overtaken,
}

impl Model {
    /// Records that `item` of a peer was taken as its next one, where only the peers for which
    /// `is_wanted` returns true had turns.
    fn on_taken(&mut self, of: Peer, item: Item, is_wanted: impl Fn(Peer) -> bool) {
        let items = self.waiting.get_mut(&of.id()).expect("a peer with items");
        assert_eq!(items.pop_front(), Some(item), "the order within a peer");
        self.remove_if_empty(of);
        let waiting = || self.waiting.keys().map(|id| peer(*id)).filter(|peer| is_wanted(*peer));
        let siblings = waiting().filter(|other| other.network() == of.network());
        self.peers.on_turn(of.id(), siblings.map(Peer::id));
        let networks: HashSet<_> = waiting().map(Peer::network).collect();
        self.networks.on_turn(of.network(), networks.into_iter());
    }

    fn on_removed(&mut self, item: Item) {
        let (id, items) =
            self.waiting.iter_mut().find(|(_, items)| items.contains(&item)).expect("it waits");
        items.retain(|other| *other != item);
        let id = *id;
        self.remove_if_empty(peer(id));
    }

    /// Forgets the turns of a peer, and of its network, that has no more items.
    fn remove_if_empty(&mut self, of: Peer) {
        if self.waiting[&of.id()].is_empty() {
            self.waiting.remove(&of.id());
            self.peers.0.remove(&of.id());
        }
        if !self.waiting.keys().any(|id| peer(*id).network() == of.network()) {
            self.networks.0.remove(&of.network());
        }
    }

    fn check(&self, queue: &FairQueue<Item>, limit: Load) {
        let all = self.waiting.values().flatten();
        assert_eq!(queue.len(), all.clone().count());
        assert_eq!(queue.peers(), self.waiting.len());
        let mut load = Load::default();
        all.for_each(|item| load += item.load());
        assert_eq!(queue.load(), load);
        assert!(load.requests <= limit.requests);
        // Beyond the limit of bytes, each network may add a message.
        let most_bytes = 2 * limit.bytes + 100 * queue.networks();
        assert!(load.messages <= 2 * limit.messages && load.bytes < most_bytes);
    }
}

/// Peers push, take and end in an arbitrary order, under the limits of a link. Every peer makes
/// progress: between two turns of a network, each other network has at most one, and between two
/// turns of a peer, so has each other peer of its network.
#[test]
fn every_peer_makes_progress_whatever_the_others_do() {
    let steps = std::env::var("ROOKERY_MODEL_STEPS").ok().and_then(|steps| steps.parse().ok());
    let limit = Load { requests: 40, messages: 60, bytes: 2000 };
    let (mut queue, mut model) = (FairQueue::default(), Model::default());
    let mut random = Random::new(1);
    for step in 0..steps.unwrap_or(STEPS) {
        // A few peers do most, and among the others most have no item.
        let of = peer((random.below(4) * (1 + random.below(30))) as u64);
        // Floods and pauses follow each other.
        let is_flood = step / 500 % 2 == 0;
        match random.below(if is_flood { 10 } else { 20 }) {
            0..=2 => {
                if queue.load().requests < limit.requests {
                } else if let Some(displaced) = queue.displace(of) {
                    model.on_removed(displaced);
                } else {
                    let (own, most) = requests_of_networks(&queue, of);
                    assert!(own + 1 >= most, "refused with {own} where another network has {most}");
                    continue;
                }
                queue.push(of, Item::Request(step));
                model.waiting.entry(of.id()).or_default().push_back(Item::Request(step));
            }
            3..=5 if queue.admits_message(of, limit) => {
                queue.push(of, Item::Message(step));
                model.waiting.entry(of.id()).or_default().push_back(Item::Message(step));
            }
            6 => {
                queue.push(of, Item::End(step));
                model.waiting.entry(of.id()).or_default().push_back(Item::End(step));
            }
            7 if random.below(10) == 0 => {
                // The requests of a client that has disconnected are removed.
                let is_of = |item: &Item| {
                    matches!(item, Item::Request(_))
                        && model.waiting.get(&of.id()).is_some_and(|items| items.contains(item))
                };
                for item in queue.take_all(is_of) {
                    model.on_removed(item);
                }
            }
            8 => {
                // A request that no worker can begin yet is put back.
                if let Some((of, item)) = queue.pop() {
                    queue.put_back(of, item, |_| true);
                    assert_eq!(queue.heads().next(), Some(&item));
                }
            }
            9 => {
                let is_wanted = |peer: Peer| peer.id() % 3 != step as u64 % 3;
                match queue.pop_of(is_wanted) {
                    Some((of, item)) => model.on_taken(of, item, is_wanted),
                    None => assert!(!model.waiting.keys().any(|id| is_wanted(peer(*id)))),
                }
            }
            _ => {
                if let Some((of, item)) = queue.pop() {
                    model.on_taken(of, item, |_| true);
                }
            }
        }
        if step % 16 == 0 {
            model.check(&queue, limit);
        }
    }
    while let Some((of, item)) = queue.pop() {
        model.on_taken(of, item, |_| true);
    }
    model.check(&queue, limit);
}

/// Returns the number of requests of the peer's network, and of the network that has the most.
fn requests_of_networks(queue: &FairQueue<Item>, of: Peer) -> (usize, usize) {
    let networks = queue.turns.iter(&queue.networks).map(|at| queue.networks[at].load.requests);
    (queue.held_by_network(of.network()).requests, networks.max().unwrap_or(0))
}
