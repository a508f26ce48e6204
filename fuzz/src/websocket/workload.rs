//! A client and a server of ours that do what the input says over a transport that does what the input says, every operation
//! dropped after as many polls as the input says. What was sent is received, whole and in order, until the transport fails.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rookery_websocket::protocol::deflate::{DeflateConfig, Takeover};
use rookery_websocket::protocol::{CloseCode, Role};
use rookery_websocket::{Config, Connection, Error, Kind, Parts, SendStatus};

use super::transport::{End, Wire};

struct Side {
    connection: Connection<End>,
    /// What was sent and the other side has not read.
    sent: VecDeque<Vec<u8>>,
    has_closed: bool,
    counter: u8,
}

/// `[configuration, behaviours, behaviours..., operations...]`, an operation being two bytes: what and on which side, and
/// for how many polls.
pub fn websocket_workload(data: &[u8]) {
    let [configuration, behaviours, rest @ ..] = data else { return };
    let (behaviour, operations) = rest.split_at(usize::from(*behaviours).min(rest.len()));
    let wire = Rc::new(RefCell::new(Wire {
        channels: [VecDeque::new(), VecDeque::new()],
        is_closed: [false; 2],
        behaviour: behaviour.iter().copied().collect(),
        has_failed: false,
    }));
    let deflate = match configuration & 3 {
        0 | 1 => None,
        2 => Some(Takeover::None),
        _ => Some(Takeover::Kept),
    };
    let deflate = deflate.map(|takeover| {
        let config = DeflateConfig {
            own_takeover: takeover,
            peer_takeover: takeover,
            threshold: 8,
            ..DeflateConfig::default()
        };
        (config.choose(b"permessage-deflate").expect("an offer"), config)
    });
    let side = |role, side| {
        let parts = Parts { io: End { wire: Rc::clone(&wire), side }, role, deflate, leftover: Vec::new() };
        // Without a clock: the input decides when an operation is given up.
        let config = Config { keep_alive: None, high_water: 2000, ..Config::default() };
        Side { connection: parts.connection(config), sent: VecDeque::new(), has_closed: false, counter: 0 }
    };
    let mut sides = [side(Role::Client, 0), side(Role::Server, 1)];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _context = runtime.enter();
    for operation in operations.chunks_exact(2) {
        operate(&mut sides, operation[0], usize::from(operation[1] % 8) + 1);
    }
    // What was taken is delivered in the end, if nothing failed and nobody closed.
    if wire.borrow().has_failed || sides.iter().any(|side| side.has_closed) {
        return;
    }
    wire.borrow_mut().behaviour.clear();
    for _ in 0..10_000 {
        if sides.iter().all(|side| side.sent.is_empty()) {
            return;
        }
        operate(&mut sides, 0, 4);
        operate(&mut sides, 1, 4);
        operate(&mut sides, 6, 4);
        operate(&mut sides, 7, 4);
    }
    panic!("a message was lost: {:?}", sides.map(|side| side.sent));
}

fn operate(sides: &mut [Side; 2], what: u8, polls: usize) {
    let (first, second) = sides.split_at_mut(1);
    let (me, other) =
        if what & 1 == 0 { (&mut first[0], &mut second[0]) } else { (&mut second[0], &mut first[0]) };
    match what >> 1 & 7 {
        0 | 1 => {
            let read = poll(me.connection.read(), polls);
            let received = match read {
                Some(Ok(Some(message))) => {
                    assert!(message.kind() == Kind::Binary);
                    message.to_vec()
                }
                Some(Ok(None)) => return me.has_closed = true,
                Some(Err(error)) => return end(me, other, &error),
                None => return,
            };
            let mut expected = other.sent.pop_front().expect("nothing was sent");
            // A close throws away what comes before its answer.
            while me.has_closed && expected != received {
                expected = other.sent.pop_front().expect("what was read was sent");
            }
            assert_eq!(received, expected);
        }
        2 => {
            me.counter = me.counter.wrapping_add(1);
            let message = vec![me.counter; usize::from(me.counter) * 7 % 900];
            // Dropped while it waits, it sent nothing.
            match poll(me.connection.send(&message[..]), polls) {
                Some(Ok(_)) => me.sent.push_back(message),
                Some(Err(error)) => end(me, other, &error),
                None => {}
            }
        }
        3 => drop(poll(me.connection.flush(), polls)),
        4 => {
            me.counter = me.counter.wrapping_add(1);
            let message = vec![me.counter; usize::from(me.counter) % 140];
            match me.connection.queue(&message[..]) {
                Ok(SendStatus::Dropped) => {}
                Ok(_) => me.sent.push_back(message),
                Err(error) => end(me, other, &error),
            }
        }
        5 => match poll(me.connection.ping(), polls) {
            Some(Err(Error::MessageFirst)) | Some(Ok(_)) | None => {}
            Some(Err(error)) => end(me, other, &error),
        },
        6 => {
            let canceller = me.connection.canceller();
            canceller.cancel();
            // An end that came first is told first, or after.
            match poll(me.connection.read(), 1) {
                Some(Err(Error::Cancelled)) => {}
                other => panic!("{:?} instead of cancelled", other.map(|read| read.map(|_| ()))),
            }
        }
        _ if polls == 8 => {
            me.has_closed = true;
            let _ = poll(me.connection.close(CloseCode::NORMAL, "done"), polls);
        }
        _ => {}
    }
}

/// An error that may be: the transport failed, or one side closed.
fn end(me: &mut Side, other: &mut Side, error: &Error) {
    match error {
        Error::Io(_) | Error::Eof | Error::Closed => me.has_closed = true,
        error => panic!("{error} between two of ours ({} to read)", other.sent.len()),
    }
}

fn poll<T>(operation: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut operation = pin!(operation);
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..polls {
        if let Poll::Ready(done) = operation.as_mut().poll(&mut cx) {
            return Some(done);
        }
    }
    None
}
