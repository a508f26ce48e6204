//! The close codes of WebSocket close frames (RFC 6455, 7.4).

use std::fmt;

/// A close code that may be sent in a WebSocket close frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CloseCode(u16);

impl CloseCode {
    /// The close code 1000: the purpose of the connection is fulfilled.
    pub const NORMAL: CloseCode = CloseCode(1000);
    /// The close code 1001: the server shuts down, or the browser leaves the page.
    pub const GOING_AWAY: CloseCode = CloseCode(1001);
    /// The close code 1002: the peer violated the protocol.
    pub const PROTOCOL: CloseCode = CloseCode(1002);
    /// The close code 1007: a text message was not UTF-8.
    pub const INVALID: CloseCode = CloseCode(1007);
    /// The close code 1008: the peer violated a rule of the application.
    pub const POLICY: CloseCode = CloseCode(1008);
    /// The close code 1009: a message was too large.
    pub const TOO_BIG: CloseCode = CloseCode(1009);
    /// The close code 1011: the server failed.
    pub const INTERNAL: CloseCode = CloseCode(1011);
    /// The close code 1013: the server is overloaded at the moment (IANA's registry of close
    /// codes).
    pub const TRY_AGAIN_LATER: CloseCode = CloseCode(1013);

    /// Returns the close code with this number if it may be sent: 1000 to 1014 without 1004, 1005
    /// and 1006, and 3000 to 4999 (RFC 6455, 7.4.2).
    pub fn new(code: u16) -> Option<CloseCode> {
        matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999).then_some(CloseCode(code))
    }

    /// Returns the number of the close code.
    pub fn get(self) -> u16 {
        self.0
    }
}

/// Prints the number of the close code.
impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
