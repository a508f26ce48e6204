//! Clients behind a trusted proxy that share its HTTP/2 connection.

use std::sync::mpsc::{Receiver, channel};

use rookery_exchange::{Charge, Command, Event, Exchange, Share};
use rookery_server::{Config, Limits, ListenerConfig, Rejection, TrustedProxies};

use crate::http2::websocket::CONNECT;
use crate::support::http2::{
    END_HEADERS, END_STREAM, Heard, Peer, block, code, frame, get, kind, post,
};
use crate::support::tls::{settings, site};
use crate::support::{App, TEST_TIMEOUT, echo, hello, wait_until};

const GREEDY: (&str, &str) = ("x-forwarded-for", "192.0.2.1");
const HONEST: (&str, &str) = ("x-forwarded-for", "192.0.2.2");
const OTHER: (&str, &str) = ("x-forwarded-for", "192.0.2.3");

/// Returns an application that keeps the requests for `/kept` and WebSocket handshakes, and a proxy
/// that is connected to it. The receiver gets a message for each request that the application
/// keeps.
fn behind_proxy(limits: Limits) -> (App, Peer, Receiver<()>) {
    let proxies = TrustedProxies::parse(["127.0.0.1"]).unwrap();
    let listener = ListenerConfig { proxies, ..site(settings(&["localhost"])) };
    let (came, comes) = channel();
    let mut kept: Vec<Box<Exchange>> = Vec::new();
    let handler = move |link: &rookery_exchange::Link, event| {
        let Event::Request(mut exchange) = event else { return };
        if exchange.path() == b"/kept" || exchange.is_upgrade() {
            kept.push(exchange);
            let _ = came.send(());
        } else {
            hello(&mut exchange);
            link.send(Command::Respond(exchange));
        }
    };
    let app = App::with(Config { limits, ..Config::default() }, listener, Box::new(handler));
    let proxy = Peer::new(&app);
    (app, proxy, comes)
}

#[test]
fn a_client_that_resets_its_requests_does_not_end_the_connection_of_the_proxy() {
    let (app, mut proxy, _comes) = behind_proxy(Limits::default());
    let mut stream = 1;
    // The server waits for the bodies of these requests.
    for _ in 0..300 {
        proxy.begin(stream, &[&post("/")[..], &[GREEDY]].concat());
        proxy.reset(stream);
        stream += 2;
    }
    proxy.ask(stream, &[&get("/")[..], &[GREEDY]].concat());
    assert_eq!(proxy.outcome(stream), Heard::Status(503));
    stream += 2;
    proxy.ask(stream, &[&get("/")[..], &[HONEST]].concat());
    assert_eq!(proxy.outcome(stream), Heard::Status(200));
    assert_eq!(app.server.reports().count(Rejection::Http2), 0);
}

#[test]
fn a_client_leaves_places_for_requests_of_other_clients_of_the_proxy() {
    let limits = Limits { http2_max_concurrent_streams: 8, ..Limits::default() };
    let (_app, mut proxy, comes) = behind_proxy(limits);
    let mut stream = 1;
    let mut ask = |proxy: &mut Peer, client, path| {
        proxy.ask(stream, &[&get(path)[..], &[client]].concat());
        stream += 2;
        stream - 2
    };
    let asked: Vec<_> = (0..11).map(|_| ask(&mut proxy, GREEDY, "/kept")).collect();
    for refused in &asked[8..] {
        assert_eq!(proxy.outcome(*refused), Heard::Status(503));
    }
    let kept = || comes.recv_timeout(TEST_TIMEOUT).expect("a request that the application keeps");
    (0..8).for_each(|_| kept());
    // What one has reset counts as long as the application has it.
    proxy.reset(asked[0]);
    let again = ask(&mut proxy, GREEDY, "/kept");
    assert_eq!(proxy.outcome(again), Heard::Status(503));
    // Another client gets half of what is left, and a third client one of the rest.
    let asked: Vec<_> = (0..5).map(|_| ask(&mut proxy, OTHER, "/kept")).collect();
    assert_eq!(proxy.outcome(asked[4]), Heard::Status(503));
    (0..4).for_each(|_| kept());
    let honest = ask(&mut proxy, HONEST, "/");
    assert_eq!(proxy.outcome(honest), Heard::Status(200));
}

#[test]
fn a_proxy_that_names_no_clients_has_all_places() {
    let limits = Limits { http2_max_concurrent_streams: 8, ..Limits::default() };
    let (_app, mut proxy, comes) = behind_proxy(limits);
    for at in 0..16 {
        proxy.ask(2 * at + 1, &get("/kept"));
    }
    for _ in 0..16 {
        comes.recv_timeout(TEST_TIMEOUT).expect("a request that the application keeps");
    }
}

#[test]
fn requests_that_clients_whom_a_proxy_does_not_name_waste_refuse_no_others() {
    let (app, mut proxy, _comes) = behind_proxy(Limits::default());
    let mut stream = 1;
    let mut next = || {
        stream += 2;
        stream - 2
    };
    // Together, the clients have wasted less than half of the requests of the connection.
    for _ in 0..210 {
        let served = next();
        proxy.ask(served, &get("/"));
        assert_eq!(proxy.outcome(served), Heard::Status(200));
    }
    for _ in 0..150 {
        let reset = next();
        proxy.begin(reset, &post("/"));
        proxy.reset(reset);
    }
    let served = next();
    proxy.ask(served, &get("/"));
    assert_eq!(proxy.outcome(served), Heard::Status(200));
    assert_eq!(app.server.reports().count(Rejection::Http2), 0);
}

#[test]
fn what_the_application_does_not_take_from_one_client_leaves_windows_for_the_others() {
    let (_app, mut proxy, comes) = behind_proxy(Limits::default());
    // The windows of these streams are larger together than that of another connection.
    for at in 0..6 {
        let stream = 2 * at + 1;
        proxy.begin(stream, &[CONNECT, &[GREEDY]].concat());
        comes.recv_timeout(TEST_TIMEOUT).expect("the handshake");
        for _ in 0..16 {
            proxy.send(frame(kind::DATA, 0, stream, &vec![0; 16 << 10]));
        }
    }
    proxy.begin(101, &[&post("/")[..], &[HONEST]].concat());
    for _ in 0..16 {
        proxy.send(frame(kind::DATA, 0, 101, &vec![0; 10 << 10]));
    }
    proxy.send(frame(kind::DATA, 1, 101, b"end"));
    assert_eq!(proxy.outcome(101), Heard::Status(200));
}

#[test]
fn a_client_whom_a_proxy_header_names_has_the_limits_of_a_client() {
    let balancer = TrustedProxies::parse(["127.0.0.1"]).unwrap();
    let listener = ListenerConfig {
        proxies: balancer.clone(),
        proxy_protocol: Some(balancer),
        ..site(settings(&["localhost"]))
    };
    let app = App::with(Config::default(), listener, echo(hello));
    let mut client = Peer::behind(&app, "PROXY TCP4 192.0.2.1 198.51.100.1 12345 443\r\n");
    for at in 0..1000 {
        let stream = 2 * at + 1;
        let both = [
            frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &block(&get("/"))),
            frame(kind::RST_STREAM, 0, stream, &code::CANCEL.to_be_bytes()),
        ];
        if !client.try_send(both.concat()) {
            break;
        }
    }
    assert_eq!(client.goodbye(), Some(code::ENHANCE_YOUR_CALM));
}

#[test]
fn trailers_of_requests_that_h2_rejects_are_not_counted_forever() {
    let (app, mut proxy, _comes) = behind_proxy(Limits::default());
    let used = || app.server.budget().used(Share::Connections);
    let ask = |proxy: &mut Peer, stream| {
        proxy.ask(stream, &[&get("/")[..], &[HONEST]].concat());
        assert_eq!(proxy.outcome(stream), Heard::Status(200));
    };
    ask(&mut proxy, 1);
    let before = used();
    let trailers = block(&[("x-trailer", &"x".repeat(4 << 10))]);
    for at in 1..=20 {
        let stream = 2 * at + 1;
        proxy.begin(stream, &[&get("/")[..], &[(":status", "200")]].concat());
        proxy.send(frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &trailers));
        assert_eq!(proxy.outcome(stream), Heard::Reset(code::PROTOCOL_ERROR));
    }
    ask(&mut proxy, 43);
    let more = used().saturating_sub(before);
    assert!(more < 1 << 20, "{more} more bytes are counted");
}

/// Takes all memory for connections but `left` bytes, until the returned charge is dropped.
fn fill(app: &App, left: usize) -> Charge {
    let (budget, share) = (app.server.budget(), Share::Connections);
    let charge = Charge::new(budget, share);
    charge.set(budget.limit(share) - budget.used(share) - left);
    charge
}

#[test]
fn a_head_for_which_there_is_no_memory_ends_no_request_of_other_clients() {
    let (app, mut proxy, _comes) = behind_proxy(Limits::default());
    let used = || app.server.budget().used(Share::Connections);
    proxy.begin(1, &[&post("/")[..], &[HONEST]].concat());
    proxy.begin(3, &[&post("/")[..], &[GREEDY]].concat());
    // Connection and requests are charged with 32 KiB each.
    wait_until("both requests are charged", || used() >= 3 * (32 << 10));
    let with_both = used();
    proxy.send(frame(kind::DATA, END_STREAM, 3, b""));
    assert_eq!(proxy.outcome(3), Heard::Status(200));
    wait_until("the second request is over", || used() < with_both);
    let taken = fill(&app, 10 << 10);
    // h2 may hold much more for a header block that is not complete.
    let head = block(&[&get("/")[..], &[GREEDY]].concat());
    proxy.send(frame(kind::HEADERS, END_STREAM, 5, &head));
    let limit = app.server.budget().limit(Share::Connections);
    wait_until("the head is charged", || used() > limit);
    proxy.send(frame(kind::CONTINUATION, END_HEADERS, 5, b""));
    assert_eq!(proxy.outcome(5), Heard::Status(503));
    proxy.send(frame(kind::DATA, END_STREAM, 1, b"end"));
    assert_eq!(proxy.outcome(1), Heard::Status(200));
    drop(taken);
    proxy.ask(7, &[&get("/")[..], &[GREEDY]].concat());
    assert_eq!(proxy.outcome(7), Heard::Status(200));
}

#[test]
fn trailers_for_which_there_is_no_memory_end_only_their_request() {
    let (app, mut proxy, comes) = behind_proxy(Limits::default());
    proxy.begin(1, &[&post("/")[..], &[HONEST]].concat());
    proxy.begin(3, &[&post("/")[..], &[GREEDY]].concat());
    proxy.begin(5, &[CONNECT, &[GREEDY]].concat());
    comes.recv_timeout(TEST_TIMEOUT).expect("the handshake");
    let _taken = fill(&app, 100 << 10);
    let trailers = block(&[("x-trailer", &"x".repeat(4 << 10))]);
    for stream in [3, 5] {
        proxy.send(frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &trailers));
        assert_eq!(proxy.outcome(stream), Heard::Status(503));
    }
    proxy.send(frame(kind::DATA, END_STREAM, 1, b"end"));
    assert_eq!(proxy.outcome(1), Heard::Status(200));
}

#[test]
fn frames_that_carry_nothing_do_not_end_the_connection_of_the_proxy() {
    let (app, mut proxy, _comes) = behind_proxy(Limits::default());
    let updates = frame(kind::WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()).repeat(1000);
    for _ in 0..700 {
        proxy.send(&updates);
    }
    proxy.ask(1, &[&get("/")[..], &[HONEST]].concat());
    assert_eq!(proxy.outcome(1), Heard::Status(200));
    assert_eq!(app.server.reports().count(Rejection::Http2), 0);
}
