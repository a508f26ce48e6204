//! Tests of the order in which a worker takes messages, through rings whose ends are both in this
//! process.

use rookery_exchange::WebSocketId;
use rookery_test_support::Random;
use rookery_worker_protocol::rings::{Beside, MAX_RECORD_LEN, Receiver, RingEnd};

use super::*;

/// The kind of the records that stand for requests.
const REQUEST: u8 = 250;

/// The number that [`Worker::take`] adds to that of a WebSocket that was closed.
const CLOSED: u64 = 1 << 32;

/// The messages to a worker, and the worker's end.
struct Worker {
    waiting: WaitingMessages,
    outbox: RingOutbox,
    receiver: Receiver,
}

impl Worker {
    fn new() -> Worker {
        let (front, _, handles) = RingEnd::create().unwrap();
        let (worker, _) = handles.attach().unwrap();
        let (outbox, receiver) = (Outbox::new(front.sender), worker.receiver);
        Worker { waiting: WaitingMessages::default(), outbox, receiver }
    }

    /// Adds a message of a peer, whose network is the hundreds of its number. Sends what may be
    /// sent.
    fn push(&mut self, peer: u64, socket: WebSocketId) {
        self.push_long(peer, socket, 1);
    }

    fn push_long(&mut self, peer: u64, socket: WebSocketId, len: usize) {
        let event = WaitingEvent::message(Peer::new(peer, peer / 100), socket, vec![b'm'; len]);
        self.waiting.push(event, &mut self.outbox);
        self.send();
    }

    fn close(&mut self, peer: u64, socket: WebSocketId) {
        let content = Content::Closed { code: 1000, is_clean: true, reason: "".into() };
        let event = WaitingEvent { peer: Peer::new(peer, peer / 100), id: socket, content };
        self.waiting.push(event, &mut self.outbox);
        self.send();
    }

    fn send(&mut self) {
        while self.outbox.waiting(Lane::Messages) == 0 {
            let Some(event) = self.waiting.next(&mut self.outbox) else { break };
            let (down, payload) = match &event.content {
                Content::Message(kind, payload) => (
                    Down::Message { socket: event.id, kind: *kind, content: b"" },
                    payload.as_bytes(),
                ),
                Content::Closed { .. } => {
                    let socket = event.id;
                    (Down::Closed { socket, code: 1000, is_clean: true, reason: b"" }, &b""[..])
                }
                other => panic!("{other:?}"),
            };
            let beside = Beside { descriptor: None, tail: payload };
            let write = |record: &mut Vec<u8>| Some(down.write(record));
            self.outbox.send(Lane::Messages, beside, write, |_| false, |_| None).unwrap();
            self.waiting.on_sent(event.peer, self.outbox.last(Lane::Messages));
        }
    }

    fn request(&mut self) {
        self.waiting.before_request(&mut self.outbox);
        let write = |_: &mut Vec<u8>| Some(REQUEST);
        self.outbox.send(Lane::Requests, Beside::default(), write, |_| false, |_| None).unwrap();
        self.waiting.on_request_sent(self.outbox.sender().sent());
        self.send();
    }

    /// Takes the next record as the worker does. Returns the WebSocket of a message, 0 for a
    /// request, and [`CLOSED`] plus the number of a WebSocket that was closed.
    fn take(&mut self) -> Option<u64> {
        let mut record = Vec::new();
        let arrived = loop {
            match self.receiver.take(&mut record).unwrap() {
                Some(arrived) => break arrived,
                None if !self.receiver.has_any() => return None,
                None => {}
            }
        };
        let taken = match arrived.kind {
            REQUEST => 0,
            kind => match Down::read(kind, &record).unwrap() {
                Down::Message { socket, .. } => socket,
                Down::Closed { socket, .. } => CLOSED + socket,
                other => panic!("{other:?}"),
            },
        };
        self.outbox.flush().unwrap();
        self.send();
        Some(taken)
    }

    fn take_all(&mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.take()).collect()
    }
}

#[test]
fn a_peer_that_was_alone_gives_way_at_once() {
    let mut worker = Worker::new();
    (1..=80).for_each(|number| worker.push(1, number));
    assert_eq!(worker.waiting.in_ring.len(), WINDOW);
    worker.push(2, 200);
    worker.push(2, 201);
    worker.push(3, 300);
    assert_eq!([(); 6].map(|()| worker.take().unwrap()), [1, 200, 300, 2, 201, 3]);
    assert_eq!(worker.take_all(), (4..=80).collect::<Vec<_>>());
}

#[test]
fn all_peers_of_a_network_together_give_way_to_another_network() {
    let mut worker = Worker::new();
    for number in 1..=50 {
        worker.push(100 + number, number);
        worker.push(100 + number, number);
    }
    worker.push(200, 200);
    worker.push(200, 201);
    assert_eq!([(); 4].map(|()| worker.take().unwrap()), [1, 200, 2, 201]);
    assert_eq!(worker.take_all().len(), 98);
}

#[test]
fn between_two_requests_comes_at_most_one_message() {
    let mut worker = Worker::new();
    (1..=70).for_each(|number| worker.push(1, number));
    worker.request();
    worker.request();
    assert_eq!([(); 4].map(|()| worker.take().unwrap()), [1, 0, 2, 0]);
    assert_eq!(worker.waiting.in_ring.len(), WINDOW, "nothing waits but these messages");
    worker.request();
    worker.request();
    assert_eq!([(); 5].map(|()| worker.take().unwrap()), [3, 0, 4, 0, 5]);
    assert_eq!(worker.take_all(), (6..=70).collect::<Vec<_>>());
}

#[test]
fn a_message_in_parts_keeps_its_place() {
    let mut worker = Worker::new();
    worker.push(1, 1);
    worker.push_long(1, 2, MAX_RECORD_LEN + 1);
    worker.push(1, 3);
    worker.close(1, 3);
    worker.push(2, 4);
    worker.request();
    let taken = worker.take_all();
    let own: Vec<_> =
        taken.iter().copied().filter(|it| [1, 2, 3, CLOSED + 3].contains(it)).collect();
    assert_eq!((own, taken.len()), (vec![1, 2, 3, CLOSED + 3], 6), "{taken:?}");
}

#[test]
fn with_arbitrary_peers_nothing_is_lost_and_each_gets_its_turn() {
    let steps = std::env::var("ROOKERY_MODEL_STEPS").map_or(20_000, |it| it.parse().unwrap());
    let (mut random, mut next) = (Random::new(1), [0_u64; 4]);
    let mut worker = Worker::new();
    // The messages of each peer are numbered, and their WebSockets are 4 * number + peer.
    let (mut expected, mut requests) = ([0_u64; 4], 0);
    // The messages and requests that were taken since the only waiting message of peer 3 arrived.
    let mut waited = None;
    let mut on_taken = |taken: u64, waited: &mut Option<[u32; 2]>, requests: &mut u32| {
        let peer = (taken % 4) as usize;
        if taken == 0 {
            *requests -= 1;
        } else {
            assert_eq!(taken / 4, expected[peer] + 1, "peer {peer}");
            expected[peer] += 1;
        }
        *waited = waited.filter(|_| taken == 0 || peer != 3);
        if let Some(waited) = waited {
            waited[usize::from(taken == 0)] += 1;
            // One message of each other network is in the ring, and one more may follow.
            assert!(waited[0] <= 4 && waited[1] <= waited[0] + 1, "{waited:?}");
        }
    };
    for _ in 0..steps {
        match random.below(16) {
            0..=5 => {
                // Peers 0 to 2 send many; peers 0 and 1 are of one network.
                let peer = random.below(3);
                for _ in 0..=random.below(8) {
                    next[peer] += 1;
                    let socket = 4 * next[peer] + peer as u64;
                    let len = if random.below(50) == 0 { MAX_RECORD_LEN + 9 } else { 3 };
                    worker.push_long([101, 102, 201, 301][peer], socket, len);
                }
            }
            6 if waited.is_none() => {
                next[3] += 1;
                worker.push(301, 4 * next[3] + 3);
                waited = Some([0, 0]);
            }
            7 if requests == 0 => {
                worker.request();
                requests += 1;
            }
            8 => {
                for _ in 0..random.below(100) {
                    let Some(taken) = worker.take() else { break };
                    on_taken(taken, &mut waited, &mut requests);
                }
            }
            _ => {
                if let Some(taken) = worker.take() {
                    on_taken(taken, &mut waited, &mut requests);
                }
            }
        }
    }
    for taken in worker.take_all() {
        on_taken(taken, &mut waited, &mut requests);
    }
    assert_eq!((next, requests), (expected, 0));
    assert!(worker.waiting.is_empty() && next[3] > 100, "{next:?}");
}
