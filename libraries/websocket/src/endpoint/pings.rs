//! The pings of a WebSocket connection: when they are due, and the round-trip times that their
//! pongs measure.

use std::time::Duration;

use crate::endpoint::adapter::{Rules, Time};

/// The state of one WebSocket connection's pings.
#[derive(Debug)]
pub(super) struct Pings<T> {
    /// The time at which the next keep-alive ping is due. It is `None` until the deadline is
    /// requested for the first time.
    next: Option<T>,
    /// The time of the first ping that was sent since the peer's last bytes arrived. It is `None`
    /// if no ping was sent since then.
    unanswered: Option<T>,
    /// The number of the last ping, and the time at which the ping was sent.
    last: (u32, Option<T>),
    /// The highest number of a ping that was answered by a pong.
    answered: u32,
}

/// The action that is due for keep-alive: none, a ping, or giving up a silent peer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PingDue {
    Nothing,
    Ping,
    GiveUp,
}

impl<T> Default for Pings<T> {
    fn default() -> Pings<T> {
        Pings { next: None, unanswered: None, last: (0, None), answered: 0 }
    }
}

impl<T: Time> Pings<T> {
    /// Records that bytes have been received, so that the peer counts as alive. Costs one store and
    /// does not read the clock.
    #[inline]
    pub(super) fn on_input(&mut self) {
        self.unanswered = None;
    }

    /// Returns the time at which [`Pings::due`] has to be called next. Reads the clock only at the
    /// first call.
    pub(super) fn deadline(
        &mut self,
        rules: &Rules<T::Span>,
        now: impl FnOnce() -> T,
    ) -> Option<T> {
        let interval = rules.ping_interval?;
        let next = *self.next.get_or_insert_with(|| now().after(interval));
        match self.unanswered.zip(rules.ping_timeout) {
            Some((since, silence)) => Some(earlier(since.after(silence), next)),
            None => Some(next),
        }
    }

    pub(super) fn due(&mut self, rules: &Rules<T::Span>, now: T) -> PingDue {
        let Some(interval) = rules.ping_interval else { return PingDue::Nothing };
        let silent = self.unanswered.zip(rules.ping_timeout);
        if silent.is_some_and(|(since, silence)| now.has_reached(since.after(silence))) {
            return PingDue::GiveUp;
        }
        if self.next.is_some_and(|next| now.has_reached(next)) {
            self.next = Some(now.after(interval));
            self.unanswered.get_or_insert(now);
            return PingDue::Ping;
        }
        PingDue::Nothing
    }

    /// Returns the number and the payload for a ping that is sent now.
    pub(super) fn next_ping(&mut self, now: T) -> (u32, [u8; 4]) {
        let number = self.last.0.wrapping_add(1);
        self.last = (number, Some(now));
        (number, number.to_be_bytes())
    }

    /// Records a pong. Returns the round-trip time if the pong answers the last ping. Ignores other
    /// pongs: those for earlier pings, and unsolicited pongs, which RFC 6455, 5.5.3 allows.
    pub(super) fn on_pong(&mut self, payload: &[u8], now: impl FnOnce() -> T) -> Option<Duration> {
        let (number, sent) = self.last;
        if payload != number.to_be_bytes() {
            return None;
        }
        let sent = sent?;
        self.last.1 = None;
        self.answered = number;
        now().round_trip(sent)
    }

    /// Returns true if the ping with this number was answered. A pong for a later ping also answers
    /// all pings before it.
    pub(super) fn is_answered(&self, number: u32) -> bool {
        self.answered.wrapping_sub(number) < u32::MAX / 2
    }
}

/// Returns the earlier of two points in time.
pub(super) fn earlier<T: Time>(one: T, other: T) -> T {
    if one.has_reached(other) { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_input_restarts_the_ping_timeout() {
        let at = Duration::from_secs;
        let rules = Rules {
            close_timeout: at(5),
            ping_interval: Some(at(20)),
            ping_timeout: Some(at(50)),
            high_water: 0,
        };
        let mut pings = Pings::default();
        assert_eq!(pings.deadline(&rules, || at(0)), Some(at(20)));
        assert_eq!(pings.due(&rules, at(19)), PingDue::Nothing);
        assert_eq!(pings.due(&rules, at(20)), PingDue::Ping);
        assert_eq!(pings.due(&rules, at(40)), PingDue::Ping);
        assert_eq!(pings.due(&rules, at(60)), PingDue::Ping);
        assert_eq!(
            pings.deadline(&rules, || at(61)),
            Some(at(70)),
            "fifty seconds after the first silence"
        );
        pings.on_input();
        assert_eq!(pings.due(&rules, at(70)), PingDue::Nothing);
        assert_eq!(pings.due(&rules, at(80)), PingDue::Ping);
        assert_eq!(pings.due(&rules, at(131)), PingDue::GiveUp);
    }

    #[test]
    fn only_the_last_ping_measures() {
        let mut pings = Pings::default();
        let at = Duration::from_secs;
        assert!(!pings.is_answered(1));
        let (first, payload) = pings.next_ping(at(1));
        let (second, later) = pings.next_ping(at(2));
        assert_eq!(pings.on_pong(&payload, || at(3)), None);
        assert!(!pings.is_answered(first));
        assert_eq!(pings.on_pong(&later, || at(5)), Some(at(3)));
        assert!(pings.is_answered(first) && pings.is_answered(second));
        assert_eq!(pings.on_pong(&later, || at(6)), None, "once");
    }
}
