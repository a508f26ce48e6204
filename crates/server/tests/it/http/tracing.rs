//! The SERVER span of a request, and the context that the application and the log get.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rookery_exchange::{Event, Exchange, StreamEnd};
use rookery_server::access_log::{AccessLog, OwnedRecord};
use rookery_server::{Config, Limits, Listener, ListenerConfig, Server, TrustedProxies};
use rookery_test_support::collector::{CollectedSpan, Collector};
use rookery_trace::{FLUSH_TIMEOUT, Settings, Tracer};

use crate::application::{Application, NoWaker};
use crate::support::{Client, echo, wait_until};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// A server with a tracer and a log. The application responds to `/headers` with the trace headers
/// that it sees, to `/500` and `/404` with these statuses, to `/500/large` with 32 MiB, and to
/// `/never` not at all. It sets a route for the paths below `/users`.
struct Traced {
    application: Option<Application>,
    listener: Option<Listener>,
    server: Server,
    tracer: Option<Arc<Tracer>>,
    log: Arc<AccessLog>,
    collector: Collector,
}

impl Traced {
    fn new(variables: &[(&str, &str)], config: Config, site: ListenerConfig) -> Traced {
        let collector = Collector::start(&[]);
        let url = collector.url();
        let mut all = HashMap::from([("OTEL_EXPORTER_OTLP_ENDPOINT", &*url)]);
        all.extend(variables.iter().copied());
        let get = |name: &str| all.get(name).map(|value| (*value).to_owned());
        let settings = Settings::from_environment(&get, "test", &[]).settings;
        let server = Server::new(config, Box::new(NoWaker));
        let tracer = settings.map(|settings| Tracer::start(settings, |_| {}).unwrap());
        server.set_tracer(tracer.clone());
        let log = Arc::new(AccessLog::read());
        server.set_access_log(Some(Arc::clone(&log)));
        let listener = server.listen_tcp("127.0.0.1:0".parse().unwrap(), site).unwrap();
        let mut handler = echo(respond);
        let mut kept = Vec::new();
        let application = Application::start(&server, move |link, event| match event {
            Event::Request(exchange) if exchange.path() == b"/never" => kept.push(exchange),
            event => handler(link, event),
        });
        let (application, listener) = (Some(application), Some(listener));
        Traced { application, listener, server, tracer, log, collector }
    }

    fn simple(variables: &[(&str, &str)]) -> Traced {
        Traced::new(variables, Config::default(), ListenerConfig::default())
    }

    fn connect(&self) -> Client {
        Client::connect(self.listener.as_ref().unwrap().local_addr().unwrap())
    }

    /// Sends a request with header lines, and returns the body of the response.
    fn send(&self, line: &str, headers: &str) -> String {
        let mut client = self.connect();
        client.send(format!("{line} HTTP/1.1\r\nHost: a.example:8080\r\n{headers}\r\n"));
        let method = line.split(' ').next().unwrap();
        client.response_to(method).unwrap().text()
    }

    /// Ends the export, and returns all spans.
    fn spans(&self) -> Vec<CollectedSpan> {
        if let Some(tracer) = &self.tracer {
            tracer.shut_down(FLUSH_TIMEOUT);
        }
        self.collector.spans()
    }

    /// Returns the next record of the log. It is written when the response has been sent.
    fn record(&self) -> OwnedRecord {
        let mut record = None;
        wait_until("a record", || {
            record = self.log.take();
            record.is_some()
        });
        record.unwrap()
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        drop(self.application.take());
        drop(self.listener.take());
    }
}

fn respond(exchange: &mut Exchange) {
    let status = match exchange.path() {
        b"/500" | b"/500/large" => 500,
        b"/404" => 404,
        _ => 200,
    };
    let header = |name: &[u8]| {
        exchange.header(name).map_or("-".to_owned(), |it| String::from_utf8_lossy(it).into_owned())
    };
    let text = format!("{} {}", header(b"traceparent"), header(b"tracestate"));
    let is_large = exchange.path() == b"/500/large";
    if exchange.path().starts_with(b"/users/") {
        exchange.set_route(b"/users/<id>");
    }
    exchange.begin_response(status);
    let body = if is_large { vec![b'x'; 32 << 20] } else { text.into_bytes() };
    exchange.set_response_body(&body);
}

fn parent(flags: &str) -> String {
    format!("traceparent: 00-{TRACE}-{PARENT}-{flags}\r\n")
}

fn attribute<'a>(span: &'a CollectedSpan, name: &str) -> &'a str {
    span.attributes.get(name).map_or("-", String::as_str)
}

fn text(id: Option<[u8; 32]>) -> String {
    id.map_or("-".to_owned(), |id| String::from_utf8(id.to_vec()).unwrap())
}

#[test]
fn a_span_has_the_attributes_of_the_conventions() {
    let traced = Traced::simple(&[]);
    traced.send(
        "GET /a%20b/session/0123456789abcdef0123456789abcdef/x?q=1&token=secret",
        "User-Agent: test/1\r\nCookie: a=secret\r\nAuthorization: Basic secret\r\n",
    );
    traced.record();
    let spans = traced.spans();
    let [span] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((&*span.name, span.kind, span.status), ("GET", 2, 0));
    assert_eq!((&*span.parent_span_id, span.trace_id.len()), ("", 32));
    for (name, value) in [
        ("http.request.method", "GET"),
        ("http.response.status_code", "200"),
        ("url.scheme", "http"),
        ("url.path", "/a%20b/session/<...>/x"),
        ("url.query", "q=1&token=REDACTED"),
        ("server.address", "a.example"),
        ("server.port", "8080"),
        ("client.address", "127.0.0.1"),
        ("network.peer.address", "127.0.0.1"),
        ("network.protocol.version", "1.1"),
        ("user_agent.original", "test/1"),
        ("error.type", "-"),
    ] {
        assert_eq!(attribute(span, name), value, "{name}");
    }
    assert!(attribute(span, "network.peer.port").parse::<u16>().is_ok());
    assert!(!format!("{span:?}").contains("secret"), "{span:?}");
    assert_eq!(span.attributes.len(), 12, "{span:?}");
    assert!(span.end > span.start);
}

#[test]
fn only_server_errors_are_errors() {
    let traced = Traced::simple(&[]);
    for path in ["/500", "/404"] {
        traced.send(&format!("GET {path}"), "");
        traced.record();
    }
    // Refused before the application.
    let mut client = traced.connect();
    client.send("GET / HTTP/1.1\r\nHost: a b\r\n\r\n");
    assert_eq!(client.response().unwrap().status, 400);
    traced.record();
    // An unknown method must not become the name of a span.
    traced.send("BREW /pot", "");
    traced.record();
    let spans = traced.spans();
    let seen: Vec<_> = spans
        .iter()
        .map(|span| {
            let status = attribute(span, "http.response.status_code");
            (&*span.name, status, span.status, attribute(span, "error.type"))
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("GET", "500", 2, "500"),
            ("GET", "404", 0, "-"),
            ("GET", "400", 0, "-"),
            ("HTTP", "200", 0, "-"),
        ]
    );
    assert_eq!(attribute(&spans[3], "http.request.method"), "_OTHER");
    assert_eq!(attribute(&spans[3], "http.request.method_original"), "BREW");
}

#[test]
fn a_disconnected_client_is_no_error_and_a_timeout_is_one() {
    let traced = Traced::new(
        &[],
        Config {
            limits: Limits { request_timeout: Duration::from_secs(1), ..Limits::default() },
            ..Config::default()
        },
        ListenerConfig::default(),
    );
    traced.send("GET /never", "");
    traced.record();
    let mut client = traced.connect();
    client.send("GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
    client.reset_on_close();
    drop(client);
    traced.record();
    let spans = traced.spans();
    assert_eq!(attribute(&spans[0], "http.response.status_code"), "504");
    assert_eq!((attribute(&spans[0], "error.type"), spans[0].status), ("504", 2));
    assert_eq!(attribute(&spans[1], "http.response.status_code"), "-");
    assert_eq!((attribute(&spans[1], "error.type"), spans[1].status), ("-", 0));
}

#[test]
fn a_server_error_is_one_even_if_the_client_disconnects() {
    let traced = Traced::simple(&[]);
    let mut client = traced.connect();
    client.send("GET /500/large HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 500);
    client.reset();
    assert_eq!(traced.record().aborted, Some(StreamEnd::Client));
    let spans = traced.spans();
    assert_eq!((attribute(&spans[0], "error.type"), spans[0].status), ("500", 2));
}

#[test]
fn a_span_is_named_after_the_route_that_the_application_has_set() {
    let traced = Traced::simple(&[]);
    traced.send("GET /users/7", "");
    traced.record();
    let spans = traced.spans();
    assert_eq!(spans[0].name, "GET /users/<id>");
    assert_eq!(attribute(&spans[0], "http.route"), "/users/<id>");
    assert_eq!(attribute(&spans[0], "url.path"), "/users/7");
}

#[test]
fn the_address_of_an_absolute_target_takes_precedence_over_the_host_header() {
    let traced = Traced::simple(&[]);
    traced.send("GET http://b.example:81/x", "");
    traced.record();
    let spans = traced.spans();
    assert_eq!(attribute(&spans[0], "server.address"), "b.example");
    assert_eq!(attribute(&spans[0], "server.port"), "81");
}

#[test]
fn the_application_gets_the_spans_context_in_place_of_the_clients() {
    let traced = Traced::simple(&[]);
    let seen = traced.send("GET /", &format!("{}tracestate: a=b, c=d\r\n", parent("01")));
    let record = traced.record();
    assert_eq!(text(record.trace_id), TRACE);
    assert_eq!(record.request_id, TRACE.as_bytes());
    let spans = traced.spans();
    let span = &spans[0];
    assert_eq!((&*span.trace_id, &*span.parent_span_id), (TRACE, PARENT));
    assert_eq!((span.flags, &*span.trace_state), (0x301, "a=b, c=d"));
    assert_eq!(seen, format!("00-{TRACE}-{}-01 a=b, c=d", span.span_id));
}

#[test]
fn the_parents_decision_is_honoured() {
    let traced = Traced::simple(&[]);
    let seen = traced.send("GET /", &parent("00"));
    assert!(seen.starts_with(&format!("00-{TRACE}-")) && seen.ends_with("-00 -"), "{seen}");
    assert_ne!(&seen[36..52], PARENT);
    assert_eq!(text(traced.record().trace_id), TRACE);
    assert_eq!(traced.spans().len(), 0);
}

#[test]
fn an_invalid_context_begins_a_new_trace() {
    let traced = Traced::simple(&[]);
    let good = parent("01");
    let upper = good.replace("0af7", "0AF7");
    for headers in ["", &upper, "traceparent: x\r\n", &format!("{good}{good}")] {
        let seen = traced.send("GET /", &format!("{headers}tracestate: a=b\r\n"));
        let record = traced.record();
        // A `tracestate` without its `traceparent` means nothing.
        assert!(seen.ends_with("-01 -") && !seen.contains(TRACE), "{headers:?}: {seen}");
        assert_eq!(text(record.trace_id), &seen[3..35]);
        assert_eq!(record.request_id, &seen.as_bytes()[3..35]);
    }
    let seen = traced.send("GET /", &format!("{good}tracestate: A=b\r\n"));
    assert!(seen.ends_with("-01 -"), "an invalid tracestate is not passed on: {seen}");
    traced.record();
    let spans = traced.spans();
    assert_eq!(spans.len(), 5);
    assert!(spans[..4].iter().all(|span| span.parent_span_id.is_empty()), "{spans:?}");
}

#[test]
fn unsampled_requests_have_a_context_and_no_span() {
    let traced = Traced::simple(&[
        ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "0"),
    ]);
    let seen = traced.send("GET /", "");
    assert!(seen.ends_with("-00 -"), "{seen}");
    traced.send("GET /", &parent("01"));
    (0..2).for_each(|_| drop(traced.record()));
    assert_eq!(traced.spans().len(), 1, "the parent's decision comes first");
}

#[test]
fn without_a_tracer_the_headers_stay_as_they_came() {
    let traced = Traced::simple(&[("OTEL_SDK_DISABLED", "true")]);
    let headers = format!("{}tracestate: A=invalid\r\n", parent("01"));
    let seen = traced.send("GET /", &headers);
    assert_eq!(seen, format!("00-{TRACE}-{PARENT}-01 A=invalid"));
    assert_eq!(text(traced.record().trace_id), TRACE);
    assert_eq!(traced.send("GET /", "traceparent: x\r\n"), "x -");
    assert_eq!(text(traced.record().trace_id), "-");
    assert_eq!(traced.send("GET /", ""), "- -");
    assert_eq!(text(traced.record().trace_id), "-");
    assert_eq!(traced.spans().len(), 0);
}

#[test]
fn a_trusted_proxy_names_the_client_and_the_scheme_and_its_request_id_stays() {
    let proxies = TrustedProxies::parse(["127.0.0.1"]).unwrap();
    let site = ListenerConfig { proxies, ..ListenerConfig::default() };
    let traced = Traced::new(&[], Config::default(), site);
    traced.send(
        "GET /",
        "X-Forwarded-Proto: https\r\nX-Request-Id: mine\r\nX-Forwarded-For: 9.9.9.9, 192.0.2.1\r\n",
    );
    let record = traced.record();
    assert_eq!(record.remote.map(|remote| remote.to_string()).as_deref(), Some("192.0.2.1:0"));
    assert_eq!(attribute(&traced.spans()[0], "client.address"), "192.0.2.1");
    assert_eq!(attribute(&traced.spans()[0], "network.peer.address"), "127.0.0.1");
    let spans = traced.spans();
    assert_eq!(attribute(&spans[0], "url.scheme"), "https");
    assert_eq!(record.request_id, b"mine");
    assert_eq!(text(record.trace_id), spans[0].trace_id);
}

#[test]
fn a_tracer_that_is_set_once_all_listeners_have_ended_replaces_the_previous_one() {
    let mut traced = Traced::simple(&[]);
    traced.send("GET /a", "");
    traced.record();
    assert_eq!(traced.spans().len(), 1);
    drop(traced.listener.take());
    let url = traced.collector.url();
    let get = |name: &str| (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| url.clone());
    let settings = Settings::from_environment(&get, "test", &[]).settings.unwrap();
    traced.tracer = Some(Tracer::start(settings, |_| {}).unwrap());
    traced.server.set_tracer(traced.tracer.clone());
    let address = "127.0.0.1:0".parse().unwrap();
    let listener = traced.server.listen_tcp(address, ListenerConfig::default()).unwrap();
    traced.listener = Some(listener);
    traced.send("GET /b", "");
    traced.record();
    assert_eq!(traced.spans().len(), 2);
}

#[test]
fn the_span_of_a_websocket_is_its_handshake() {
    let traced = Traced::simple(&[]);
    let mut client = traced.connect();
    client.send(
        "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    );
    assert_eq!(client.response().unwrap().status, 101);
    let record = traced.record();
    // The WebSocket is still open.
    let spans = traced.spans();
    assert_eq!(attribute(&spans[0], "http.response.status_code"), "101");
    assert_eq!(text(record.trace_id), spans[0].trace_id);
}

#[test]
fn pipelined_requests_have_a_span_each() {
    let traced = Traced::simple(&[]);
    let mut client = traced.connect();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n");
    client.response().unwrap();
    client.response().unwrap();
    (0..2).for_each(|_| drop(traced.record()));
    let spans = traced.spans();
    let paths: Vec<_> = spans.iter().map(|span| attribute(span, "url.path")).collect();
    assert_eq!(paths, ["/a", "/b"]);
    assert_ne!(spans[0].trace_id, spans[1].trace_id);
}
