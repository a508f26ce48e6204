//! Requests are counted by their route.

use std::sync::Arc;
use std::time::Duration;

use rookery_exchange::{AppTimes, Command, Event, StreamOptions};
use rookery_server::access_log::{AccessLog, Format};
use rookery_server::{Config, Limits, ListenerConfig, Server};
use rookery_worker_protocol::{
    MAX_ROUTE_LEN, MAX_ROUTES, OTHER_ROUTE, RouteTable, SharedScoreboard,
};

use crate::application::{Application, NoWaker};
use crate::support::{Client, wait_until};

/// A server whose application sets the route of `/users/...`, responds to `/status/<n>` with that
/// status code, never to `/never`, without times to `/untimed`, and
/// to `/events` and `/pieces` with streams.
struct Fixture {
    _application: Application,
    _server: Server,
    listener: rookery_server::Listener,
    scoreboard: Arc<SharedScoreboard>,
}

impl Fixture {
    fn new(limits: Limits) -> Fixture {
        Fixture::with(limits, ListenerConfig::default(), None)
    }

    fn with(limits: Limits, site: ListenerConfig, log: Option<AccessLog>) -> Fixture {
        let config = Config { limits, ..Config::default() };
        let server = Server::new(config, Box::new(NoWaker));
        server.set_access_log(log.map(Arc::new));
        let scoreboard = SharedScoreboard::private();
        let scoreboard = Arc::new(scoreboard);
        server.set_scoreboard(Some(Arc::clone(&scoreboard)));
        let listener = server.listen_tcp("127.0.0.1:0".parse().unwrap(), site).unwrap();
        let mut kept = Vec::new();
        let application = Application::start(&server, move |link, event| {
            let Event::Request(mut exchange) = event else { return };
            let path = String::from_utf8_lossy(exchange.path()).into_owned();
            if path == "/never" {
                return kept.push(exchange);
            }
            let status = path.strip_prefix("/status/").and_then(|status| status.parse().ok());
            exchange.begin_response(status.unwrap_or(if exchange.is_upgrade() {
                101
            } else {
                200
            }));
            if path.starts_with("/users/") {
                exchange.set_route(b"/users/<id>");
            }
            if path != "/untimed" {
                let (queue, app) = (Duration::from_millis(20), Duration::from_secs(3));
                exchange.set_app_times(AppTimes { queue, app });
            }
            if path == "/users/own" {
                exchange.push_response_header(b"Server-Timing", b"render;dur=12").unwrap();
            }
            if path == "/events" || path == "/pieces" {
                let kind: &[u8] =
                    if path == "/events" { b"text/event-stream" } else { b"text/plain" };
                exchange.push_response_header(b"Content-Type", kind).unwrap();
                let stream = link.stream(StreamOptions::default());
                exchange.set_response_stream(stream);
                let id = exchange.id();
                link.send(Command::Respond(exchange));
                return link.send(Command::EndStream { stream: id });
            }
            link.send(Command::Respond(exchange));
        });
        Fixture { _application: application, _server: server, listener, scoreboard }
    }

    fn get(&self, target: &str) -> u16 {
        let mut client = Client::connect(self.listener.local_addr().unwrap());
        client.get(target).status
    }

    fn routes(&self) -> Vec<(String, u64, u64)> {
        let routes = self.scoreboard.routes().routes().into_iter();
        routes.map(|(name, it)| (name, it.requests.get(), it.errors.get())).collect()
    }

    /// Waits until `count` requests have been counted, which may happen after the response.
    fn await_requests(&self, count: u64) {
        wait_until("all requests are counted", || {
            self.routes().iter().map(|(_, requests, _)| requests).sum::<u64>() == count
        });
    }
}

fn route(name: &str, requests: u64, errors: u64) -> (String, u64, u64) {
    (name.to_owned(), requests, errors)
}

#[test]
fn requests_are_counted_by_the_route_of_the_application_or_by_the_first_segment() {
    let fixture = Fixture::new(Limits::default());
    for target in ["/users/1?token=secret", "/users/2", "/status/200", "/status/503", "/"] {
        fixture.get(target);
    }
    fixture.await_requests(5);
    assert_eq!(
        fixture.routes(),
        [route("/", 1, 0), route("/status", 2, 1), route("/users/<id>", 2, 0)]
    );
    let table: &RouteTable = fixture.scoreboard.routes();
    let routes = table.routes();
    let (_, users) = &routes[2];
    assert_eq!(users.queue.read().1, 2);
    assert!((users.r.read().2 - 6.0).abs() < 1e-9);
    assert!((users.duration.read().1, users.duration.read().2 > 0.0) == (2, true));
    let series = table.series();
    let of_users = series.iter().find(|(_, route)| route.is_some()).unwrap();
    assert_eq!((of_users.0.method, of_users.0.status), ("GET", Some(200)));
    assert_eq!((of_users.1.as_deref(), of_users.0.duration.read().1), (Some("/users/<id>"), 2));
}

#[test]
fn the_duration_of_a_stream_counts_unless_it_is_one_of_events() {
    let fixture = Fixture::new(Limits::default());
    fixture.get("/events");
    fixture.get("/pieces");
    fixture.await_requests(2);
    let durations = fixture.scoreboard.routes().routes().into_iter();
    let durations: Vec<_> = durations.map(|(name, it)| (name, it.duration.read().1)).collect();
    assert_eq!(durations, [("/events".to_owned(), 0), ("/pieces".to_owned(), 1)]);
}

#[test]
fn the_times_are_sent_to_the_browser_if_this_is_set() {
    let site = ListenerConfig { sends_timing: true, ..ListenerConfig::default() };
    let with_times = Fixture::with(Limits::default(), site, None);
    let address = with_times.listener.local_addr().unwrap();
    let timing = |target: &str| {
        let response = Client::connect(address).get(target);
        let lines = response.head.lines();
        let lines = lines.filter_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("server-timing").then(|| value.to_owned())
        });
        lines.collect::<Vec<_>>()
    };
    assert_eq!(timing("/users/1"), ["queue;dur=20.000, r;dur=3000.000"]);
    assert_eq!(timing("/users/own"), ["render;dur=12", "queue;dur=20.000, r;dur=3000.000"]);
    assert!(timing("/untimed").is_empty(), "the application has no times");
    let without = Fixture::new(Limits::default());
    let mut client = Client::connect(without.listener.local_addr().unwrap());
    assert_eq!(client.get("/users/1").header("server-timing"), None);
}

#[test]
fn a_request_that_exceeds_its_time_is_an_error_of_its_route() {
    let limits = Limits { request_timeout: Duration::from_millis(100), ..Limits::default() };
    let fixture = Fixture::new(limits);
    fixture.get("/never/again");
    assert_eq!(fixture.get("/never"), 504);
    fixture.await_requests(2);
    assert_eq!(fixture.routes(), [route("/never", 2, 1)]);
}

#[test]
fn a_request_that_the_application_never_responded_to_adds_no_route() {
    let limits = Limits { request_timeout: Duration::from_millis(100), ..Limits::default() };
    let fixture = Fixture::new(limits);
    assert_eq!(fixture.get("/never"), 504);
    fixture.await_requests(1);
    assert_eq!(fixture.routes(), [route(OTHER_ROUTE, 1, 1)]);
}

#[test]
fn a_path_that_becomes_a_route_is_masked() {
    for is_logged in [false, true] {
        let log = is_logged.then(|| AccessLog::written(std::io::sink(), Format::Json).unwrap());
        let fixture = Fixture::with(Limits::default(), ListenerConfig::default(), log);
        let token = "0123456789abcdef0123456789abcdef";
        let long = "a".repeat(MAX_ROUTE_LEN - 2);
        for target in [
            "/token=abc",
            "/key=a/b?x=1",
            &format!("/session%2F{token}/x"),
            &format!("/session/{token}/x"),
            &format!("/{long}\u{e4}\u{e4}"),
            &format!("/password=abc%26{token};x=1/y"),
        ] {
            fixture.get(target);
        }
        fixture.await_requests(6);
        let names: Vec<_> = fixture.routes().into_iter().map(|(name, ..)| name).collect();
        let long = format!("/{long}");
        let expected = [
            &long,
            "/key=<...>",
            "/password=<...>",
            "/session",
            "/session%2F<...>",
            "/token=<...>",
        ];
        assert_eq!(names, expected, "{is_logged}");
    }
}

#[test]
fn scanners_and_invented_paths_fill_neither_the_table_nor_the_series() {
    let fixture = Fixture::new(Limits::default());
    let mut client = Client::connect(fixture.listener.local_addr().unwrap());
    for path in 0..MAX_ROUTES + 40 {
        client.get(&format!("/p{path}"));
    }
    for _ in 0..3 {
        client.get("/status/404");
    }
    fixture.await_requests(MAX_ROUTES + 43);
    let routes = fixture.routes();
    assert_eq!(routes.len() as u64, MAX_ROUTES + 1);
    assert_eq!(routes[routes.len() - 1], route(OTHER_ROUTE, 43, 0));
    assert_eq!(fixture.scoreboard.routes().series().len(), 2, "one for each status code");
}
