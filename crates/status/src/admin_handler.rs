//! The paths of the admin listener.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rookery_exchange::Exchange;

/// What turns every second, and has not for so long, hangs.
pub const HANG_TIMEOUT: Duration = Duration::from_secs(10);

/// What is served, for people.
#[derive(Debug, Clone, Default)]
pub struct ServerInfo {
    /// The path of the app.
    pub target: String,
    /// Where clients find it.
    pub address: String,
}

/// Why nothing should be sent to a server, and the status that says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotReady {
    /// 503, or 404 for those who take that for "no new clients".
    pub status: u16,
    /// For people.
    pub why: String,
}

/// What there is to tell of a server. Nothing here may wait for anybody.
pub trait StatusSource: Send + Sync {
    /// For programs: one line.
    fn json(&self) -> String;
    /// For people. The second line is what is served, ` is at `, and where.
    fn text(&self) -> String;
    /// For Prometheus.
    fn metrics(&self) -> String;
    /// Why it is to be ended and started again, if it is.
    fn not_live(&self) -> Option<&'static str>;
    /// Why nothing should be sent to it, if so.
    fn not_ready(&self) -> Option<NotReady>;
    /// Why it is still being started, if it is.
    fn not_started(&self) -> Option<&'static str>;
}

/// `AdminHandler` on the admin listener.
#[derive(Clone)]
pub struct AdminHandler(Arc<dyn StatusSource>);

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

impl AdminHandler {
    /// What asks for it is told of this.
    pub fn new(subject: Arc<dyn StatusSource>) -> AdminHandler {
        AdminHandler(subject)
    }

    /// Writes the reply to a request. Does not wait for anybody.
    pub fn answer(&self, exchange: &mut Exchange) {
        let (status, kind, body) = self.reply(exchange);
        exchange.begin_response(status);
        // Names and values of ours: they are not refused.
        let _ = exchange.push_response_header(b"Content-Type", kind.as_bytes());
        let _ = exchange.push_response_header(b"Cache-Control", b"no-store");
        if status == 405 {
            let _ = exchange.push_response_header(b"Allow", b"GET, HEAD");
        }
        exchange.set_response_body(body.as_bytes());
    }

    fn reply(&self, exchange: &Exchange) -> (u16, &'static str, String) {
        if !matches!(exchange.method(), b"GET" | b"HEAD") {
            return (405, TEXT, "405 Method Not Allowed\n".to_owned());
        }
        if is_loopback(exchange) && !exchange.header(b"host").is_none_or(is_of_this_machine) {
            return (
                421,
                TEXT,
                "421 Misdirected Request: this is for programs of this machine\n".to_owned(),
            );
        }
        let subject = &self.0;
        match exchange.path() {
            b"/status" => (200, JSON, subject.json()),
            b"/status.txt" => (200, TEXT, subject.text()),
            b"/metrics" => (200, "text/plain; version=0.0.4", subject.metrics()),
            b"/-/live" => probe("live", subject.not_live()),
            b"/-/ready" => match subject.not_ready() {
                Some(NotReady { status: 404, why }) => (404, TEXT, format!("404 Not Found: {why}\n")),
                not => probe("ready", not.as_ref().map(|not| not.why.as_str())),
            },
            b"/-/startup" => probe("started", subject.not_started()),
            _ => (
                404,
                TEXT,
                "404 Not Found: there are /status, /status.txt, /metrics, /-/live, /-/ready and /-/startup\n"
                    .to_owned(),
            ),
        }
    }
}

impl fmt::Debug for AdminHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminHandler")
    }
}

fn probe(yes: &str, not: Option<&str>) -> (u16, &'static str, String) {
    match not {
        None => (200, TEXT, format!("{yes}\n")),
        Some(why) => (503, TEXT, format!("503 Service Unavailable: {why}\n")),
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
    use std::sync::Mutex;

    use rookery_exchange::Version;

    use super::*;

    /// What it says is what it was given.
    #[derive(Default)]
    struct Said {
        live: Mutex<Option<&'static str>>,
        ready: Mutex<Option<NotReady>>,
    }

    impl StatusSource for Said {
        fn json(&self) -> String {
            "{}\n".to_owned()
        }

        fn text(&self) -> String {
            "text\n".to_owned()
        }

        fn metrics(&self) -> String {
            "rookery_x 1\n".to_owned()
        }

        fn not_live(&self) -> Option<&'static str> {
            *self.live.lock().unwrap()
        }

        fn not_ready(&self) -> Option<NotReady> {
            self.ready.lock().unwrap().clone()
        }

        fn not_started(&self) -> Option<&'static str> {
            *self.live.lock().unwrap()
        }
    }

    fn ask(
        answers: &AdminHandler,
        local: Option<&str>,
        method: &str,
        path: &str,
        host: &str,
    ) -> (u16, String) {
        let mut exchange = Exchange::new();
        exchange.begin(1, 1, 0);
        exchange.set_request_line(method.as_bytes(), path.as_bytes(), Version::Http11);
        exchange.push_header(b"host", host.as_bytes());
        exchange.end_head(None, local.map(|local| local.parse().unwrap()), false);
        answers.answer(&mut exchange);
        let body = exchange.response_copy().unwrap_or_default();
        (exchange.response().status(), String::from_utf8_lossy(body).into_owned())
    }

    #[test]
    fn only_what_is_there_is_answered_and_only_to_who_may_ask() {
        let (answers, here) =
            (AdminHandler::new(Arc::new(Said::default())), Some("127.0.0.1:9100"));
        for host in
            ["127.0.0.1:9100", "[::1]:9100", "[::1]", "localhost:9100", "LOCALHOST", "10.1.2.3"]
        {
            assert_eq!(ask(&answers, here, "GET", "/metrics", host).0, 200, "{host}");
        }
        for host in [
            "evil.example:9100",
            "evil.example",
            "",
            "127.0.0.1.evil.example",
            "[",
            "localhost.evil",
        ] {
            assert_eq!(ask(&answers, here, "GET", "/metrics", host).0, 421, "{host}");
        }
        assert_eq!(ask(&answers, Some("10.0.0.1:9100"), "GET", "/metrics", "rookery.svc").0, 200);
        assert_eq!(ask(&answers, None, "GET", "/metrics", "any").0, 200);
        assert_eq!(ask(&answers, here, "POST", "/metrics", "localhost").0, 405);
        assert_eq!(ask(&answers, here, "GET", "/", "localhost").0, 404);
    }

    #[test]
    fn a_probe_is_no_where_there_is_a_reason_and_says_it() {
        let said = Arc::new(Said::default());
        let answers = AdminHandler::new(Arc::clone(&said) as Arc<dyn StatusSource>);
        let probes = || {
            ["/-/live", "/-/startup", "/-/ready"]
                .map(|path| ask(&answers, None, "GET", path, "pod"))
        };
        let words = ["live", "started", "ready"].map(|word| (200, format!("{word}\n")));
        assert_eq!(probes(), words);
        *said.live.lock().unwrap() = Some("it hangs");
        *said.ready.lock().unwrap() = Some(NotReady { status: 404, why: "it stops".to_owned() });
        let hangs = (503, "503 Service Unavailable: it hangs\n".to_owned());
        assert_eq!(probes(), [hangs.clone(), hangs, (404, "404 Not Found: it stops\n".to_owned())]);
        *said.ready.lock().unwrap() = Some(NotReady { status: 503, why: "it stops".to_owned() });
        assert_eq!(probes()[2], (503, "503 Service Unavailable: it stops\n".to_owned()));
    }
}
