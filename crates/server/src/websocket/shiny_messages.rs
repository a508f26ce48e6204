//! What the messages by which Shiny tells its pages what it does say about sessions and outputs.

use std::sync::Arc;
use std::time::Duration;

use rookery_worker_protocol::{RouteTable, ShinyMessage, ShinySession, ShinySessions, now};

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
        let message = ShinyMessage::of(text);
        if let (None, Some(ShinyMessage::Opens(token))) = (&self.0, message) {
            self.0 = Some(records.sessions.open(token));
        }
        let Some(session) = &self.0 else { return };
        session.count_sent(text.len());
        if let Some(message) = message {
            observe_at(session, message, now, &records.routes);
        }
    }

    /// Counts a message to the page that says nothing about the session.
    pub(super) fn count(&self, payload: &[u8]) {
        if let Some(session) = &self.0 {
            session.count_sent(payload.len());
        }
    }
}

fn observe_at(
    session: &ShinySession,
    message: ShinyMessage<'_>,
    now: impl FnOnce() -> u64,
    routes: &Arc<dyn AsRef<RouteTable>>,
) {
    match message {
        ShinyMessage::Opens(_) => {}
        ShinyMessage::Busy => session.begin_flush(now()),
        ShinyMessage::Idle => session.end_flush(),
        ShinyMessage::BeginsOutput(name) => session.begin_output(name, now()),
        ShinyMessage::EndsOutput(name) => {
            if let Some(began) = session.end_output(name) {
                let took = Duration::from_nanos(now().saturating_sub(began));
                (**routes).as_ref().record_output(name, took);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_takes_the_time_between_the_two_messages_about_it() {
        let session = Arc::<ShinySessions>::default().open(b"a");
        let routes: Arc<dyn AsRef<RouteTable>> = Arc::new(RouteTable::new());
        for (message, at) in [
            (ShinyMessage::BeginsOutput(b"plot"), 1_000_000_000),
            (ShinyMessage::BeginsOutput(b"m-table"), 2_000_000_000),
            (ShinyMessage::EndsOutput(b"plot"), 4_000_000_000),
            (ShinyMessage::EndsOutput(b"m-table"), 4_500_000_000),
            (ShinyMessage::EndsOutput(b"unknown"), 5_000_000_000),
        ] {
            observe_at(&session, message, || at, &routes);
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
        let (busy, idle) = (br#"{"busy":"busy"}"#, br#"{"busy":"idle"}"#);
        let mut observed = ObservedSession::default();
        observed.observe(busy, &records);
        assert_eq!(records.sessions.read(9).open, 0);
        let config = br#"{"config":{"workerId":"","sessionId":"0123456789abcdef","user":null}}"#;
        observed.observe(config, &records);
        observed.observe(busy, &records);
        let reading = records.sessions.read(9);
        assert_eq!((reading.computing, &*reading.sessions[0].id), (1, "01234567"));
        assert_eq!(reading.page_bytes, (config.len() + busy.len()) as u64);
        observed.observe(idle, &records);
        observed.count(b"\0\0");
        let reading = records.sessions.read(9);
        assert_eq!((reading.computing, reading.flushes), (0, 1));
        assert_eq!(reading.page_bytes, (config.len() + busy.len() + idle.len() + 2) as u64);
        drop(observed);
        assert_eq!(records.sessions.read(9).open, 0);
    }
}
