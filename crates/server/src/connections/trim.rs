//! The schedule for returning free memory to the operating system.

use std::cell::Cell;

/// The number of clock ticks from the last release of memory by a connection until all free memory
/// is returned to the system.
const QUIET_TICKS: u32 = 2;

/// The schedule by which the allocator is made to return free memory to the operating system. It is
/// needed because allocators return free memory only when the program allocates or frees memory,
/// and a server whose clients have disconnected does neither.
#[derive(Debug, Default)]
pub(crate) struct Trim {
    trim: Option<fn(bool)>,
    /// The number of clock ticks until all free memory is returned to the system, or 0 if no return
    /// is scheduled.
    ticks_left: Cell<u32>,
}

impl Trim {
    /// Makes a schedule for returning free memory, which calls `trim`. The argument of `trim` is
    /// true if all free memory is to be returned, and false if only the memory that can be returned
    /// at little cost.
    pub(super) fn new(trim: Option<fn(bool)>) -> Trim {
        Trim { trim, ..Trim::default() }
    }

    /// Schedules the return of free memory to the system, because a connection was closed or has
    /// freed its buffers.
    pub(crate) fn schedule(&self) {
        self.ticks_left.set(QUIET_TICKS);
    }

    /// Returns free memory to the system if that is scheduled. Called at each clock tick. While
    /// connections are releasing memory, returns only memory that costs little to return. When they
    /// have stopped, returns all free memory.
    pub(super) fn on_tick(&self) {
        if let (Some(trim), left @ 1..) = (self.trim, self.ticks_left.get()) {
            self.ticks_left.set(left - 1);
            trim(left == 1);
        }
    }

    /// Returns all free memory to the system at once, if a return is scheduled. Called at each
    /// clock tick while there are no connections.
    pub(super) fn on_tick_without_connections(&self) {
        if let (Some(trim), 1..) = (self.trim, self.ticks_left.take()) {
            trim(true);
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
    fn all_free_memory_is_returned_once_when_no_more_is_released() {
        let trim = Trim::new(Some(|all| CALLS.with_borrow_mut(|calls| calls.push(all))));
        let tick = || -> Vec<bool> {
            trim.on_tick();
            CALLS.take()
        };
        assert!(tick().is_empty());
        trim.schedule();
        assert_eq!(tick(), [false]);
        trim.schedule();
        assert_eq!(tick(), [false]);
        assert_eq!(tick(), [true]);
        assert!(tick().is_empty());
        trim.schedule();
        trim.on_tick_without_connections();
        assert_eq!(CALLS.take(), [true]);
        assert!(tick().is_empty());
        // The clock also ticks without connections, and no further trim is made.
        trim.on_tick_without_connections();
        assert!(CALLS.take().is_empty());
        Trim::new(None).on_tick();
    }
}
