//! The export of spans to a collector: batches, retries, and a collector that is slow or away.

#![allow(clippy::disallowed_methods, reason = "a test may panic")]

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rookery_exchange::TraceContext;
use rookery_test_support::collector::{Answer, Collector};
use rookery_test_support::wait_until;
use rookery_trace::{FLUSH_TIMEOUT, Kind, Parent, Settings, Span, Tracer, Value};

/// Starts a tracer whose environment has the collector's URL and the given variables.
fn tracer(url: &str, variables: &[(&str, &str)]) -> Arc<Tracer> {
    let mut all = HashMap::from([
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url),
        ("OTEL_BSP_SCHEDULE_DELAY", "20"),
        ("OTEL_SERVICE_NAME", "test"),
    ]);
    all.extend(variables.iter().copied());
    let get = |name: &str| all.get(name).map(|value| (*value).to_owned());
    let attributes = [("process.pid", Value::Number(47))];
    let found = Settings::from_environment(&get, "unused", &attributes);
    assert!(found.remarks.is_empty(), "{:?}", found.remarks);
    Tracer::start(found.settings.unwrap(), |_| {}).unwrap()
}

fn end_span(tracer: &Tracer, name: &str) {
    tracer.end(Span::begin(name, Kind::Internal, tracer.begin(None), None));
}

fn answer(status: u16) -> Answer {
    Answer { status, ..Answer::default() }
}

#[test]
fn a_span_arrives_with_all_that_it_has() {
    let collector = Collector::start(&[]);
    let tracer = tracer(
        &collector.url(),
        &[("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret"), ("OTEL_RESOURCE_ATTRIBUTES", "a=b")],
    );
    let parent = TraceContext { trace_id: [1; 16], span_id: [2; 8], flags: 0xFF };
    let other = TraceContext { trace_id: [4; 16], span_id: [5; 8], flags: 1 };
    let context = tracer.begin(Some(&parent));
    let from = Parent { span_id: parent.span_id, is_remote: true };
    let mut span = Span::begin("GET", Kind::Server, context, Some(from));
    span.set_route("/a/{b}");
    span.set_text("url.path", "/\u{e9}");
    span.set_number("zero", 0);
    span.set_number("port", 65535);
    span.set_trace_state(b"x=y");
    span.link(&other);
    span.set_error("500");
    tracer.end(span);
    end_span(&tracer, "plain");
    let spans = collector.wait_for(2);
    let span = &spans[0];
    assert_eq!((&*span.name, span.kind, span.status), ("GET /a/{b}", 2, 2));
    assert_eq!((&*span.trace_id, &*span.parent_span_id), (&*"01".repeat(16), &*"02".repeat(8)));
    assert_eq!((&*span.trace_state, span.flags), ("x=y", 0x303));
    assert_eq!(span.span_id.len(), 16);
    assert_eq!(span.links, [("04".repeat(16), "05".repeat(8))]);
    let attribute = |name: &str| span.attributes.get(name).map(String::as_str);
    assert_eq!(attribute("http.route"), Some("/a/{b}"));
    assert_eq!((attribute("url.path"), attribute("zero")), (Some("/\u{e9}"), Some("0")));
    assert_eq!((attribute("port"), attribute("error.type")), (Some("65535"), Some("500")));
    assert!(span.start > 1_600_000_000_000_000_000 && span.end >= span.start);
    assert_eq!(span.resource["service.name"], "test");
    assert_eq!(span.resource["telemetry.sdk.name"], "rookery");
    assert_eq!(span.resource["a"], "b");
    assert_eq!(span.resource["process.pid"], "47");
    assert_eq!(span.resource_numbers.iter().collect::<Vec<_>>(), ["process.pid"]);
    assert_eq!((&*spans[1].parent_span_id, spans[1].status, spans[1].flags), ("", 0, 1));
    let head = &collector.heads()[0];
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    for line in ["content-type: application/x-protobuf", "api-key: secret", "user-agent: rookery/"]
    {
        assert!(head.contains(line), "{head}");
    }
    wait_until("the count", || tracer.counters().read() == [2, 0, 0]);
}

#[test]
fn an_exception_is_an_event_and_the_first_one_is_the_type_of_the_error() {
    let collector = Collector::start(&[]);
    let tracer = tracer(&collector.url(), &[]);
    let mut span = Span::begin("output$plot", Kind::Internal, tracer.begin(None), None);
    span.set_exception("my_error");
    span.set_exception("simpleError");
    tracer.end(span);
    let span = &collector.wait_for(1)[0];
    assert_eq!((span.status, &*span.attributes["error.type"]), (2, "my_error"));
    let events: Vec<_> =
        span.events.iter().map(|(_, name, it)| (&**name, &*it["exception.type"])).collect();
    assert_eq!(events, [("exception", "my_error"), ("exception", "simpleError")]);
    assert!(span.events.iter().all(|(at, ..)| (span.start..=span.end).contains(at)));
}

#[test]
fn spans_are_sent_in_batches() {
    let collector = Collector::start(&[]);
    let tracer = tracer(
        &collector.url(),
        &[("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "10"), ("OTEL_BSP_SCHEDULE_DELAY", "600000")],
    );
    (0..20).for_each(|_| end_span(&tracer, "s"));
    collector.wait_for(20);
    assert_eq!(collector.heads().len(), 2, "a full batch does not wait");
    end_span(&tracer, "last");
    tracer.shut_down(FLUSH_TIMEOUT);
    assert_eq!(collector.spans().len(), 21, "the end does not wait for a full batch");
    end_span(&tracer, "late");
    assert_eq!(tracer.counters().read(), [21, 1, 0], "later spans are dropped");
}

#[test]
fn retries_what_the_protocol_says() {
    for status in [429, 502, 503, 504] {
        let busy = Answer { headers: "retry-after: 0\r\n".to_owned(), ..answer(status) };
        let collector = Collector::start(&[busy.clone(), busy, answer(200)]);
        let tracer = tracer(&collector.url(), &[]);
        end_span(&tracer, "s");
        collector.wait_for(1);
        wait_until("the count", || tracer.counters().read() == [1, 0, 0]);
        assert_eq!(collector.heads().len(), 3, "{status}");
    }
    for status in [400, 401, 404, 413, 500, 501, 301] {
        let collector = Collector::start(&[answer(status), answer(200)]);
        let tracer = tracer(&collector.url(), &[]);
        end_span(&tracer, "lost");
        wait_until("the count", || tracer.counters().read() == [0, 0, 1]);
        end_span(&tracer, "next");
        assert_eq!(collector.wait_for(1)[0].name, "next", "{status} is not repeated");
    }
}

#[test]
fn the_status_counts_even_if_the_body_is_too_long() {
    let page = |status| Answer { body: vec![b'x'; 1 << 20], ..answer(status) };
    let collector = Collector::start(&[page(404), page(200)]);
    let tracer = tracer(&collector.url(), &[]);
    end_span(&tracer, "lost");
    wait_until("the count", || tracer.counters().read() == [0, 0, 1]);
    end_span(&tracer, "next");
    wait_until("the count", || tracer.counters().read() == [1, 0, 1]);
    assert_eq!(collector.heads().len(), 2, "nothing is repeated");
}

#[test]
fn waits_as_long_as_the_collector_asks() {
    let busy = Answer { headers: "retry-after: 1\r\n".to_owned(), ..answer(503) };
    let collector = Collector::start(&[busy, answer(200)]);
    let tracer = tracer(&collector.url(), &[]);
    let since = Instant::now();
    end_span(&tracer, "s");
    collector.wait_for(1);
    assert!(since.elapsed() >= Duration::from_secs(1));
}

#[test]
fn sends_nothing_before_the_collector_wants_it_although_the_batch_is_given_up() {
    for wait in [3600, u64::MAX] {
        let busy = Answer { headers: format!("retry-after: {wait}\r\n"), ..answer(429) };
        let collector = Collector::start(&[busy, answer(200)]);
        let tracer = tracer(&collector.url(), &[("OTEL_BSP_EXPORT_TIMEOUT", "1000")]);
        end_span(&tracer, "lost");
        wait_until("the count", || tracer.counters().read() == [0, 0, 1]);
        end_span(&tracer, "next");
        // Nothing is sent at the shutdown either, which does not wait for `Retry-After`.
        let since = Instant::now();
        tracer.shut_down(Duration::from_secs(60));
        assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());
        wait_until("the count", || tracer.counters().read() == [0, 1, 1]);
        assert_eq!(collector.heads().len(), 1);
    }
}

#[test]
fn goes_on_after_the_time_for_which_the_collector_has_asked() {
    let busy = Answer { headers: "retry-after: 1\r\n".to_owned(), ..answer(503) };
    let collector = Collector::start(&[busy, answer(200)]);
    let tracer = tracer(&collector.url(), &[("OTEL_BSP_EXPORT_TIMEOUT", "500")]);
    let since = Instant::now();
    end_span(&tracer, "lost");
    wait_until("the count", || tracer.counters().read() == [0, 0, 1]);
    end_span(&tracer, "next");
    assert_eq!(collector.wait_for(1)[0].name, "next");
    assert!(since.elapsed() >= Duration::from_secs(1));
}

#[test]
fn batches_share_a_connection_until_the_collector_closes_it() {
    let closing = Answer { headers: "connection: close\r\n".to_owned(), ..answer(200) };
    let ok = || Answer { body: b"some body".to_vec(), ..answer(200) };
    let collector = Collector::start(&[ok(), answer(200), closing, answer(200)]);
    let tracer = tracer(&collector.url(), &[]);
    for (count, connections) in [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2)] {
        end_span(&tracer, "s");
        wait_until("the count", || tracer.counters().read() == [count, 0, 0]);
        assert_eq!(collector.connections(), connections, "batch {count}");
    }
}

#[test]
fn a_batch_survives_that_the_collector_has_closed_an_idle_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        // Each connection takes one request, and is then closed without a notice.
        for stream in listener.incoming().take(2) {
            let mut stream = stream.unwrap();
            let mut read = Vec::new();
            while !read.windows(5).any(|part| part == b"plain") {
                let mut buffer = [0; 4096];
                let n = stream.read(&mut buffer).unwrap();
                read.extend_from_slice(&buffer[..n]);
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
        }
    });
    let tracer = tracer(&url, &[]);
    for count in [1, 2] {
        end_span(&tracer, "plain");
        wait_until("the count", || tracer.counters().read() == [count, 0, 0]);
    }
    serving.join().unwrap();
}

#[test]
fn spans_go_through_the_proxy_of_the_environment() {
    let proxy = Collector::start(&[]);
    let proxy_url = proxy.url().replace("http://", "http://me:secret@");
    let variables = [("HTTP_PROXY", &*proxy_url), ("NO_PROXY", "other.example")];
    let tracer = tracer("http://collector.invalid:4318", &variables);
    for count in [1, 2] {
        end_span(&tracer, "s");
        proxy.wait_for(count);
    }
    let head = &proxy.heads()[0];
    let line = "POST http://collector.invalid:4318/v1/traces HTTP/1.1\r\n";
    assert!(head.starts_with(line), "{head}");
    assert!(head.contains("host: collector.invalid:4318\r\n"), "{head}");
    assert!(head.contains("proxy-authorization: Basic "), "{head}");
    assert_eq!(proxy.connections(), 1);
}

#[test]
fn a_proxy_that_is_not_supported_turns_tracing_off() {
    let get = |name: &str| match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some("http://collector.invalid:4318".to_owned()),
        "http_proxy" => Some("socks5://me:secret@127.0.0.1:1".to_owned()),
        _ => None,
    };
    let found = Settings::from_environment(&get, "test", &[]);
    assert!(found.settings.is_none());
    assert!(found.remarks.len() == 1 && !found.remarks[0].contains("secret"));
}

#[test]
fn each_tracer_has_an_identity_of_its_own() {
    let collector = Collector::start(&[]);
    let tracers = [tracer(&collector.url(), &[]), tracer(&collector.url(), &[])];
    for tracer in &tracers {
        end_span(tracer, "s");
    }
    let spans = collector.wait_for(2);
    let [one, other] = [0, 1].map(|at| spans[at].resource["service.instance.id"].as_str());
    assert_ne!(one, other);
    for id in [one, other] {
        let groups: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(groups, [8, 4, 4, 4, 12], "{id}");
        assert_eq!(&id[14..15], "4", "{id}");
    }
}

#[test]
fn counts_what_a_collector_accepts_only_in_part() {
    // `partial_success { rejected_spans: 2 }`
    let partial = Answer { body: vec![10, 2, 8, 2], ..answer(200) };
    let collector = Collector::start(&[partial]);
    let tracer = tracer(&collector.url(), &[("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "5")]);
    (0..5).for_each(|_| end_span(&tracer, "s"));
    wait_until("the count", || tracer.counters().read() == [3, 0, 2]);
}

#[test]
fn a_slow_collector_blocks_nothing_and_spans_are_dropped_and_counted() {
    let slow = Answer { delay: Duration::from_secs(3), ..answer(200) };
    let collector = Collector::start(&[slow]);
    let tracer = tracer(
        &collector.url(),
        &[("OTEL_BSP_MAX_QUEUE_SIZE", "100"), ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "10")],
    );
    let since = Instant::now();
    (0..10_000).for_each(|_| end_span(&tracer, "s"));
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    let [exported, dropped, failed] = tracer.counters().read();
    assert_eq!((exported, failed), (0, 0));
    assert!((9_880..=9_900).contains(&dropped), "{dropped}");
    // The end of the program does not wait for the collector either.
    let since = Instant::now();
    tracer.shut_down(Duration::from_millis(300));
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    wait_until("all spans are counted", || tracer.counters().read().iter().sum::<u64>() == 10_000);
}

#[test]
fn a_collector_that_is_away_costs_nothing_and_delays_no_end() {
    // No other test listens at this address, and gets the port once it is free.
    let free = TcpListener::bind("127.77.0.1:0").unwrap();
    let url = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let tracer = tracer(&url, &[]);
    end_span(&tracer, "s");
    // The batch is tried again until the end of the program.
    std::thread::sleep(Duration::from_millis(200));
    let since = Instant::now();
    tracer.shut_down(FLUSH_TIMEOUT);
    assert!(since.elapsed() < FLUSH_TIMEOUT, "{:?}", since.elapsed());
    assert_eq!(tracer.counters().read(), [0, 0, 1]);
}

#[test]
fn a_collector_that_hangs_does_not_hang_the_end() {
    let hung = TcpListener::bind("127.0.0.1:0").unwrap();
    let tracer = tracer(&format!("http://{}", hung.local_addr().unwrap()), &[]);
    end_span(&tracer, "s");
    std::thread::sleep(Duration::from_millis(200));
    let since = Instant::now();
    tracer.shut_down(Duration::from_millis(300));
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    assert_eq!(tracer.counters().read(), [0, 0, 1]);
}

#[test]
fn the_end_waits_no_longer_than_it_is_wanted() {
    let hung = TcpListener::bind("127.0.0.1:0").unwrap();
    let tracer = tracer(&format!("http://{}", hung.local_addr().unwrap()), &[]);
    end_span(&tracer, "s");
    let (since, mut asked) = (Instant::now(), 0);
    tracer.shut_down_unless(Duration::from_secs(60), || {
        asked += 1;
        asked == 3
    });
    assert!(asked == 3 && since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
}

#[test]
fn unsampled_spans_pass_the_trace_on() {
    let collector = Collector::start(&[]);
    let tracer = tracer(&collector.url(), &[("OTEL_TRACES_SAMPLER", "parentbased_always_off")]);
    let root = tracer.begin(None);
    assert!(!root.is_sampled());
    let child = tracer.child(&root);
    assert_eq!((child.trace_id, child.flags), (root.trace_id, root.flags));
    assert_ne!(child.span_id, root.span_id);
    let parent = TraceContext { flags: TraceContext::SAMPLED, ..root };
    assert!(tracer.begin(Some(&parent)).is_sampled(), "the parent has decided");
}
