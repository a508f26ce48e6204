//! What applications have not dealt with of the bodies that they receive in pieces.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use rookery_exchange::{Charge, ExchangeId};

use crate::peers::room::FREE;

/// The bodies that are being received, by the ids of their calls.
#[derive(Debug, Default)]
pub(crate) struct Bodies(RefCell<HashMap<ExchangeId, Rc<Waiting>>>);

/// What the application has not dealt with of one of them.
#[derive(Debug)]
pub(super) struct Waiting {
    /// The key of its connection among the peers.
    pub(super) peer: usize,
    pub(super) bytes: Cell<usize>,
    pub(super) charge: Charge,
}

impl Bodies {
    pub(super) fn open(&self, call: ExchangeId, waiting: &Rc<Waiting>) {
        self.0.borrow_mut().insert(call, Rc::clone(waiting));
    }

    pub(super) fn forget(&self, call: ExchangeId) {
        let forgotten = self.0.borrow_mut().remove(&call);
        drop(forgotten);
    }

    /// The application has dealt with bytes of a body: the key of the peer to be woken, which may read on.
    pub(crate) fn has_taken(&self, call: ExchangeId, bytes: usize) -> Option<usize> {
        let waiting = Rc::clone(self.0.borrow().get(&call)?);
        waiting.bytes.set(waiting.bytes.get().saturating_sub(bytes));
        waiting.charge();
        Some(waiting.peer)
    }
}

impl Waiting {
    /// What is charged for it.
    pub(super) fn needs(&self) -> usize {
        if self.bytes.get() <= FREE { 0 } else { self.bytes.get() }
    }

    pub(super) fn charge(&self) {
        self.charge.set(self.needs());
    }
}
