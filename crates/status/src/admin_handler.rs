//! The request handler of the admin listener, which serves status reports, metrics and probes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rookery_exchange::Exchange;

use crate::access_token::is_host_expected;

/// The time without a completed loop iteration after which a thread of the server is considered
/// hung. A healthy thread completes at least one iteration of its loop per second.
pub const HANG_TIMEOUT: Duration = Duration::from_secs(10);

/// The app's path and the server's address, as status reports show them.
#[derive(Debug, Clone, Default)]
pub struct ServerInfo {
    /// The path of the app's file or folder.
    pub target: String,
    /// The address at which clients reach the app.
    pub address: String,
}

/// The result of the readiness probe while a server is not ready: the HTTP status and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotReady {
    /// The HTTP status of the probe's response: 503, or 404 for load balancers that take 404 to
    /// mean "send no new clients".
    pub status: u16,
    /// The reason why the server is not ready, as text for people.
    pub why: String,
}

/// A source of the status reports, metrics and probe results that the admin listener serves. No
/// method may block.
pub trait StatusSource: Send + Sync {
    /// Returns the server's status as one line of JSON, for programs.
    fn json(&self) -> String;
    /// Returns the server's status as text, for people. The second line has the form
    /// `<app> is at <address>`.
    fn text(&self) -> String;
    /// Returns the server's metrics in the text format of Prometheus.
    fn metrics(&self) -> String;
    /// Returns the reason why the server should be restarted, or `None` if the server is live.
    fn not_live(&self) -> Option<&'static str>;
    /// Returns the reason why the server should get no requests, or `None` if the server is ready.
    fn not_ready(&self) -> Option<NotReady>;
    /// Returns the reason why the server is still starting, or `None` if the server has started.
    fn not_started(&self) -> Option<&'static str>;
}

/// The request handler of the admin listener, which serves the reports of a [`StatusSource`].
#[derive(Clone)]
pub struct AdminHandler(Arc<dyn StatusSource>);

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

impl AdminHandler {
    /// Creates a request handler for the admin listener. The handler serves the reports of
    /// `subject`.
    pub fn new(subject: Arc<dyn StatusSource>) -> AdminHandler {
        AdminHandler(subject)
    }

    /// Writes the response to a request that the admin listener received. Never blocks.
    pub fn answer(&self, exchange: &mut Exchange) {
        let (status, kind, body) = self.reply(exchange);
        exchange.begin_response(status);
        // The names and values are constants that are valid, so these calls cannot fail.
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
        if !is_host_expected(exchange) {
            return (
                421,
                TEXT,
                "421 Misdirected Request: the Host header must be localhost or an IP address\n"
                    .to_owned(),
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
                "404 Not Found: the paths are /status, /status.txt, /metrics, /-/live, /-/ready and /-/startup\n"
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use rookery_exchange::Version;

    use super::*;

    /// A [`StatusSource`] whose reports are set by a test.
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
