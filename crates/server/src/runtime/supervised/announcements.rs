//! The announcements by which a worker tells its supervisor which static paths it serves, and the
//! supervisor's confirmations.

/// The state of the announcements by which a worker tells its supervisor which static paths it
/// serves. This is a state machine without I/O.
///
/// Each announcement has a number and replaces all earlier ones. The supervisor confirms the number
/// when it has applied the announcement.
#[derive(Debug, Default)]
pub(in crate::runtime) struct Announcements {
    /// The content of the last announcement of static paths.
    bytes: Vec<u8>,
    /// The number of the last announcement, or 0 before the first one.
    number: u64,
    /// True if the last announcement has not been sent to the supervisor yet.
    is_pending: bool,
    /// The number of the last announcement that the supervisor has confirmed.
    applied: u64,
    /// True if a wait for the supervisor's confirmation has timed out, and the supervisor has
    /// confirmed nothing since.
    is_overdue: bool,
    /// True while the I/O thread is able to receive the supervisor's confirmations.
    is_receiving: bool,
}

/// The answer to the question whether the application should wait for the supervisor's confirmation
/// of the last announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runtime) enum Wait {
    /// The supervisor has applied the last announcement, so there is no need to wait.
    Applied,
    /// The supervisor has not confirmed the last announcement yet, but is expected to.
    Pending,
    /// Waiting for the supervisor would be useless, because it has disconnected or did not confirm
    /// an earlier announcement in time.
    Useless,
}

impl Announcements {
    /// Replaces the announcement to the supervisor by one with the content `bytes`. Returns true if
    /// this content differs from that of the last announcement.
    pub(in crate::runtime) fn change(&mut self, bytes: Vec<u8>) -> bool {
        let is_change = self.bytes != bytes;
        if is_change {
            self.bytes = bytes;
            self.number += 1;
            self.is_pending = true;
        }
        is_change
    }

    /// Replaces the announcement to the supervisor by an empty one, because its content is too long
    /// for one message. Returns true if the content was not already empty.
    pub(in crate::runtime) fn empty(&mut self) -> bool {
        let had_some = !self.bytes.is_empty();
        self.bytes.clear();
        had_some
    }

    /// Returns true if the content of the last announcement is empty.
    pub(in crate::runtime) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the number and the content of the last announcement if it has not been sent yet.
    pub(in crate::runtime) fn unsent(&self) -> Option<(u64, &[u8])> {
        self.is_pending.then_some((self.number, &self.bytes[..]))
    }

    /// Records that the last announcement has been sent to the supervisor.
    pub(in crate::runtime) fn on_sent(&mut self) {
        self.is_pending = false;
    }

    /// Records that the supervisor has applied the announcement with this number. A number that was
    /// never sent is ignored.
    pub(in crate::runtime) fn on_applied(&mut self, number: u64) {
        if number <= self.number {
            self.applied = self.applied.max(number);
            self.is_overdue = false;
        }
    }

    /// Records that the supervisor has not confirmed an announcement in time. From now on,
    /// [`wait`](Self::wait) returns [`Wait::Useless`], until the supervisor confirms an
    /// announcement again.
    pub(in crate::runtime) fn on_timeout(&mut self) {
        self.is_overdue = true;
    }

    /// Sets whether the I/O thread is able to receive the supervisor's confirmations.
    pub(in crate::runtime) fn set_receiving(&mut self, is_receiving: bool) {
        self.is_receiving = is_receiving;
    }

    /// Returns [`Wait::Pending`] if it is useful to wait for the supervisor's confirmation of the
    /// last announcement.
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

    /// The test's simulated supervisor, which receives announcements through a channel with little
    /// capacity.
    #[derive(Default)]
    struct Model {
        channel: VecDeque<(u64, Vec<u8>)>,
        /// The numbers of the announcements that the simulated supervisor has confirmed, until the
        /// worker receives the confirmations.
        confirmations: VecDeque<u64>,
        /// The content of the announcement that the simulated supervisor has applied last.
        applied: Vec<u8>,
        /// The content of the last announcement that the application has made.
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

        /// Makes the simulated supervisor read all announcements in the channel and apply the last
        /// one.
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
