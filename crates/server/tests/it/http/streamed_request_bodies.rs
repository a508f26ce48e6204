//! Request bodies that the application receives in chunks.

use std::collections::HashMap;
use std::io::Write as _;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rookery_exchange::{Command, Event, Exchange, ExchangeId, Share};
use rookery_server::{Config, Limits, ListenerConfig};

use crate::support::{App, Client, TEST_TIMEOUT, wait_until};

/// What the application has received of a body.
#[derive(Default)]
struct Received {
    exchange: Option<Box<Exchange>>,
    bytes: Vec<u8>,
}

/// The behaviour of an application that receives bodies.
#[derive(Default)]
pub(crate) struct Rules {
    /// Whether the application consumes no chunks for now.
    pub(crate) holds: AtomicBool,
    /// The chunks that were not consumed for that reason.
    held: Mutex<Vec<(ExchangeId, usize)>>,
    /// The size from which on a body is rejected with 413.
    most: usize,
}

impl Rules {
    /// The chunks that were not consumed, with their request and length.
    pub(crate) fn held(&self) -> std::sync::MutexGuard<'_, Vec<(ExchangeId, usize)>> {
        self.held.lock().unwrap()
    }
}

/// Starts an application that responds with the number of chunks and the sum of their bytes.
fn receiving(limits: Limits, rules: &Arc<Rules>) -> App {
    receiving_at(limits, rules, ListenerConfig::default())
}

pub(crate) fn receiving_at(limits: Limits, rules: &Arc<Rules>, site: ListenerConfig) -> App {
    let rules = Arc::clone(rules);
    let mut bodies: HashMap<ExchangeId, Received> = HashMap::new();
    let site = ListenerConfig { sees_heads: true, ..site };
    App::with(
        Config { limits, ..Config::default() },
        site,
        Box::new(move |link, event| match event {
            Event::Head(exchange) => {
                let (call, listener, slot) = (exchange.id(), exchange.listener(), exchange.slot());
                bodies.insert(call, Received { exchange: Some(exchange), bytes: Vec::new() });
                link.send(Command::StreamBody { exchange: call, listener, slot });
            }
            Event::Body { exchange: call, payload, .. } => {
                let body = bodies.get_mut(&call).unwrap();
                let len = payload.as_bytes().len();
                body.bytes.extend_from_slice(payload.as_bytes());
                if body.bytes.len() > rules.most {
                    if let Some(mut exchange) = body.exchange.take() {
                        exchange.begin_response(413);
                        link.send(Command::Respond(exchange));
                    }
                } else if rules.holds.load(Ordering::Relaxed) {
                    rules.held.lock().unwrap().push((call, len));
                } else {
                    link.send(Command::BodyConsumed { exchange: call, bytes: len });
                }
            }
            Event::BodyEnd { exchange: call, .. } => {
                let body = bodies.remove(&call).unwrap();
                if let Some(mut exchange) = body.exchange {
                    exchange.begin_response(200);
                    let sum: u64 = body.bytes.iter().map(|byte| u64::from(*byte)).sum();
                    exchange.set_response_body(format!("{} {sum}", body.bytes.len()).as_bytes());
                    link.send(Command::Respond(exchange));
                }
            }
            _ => {}
        }),
    )
}

pub(crate) fn rules() -> Arc<Rules> {
    Arc::new(Rules { most: usize::MAX, ..Rules::default() })
}

fn post(client: &mut Client, len: usize) {
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n"));
}

pub(crate) fn ends(app: &App) -> Vec<String> {
    app.log.lock().unwrap().iter().filter(|line| line.starts_with("body ended")).cloned().collect()
}

#[test]
fn a_body_comes_in_pieces_and_the_connection_goes_on() {
    let app = receiving(Limits::default(), &rules());
    let mut client = app.connect();
    for _ in 0..2 {
        let body = vec![3; 5_000_000];
        post(&mut client, body.len());
        client.send(&body);
        assert_eq!(client.response().unwrap().body, b"5000000 15000000");
        client.send(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n\x01\x02\x03\r\n0\r\n\r\n",
        );
        assert_eq!(client.response().unwrap().body, b"3 6");
    }
    assert_eq!(ends(&app), ["body ended Done"; 4]);
    assert!(
        app.log.lock().unwrap().iter().filter(|line| line.starts_with("body ")).count() > 20,
        "pieces"
    );
    assert_eq!(app.server.budget().used(Share::Incoming), 0);
}

#[test]
fn a_piece_comes_before_the_rest_has_been_sent() {
    let app = receiving(Limits::default(), &rules());
    let mut client = app.connect();
    post(&mut client, 6);
    client.send("abc");
    app.await_event("body 3");
    client.send("def");
    assert_eq!(client.response().unwrap().body, b"6 597");
}

#[test]
fn no_more_is_read_ahead_than_256_kib() {
    let rules = rules();
    rules.holds.store(true, Ordering::Relaxed);
    let limits = Limits { idle_timeout: Duration::from_secs(20), ..Limits::default() };
    let app = receiving(limits, &rules);
    let mut client = app.connect();
    let body = vec![1; 20_000_000];
    post(&mut client, body.len());
    let mut writer = client.socket.try_clone().unwrap();
    let sends = std::thread::spawn(move || writer.write_all(&body).unwrap());
    let waiting = || rules.held.lock().unwrap().iter().map(|(_, len)| len).sum::<usize>();
    wait_until("it has read ahead", || waiting() >= 256 << 10);
    // The client's idle timeout does not apply, because the server waits for the application.
    app.advance(Duration::from_secs(50));
    assert!(waiting() < (256 << 10) + (512 << 10), "{}", waiting());
    assert!(app.server.budget().used(Share::Incoming) >= 256 << 10);
    rules.holds.store(false, Ordering::Relaxed);
    for (call, bytes) in rules.held.lock().unwrap().drain(..) {
        app.server.link().send(Command::BodyConsumed { exchange: call, bytes });
    }
    app.server.link().flush();
    assert_eq!(client.response().unwrap().body, b"20000000 20000000");
    sends.join().unwrap();
    assert_eq!(app.server.budget().used(Share::Incoming), 0);
}

#[test]
fn pieces_of_a_byte_count_as_what_they_cost() {
    let rules = rules();
    rules.holds.store(true, Ordering::Relaxed);
    let app = receiving(Limits::default(), &rules);
    let mut client = app.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut writer = client.socket.try_clone().unwrap();
    let sends = std::thread::spawn(move || {
        writer.write_all("1\r\n\x01\r\n".repeat(100_000).as_bytes()).unwrap();
        writer.write_all(b"0\r\n\r\n").unwrap();
    });
    let waiting = || rules.held.lock().unwrap().len();
    wait_until("it has read ahead", || waiting() >= 64);
    app.advance(Duration::from_secs(10));
    assert!(waiting() <= 65, "{} pieces wait", waiting());
    assert!(app.server.budget().used(Share::Incoming) >= 256 << 10);
    rules.holds.store(false, Ordering::Relaxed);
    for (call, bytes) in rules.held.lock().unwrap().drain(..) {
        app.server.link().send(Command::BodyConsumed { exchange: call, bytes });
    }
    app.server.link().flush();
    assert_eq!(client.response().unwrap().body, b"100000 100000");
    sends.join().unwrap();
    assert_eq!(app.server.budget().used(Share::Incoming), 0);
}

#[test]
fn an_answer_that_comes_with_the_wish_to_receive_ends_the_body() {
    let site = ListenerConfig { sees_heads: true, ..ListenerConfig::default() };
    let app = App::with(
        Config::default(),
        site,
        Box::new(|link, event| {
            if let Event::Head(mut exchange) = event {
                let (call, listener, slot) = (exchange.id(), exchange.listener(), exchange.slot());
                link.send(Command::StreamBody { exchange: call, listener, slot });
                exchange.begin_response(503);
                link.send(Command::Respond(exchange));
            }
        }),
    );
    for _ in 0..20 {
        let mut client = app.connect();
        post(&mut client, 100);
        client.send("abc");
        assert_eq!(client.response().unwrap().status, 503);
    }
    wait_until("each is told once", || ends(&app).len() == 20);
    assert_eq!(ends(&app), ["body ended Done"; 20]);
}

#[test]
fn an_early_answer_ends_the_connection() {
    let rules = Arc::new(Rules { most: 1000, ..Rules::default() });
    let app = receiving(Limits::default(), &rules);
    let mut client = app.connect();
    post(&mut client, 10_000_000);
    client.send(vec![1; 2000]);
    let reply = client.response().unwrap();
    assert_eq!((reply.status, reply.header("connection")), (413, Some("close")));
    app.await_event("body ended Done");
}

#[test]
fn who_leaves_stands_still_or_sends_too_much_is_told_of_once() {
    let limits =
        Limits { max_body_size: 1000, idle_timeout: Duration::from_secs(1), ..Limits::default() };
    let app = receiving(limits, &rules());
    let mut client = app.connect();
    post(&mut client, 100);
    client.send("abc");
    app.await_event("body 3");
    client.socket.shutdown(Shutdown::Both).unwrap();
    app.await_event("body ended Client");

    let mut client = app.connect();
    post(&mut client, 100);
    client.send("abcd");
    app.await_event("body ended Timeout");
    assert_eq!(client.response().unwrap().status, 408);

    let mut client = app.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(format!("3e9\r\n{}\r\n", "x".repeat(1001)));
    assert_eq!(client.response().unwrap().status, 413);
    app.await_event("body ended Error");
    assert_eq!(ends(&app).len(), 3);
    wait_until("all are gone", || app.listener().connections() == 0);
}

#[test]
fn a_stop_tells_who_receives() {
    let mut app = receiving(Limits::default(), &rules());
    let mut client = app.connect();
    client.socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    post(&mut client, 100);
    client.send("abc");
    app.await_event("body 3");
    app.stop();
    app.await_event("body ended Stop");
}
