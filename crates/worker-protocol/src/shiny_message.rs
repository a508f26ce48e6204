//! The messages by which Shiny tells its pages what it does.

/// The beginning of Shiny's first message to a page, which has the token of the session.
const CONFIG: &[u8] = b"{\"config\":{";
const TOKEN: &[u8] = b"\"sessionId\":\"";

/// The messages that Shiny sends when it begins to compute for a session, and when it has computed
/// everything.
const BUSY: &[u8] = b"{\"busy\":\"busy\"}";
const IDLE: &[u8] = b"{\"busy\":\"idle\"}";

/// The beginning of the message that Shiny sends before and after it computes an output, such as
/// `{"recalculating":{"name":"plot","status":"recalculating"}}`.
const RECALCULATING: &[u8] = b"{\"recalculating\":{\"name\":\"";
const BEGINS: &[u8] = b"\",\"status\":\"recalculating\"}}";
const ENDS: &[u8] = b"\",\"status\":\"recalculated\"}}";

/// A message of Shiny to a page that says what Shiny does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShinyMessage<'a> {
    /// The first message of a session, with the session's token.
    Opens(&'a [u8]),
    /// Shiny begins to compute for the session.
    Busy,
    /// Shiny has computed everything for the session.
    Idle,
    /// Shiny begins to compute the output with this name.
    BeginsOutput(&'a [u8]),
    /// Shiny has computed the output with this name.
    EndsOutput(&'a [u8]),
}

impl ShinyMessage<'_> {
    /// Returns what a text message says, or `None` if it is another message.
    pub fn of(text: &[u8]) -> Option<ShinyMessage<'_>> {
        if let Some(rest) = text.strip_prefix(RECALCULATING) {
            let begins = rest.strip_suffix(BEGINS).map(ShinyMessage::BeginsOutput);
            return begins.or_else(|| rest.strip_suffix(ENDS).map(ShinyMessage::EndsOutput));
        }
        if text.starts_with(CONFIG) {
            let at = text.windows(TOKEN.len()).position(|window| window == TOKEN)?;
            let token = text[at + TOKEN.len()..].split(|byte| *byte == b'"').next()?;
            return Some(ShinyMessage::Opens(token));
        }
        match text {
            BUSY => Some(ShinyMessage::Busy),
            IDLE => Some(ShinyMessage::Idle),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_what_shiny_does() {
        for (text, expected) in [
            (
                r#"{"config":{"workerId":"","sessionId":"0123ab","user":null}}"#,
                Some(ShinyMessage::Opens(b"0123ab")),
            ),
            (r#"{"config":{"user":null}}"#, None),
            (r#"{"busy":"busy"}"#, Some(ShinyMessage::Busy)),
            (r#"{"busy":"idle"}"#, Some(ShinyMessage::Idle)),
            (
                r#"{"recalculating":{"name":"m-plot","status":"recalculating"}}"#,
                Some(ShinyMessage::BeginsOutput(b"m-plot")),
            ),
            (
                r#"{"recalculating":{"name":"m-plot","status":"recalculated"}}"#,
                Some(ShinyMessage::EndsOutput(b"m-plot")),
            ),
            (r#"{"recalculating":{"name":""#, None),
            (r#"{"progress":{}}"#, None),
            ("", None),
        ] {
            assert_eq!(ShinyMessage::of(text.as_bytes()), expected, "{text}");
        }
    }
}
