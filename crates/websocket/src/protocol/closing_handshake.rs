//! The close handshake (RFC 6455, 7.1) as a state machine.
//!
//! ```text
//!            start                    receive
//!   Open ------------> Sent --------------------------> Done
//!    | receive                                           ^
//!    +------------> Received --- (the answer is sent) ---+
//! ```
//! [`Closing::fail`] leads from anywhere to `Done`. Who ends the TCP connection first (the server) is the caller's to do.

use crate::protocol::close_code::CloseCode;
use crate::protocol::close_frame::CloseReason;

/// How far the close handshake is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Open,
    /// Our close frame was sent; the peer's is waited for.
    Sent,
    /// The peer's close frame came and ours was written in answer; or one side failed.
    Done,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending {
    /// The code that the peer's close frame had; none if the frame was empty or did not come.
    pub code: Option<CloseCode>,
    /// Whether both sides sent a close frame. A connection that ends otherwise has the code 1006 in an API that needs one.
    pub is_clean: bool,
}

impl Ending {
    /// The code for an API that needs one: 1005 stands for a close frame without a code, 1006 for none (RFC 6455, 7.1.5).
    pub fn number(self) -> u16 {
        match self.code {
            _ if !self.is_clean => 1006,
            Some(code) => code.get(),
            None => 1005,
        }
    }
}

/// What has to be written in answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the peer waits for the answer to its close frame"]
pub enum Answer {
    /// A close frame with this code; without one, an empty one.
    Close(Option<CloseCode>),
    /// Nothing: our own close frame went out before.
    Nothing,
}

/// The close handshake of one connection.
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
    /// Whether this side is to write a close frame now; not if it did before. After that nothing else may be sent (5.5.1).
    #[must_use = "the close frame is the caller's to write"]
    pub fn start(&mut self) -> bool {
        let is_first = self.state == State::Open;
        if is_first {
            self.state = State::Sent;
        }
        is_first
    }

    /// The peer's close frame came. The answer has its code, which [`CloseReason::parse`] has checked (5.5.1).
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

    /// The connection is failed (7.1.7): the peer broke the protocol. Whether a close frame is to be written.
    #[must_use = "the close frame is the caller's to write"]
    pub fn fail(&mut self) -> bool {
        let may_write = self.state == State::Open;
        self.state = State::Done;
        self.has_failed = true;
        may_write
    }

    /// Whether data and pings may still be sent: not after a close frame.
    pub fn may_send(&self) -> bool {
        self.state == State::Open
    }

    /// Whether anything that the peer still sends counts.
    pub fn may_receive(&self) -> bool {
        self.state != State::Done
    }

    /// Whether our close frame waits for the peer's.
    pub fn is_waiting(&self) -> bool {
        self.state == State::Sent
    }

    /// How it ended, or would if the connection broke now.
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
    fn a_failed_connection_is_never_clean_and_says_so_once() {
        let mut closing = Closing::default();
        assert!(closing.fail() && !closing.fail());
        assert_eq!(closing.receive(&BYE), Answer::Nothing);
        assert_eq!(closing.ending(), Ending { code: None, is_clean: false });
        let mut closing = Closing::default();
        assert!(closing.start());
        assert!(!closing.fail(), "our close frame is out already");
    }
}
