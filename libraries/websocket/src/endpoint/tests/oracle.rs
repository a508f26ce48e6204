//! A simple model of one side of a WebSocket, with which tests compare the endpoint. It uses plain
//! lists of frames and closing steps, because it need not be fast.

use std::collections::VecDeque;
use std::time::Duration;

use crate::endpoint::{CloseMode, Due, IoAction, Rules, SendError};
use crate::protocol::Role;

pub(super) const TEXT: u8 = 1;
pub(super) const BINARY: u8 = 2;
pub(super) const CLOSE: u8 = 8;
pub(super) const PING: u8 = 9;
pub(super) const PONG: u8 = 10;

pub(super) const KEY: [u8; 4] = [0xA1, 0x05, 0x7E, 0x33];

/// Encodes a frame as a sender in `role` does (RFC 6455, 5.2).
pub(super) fn frame(role: Role, fin: bool, opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mask = if role == Role::Client { 0x80 } else { 0 };
    let mut out = vec![opcode | if fin { 0x80 } else { 0 }];
    match payload.len() {
        len @ 0..=125 => out.push(mask | len as u8),
        len => {
            out.push(mask + 126);
            out.extend((len as u16).to_be_bytes());
        }
    }
    if role == Role::Client {
        out.extend(KEY);
        out.extend(payload.iter().zip(KEY.iter().cycle()).map(|(byte, key)| byte ^ key));
    } else {
        out.extend(payload);
    }
    out
}

/// An event that the test's model expects from the endpoint once all bytes of the event have been
/// received.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PeerEvent {
    Text(Vec<u8>),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>),
    Violation { code: u16, reason: &'static str },
}

/// The settings of the test's model of an endpoint. They depend on the adapter that is tested.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub(super) role: Role,
    pub(super) mode: CloseMode,
    pub(super) sends_reason: bool,
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "what has happened, each by itself")]
pub(super) struct Oracle {
    settings: Settings,
    rules: Rules<Duration>,
    /// The bytes of all frames that were ever queued, in order.
    pub(super) sent: Vec<u8>,
    ends: Vec<usize>,
    pub(super) written: usize,
    slot: Option<Vec<u8>>,
    pub(super) holds_pongs: bool,
    pub(super) is_broken: bool,
    has_sent_close: bool,
    /// The code in the peer's close frame, or 1005 for a close frame without a code.
    pub(super) peer_closed: Option<u16>,
    pub(super) has_failed: bool,
    pub(super) is_read_closed: bool,
    pub(super) is_within: bool,
    is_abandoned: bool,
    deadline: Option<Duration>,
    next_ping: Option<Duration>,
    unanswered: Option<Duration>,
    pub(super) pings: u32,
    pub(super) answered: u32,
    /// The remaining steps of closing the connection, the current step first. The list is empty
    /// while the connection is open.
    steps: VecDeque<IoAction>,
}

impl Oracle {
    pub(super) fn new(settings: Settings, rules: Rules<Duration>) -> Oracle {
        Oracle {
            settings,
            rules,
            sent: Vec::new(),
            ends: Vec::new(),
            written: 0,
            slot: None,
            holds_pongs: false,
            is_broken: false,
            has_sent_close: false,
            peer_closed: None,
            has_failed: false,
            is_read_closed: false,
            is_within: false,
            is_abandoned: false,
            deadline: None,
            next_ping: None,
            unanswered: None,
            pings: 0,
            answered: 0,
            steps: VecDeque::new(),
        }
    }

    pub(super) fn pending(&self) -> &[u8] {
        &self.sent[self.written..]
    }

    pub(super) fn io_action(&self) -> IoAction {
        self.steps.front().copied().unwrap_or(IoAction::Serve)
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.io_action(), IoAction::Over | IoAction::Reset)
    }

    pub(super) fn may_send(&self) -> bool {
        !self.has_sent_close && self.peer_closed.is_none() && !self.has_failed
    }

    pub(super) fn may_receive(&self) -> bool {
        self.peer_closed.is_none() && !self.has_failed
    }

    pub(super) fn check_message(&self) -> Result<(), SendError> {
        match () {
            () if self.is_within || self.is_abandoned => Err(SendError::WithinMessage),
            () if self.is_broken => Err(SendError::Broken),
            () if !self.may_send() => Err(SendError::Closed),
            () => Ok(()),
        }
    }

    pub(super) fn has_output(&self) -> bool {
        !self.pending().is_empty() || self.slot.is_some()
    }

    pub(super) fn push(&mut self, fin: bool, opcode: u8, payload: &[u8]) {
        self.sent.extend(frame(self.settings.role, fin, opcode, payload));
        self.ends.push(self.sent.len());
    }

    /// Queues the delayed pong if it may be sent now. An endpoint does this whenever its adapter
    /// looks for output to write.
    pub(super) fn look(&mut self) {
        if self.pending().is_empty() || self.keeps_up() {
            if let Some(payload) = self.slot.take() {
                self.push(true, PONG, &payload);
            }
        }
    }

    fn keeps_up(&self) -> bool {
        !self.holds_pongs && self.pending().len() < self.rules.high_water
    }

    /// Cuts the queue of unsent bytes to its first `len` bytes. Panics if the cut is within a
    /// frame, or removes a frame that was partly written.
    pub(super) fn cut(&mut self, len: usize) {
        if len == self.pending().len() {
            return;
        }
        let end = self.written + len;
        let is_between = end == self.written || self.ends.contains(&end);
        assert!(is_between, "cut within a frame");
        let begun = self.ends.iter().find(|frame_end| **frame_end > self.written);
        let has_begun = !self.ends.contains(&self.written) && self.written > 0;
        assert!(
            !has_begun || begun.is_none_or(|frame_end| end >= *frame_end),
            "a frame that has begun is cut"
        );
        self.sent.truncate(end);
        self.ends.retain(|frame_end| *frame_end <= end);
    }

    pub(super) fn on_write_failed(&mut self) {
        self.is_broken = true;
        self.sent.truncate(self.written);
        self.slot = None;
    }

    fn send_close(&mut self, code: Option<u16>, reason: &str) {
        self.slot = None;
        if !self.is_broken {
            let mut payload = code.map_or(Vec::new(), |code| code.to_be_bytes().to_vec());
            payload.extend(reason.as_bytes());
            self.push(true, CLOSE, &payload);
        }
    }

    pub(super) fn close(&mut self, code: u16, reason: &str, now: Duration) {
        if self.may_send() {
            self.send_close(Some(code), reason);
            self.has_sent_close = true;
            self.deadline = Some(now + self.rules.close_timeout);
        }
    }

    pub(super) fn abandon(&mut self, now: Duration) {
        if self.is_within {
            (self.is_within, self.is_abandoned) = (false, true);
            self.close(1011, "", now);
        }
    }

    pub(super) fn fail(&mut self, code: u16, reason: &str, now: Duration) {
        if self.may_send() {
            self.send_close(Some(code), reason);
        }
        self.has_failed = true;
        self.deadline = Some(now + self.rules.close_timeout);
        if matches!(self.io_action(), IoAction::Serve | IoAction::Flush) {
            self.end(match self.settings.mode {
                CloseMode::Prompt => &[
                    IoAction::Flush,
                    IoAction::Drain { waits: false },
                    IoAction::ShutDown,
                    IoAction::Over,
                ],
                CloseMode::Lingering => &[
                    IoAction::Flush,
                    IoAction::ShutDown,
                    IoAction::Drain { waits: true },
                    IoAction::Over,
                ],
            });
        }
    }

    pub(super) fn on_event(&mut self, event: &PeerEvent, now: Duration) {
        match event {
            PeerEvent::Ping(payload) if self.may_send() && !self.is_broken => {
                if self.slot.is_none() && self.keeps_up() {
                    self.push(true, PONG, payload);
                } else {
                    self.slot = Some(payload.clone());
                }
            }
            PeerEvent::Pong(payload) if *payload == self.pings.to_be_bytes() => {
                self.answered = self.pings;
            }
            PeerEvent::Close(code) => {
                if self.may_send() {
                    self.send_close(*code, "");
                }
                self.peer_closed = Some(code.unwrap_or(1005));
                self.deadline = Some(now + self.rules.close_timeout);
                if self.io_action() == IoAction::Serve {
                    self.end(match self.settings.role {
                        Role::Server => &[IoAction::Flush, IoAction::ShutDown, IoAction::Over],
                        Role::Client => &[
                            IoAction::Flush,
                            IoAction::Drain { waits: true },
                            IoAction::ShutDown,
                            IoAction::Over,
                        ],
                    });
                }
            }
            PeerEvent::Violation { code, reason } => {
                self.fail(*code, if self.settings.sends_reason { reason } else { "" }, now);
            }
            _ => {}
        }
    }

    fn end(&mut self, steps: &[IoAction]) {
        // A stream that has ended is not waited for.
        let is_left_out =
            |action: &IoAction| self.is_read_closed && *action == IoAction::Drain { waits: true };
        self.steps = steps.iter().filter(|action| !is_left_out(action)).copied().collect();
    }

    pub(super) fn done(&mut self, action: IoAction) {
        let is_it = match (self.io_action(), action) {
            (IoAction::Drain { .. }, IoAction::Drain { .. }) => true,
            (now, action) => {
                now == action && !matches!(now, IoAction::Serve | IoAction::Over | IoAction::Reset)
            }
        };
        if is_it {
            self.steps.pop_front();
        }
    }

    pub(super) fn on_read_closed(&mut self) {
        self.is_read_closed = true;
        match self.io_action() {
            IoAction::Serve => self.end(match self.settings.mode {
                CloseMode::Prompt => &[IoAction::ShutDown, IoAction::Over],
                CloseMode::Lingering => &[IoAction::Flush, IoAction::ShutDown, IoAction::Over],
            }),
            action => {
                self.done(IoAction::Drain { waits: true });
                self.steps
                    .retain(|step| *step == action || *step != IoAction::Drain { waits: true });
            }
        }
    }

    pub(super) fn expire(&mut self) {
        if self.is_over() {
            return;
        }
        let has_shut = !self.steps.is_empty()
            && !self.steps.iter().skip(1).any(|action| *action == IoAction::ShutDown);
        self.end(match self.settings.mode {
            CloseMode::Lingering => &[IoAction::Reset],
            CloseMode::Prompt if has_shut => &[IoAction::Over],
            CloseMode::Prompt => &[IoAction::ShutDown, IoAction::Over],
        });
    }

    pub(super) fn abort(&mut self) {
        self.has_failed = true;
        self.steps = [IoAction::Reset].into();
        self.sent.truncate(self.written);
        self.slot = None;
    }

    pub(super) fn on_progress(&mut self, now: Duration) {
        self.deadline = self.deadline.map(|_| now + self.rules.close_timeout);
    }

    pub(super) fn on_input(&mut self) {
        self.unanswered = None;
    }

    pub(super) fn deadline(&mut self, now: Duration) -> Option<Duration> {
        if self.is_over() {
            return None;
        }
        let mut all = Vec::from_iter(self.deadline);
        if let (Some(interval), true) = (self.rules.ping_interval, self.may_send()) {
            all.push(*self.next_ping.get_or_insert(now + interval));
            all.extend(
                self.unanswered
                    .zip(self.rules.ping_timeout)
                    .map(|(since, silence)| since + silence),
            );
        }
        all.into_iter().min()
    }

    pub(super) fn ping(&mut self) -> Result<u32, SendError> {
        if self.is_broken {
            return Err(SendError::Broken);
        }
        if !self.may_send() {
            return Err(SendError::Closed);
        }
        self.pings += 1;
        self.push(true, PING, &self.pings.to_be_bytes());
        Ok(self.pings)
    }

    pub(super) fn tick(&mut self, now: Duration) -> Due {
        if self.is_over() {
            return Due::Nothing;
        }
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.expire();
            return Due::Close;
        }
        let Some(interval) = self.rules.ping_interval.filter(|_| self.may_send()) else {
            return Due::Nothing;
        };
        if self
            .unanswered
            .zip(self.rules.ping_timeout)
            .is_some_and(|(since, silence)| since + silence <= now)
        {
            self.fail(1008, "", now);
            return Due::Silence;
        }
        if self.next_ping.is_none_or(|next| next > now) {
            return Due::Nothing;
        }
        self.next_ping = Some(now + interval);
        self.unanswered.get_or_insert(now);
        let is_sent = if self.rules.ping_timeout.is_some() {
            self.ping().is_ok()
        } else {
            let may = !self.is_broken && !self.has_output();
            if may {
                self.push(true, PING, b"");
            }
            may
        };
        if is_sent { Due::Ping } else { Due::Nothing }
    }
}
