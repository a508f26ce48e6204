//! The closing handshake of a WebSocket (RFC 6455, 7.1) as a state machine.
//!
//! ```text
//!            start                    receive
//!   Open ------------> Sent --------------------------> Done
//!    | receive                                           ^
//!    +------------> Received --- (the answer is sent) ---+
//! ```
//! [`Closing::fail`] leads from any state to `Done`. The caller then has to end the TCP connection.
//! After a complete handshake, a client first waits for the server to end it.

use crate::protocol::close_code::CloseCode;
use crate::protocol::close_frame::CloseReason;

/// The progress of a WebSocket's closing handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Open,
    /// This side's close frame was sent, and the peer's close frame is expected.
    Sent,
    /// Both close frames were sent and received, or the connection was failed.
    Done,
}

/// How a WebSocket connection ended: the peer's close code, and whether both sides closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending {
    /// The code in the peer's close frame, or `None` if the frame was empty or was not received.
    pub code: Option<CloseCode>,
    /// True if both sides sent a close frame. If this is false, an API that needs a close code
    /// reports 1006.
    pub is_clean: bool,
}

impl Ending {
    /// Returns the close code as a number, for an API that needs one. It is 1005 for a close frame
    /// without a code, and 1006 if there was no close frame (RFC 6455, 7.1.5).
    pub fn number(self) -> u16 {
        match self.code {
            _ if !self.is_clean => 1006,
            Some(code) => code.get(),
            None => 1005,
        }
    }
}

/// The frame that has to be sent in response to the peer's close frame, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the peer waits for the answer to its close frame"]
pub enum Answer {
    /// Send a close frame with this code, or an empty close frame if there is none.
    Close(Option<CloseCode>),
    /// Send no frame, because this side's close frame has already been sent.
    Nothing,
}

/// The state of one WebSocket connection's closing handshake.
///
/// ```
/// use rookery_websocket::protocol::{Answer, CloseCode, CloseReason, Closing};
/// let mut closing = Closing::default();
/// assert!(closing.may_send());
/// let reason = CloseReason { code: Some(CloseCode::NORMAL), reason: "bye" };
/// assert_eq!(closing.receive(&reason), Answer::Close(Some(CloseCode::NORMAL)));
/// assert!(!closing.may_send() && closing.ending().is_clean);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Closing {
    state: State,
    code: Option<CloseCode>,
    has_received: bool,
    has_failed: bool,
}

impl Closing {
    /// Starts the closing handshake. Returns true if the caller has to send a close frame, and
    /// false if one was sent before. No other frame may be sent after a close frame (RFC 6455,
    /// 5.5.1).
    #[must_use = "the caller has to write the close frame"]
    pub fn start(&mut self) -> bool {
        let is_first = self.state == State::Open;
        if is_first {
            self.state = State::Sent;
        }
        is_first
    }

    /// Records the peer's close frame. Returns the response that has to be sent, a close frame with
    /// the same code. [`CloseReason::parse`] has already checked the code (RFC 6455, 5.5.1).
    pub fn receive(&mut self, reason: &CloseReason<'_>) -> Answer {
        let answer = match self.state {
            State::Open => Answer::Close(reason.code),
            State::Sent | State::Done => Answer::Nothing,
        };
        if !self.has_failed {
            self.has_received = true;
            self.code = reason.code;
        }
        self.state = State::Done;
        answer
    }

    /// Fails the connection (RFC 6455, 7.1.7). Returns true if the caller has to send a close
    /// frame.
    #[must_use = "the caller has to write the close frame"]
    pub fn fail(&mut self) -> bool {
        let may_write = self.state == State::Open;
        self.state = State::Done;
        self.has_failed = true;
        may_write
    }

    /// Returns true while messages and pings may be sent: until a close frame was sent or received.
    pub fn may_send(&self) -> bool {
        self.state == State::Open
    }

    /// Returns true while frames from the peer are processed and not ignored.
    pub fn may_receive(&self) -> bool {
        self.state != State::Done
    }

    /// Returns true if this side has sent its close frame and waits for the peer's close frame.
    pub fn is_waiting(&self) -> bool {
        self.state == State::Sent
    }

    /// Returns how the connection ended. While it is open, returns how it would end if it broke
    /// now.
    pub fn ending(&self) -> Ending {
        Ending { code: self.code, is_clean: self.has_received && !self.has_failed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYE: CloseReason<'static> = CloseReason { code: Some(CloseCode::GOING_AWAY), reason: "" };

    #[test]
    fn the_peer_closes() {
        let mut closing = Closing::default();
        assert_eq!(closing.receive(&BYE), Answer::Close(Some(CloseCode::GOING_AWAY)));
        assert!(!closing.start() && !closing.may_send() && !closing.may_receive());
        assert_eq!(closing.ending(), Ending { code: Some(CloseCode::GOING_AWAY), is_clean: true });
    }

    #[test]
    fn we_close_and_still_receive_until_the_answer() {
        let mut closing = Closing::default();
        assert!(closing.start() && !closing.start());
        assert!(!closing.may_send() && closing.may_receive() && closing.is_waiting());
        assert!(!closing.ending().is_clean && closing.ending().number() == 1006);
        assert_eq!(closing.receive(&BYE), Answer::Nothing);
        assert!(
            closing.ending().is_clean
                && closing.ending().number() == 1001
                && !closing.may_receive()
        );
    }

    #[test]
    fn an_empty_close_is_answered_with_an_empty_close() {
        let mut closing = Closing::default();
        assert_eq!(closing.receive(&CloseReason { code: None, reason: "" }), Answer::Close(None));
        assert_eq!(closing.ending(), Ending { code: None, is_clean: true });
        assert_eq!(closing.ending().number(), 1005);
    }

    #[test]
    fn a_failed_connection_is_never_clean_and_sends_one_close_frame() {
        let mut closing = Closing::default();
        assert!(closing.fail() && !closing.fail());
        assert_eq!(closing.receive(&BYE), Answer::Nothing);
        assert_eq!(closing.ending(), Ending { code: None, is_clean: false });
        let mut closing = Closing::default();
        assert!(closing.start());
        assert!(!closing.fail(), "our close frame is out already");
    }
}
