//! What the messages by which Shiny tells its pages what it does say about sessions and outputs.

use std::sync::Arc;
use std::time::Duration;

use rookery_worker_protocol::{RouteTable, ShinySession, ShinySessions, now};

/// The beginning of the first message of Shiny to a page, which has the session's token.
const CONFIG: &[u8] = b"{\"config\":{";

/// What precedes the token in the first message.
const TOKEN: &[u8] = b"\"sessionId\":\"";

/// The messages that Shiny sends when it begins to compute for a session, and when it has computed
/// everything.
const BUSY: &[u8] = b"{\"busy\":\"busy\"}";
const IDLE: &[u8] = b"{\"busy\":\"idle\"}";

/// The beginning of the message that Shiny sends before and after it computes an output, such as
/// `{"recalculating":{"name":"plot","status":"recalculating"}}`.
const RECALCULATING: &[u8] = b"{\"recalculating\":{\"name\":\"";

/// The end of the message that Shiny sends before it computes an output.
const BEGINS: &[u8] = b"\",\"status\":\"recalculating\"}}";

/// The end of the message that Shiny sends after it has computed an output.
const ENDS: &[u8] = b"\",\"status\":\"recalculated\"}}";

/// The records in which the messages of Shiny are counted.
#[derive(Clone)]
pub(crate) struct ShinyRecords {
    /// The table of routes, which also has the times of Shiny's outputs.
    pub(crate) routes: Arc<dyn AsRef<RouteTable>>,
    /// The open sessions.
    pub(crate) sessions: Arc<ShinySessions>,
}

/// The session of Shiny that a WebSocket is. `None` for another WebSocket, and until the first
/// message of Shiny.
#[derive(Debug, Default)]
pub(super) struct ObservedSession(Option<ShinySession>);

impl ObservedSession {
    /// Records what a text message to the page says.
    pub(super) fn observe(&mut self, text: &[u8], records: &ShinyRecords) {
        let Some(session) = &self.0 else {
            if text.starts_with(CONFIG) {
                self.0 = token(text).map(|token| records.sessions.open(token));
                self.count(text);
            }
            return;
        };
        session.count_sent(text.len());
        observe_at(session, text, now, &records.routes);
    }

    /// Counts a message to the page that says nothing about the session.
    pub(super) fn count(&self, payload: &[u8]) {
        if let Some(session) = &self.0 {
            session.count_sent(payload.len());
        }
    }
}

/// Returns the token of the session in the first message of Shiny.
fn token(text: &[u8]) -> Option<&[u8]> {
    let at = text.windows(TOKEN.len()).position(|window| window == TOKEN)?;
    text[at + TOKEN.len()..].split(|byte| *byte == b'"').next()
}

fn observe_at(
    session: &ShinySession,
    text: &[u8],
    now: impl FnOnce() -> u64,
    routes: &Arc<dyn AsRef<RouteTable>>,
) {
    if let Some(rest) = text.strip_prefix(RECALCULATING) {
        if let Some(name) = rest.strip_suffix(BEGINS) {
            session.begin_output(name, now());
        } else if let Some(name) = rest.strip_suffix(ENDS) {
            if let Some(began) = session.end_output(name) {
                let took = Duration::from_nanos(now().saturating_sub(began));
                (**routes).as_ref().record_output(name, took);
            }
        }
    } else if text == BUSY {
        session.begin_flush(now());
    } else if text == IDLE {
        session.end_flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(name: &str, status: &str) -> Vec<u8> {
        format!(r#"{{"recalculating":{{"name":"{name}","status":"{status}"}}}}"#).into_bytes()
    }

    #[test]
    fn an_output_takes_the_time_between_the_two_messages_about_it() {
        let session = Arc::<ShinySessions>::default().open(b"a");
        let routes: Arc<dyn AsRef<RouteTable>> = Arc::new(RouteTable::new());
        for (text, at) in [
            (message("plot", "recalculating"), 1_000_000_000),
            (message("m-table", "recalculating"), 2_000_000_000),
            (message("plot", "recalculated"), 4_000_000_000),
            (message("m-table", "recalculated"), 4_500_000_000),
            (message("unknown", "recalculated"), 5_000_000_000),
            (b"{\"recalculating\":{\"name\":\"".to_vec(), 6_000_000_000),
            (b"{\"progress\":{}}".to_vec(), 6_000_000_000),
        ] {
            observe_at(&session, &text, || at, &routes);
        }
        let table = (*routes).as_ref();
        let read: Vec<_> = table
            .outputs()
            .into_iter()
            .map(|(name, times)| (name, times.read().1, times.read().2))
            .collect();
        assert_eq!(read, [("m-table".to_owned(), 1, 2.5), ("plot".to_owned(), 1, 3.0)]);
        assert!(table.routes().is_empty());
    }

    #[test]
    fn a_session_begins_with_the_first_message_of_shiny_and_is_busy_during_flushes() {
        let records = ShinyRecords {
            routes: Arc::new(RouteTable::new()),
            sessions: Arc::<ShinySessions>::default(),
        };
        let mut observed = ObservedSession::default();
        observed.observe(BUSY, &records);
        assert_eq!(records.sessions.read(9).open, 0);
        let config = br#"{"config":{"workerId":"","sessionId":"0123456789abcdef","user":null}}"#;
        observed.observe(config, &records);
        observed.observe(BUSY, &records);
        let reading = records.sessions.read(9);
        assert_eq!((reading.computing, &*reading.sessions[0].id), (1, "01234567"));
        assert_eq!(reading.page_bytes, (config.len() + BUSY.len()) as u64);
        observed.observe(IDLE, &records);
        observed.count(b"\0\0");
        let reading = records.sessions.read(9);
        assert_eq!((reading.computing, reading.flushes), (0, 1));
        assert_eq!(reading.page_bytes, (config.len() + BUSY.len() + IDLE.len() + 2) as u64);
        drop(observed);
        assert_eq!(records.sessions.read(9).open, 0);
    }
}
