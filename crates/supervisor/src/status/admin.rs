//! The paths of the admin listener.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rookery_exchange::Exchange;

use super::report::{Course, Report};
use super::{json, metrics, table};
use crate::roster::Roster;

/// The supervisor's thread turns every second at least: past that it hangs.
const HANGS: Duration = Duration::from_secs(10);

/// What is served, for people.
#[derive(Debug, Clone)]
pub struct About {
    /// The path of the app.
    pub target: String,
    /// Where clients find it.
    pub address: String,
}

/// When something should be sent here.
#[derive(Debug, Clone, Copy)]
pub struct Readiness {
    /// How many workers have to be ready, of those that are wanted.
    pub min_ready: u32,
    /// What is answered while it ends: 404 is what some balancers take for "no new clients", and 503 for a fault.
    pub drain_status: u16,
}

impl Default for Readiness {
    fn default() -> Readiness {
        Readiness { min_ready: 1, drain_status: 503 }
    }
}

/// Answers on the admin listener.
#[derive(Debug, Clone)]
pub struct Status {
    roster: Arc<Roster>,
    readiness: Readiness,
    about: Arc<About>,
}

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

impl Status {
    /// Of the workers of a roster, and their supervisor.
    pub fn new(roster: Arc<Roster>, about: About, readiness: Readiness) -> Status {
        Status { roster, readiness, about: Arc::new(about) }
    }

    /// Writes the reply to a request. Does not wait for anybody.
    pub fn answer(&self, exchange: &mut Exchange) {
        let (status, kind, body) = self.reply(exchange);
        exchange.begin_reply(status);
        // Names and values of ours: they are not refused.
        let _ = exchange.push_reply_header(b"Content-Type", kind.as_bytes());
        let _ = exchange.push_reply_header(b"Cache-Control", b"no-store");
        if status == 405 {
            let _ = exchange.push_reply_header(b"Allow", b"GET, HEAD");
        }
        exchange.set_reply_body(body.as_bytes());
    }

    fn reply(&self, exchange: &Exchange) -> (u16, &'static str, String) {
        if !matches!(exchange.method(), b"GET" | b"HEAD") {
            return (405, TEXT, "405 Method Not Allowed\n".to_owned());
        }
        if is_loopback(exchange) && !exchange.header(b"host").is_none_or(is_of_this_machine) {
            return (421, TEXT, "421 Misdirected Request: this is for programs of this machine\n".to_owned());
        }
        let report = self.roster.told.read();
        match exchange.path() {
            b"/status" => (200, JSON, json::of(&self.about, &report, &self.roster)),
            b"/status.txt" => (200, TEXT, table::of(&self.about, &report, &self.roster)),
            b"/metrics" => (200, "text/plain; version=0.0.4", metrics::of(&report, &self.roster)),
            b"/-/live" => probe(report.silence() < HANGS, "live", "the supervisor does not turn"),
            b"/-/ready" => match not_ready(&report, self.readiness) {
                None => probe(true, "ready", ""),
                Some((404, why)) => (404, TEXT, format!("404 Not Found: {why}\n")),
                Some((_, why)) => probe(false, "", &why),
            },
            b"/-/startup" => {
                probe(report.course != Course::Starting, "started", "no worker has been ready yet")
            }
            _ => (
                404,
                TEXT,
                "404 Not Found: there are /status, /status.txt, /metrics, /-/live, /-/ready and /-/startup\n"
                    .to_owned(),
            ),
        }
    }
}

fn probe(is_so: bool, yes: &str, no: &str) -> (u16, &'static str, String) {
    if is_so {
        (200, TEXT, format!("{yes}\n"))
    } else {
        (503, TEXT, format!("503 Service Unavailable: {no}\n"))
    }
}

/// Why nothing should be sent here. How much waits is none: overload would take out all machines.
fn not_ready(report: &Report, readiness: Readiness) -> Option<(u16, String)> {
    let (ready, least) = (report.ready(), readiness.min_ready.clamp(1, report.wanted.max(1)) as usize);
    match report.course {
        Course::Draining | Course::Stopping => Some((readiness.drain_status, "it stops".to_owned())),
        _ if report.silence() >= HANGS => Some((503, "the supervisor does not turn".to_owned())),
        _ if ready == 0 => Some((503, "no worker is ready".to_owned())),
        _ if ready < least => Some((503, format!("{ready} of {least} workers are ready"))),
        _ => None,
    }
}

/// Whether only programs of this machine can have sent it over TCP: then one for another machine's name is one that a web page has had a
/// browser send, by a name of its own that leads here.
fn is_loopback(exchange: &Exchange) -> bool {
    exchange.local().is_some_and(|local| local.ip().to_canonical().is_loopback())
}

/// Whether a `Host` is this machine's whatever a name server says.
fn is_of_this_machine(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(name, _)| name),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rookery_exchange::Version;

    use super::*;

    fn status() -> Status {
        let about = About { target: "/app".into(), address: "http://127.0.0.1:8000".into() };
        Status::new(Arc::default(), about, Readiness { drain_status: 404, ..Readiness::default() })
    }

    fn ask(status: &Status, local: Option<&str>, method: &str, path: &str, host: &str) -> (u16, String) {
        let mut exchange = Exchange::new();
        exchange.begin(1, 1, 0);
        exchange.set_request_line(method.as_bytes(), path.as_bytes(), Version::Http11);
        exchange.push_header(b"host", host.as_bytes());
        exchange.end_head(None, local.map(|local| local.parse().unwrap()), false);
        status.answer(&mut exchange);
        let body = exchange.reply_copied().unwrap_or_default();
        (exchange.reply().status(), String::from_utf8_lossy(body).into_owned())
    }

    #[test]
    fn probes_say_where_the_supervisor_is() {
        let status = status();
        let probes = || {
            ["/-/live", "/-/startup", "/-/ready"]
                .map(|path| ask(&status, Some("10.0.0.1:9100"), "GET", path, "pod").0)
        };
        assert_eq!(probes(), [503, 503, 503]);
        let told = &status.roster.told;
        told.change(|report| report.turned = Some(Instant::now()));
        assert_eq!(probes(), [200, 503, 503]);
        told.change(|report| report.course = Course::Serving);
        // All its workers have died: it is to be left alone, and given nothing.
        assert_eq!(probes(), [200, 200, 503]);
        told.change(|report| report.course = Course::Draining);
        let (code, said) = ask(&status, None, "GET", "/-/ready", "pod");
        assert_eq!((code, said.as_str()), (404, "404 Not Found: it stops\n"));
        told.change(|report| report.turned = Instant::now().checked_sub(HANGS));
        assert_eq!(probes(), [503, 200, 404]);
    }

    #[test]
    fn only_what_is_there_is_answered_and_only_to_who_may_ask() {
        let (status, here) = (status(), Some("127.0.0.1:9100"));
        for host in ["127.0.0.1:9100", "[::1]:9100", "[::1]", "localhost:9100", "LOCALHOST", "10.1.2.3"] {
            assert_eq!(ask(&status, here, "GET", "/metrics", host).0, 200, "{host}");
        }
        for host in ["evil.example:9100", "evil.example", "", "127.0.0.1.evil.example", "[", "localhost.evil"]
        {
            assert_eq!(ask(&status, here, "GET", "/metrics", host).0, 421, "{host}");
        }
        assert_eq!(ask(&status, Some("10.0.0.1:9100"), "GET", "/metrics", "rookery.svc").0, 200);
        assert_eq!(ask(&status, None, "GET", "/metrics", "any").0, 200);
        assert_eq!(ask(&status, here, "POST", "/metrics", "localhost").0, 405);
        assert_eq!(ask(&status, here, "GET", "/", "localhost").0, 404);
    }
}
