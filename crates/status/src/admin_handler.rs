//! The request handler of the admin listener, which serves status reports, metrics, probes and the
//! live page.

mod profile_requests;

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use rookery_exchange::Exchange;
use rookery_server::tls::ServedCertificate;
use rookery_worker_protocol::now;
use serde_json::json;

use crate::access_token::{Access, AccessToken, is_host_expected};
use crate::format::seconds;
use crate::live::Page;
use crate::profile::{ProfiledProcess, Profiler};
use crate::recent_errors::RecentErrors;
use crate::report::Report;

/// The time without a completed loop iteration after which a thread of the server is considered
/// hung. A healthy thread completes at least one iteration of its loop per second.
pub const HANG_TIMEOUT: Duration = Duration::from_secs(10);

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
    /// Returns the report about the server.
    fn report(&self) -> Report;
    /// Returns the reason why the server should be restarted, or `None` if the server is live.
    fn not_live(&self) -> Option<&'static str>;
    /// Returns the reason why the server should get no requests, or `None` if the server is ready.
    fn not_ready(&self) -> Option<NotReady>;
    /// Returns the reason why the server is still starting, or `None` if the server has started.
    fn not_started(&self) -> Option<&'static str>;
    /// Returns the last errors in the app's R code.
    fn errors(&self) -> &RecentErrors;

    /// Returns the actions that the server can perform.
    fn actions(&self) -> &'static [Action] {
        &[]
    }

    /// Begins an action, which is one of [`actions`](Self::actions). The result is visible in later
    /// reports.
    fn perform(&self, _action: Action) {}

    /// Returns the R processes that can be profiled now.
    fn profiled_processes(&self) -> Vec<ProfiledProcess> {
        Vec::new()
    }
}

/// Something that a person can make the server do from the live page, as with a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Reloads the app: replaces all workers by new ones.
    Reload,
    /// Adds a worker.
    AddWorker,
    /// Removes a worker.
    RemoveWorker,
}

impl Action {
    /// All actions.
    pub const ALL: [Action; 3] = [Action::Reload, Action::AddWorker, Action::RemoveWorker];

    /// Returns the name of the action in URLs and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Action::Reload => "reload",
            Action::AddWorker => "add-worker",
            Action::RemoveWorker => "remove-worker",
        }
    }
}

/// The kind of a response that [`AdminHandler::answer`] has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The response is complete.
    Complete,
    /// The response has a head. Its body is the stream of the live page's events.
    Stream,
}

/// The request handler of the admin listener, which serves the reports of a [`StatusSource`].
#[derive(Clone)]
pub struct AdminHandler {
    source: Arc<dyn StatusSource>,
    token: AccessToken,
    /// The address over TCP at which browsers reach the live page, once it is known.
    page_address: Arc<OnceLock<SocketAddr>>,
    profiler: Arc<Profiler>,
}

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";

/// The path of the live page, below which are its events and actions. Browsers send the cookie with
/// the access token only there.
const PAGE: &str = "/live/";

/// The path of the URL with which a browser opens the live page, on Unix sockets only.
const URL: &[u8] = b"/live/url";

/// The path of the stream of the live page's events.
const EVENTS: &[u8] = b"/live/events";

/// The beginning of the paths of [actions](Action).
const ACTIONS: &[u8] = b"/live/actions/";

/// The paths of the actions that begin and end a profile.
const PROFILE_ACTION: &[u8] = b"/live/actions/profile";
const STOP_PROFILE_ACTION: &[u8] = b"/live/actions/stop-profile";

/// The path of the state of the profile.
const PROFILE: &[u8] = b"/live/profile";

/// The path of the file of the last profile.
const PROFILE_FILE: &[u8] = b"/live/profile/file";

/// The headers of every response. Nothing of the admin listener belongs into a cache, into a frame
/// or, with a token in its URL, into a `Referer` header.
const HEADERS: [(&str, &str); 3] = [
    ("Cache-Control", "no-store"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
];

impl AdminHandler {
    /// Creates a request handler for the admin listener. The handler serves the reports of
    /// `source`. Clients of the live page over TCP need an access token, which is made here.
    ///
    /// # Errors
    /// Returns an error if the operating system has no random numbers.
    pub fn new(source: Arc<dyn StatusSource>) -> std::io::Result<AdminHandler> {
        let profiler = Arc::new(Profiler::new());
        let token = AccessToken::generate(PAGE)?;
        Ok(AdminHandler { source, token, page_address: Arc::default(), profiler })
    }

    /// Sets the address over TCP at which browsers reach the live page, unless one is set.
    pub(crate) fn set_page_address(&self, mut local: SocketAddr) {
        if local.ip().is_unspecified() {
            local.set_ip(if local.is_ipv4() {
                Ipv4Addr::LOCALHOST.into()
            } else {
                Ipv6Addr::LOCALHOST.into()
            });
        }
        let _ = self.page_address.set(local);
    }

    /// Returns the URL of the live page, which contains the access token. Returns `None` if the
    /// admin listener has no address over TCP, because a browser can open no other.
    pub(crate) fn page_url(&self) -> Option<String> {
        let local = self.page_address.get()?;
        Some(self.token.url(&format!("http://{local}")))
    }

    pub(crate) fn source(&self) -> &Arc<dyn StatusSource> {
        &self.source
    }

    /// Writes the response to a request that the admin listener received. Never blocks.
    pub(crate) fn answer(&self, exchange: &mut Exchange) -> Reply {
        let path = exchange.path();
        let needs_token = [PAGE.as_bytes(), EVENTS, PROFILE, PROFILE_FILE].contains(&path)
            || path.starts_with(ACTIONS);
        if needs_token {
            return self.answer_with_token(exchange);
        }
        let (status, kind, body) = self.reply(exchange);
        write(exchange, status, kind, &body);
        if status == 303 {
            let query = String::from_utf8_lossy(exchange.query()).into_owned();
            push_header(exchange, "Location", &format!("{PAGE}{query}"));
        }
        if status == 405 {
            push_header(exchange, "Allow", "GET, HEAD");
        }
        Reply::Complete
    }

    /// Writes the response to a client that cannot become a viewer of the live page, because there
    /// are too many.
    pub(crate) fn refuse_viewer(exchange: &mut Exchange) {
        write(exchange, 503, TEXT, "503 Service Unavailable: too many people watch\n");
    }

    /// Writes the response to a request for the live page, its events or one of its actions.
    fn answer_with_token(&self, exchange: &mut Exchange) -> Reply {
        match self.token.check(exchange) {
            Access::Granted => {}
            Access::Exchanged { page, cookie } => {
                write(exchange, 200, HTML, &page);
                push_header(exchange, "Set-Cookie", &cookie);
                return Reply::Complete;
            }
            Access::Refused { status, why } => {
                let body = format!(
                    "{status}: {why}\n\nOpen the page with `rookery live` on the machine of the \
                     server, as the user of the server.\nOr open the URL with a token that the \
                     server has written to its terminal at its start.\n"
                );
                write(exchange, status, TEXT, &body);
                return Reply::Complete;
            }
        }
        if matches!(exchange.path(), PROFILE | PROFILE_FILE | PROFILE_ACTION | STOP_PROFILE_ACTION)
        {
            self.answer_about_profile(exchange);
            return Reply::Complete;
        }
        let action = exchange.path().strip_prefix(ACTIONS).map(|name| {
            self.source.actions().iter().find(|action| action.name().as_bytes() == name).copied()
        });
        let is_read = matches!(exchange.method(), b"GET" | b"HEAD");
        match action {
            Some(None) => write(exchange, 404, TEXT, "404 Not Found\n"),
            Some(Some(action)) if exchange.method() == b"POST" => {
                self.source.perform(action);
                write(exchange, 202, TEXT, "");
            }
            None if is_read && exchange.path() == EVENTS => {
                write(exchange, 200, "text/event-stream", "");
                return if exchange.method() == b"GET" { Reply::Stream } else { Reply::Complete };
            }
            None if is_read => {
                let page = Page::get();
                write(exchange, 200, HTML, &page.html);
                push_header(exchange, "Content-Security-Policy", &page.policy);
            }
            _ => {
                write(exchange, 405, TEXT, "405 Method Not Allowed\n");
                push_header(exchange, "Allow", if action.is_some() { "POST" } else { "GET, HEAD" });
            }
        }
        Reply::Complete
    }

    pub(crate) fn profiler(&self) -> &Arc<Profiler> {
        &self.profiler
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
        let source = &self.source;
        match exchange.path() {
            b"/" | b"/live" => (303, TEXT, String::new()),
            b"/status" => (200, JSON, format!("{}\n", source.report().json())),
            b"/status.txt" => (200, TEXT, source.report().text()),
            b"/metrics" => (200, "text/plain; version=0.0.4", source.report().metrics(&source.errors().places())),
            // Over a Unix socket, whose clients need no token.
            URL if exchange.local().is_none() => match self.page_url() {
                Some(url) => (200, TEXT, url + "\n"),
                None => (404, TEXT, "404 Not Found: there is no address over TCP\n".to_owned()),
            },
            b"/-/live" => probe("live", source.not_live()),
            b"/-/ready" => match source.not_ready() {
                Some(NotReady { status: 404, why }) => (404, TEXT, format!("404 Not Found: {why}\n")),
                not => probe("ready", not.as_ref().map(|not| not.why.as_str())),
            },
            b"/-/startup" => probe("started", source.not_started()),
            _ => (
                404,
                TEXT,
                "404 Not Found: the paths are /live/, /status, /status.txt, /metrics, /-/live, /-/ready and \
                 /-/startup\n"
                    .to_owned(),
            ),
        }
    }
}

/// Returns what the live page shows, except the errors, as one line of JSON.
pub(crate) fn snapshot(source: &dyn StatusSource, profiler: &Profiler) -> String {
    let mut actions: Vec<&str> = source.actions().iter().map(|action| action.name()).collect();
    if !source.profiled_processes().is_empty() {
        actions.push("profile");
    }
    let report = source.report();
    let certificates: Vec<_> = report
        .certificates
        .iter()
        .map(|ServedCertificate { hosts, ends }| json!({ "hosts": hosts, "ends": seconds(*ends) }))
        .collect();
    let snapshot = json!({
        "at": seconds(SystemTime::now()),
        // Unlike the time of day, this clock is monotonic.
        "clock": Duration::from_nanos(now()).as_secs_f64(),
        "report": report.json(),
        "actions": actions,
        "certificates": certificates,
        "profile": profiler.json(None),
    });
    snapshot.to_string()
}

fn write(exchange: &mut Exchange, status: u16, kind: &str, body: &str) {
    write_bytes(exchange, status, kind, body.as_bytes());
}

fn write_bytes(exchange: &mut Exchange, status: u16, kind: &str, body: &[u8]) {
    exchange.begin_response(status);
    push_header(exchange, "Content-Type", kind);
    for (name, value) in HEADERS {
        push_header(exchange, name, value);
    }
    exchange.set_response_body(body);
}

fn push_header(exchange: &mut Exchange, name: &str, value: &str) {
    // A value that comes from the client has been checked as part of the client's request.
    let _ = exchange.push_response_header(name.as_bytes(), value.as_bytes());
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
        errors: RecentErrors,
        performed: Mutex<Vec<Action>>,
    }

    fn handler(source: &Arc<Said>) -> AdminHandler {
        AdminHandler::new(Arc::clone(source) as Arc<_>).unwrap()
    }

    impl StatusSource for Said {
        fn report(&self) -> Report {
            Report::default()
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

        fn errors(&self) -> &RecentErrors {
            &self.errors
        }

        fn actions(&self) -> &'static [Action] {
            &[Action::Reload]
        }

        fn perform(&self, action: Action) {
            self.performed.lock().unwrap().push(action);
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
        let (answers, here) = (handler(&Arc::default()), Some("127.0.0.1:9100"));
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
        assert_eq!(ask(&answers, here, "GET", "/none", "localhost").0, 404);
    }

    #[test]
    fn the_live_page_needs_the_token_over_tcp_only() {
        let said = Arc::default();
        let (answers, here) = (handler(&said), Some("127.0.0.1:9100"));
        for path in [
            "/live/",
            "/live/events",
            "/live/actions/reload",
            "/live/actions/none",
            "/live/actions/profile",
            "/live/actions/stop-profile",
            "/live/profile",
            "/live/profile/file",
        ] {
            for method in ["GET", "HEAD", "POST"] {
                let (status, body) = ask(&answers, here, method, path, "localhost");
                assert_eq!(status, 403, "{method} {path}");
                assert!(!body.contains("uPlot"));
            }
            assert_eq!(ask(&answers, here, "GET", path, "evil.example").0, 421);
        }
        assert_eq!(*said.performed.lock().unwrap(), []);
        let (status, body) = ask(&answers, None, "GET", "/live/", "localhost");
        assert!(status == 200 && body.contains("uPlot"), "{status}");
        // The URL with the token is for clients of the Unix socket only.
        assert_eq!(ask(&answers, None, "GET", "/live/url", "localhost").0, 404);
        answers.set_page_address("0.0.0.0:9100".parse().unwrap());
        let url = format!("http://127.0.0.1:9100{}\n", answers.token.url(""));
        assert_eq!(ask(&answers, None, "GET", "/live/url", "localhost"), (200, url));
        assert_eq!(ask(&answers, here, "GET", "/live/url", "localhost").0, 404);
        let (status, body) = ask(&answers, here, "GET", &answers.token.url(""), "localhost");
        assert!(status == 200 && body.contains("refresh") && !body.contains("uPlot"), "{body}");
        for path in ["/", "/live"] {
            assert_eq!(ask(&answers, here, "GET", path, "localhost"), (303, String::new()));
            assert_eq!(ask(&answers, here, "GET", path, "evil.example").0, 421);
        }
    }

    #[test]
    fn a_post_performs_only_actions_that_the_source_has() {
        let said = Arc::default();
        let answers = handler(&said);
        for (method, path, status) in [
            ("GET", "/live/actions/reload", 405),
            ("DELETE", "/live/actions/reload", 405),
            ("POST", "/live/actions/add-worker", 404),
            ("POST", "/live/actions/", 404),
            ("POST", "/", 405),
            ("POST", "/live/", 405),
            ("POST", "/live/events", 405),
        ] {
            assert_eq!(ask(&answers, None, method, path, "any").0, status, "{method} {path}");
        }
        assert_eq!(*said.performed.lock().unwrap(), []);
        assert_eq!(ask(&answers, None, "POST", "/live/actions/reload", "any").0, 202);
        assert_eq!(*said.performed.lock().unwrap(), [Action::Reload]);
    }

    #[test]
    fn a_profile_is_started_by_a_post_with_options_within_their_limits() {
        let answers = handler(&Arc::default());
        for (method, path, status, text) in [
            ("GET", "/live/actions/profile", 405, "405 "),
            ("GET", "/live/actions/stop-profile", 405, "405 "),
            ("POST", "/live/profile", 405, "405 "),
            ("POST", "/live/profile/file", 405, "405 "),
            ("POST", "/live/actions/profile?seconds=301", 400, "`seconds` must be from 1 to 300"),
            ("POST", "/live/actions/profile?worker=x", 400, "`worker` must be the number"),
            ("POST", "/live/actions/profile", 404, "there is no R process"),
            ("POST", "/live/actions/profile?worker=1", 404, "there is no worker 1"),
            ("POST", "/live/actions/stop-profile", 202, ""),
            ("POST", "/live/actions/stop-profile?number=1", 409, "that profile is not running"),
            ("POST", "/live/actions/stop-profile?number=x", 400, "`number` must be the number"),
            ("GET", "/live/profile?number=1", 404, "404 Not Found: there is no such profile"),
            ("GET", "/live/profile/file?number=1", 404, "404 Not Found: there is no such profile"),
            ("GET", "/live/profile/file?worker=1", 400, "`number` must be the number"),
            ("GET", "/live/profile", 200, "{\"elapsed\":null"),
            ("GET", "/live/profile/file", 404, "404 Not Found: there is no such profile"),
        ] {
            let (found, body) = ask(&answers, None, method, path, "any");
            assert!(found == status && body.starts_with(text), "{method} {path}: {found} {body}");
        }
        assert!(snapshot(&Said::default(), answers.profiler()).contains("\"state\":\"none\""));
    }

    #[test]
    fn a_probe_is_no_where_there_is_a_reason_and_says_it() {
        let said = Arc::new(Said::default());
        let answers = handler(&said);
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
