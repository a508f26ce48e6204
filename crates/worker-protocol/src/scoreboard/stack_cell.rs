//! The part of the scoreboard that contains the functions on R's stack.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::Scoreboard;
use super::text_cell::TextCell;

/// The maximum length in bytes of the text about R's stack on the scoreboard. Longer text is
/// truncated.
pub const MAX_STACK_LEN: usize = TextCell::<WORDS>::MAX_LEN;

const WORDS: usize = 30;

/// The functions that R's thread has found on its stack, and the time at which it looked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackSample {
    /// The time at which R's thread looked, according to [`now`](crate::now).
    pub at: u64,
    /// The names of the functions, the innermost first, and a place in the source code, such as
    /// `Sys.sleep < slow < handler, app.R#12`. The text contains no arguments.
    pub text: String,
}

/// The last sample of R's stack, in shared memory.
#[derive(Debug)]
#[repr(C)]
pub(super) struct StackCell {
    at: AtomicU64,
    text: TextCell<WORDS>,
}

impl StackCell {
    pub(super) const fn new() -> StackCell {
        StackCell { at: AtomicU64::new(0), text: TextCell::new() }
    }

    pub(super) fn write(&self, at: u64, text: &[u8]) {
        self.at.store(at, Relaxed);
        self.text.write([text]);
    }

    pub(super) fn clear(&self) {
        self.text.clear();
    }

    /// Returns the sample, or `None` if there is none. The time may be that of the next sample if
    /// R's thread writes one meanwhile, which is wrong by the interval of samples.
    pub(super) fn read(&self) -> Option<StackSample> {
        let text = self.text.read()?;
        Some(StackSample { at: self.at.load(Relaxed), text })
    }
}

impl Scoreboard {
    /// Returns the functions that R's thread has last found on its stack during its current
    /// activity. Returns `None` if there is no sample: R's thread takes samples only of an activity
    /// that takes long, and only where R checks for interrupts.
    pub fn stack(&self) -> Option<StackSample> {
        self.stack.0.read()
    }

    /// Records the functions that R's thread has found on its stack at the time `at`, according to
    /// [`now`](crate::now). Called on R's thread.
    pub fn set_stack(&self, at: u64, text: &[u8]) {
        self.stack.0.write(at, text);
    }
}

#[cfg(test)]
mod tests {
    use crate::{RState, Scoreboard, StackSample};

    #[test]
    fn the_stack_belongs_to_the_current_activity() {
        let scoreboard = Scoreboard::new();
        assert_eq!(scoreboard.stack(), None);
        scoreboard.set_r_state(RState::Busy, 5);
        scoreboard.set_stack(7, b"fit < handler, model.R#12");
        let expected = StackSample { at: 7, text: "fit < handler, model.R#12".to_owned() };
        assert_eq!(scoreboard.stack(), Some(expected));
        scoreboard.set_r_state(RState::Idle, 9);
        assert_eq!(scoreboard.stack(), None);
    }

    #[test]
    fn what_a_worker_writes_cannot_control_a_terminal() {
        let scoreboard = Scoreboard::new();
        scoreboard.set_stack(1, b"\x1b[2Jf\xff");
        assert_eq!(scoreboard.stack().unwrap().text, "\u{fffd}[2Jf\u{fffd}");
    }
}
