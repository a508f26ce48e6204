//! The sessions of Shiny in the report about a server: their states, and what Shiny computes for
//! each of them.

use rookery_worker_protocol::{SessionReading, now, visible_text};
use serde_json::{Value, json};

use super::Report;
use crate::format::Metrics;

impl Report {
    /// Returns the sessions of Shiny as JSON: their counts, and at most
    /// [`MAX_SHOWN_SESSIONS`](super::MAX_SHOWN_SESSIONS) of them.
    pub(super) fn sessions_json(&self) -> Value {
        let (read, now) = (&self.sessions, now());
        let sessions: Vec<Value> = read.sessions.iter().map(|it| self.session(it, now)).collect();
        json!({
            "idle": read.open - read.computing,
            "computing": read.computing,
            "expected": self.expected_sessions(),
            "flushes": read.flushes,
            "page_bytes": read.page_bytes,
            "sessions": sessions,
        })
    }

    fn session(&self, session: &SessionReading, now: u64) -> Value {
        let milliseconds = |since: u64| now.saturating_sub(since) / 1_000_000;
        let output = session.output.as_ref();
        let since = output.map(|(_, began)| *began).or(session.busy_since);
        json!({
            "id": session.id,
            "opened_ms": milliseconds(session.opened),
            "page_bytes": session.page_bytes,
            "computes": self.computes(session),
            "computes_ms": since.map(milliseconds),
        })
    }

    /// Returns what Shiny computes for a session: the functions on R's stack if R computes for this
    /// session, an output, or the word `waits` if Shiny has begun and R does something else, as
    /// while another session computes. Returns `None` if Shiny computes nothing for the session.
    fn computes(&self, session: &SessionReading) -> Option<String> {
        let stacks = self.processes().filter_map(|process| process.stack.as_ref()?.of_session());
        let stack = stacks.into_iter().find(|(_, id)| *id == session.id);
        if let Some((functions, _)) = stack {
            return Some(functions.to_owned());
        }
        match &session.output {
            Some((output, _)) => Some(format!("output${}", visible_text(output))),
            None => session.busy_since.map(|_| "waits".to_owned()),
        }
    }

    /// Returns the number of pages whose sessions have not been opened yet.
    fn expected_sessions(&self) -> u64 {
        self.processes().map(|process| process.pending_sessions).sum()
    }

    /// Adds the metrics of the sessions of Shiny.
    pub(super) fn session_metrics(&self, text: &mut Metrics) {
        let read = &self.sessions;
        let help = "Sessions of Shiny, by state: those for which Shiny computes nothing or \
                    something, and the loaded pages whose session is not open yet.";
        text.family("shiny_sessions", "gauge", help).values(
            "shiny_sessions",
            "state",
            [
                ("idle", (read.open - read.computing) as u64),
                ("computing", read.computing as u64),
                ("expected", self.expected_sessions()),
            ],
        );
        let help = "Flushes of Shiny's reactive graph, counted for each session that took part.";
        text.counter("flushes_total", help, read.flushes);
        let help = "Bytes of messages to the pages of Shiny's sessions, before compression.";
        text.counter("page_bytes_total", help, read.page_bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use rookery_worker_protocol::{SharedScoreboard, ShinySessions};

    use super::super::WorkerReport;
    use super::*;
    use crate::r_process::{RProcess, RStack};

    fn worker(stack: &str) -> WorkerReport {
        let scoreboard = SharedScoreboard::private();
        let stack = RStack { text: stack.to_owned(), ago: Duration::ZERO };
        let process = RProcess {
            pending_sessions: 2,
            stack: Some(stack),
            ..RProcess::of_scoreboard(&scoreboard, &scoreboard.read(), 1, SystemTime::now())
        };
        WorkerReport {
            slot: 0,
            process: Some(process),
            starts_in: None,
            restarts: 0,
            last_exit: None,
        }
    }

    #[test]
    fn a_session_has_what_shiny_computes_for_it() {
        let all = Arc::<ShinySessions>::default();
        let [named, plot, waits, idle] =
            [b"named---", b"plot----", b"waits---", b"idle----"].map(|id| all.open(id));
        for (session, since) in [(&named, 1), (&plot, 2), (&waits, 3)] {
            session.begin_flush(since);
        }
        plot.begin_output(b"m-plot\x1b", 5);
        idle.count_sent(10);
        let report = Report {
            sessions: all.read(9),
            workers: vec![worker("fit < <observer:go>, app.R#4, session named---")],
            ..Report::default()
        };
        let json = report.sessions_json();
        let computes = |at: usize| json["sessions"][at]["computes"].as_str();
        assert_eq!(computes(0), Some("fit < <observer:go>, app.R#4"));
        assert!(
            computes(1).unwrap().starts_with("output$m-plot") && computes(1).unwrap().len() > 13
        );
        assert!(!computes(1).unwrap().contains('\x1b'));
        assert_eq!((computes(2), computes(3)), (Some("waits"), None));
        assert_eq!(json["sessions"][3]["computes_ms"], Value::Null);
        assert!(json["sessions"][0]["computes_ms"].as_u64() > Some(0));
        let mut text = Metrics::default();
        report.session_metrics(&mut text);
        let text = text.into_text();
        for line in [
            "rookery_shiny_sessions{state=\"idle\"} 1",
            "rookery_shiny_sessions{state=\"computing\"} 3",
            "rookery_shiny_sessions{state=\"expected\"} 2",
            "rookery_flushes_total 0",
            "rookery_page_bytes_total 10",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}: {text}");
        }
    }
}
