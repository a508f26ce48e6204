//! When memory that is free goes back to the system.

use std::cell::Cell;

/// Ticks without anything given up after which all that is free goes back.
const QUIET_TICKS: u32 = 2;

/// Has the allocator give back what is free. An allocator does so by itself only when it is used again, and a crowd that has gone
/// quiet does not use it.
#[derive(Debug, Default)]
pub(crate) struct Reclaim {
    with: Option<fn(bool)>,
    /// Ticks until all goes back; 0 when there is nothing.
    left: Cell<u32>,
}

impl Reclaim {
    pub(super) fn new(with: Option<fn(bool)>) -> Reclaim {
        Reclaim { with, ..Reclaim::default() }
    }

    /// A peer has gone, or has given its buffers up.
    pub(crate) fn expect(&self) {
        self.left.set(QUIET_TICKS);
    }

    /// Called each tick: what can be had at once while peers give up, all of it when they have done so, and then no more.
    pub(super) fn tick(&self) {
        if let (Some(reclaim), left @ 1..) = (self.with, self.left.get()) {
            self.left.set(left - 1);
            reclaim(left == 1);
        }
    }

    /// Called each tick while nobody is left: gives all back once, without waiting for the quiet ticks.
    pub(super) fn all(&self) {
        if let (Some(reclaim), 1..) = (self.with, self.left.take()) {
            reclaim(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    thread_local! {
        static CALLS: RefCell<Vec<bool>> = const { RefCell::new(Vec::new()) };
    }

    #[test]
    fn all_goes_back_once_when_nothing_more_is_given_up() {
        let reclaim = Reclaim::new(Some(|all| CALLS.with_borrow_mut(|calls| calls.push(all))));
        let tick = || {
            reclaim.tick();
            CALLS.take()
        };
        assert_eq!(tick(), []);
        reclaim.expect();
        assert_eq!(tick(), [false]);
        reclaim.expect();
        assert_eq!(tick(), [false]);
        assert_eq!(tick(), [true]);
        assert_eq!(tick(), []);
        reclaim.expect();
        reclaim.all();
        assert_eq!(CALLS.take(), [true]);
        assert_eq!(tick(), []);
        // The clock goes on without anybody, and costs nothing.
        reclaim.all();
        assert_eq!(CALLS.take(), []);
        Reclaim::new(None).tick();
    }
}
