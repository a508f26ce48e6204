//! The times that Shiny's outputs take, from the messages by which Shiny tells the page that an
//! output is being computed.

use std::time::Duration;

use rookery_worker_protocol::{RouteTable, now};

/// The beginning of the message that Shiny sends before and after it computes an output, such as
/// `{"recalculating":{"name":"plot","status":"recalculating"}}`.
const BEGINNING: &[u8] = b"{\"recalculating\":{\"name\":\"";

/// The end of the message that Shiny sends before it computes an output.
const BEGINS: &[u8] = b"\",\"status\":\"recalculating\"}}";

/// The end of the message that Shiny sends after it has computed an output.
const ENDS: &[u8] = b"\",\"status\":\"recalculated\"}}";

/// The maximum number of outputs of a session that are being computed at the same time, as promises
/// allow it. The times of further outputs are not recorded.
const MAX_COMPUTING: usize = 32;

/// The outputs of a Shiny session that are being computed.
#[derive(Debug, Default)]
pub(super) struct ShinyOutputs {
    /// The name of each output and the time at which its computation began, in nanoseconds of the
    /// clock [`now`].
    computing: Vec<(Box<[u8]>, u64)>,
}

/// Returns true if a text message for the page may be about the computation of an output.
pub(super) fn is_about_output(text: &[u8]) -> bool {
    text.starts_with(BEGINNING)
}

impl ShinyOutputs {
    /// Records the time that an output took if `text` is the message of Shiny that the output has
    /// been computed.
    pub(super) fn observe(&mut self, text: &[u8], routes: &RouteTable) {
        self.observe_at(text, now(), routes);
    }

    fn observe_at(&mut self, text: &[u8], now: u64, routes: &RouteTable) {
        let Some(rest) = text.strip_prefix(BEGINNING) else { return };
        if let Some(name) = rest.strip_suffix(BEGINS) {
            self.computing.retain(|(other, _)| **other != *name);
            if self.computing.len() < MAX_COMPUTING {
                self.computing.push((name.into(), now));
            }
        } else if let Some(name) = rest.strip_suffix(ENDS) {
            if let Some(at) = self.computing.iter().position(|(other, _)| **other == *name) {
                let (_, began) = self.computing.swap_remove(at);
                routes.record_output(name, Duration::from_nanos(now.saturating_sub(began)));
            }
        }
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
        let (mut outputs, routes) = (ShinyOutputs::default(), Box::new(RouteTable::new()));
        for (text, at) in [
            (message("plot", "recalculating"), 1_000_000_000),
            (message("m-table", "recalculating"), 2_000_000_000),
            (message("plot", "recalculated"), 4_000_000_000),
            (message("m-table", "recalculated"), 4_500_000_000),
            (message("unknown", "recalculated"), 5_000_000_000),
            (b"{\"recalculating\":{\"name\":\"".to_vec(), 6_000_000_000),
            (b"{\"busy\":\"idle\"}".to_vec(), 6_000_000_000),
        ] {
            outputs.observe_at(&text, at, &routes);
        }
        let read: Vec<_> = routes
            .outputs()
            .into_iter()
            .map(|(name, times)| (name, times.read().1, times.read().2))
            .collect();
        assert_eq!(read, [("m-table".to_owned(), 1, 2.5), ("plot".to_owned(), 1, 3.0)]);
        assert!(routes.routes().is_empty() && outputs.computing.is_empty());
    }

    #[test]
    fn a_session_has_a_maximum_of_computed_outputs() {
        let (mut outputs, routes) = (ShinyOutputs::default(), Box::new(RouteTable::new()));
        for at in 0..2 * MAX_COMPUTING {
            outputs.observe_at(&message(&format!("o{at}"), "recalculating"), 0, &routes);
            outputs.observe_at(&message("again", "recalculating"), 0, &routes);
        }
        assert_eq!(outputs.computing.len(), MAX_COMPUTING);
    }
}
