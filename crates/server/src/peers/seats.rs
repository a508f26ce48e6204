//! Whose seat a newcomer gets when all are taken: that of the slowest.

use std::cmp::Reverse;

use super::slowest::Slow;
use super::table::Peers;

/// Peers found slow by one look over all: under attack, with every seat taken, a newcomer costs a 64th of it.
const FOUND: usize = 64;

impl Peers {
    /// Frees a seat for a newcomer; `false` when everybody is being served.
    pub(crate) fn free_seat(&self) -> bool {
        let now = self.clock.now();
        let mut slowest = self.slowest.0.borrow_mut();
        for is_new in [false, true] {
            if is_new {
                self.find_slowest(now, &mut slowest);
            }
            while let Some(slow) = slowest.pop() {
                let Some(peer) = self.get(slow.key) else { continue };
                // Since the look it may have been served, or be another one.
                let is_same = peer.serial() == slow.age.0;
                if is_same && peer.slowness(now).is_some_and(|ticks| ticks >= slow.ticks) {
                    peer.give_seat();
                    return true;
                }
            }
        }
        false
    }

    fn find_slowest(&self, now: u32, slowest: &mut Vec<Slow>) {
        self.each(|key, peer| {
            let slowness = if peer.has_seat() { peer.slowness(now) } else { None };
            if let Some(ticks) = slowness {
                slowest.push(Slow { ticks, age: Reverse(peer.serial()), key });
            }
        });
        if slowest.len() > FOUND {
            let rest = slowest.len() - FOUND;
            slowest.select_nth_unstable(rest);
            slowest.drain(..rest);
            slowest.shrink_to(FOUND);
        }
        slowest.sort_unstable();
    }
}
