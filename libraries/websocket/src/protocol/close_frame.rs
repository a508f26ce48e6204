//! The contents of WebSocket close frames (RFC 6455, 5.5.1 and 7.4).

use crate::protocol::close_code::CloseCode;
use crate::protocol::violation::Violation;

/// The contents of a WebSocket close frame: a code and a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloseReason<'a> {
    /// The close code, or `None` if the close frame has no payload.
    pub code: Option<CloseCode>,
    /// The reason for closing the connection, as a text for people.
    pub reason: &'a str,
}

/// The maximum length in bytes of the reason in a close frame: the 125 bytes of a control frame
/// without the two bytes of the code.
pub const REASON_MAX: usize = 123;

impl<'a> CloseReason<'a> {
    /// Parses the payload of a close frame.
    ///
    /// # Errors
    /// [`Violation::ClosePayload`] for a payload of one byte, [`Violation::CloseCode`] for a code
    /// that must not be sent, and [`Violation::Utf8`] for a reason that is not UTF-8.
    pub fn parse(payload: &'a [u8]) -> Result<CloseReason<'a>, Violation> {
        match payload {
            [] => Ok(CloseReason { code: None, reason: "" }),
            [_] => Err(Violation::ClosePayload),
            [high, low, reason @ ..] => {
                let code = u16::from_be_bytes([*high, *low]);
                let code = CloseCode::new(code).ok_or(Violation::CloseCode(code))?;
                let reason = std::str::from_utf8(reason).map_err(|_| Violation::Utf8)?;
                Ok(CloseReason { code: Some(code), reason })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_must_not_be_sent_are_refused() {
        let allowed = |code: u16| {
            matches!(code, 1000 | 1001 | 1002 | 1003 | 1007..=1014) || (3000..5000).contains(&code)
        };
        for code in 0..=u16::MAX {
            assert_eq!(CloseCode::new(code).is_some(), allowed(code), "{code}");
        }
        assert_eq!(CloseReason::parse(&[3]), Err(Violation::ClosePayload));
        assert_eq!(CloseReason::parse(&[0x03, 0xED]), Err(Violation::CloseCode(1005)));
        assert_eq!(CloseReason::parse(&[0x03, 0xE8, 0xFF]), Err(Violation::Utf8));
        let parsed = CloseReason::parse(&[0x03, 0xE8, b'o', b'k']).unwrap();
        assert_eq!((parsed.code, parsed.reason), (Some(CloseCode::NORMAL), "ok"));
    }
}
