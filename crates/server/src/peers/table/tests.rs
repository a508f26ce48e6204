//! A model of the table: peers come and go in any order, with a seat or within another, and the clock ticks.

use std::cell::Cell;

use super::*;
use crate::peers::budget::budget;
use crate::peers::random::for_all_sequences;

/// A peer that notes the tick at which it was last looked at.
#[derive(Debug)]
struct Noted {
    has_seat: bool,
    swept: Cell<Option<u32>>,
}

impl Peer for Noted {
    fn listener(&self) -> ListenerId {
        1
    }

    fn serial(&self) -> u64 {
        0
    }

    fn sweep(&self, now: u32) {
        self.swept.set(Some(now));
    }

    fn slowness(&self, _now: u32) -> Option<u32> {
        None
    }

    fn held(&self, _share: Share) -> usize {
        0
    }

    fn evict(&self, _share: Share, _held: usize) {}

    fn give_seat(&self) {}

    fn stop(&self) {}

    fn abort(&self) {}

    fn is_owed(&self) -> bool {
        false
    }

    fn has_seat(&self) -> bool {
        self.has_seat
    }

    fn is_ending(&self) -> bool {
        false
    }

    fn wake(&self) {}
}

fn noted(has_seat: bool) -> Rc<Noted> {
    Rc::new(Noted { has_seat, swept: Cell::new(None) })
}

/// The table, and what is known to be in it: a place is vacant while a connection becomes a WebSocket.
struct Model {
    peers: Rc<Peers>,
    inside: Vec<(Seat, Option<Rc<Noted>>, bool)>,
}

/// What the model does, by number: where it does something to a peer, `at` says to which.
const KINDS: usize = 6;

impl Model {
    fn new() -> Model {
        let limits = Limits::default();
        let shares = budget(&limits);
        Model { peers: Peers::new(limits, shares, None), inside: Vec::new() }
    }

    fn join(&mut self, has_seat: bool) {
        let peer = noted(has_seat);
        let seat = self.peers.join(Rc::clone(&peer) as _);
        self.inside.push((seat, Some(peer), has_seat));
    }

    fn does(&mut self, operation: usize, at: usize) -> Result<(), String> {
        let some = if self.inside.is_empty() { None } else { Some(at % self.inside.len()) };
        match (operation, some) {
            (0, _) => self.join(true),
            (1, _) => self.join(false),
            // It closes: of a connection with streams, the connection or a stream first.
            (2, Some(at)) => drop(self.inside.swap_remove(at)),
            (3, Some(at)) => {
                self.inside[at].0.vacate();
                self.inside[at].1 = None;
            }
            (4, Some(at)) => {
                let (seat, peer, has_seat) = &mut self.inside[at];
                let next = noted(*has_seat);
                seat.give(Rc::clone(&next) as _);
                *peer = Some(next);
            }
            _ => self.tick()?,
        }
        self.check()
    }

    fn tick(&mut self) -> Result<(), String> {
        self.peers.sweep();
        let now = Some(self.peers.clock.now());
        let missed =
            self.inside.iter().flat_map(|(_, peer, _)| peer).filter(|peer| peer.swept.get() != now);
        match missed.count() {
            0 => Ok(()),
            missed => Err(format!("{missed} were not looked at")),
        }
    }

    fn check(&self) -> Result<(), String> {
        let seats = self.inside.iter().filter(|(.., has_seat)| *has_seat).count();
        if self.peers.len() != seats {
            return Err(format!("{} have a seat, and not {seats}", self.peers.len()));
        }
        if self.peers.is_empty() != self.inside.is_empty() {
            return Err(format!("empty: {}, with {}", self.peers.is_empty(), self.inside.len()));
        }
        let there = self.inside.iter().filter(|(_, peer, _)| peer.is_some()).count();
        let listed = self.peers.of(1).len();
        if listed == there { Ok(()) } else { Err(format!("{listed} are listed, and not {there}")) }
    }
}

#[test]
fn every_peer_is_looked_at_each_tick_whatever_came_and_went() {
    for_all_sequences(KINDS * 5, 40, |operations| {
        let mut model = Model::new();
        for operation in operations {
            model.does(operation % KINDS, operation / KINDS)?;
        }
        model.tick()?;
        // The last one goes, and another comes.
        model.inside.clear();
        model.check()?;
        model.join(true);
        model.tick()?;
        model.check()
    });
}

#[test]
fn a_stream_that_outlives_its_connection_stops_nothing() {
    let mut model = Model::new();
    model.join(true);
    model.join(false);
    drop(model.inside.remove(0));
    assert_eq!((model.peers.len(), model.peers.is_empty()), (0, false));
    model.tick().unwrap();
    model.join(true);
    model.tick().unwrap();
    assert_eq!(model.peers.len(), 1);
}
