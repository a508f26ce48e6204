//! The announcements of static paths that a worker sends to its supervisor, and their
//! confirmations.

/// The announcements of a worker, as a state machine without I/O.
///
/// Each change has a number. When the supervisor confirms a number, it has applied that change and
/// thereby replaced all earlier ones.
#[derive(Debug, Default)]
pub(in crate::runtime) struct Announcements {
    /// The content of the last change.
    bytes: Vec<u8>,
    /// The number of the last change, or 0 before the first change.
    number: u64,
    /// True if the last change has not been sent yet.
    is_pending: bool,
    /// The number of the last change that the supervisor has confirmed.
    applied: u64,
    /// True if a wait has timed out and the supervisor has confirmed nothing since.
    is_overdue: bool,
    /// True while the I/O thread receives the supervisor's confirmations.
    is_receiving: bool,
}

/// The advice whether to wait for the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runtime) enum Wait {
    /// The last change is in force, so there is no need to wait.
    Applied,
    /// The confirmation of the last change is still expected.
    Pending,
    /// A wait would be useless, because the supervisor has disconnected or did not confirm in time
    /// before.
    Useless,
}

impl Announcements {
    /// Replaces the announcement. Returns true if the new content differs.
    pub(in crate::runtime) fn change(&mut self, bytes: Vec<u8>) -> bool {
        let is_change = self.bytes != bytes;
        if is_change {
            self.bytes = bytes;
            self.number += 1;
            self.is_pending = true;
        }
        is_change
    }

    /// Clears the content of the last change, which is too long to be sent. Returns true if the
    /// content was not empty.
    pub(in crate::runtime) fn empty(&mut self) -> bool {
        let had_some = !self.bytes.is_empty();
        self.bytes.clear();
        had_some
    }

    /// Returns the number and the content of the last change if it has not been sent yet.
    pub(in crate::runtime) fn unsent(&self) -> Option<(u64, &[u8])> {
        self.is_pending.then_some((self.number, &self.bytes[..]))
    }

    /// Notes that the last change has been sent.
    pub(in crate::runtime) fn on_sent(&mut self) {
        self.is_pending = false;
    }

    /// Notes that the supervisor has applied the change with this number. A number that was never
    /// sent is ignored.
    pub(in crate::runtime) fn on_applied(&mut self, number: u64) {
        if number <= self.number {
            self.applied = self.applied.max(number);
            self.is_overdue = false;
        }
    }

    /// Notes that a wait has timed out. [`wait`](Self::wait) then advises against waiting until the
    /// supervisor confirms a change.
    pub(in crate::runtime) fn on_timeout(&mut self) {
        self.is_overdue = true;
    }

    /// Sets whether the supervisor's confirmations are being received.
    pub(in crate::runtime) fn set_receiving(&mut self, is_receiving: bool) {
        self.is_receiving = is_receiving;
    }

    /// Returns whether to wait for the supervisor.
    pub(in crate::runtime) fn wait(&self) -> Wait {
        if self.applied == self.number {
            Wait::Applied
        } else if self.is_receiving && !self.is_overdue {
            Wait::Pending
        } else {
            Wait::Useless
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A model of a supervisor behind a channel with little capacity.
    #[derive(Default)]
    struct Model {
        channel: VecDeque<(u64, Vec<u8>)>,
        /// The confirmations that the worker has not received yet.
        confirmations: VecDeque<u64>,
        /// The announcement in force.
        applied: Vec<u8>,
        /// The last announcement of the application.
        announced: Vec<u8>,
    }

    const CHANNEL_CAPACITY: usize = 2;

    impl Model {
        fn send(&mut self, announcements: &mut Announcements) {
            let Some((number, bytes)) = announcements.unsent() else { return };
            if self.channel.len() < CHANNEL_CAPACITY {
                self.channel.push_back((number, bytes.to_vec()));
                announcements.on_sent();
            }
        }

        /// Reads all packets, and applies the last one.
        fn apply(&mut self) {
            if let Some((number, bytes)) = self.channel.drain(..).next_back() {
                self.applied = bytes;
                self.confirmations.push_back(number);
            }
        }
    }

    #[test]
    fn changes_reported_as_applied_are_in_force_after_any_sequence_of_events() {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut chance = |of: u64| {
            // An xorshift generator.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 20) % of
        };
        let mut seen = [0; 3];
        for _ in 0..if cfg!(miri) { 20 } else { 5_000 } {
            let (mut announcements, mut model) = (Announcements::default(), Model::default());
            let (mut is_receiving, mut is_overdue) = (false, false);
            for _ in 0..40 {
                match chance(12) {
                    0..=2 => {
                        // There are few different values, so that some changes restore an earlier
                        // announcement.
                        model.announced = vec![1; chance(3) as usize];
                        announcements.change(model.announced.clone());
                        model.send(&mut announcements);
                    }
                    3 | 4 => model.send(&mut announcements),
                    5 | 6 => model.apply(),
                    7..=9 if is_receiving => {
                        if let Some(number) = model.confirmations.pop_front() {
                            announcements.on_applied(number);
                            is_overdue = false;
                        }
                    }
                    10 if announcements.wait() == Wait::Pending => {
                        announcements.on_timeout();
                        is_overdue = true;
                    }
                    11 => {
                        is_receiving = chance(4) > 0;
                        announcements.set_receiving(is_receiving);
                    }
                    // The supervisor confirms a number that was never sent.
                    _ => announcements.on_applied(announcements.number + 1 + chance(9)),
                }
                let wait = announcements.wait();
                seen[wait as usize] += 1;
                match wait {
                    Wait::Applied => assert_eq!(model.applied, model.announced),
                    Wait::Pending => assert!(is_receiving && !is_overdue),
                    Wait::Useless => assert!(!is_receiving || is_overdue),
                }
            }
            // In the end the last announcement is in force, whatever was lost in between.
            model.apply();
            model.send(&mut announcements);
            model.apply();
            for number in model.confirmations.drain(..) {
                announcements.on_applied(number);
            }
            assert_eq!((announcements.wait(), &model.applied), (Wait::Applied, &model.announced));
        }
        assert!(cfg!(miri) || seen.iter().all(|count| *count > 1_000), "{seen:?}");
    }

    #[test]
    fn an_unchanged_announcement_is_neither_sent_nor_awaited() {
        let mut announcements = Announcements::default();
        announcements.set_receiving(true);
        assert!(!announcements.change(Vec::new()));
        assert_eq!((announcements.unsent(), announcements.wait()), (None, Wait::Applied));
        assert!(announcements.change(vec![1]));
        assert_eq!(
            (announcements.unsent(), announcements.wait()),
            (Some((1, &[1][..])), Wait::Pending)
        );
        announcements.on_sent();
        assert!(!announcements.change(vec![1]));
        assert_eq!(announcements.unsent(), None);
        announcements.on_applied(1);
        assert!(!announcements.change(vec![1]));
        assert_eq!(announcements.wait(), Wait::Applied);
    }
}
