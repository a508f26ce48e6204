//! Pings and what they measure.

use std::time::Duration;

use tokio::time::Instant;

use crate::connection::config::KeepAlive;
use crate::connection::timer::after;

/// The pings of one connection.
#[derive(Debug)]
pub(crate) struct Pings {
    keep_alive: Option<KeepAlive>,
    /// When the next ping of the keep-alive is due; set when a read first waits.
    next: Option<Instant>,
    /// The ping since which nothing has come.
    unanswered: Option<Instant>,
    /// The last ping: its number, and when it was sent.
    last: (u32, Option<Instant>),
    /// The last number that was answered.
    answered: u32,
}

/// What is to be done now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    Ping,
    GiveUp,
}

impl Pings {
    pub(crate) fn new(keep_alive: Option<KeepAlive>) -> Pings {
        Pings { keep_alive, next: None, unanswered: None, last: (0, None), answered: 0 }
    }

    /// Bytes have come: the peer lives. One store, no clock.
    pub(crate) fn heard(&mut self) {
        self.unanswered = None;
    }

    /// When [`Pings::due`] is to be asked. Reads the clock once, at the first wait.
    pub(crate) fn deadline(&mut self) -> Option<Instant> {
        let keep_alive = self.keep_alive?;
        let next = *self.next.get_or_insert_with(|| after(Instant::now(), keep_alive.interval));
        Some(self.unanswered.map_or(next, |since| next.min(after(since, keep_alive.timeout))))
    }

    pub(crate) fn due(&mut self, now: Instant) -> Due {
        let Some(keep_alive) = self.keep_alive else { return Due::Nothing };
        if self.unanswered.is_some_and(|since| now >= after(since, keep_alive.timeout)) {
            return Due::GiveUp;
        }
        if self.next.is_some_and(|next| now >= next) {
            self.next = Some(after(now, keep_alive.interval));
            self.unanswered.get_or_insert(now);
            return Due::Ping;
        }
        Due::Nothing
    }

    /// The payload of a ping that goes out now, and its number.
    pub(crate) fn send(&mut self, now: Instant) -> (u32, [u8; 4]) {
        let number = self.last.0.wrapping_add(1);
        self.last = (number, Some(now));
        (number, number.to_be_bytes())
    }

    /// A pong has come: the round trip, if it answers the last ping. One that answers an earlier ping, or none, which
    /// RFC 6455, 5.5.3 allows, measures nothing.
    pub(crate) fn pong(&mut self, payload: &[u8]) -> Option<Duration> {
        let (number, sent) = self.last;
        if payload != number.to_be_bytes() {
            return None;
        }
        let sent = sent?;
        self.last.1 = None;
        self.answered = number;
        Some(Instant::now().saturating_duration_since(sent))
    }

    /// Whether ping `number`, or a later one, was answered. An answer to a later ping answers all before it.
    pub(crate) fn is_answered(&self, number: u32) -> bool {
        self.answered.wrapping_sub(number) < u32::MAX / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_says_anything_lives() {
        let mut pings = Pings::new(Some(KeepAlive {
            interval: Duration::from_secs(20),
            timeout: Duration::from_secs(50),
        }));
        let start = pings.deadline().unwrap() - Duration::from_secs(20);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(pings.due(at(19)), Due::Nothing);
        assert_eq!(pings.due(at(20)), Due::Ping);
        assert_eq!(pings.due(at(40)), Due::Ping);
        assert_eq!(pings.due(at(60)), Due::Ping);
        assert_eq!(pings.deadline(), Some(at(70)), "fifty seconds after the first silence");
        pings.heard();
        assert_eq!(pings.due(at(70)), Due::Nothing);
        assert_eq!(pings.due(at(80)), Due::Ping);
        assert_eq!(pings.due(at(131)), Due::GiveUp);
    }

    #[test]
    fn only_the_last_ping_measures() {
        let mut pings = Pings::new(None);
        let now = Instant::now();
        assert!(!pings.is_answered(1));
        let (first, payload) = pings.send(now);
        let (second, later) = pings.send(now);
        assert_eq!(pings.pong(&payload), None);
        assert!(!pings.is_answered(first));
        assert!(pings.pong(&later).is_some());
        assert!(pings.is_answered(first) && pings.is_answered(second));
        assert_eq!(pings.pong(&later), None, "once");
    }
}
