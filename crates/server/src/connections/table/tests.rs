//! Tests of the connection table against a model. Connections and HTTP/2 streams are added,
//! replaced and removed in random order while the clock advances.

use std::cell::Cell;

use super::*;
use crate::connections::memory_budget::budget;
use crate::connections::model_testing::for_all_sequences;

/// A table entry that records the clock tick at which its deadlines were last checked.
#[derive(Debug)]
struct Recorder {
    is_substream: bool,
    swept_at: Cell<Option<u32>>,
}

impl TableEntry for Recorder {
    fn listener(&self) -> ListenerId {
        1
    }

    fn serial(&self) -> u64 {
        0
    }

    fn peer(&self) -> Peer {
        Peer::default()
    }

    fn charged(&self, _share: Share) -> usize {
        0
    }

    fn sweep(&self, now: u32) {
        self.swept_at.set(Some(now));
    }

    fn slowness(&self, _now: u32) -> Option<u32> {
        None
    }

    fn eviction_cost(&self) -> Option<EvictionCost> {
        None
    }

    fn held(&self, _share: Share) -> usize {
        0
    }

    fn evict_for_memory(&self, _share: Share, _held: usize) {}

    fn evict_for_slot(&self) {}

    fn stop(&self) {}

    fn abort(&self) {}

    fn is_awaiting_response(&self) -> bool {
        false
    }

    fn is_substream(&self) -> bool {
        self.is_substream
    }

    fn is_ending(&self) -> bool {
        false
    }

    fn wake(&self) {}
}

fn recorder(is_substream: bool) -> Rc<Recorder> {
    Rc::new(Recorder { is_substream, swept_at: Cell::new(None) })
}

/// The connection table under test, and a simple model of it: the entries that the table must
/// contain. The entry of a slot is `None` while a connection becomes a WebSocket.
struct Model {
    connections: Rc<ConnectionTable>,
    slots: Vec<(Slot, Option<Rc<Recorder>>, bool)>,
}

/// The number of kinds of operations that the random test applies to the table.
const KINDS: usize = 6;

impl Model {
    fn new() -> Model {
        let limits = Limits::default();
        let shares = budget(&limits);
        Model { connections: ConnectionTable::new(&limits, shares, None), slots: Vec::new() }
    }

    fn insert(&mut self, is_substream: bool) {
        let entry = recorder(is_substream);
        let slot = self.connections.insert(Rc::clone(&entry) as _);
        self.slots.push((slot, Some(entry), is_substream));
    }

    /// Applies one random operation to the table and to the model of what it must contain. `at`
    /// selects the slot that the operation changes.
    fn apply(&mut self, operation: usize, at: usize) -> Result<(), String> {
        let at = if self.slots.is_empty() { None } else { Some(at % self.slots.len()) };
        match (operation, at) {
            (0, _) => self.insert(false),
            (1, _) => self.insert(true),
            // A connection may be removed before or after its streams.
            (2, Some(at)) => drop(self.slots.swap_remove(at)),
            (3, Some(at)) => {
                self.slots[at].0.clear();
                self.slots[at].1 = None;
            }
            (4, Some(at)) => {
                let (slot, entry, is_substream) = &mut self.slots[at];
                let next = recorder(*is_substream);
                slot.replace(Rc::clone(&next) as _);
                *entry = Some(next);
            }
            _ => self.tick()?,
        }
        self.check()
    }

    fn tick(&mut self) -> Result<(), String> {
        self.connections.sweep();
        let now = Some(self.connections.clock.now());
        let missed = self
            .slots
            .iter()
            .flat_map(|(_, entry, _)| entry)
            .filter(|entry| entry.swept_at.get() != now);
        match missed.count() {
            0 => Ok(()),
            missed => Err(format!("{missed} entries were not swept")),
        }
    }

    fn check(&self) -> Result<(), String> {
        let expected = self.slots.iter().filter(|(.., is_substream)| !is_substream).count();
        let len = self.connections.len();
        if len != expected {
            return Err(format!("{len} connections instead of {expected}"));
        }
        let is_empty = self.connections.is_empty();
        if is_empty != self.slots.is_empty() {
            return Err(format!("is_empty() is {is_empty} with {} entries", self.slots.len()));
        }
        let expected = self.slots.iter().filter(|(_, entry, _)| entry.is_some()).count();
        let listed = self.connections.of_listener(1).len();
        if listed == expected {
            Ok(())
        } else {
            Err(format!("{listed} listed entries instead of {expected}"))
        }
    }
}

#[test]
fn each_tick_sweeps_every_entry_after_any_sequence_of_operations() {
    for_all_sequences(KINDS * 5, 40, |operations| {
        let mut model = Model::new();
        for operation in operations {
            model.apply(operation % KINDS, operation / KINDS)?;
        }
        model.tick()?;
        // The table becomes empty and is then used again.
        model.slots.clear();
        model.check()?;
        model.insert(false);
        model.tick()?;
        model.check()
    });
}

#[test]
fn a_stream_that_outlives_its_connection_does_not_disturb_the_table() {
    let mut model = Model::new();
    model.insert(false);
    model.insert(true);
    drop(model.slots.remove(0));
    assert_eq!((model.connections.len(), model.connections.is_empty()), (0, false));
    model.tick().unwrap();
    model.insert(false);
    model.tick().unwrap();
    assert_eq!(model.connections.len(), 1);
}
