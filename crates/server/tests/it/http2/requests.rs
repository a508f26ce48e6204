//! Requests over HTTP/2. Clients get the same responses as over HTTP/1.1.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use http::Request;
use rookery_exchange::{
    Command as Down, Event, Exchange, PULL_HIGH_MARK, Payload, Share, StreamOptions,
};
use rookery_server::access_log::{AccessLog, Format};
use rookery_server::tls::TlsSettings;
use rookery_server::{Config, Limits, ListenerConfig, Rejection};
use rookery_test_support::tls_file;

use crate::support::http2::{
    END_STREAM, GET, Heard, Peer, Two, ask, code, frame, get, kind, ordinary, post, setting, to,
};
use crate::support::tls::{app, settings, site};
use crate::support::{App, Handler, Lines, TEST_TIMEOUT, echo, hello, wait_until};

/// Responds with the request.
fn mirror(exchange: &mut Exchange) {
    let body: Vec<u8> = exchange.body().segments().collect::<Vec<_>>().concat();
    let length = exchange.body().len().to_string();
    exchange.begin_response(200);
    exchange.push_response_header(b"X-Length", length.as_bytes()).unwrap();
    exchange.push_response_header(b"Connection", b"close").unwrap();
    exchange.push_response_header(b"Content-Type", b"application/octet-stream").unwrap();
    exchange.push_response_header(b"Content-Encoding", b"identity").unwrap();
    exchange.set_response_body(&body);
}

fn post_of(body: Vec<u8>, headers: &[(&str, &str)]) -> Request<Vec<u8>> {
    to("POST", "/", headers).body(body).unwrap()
}

#[test]
fn a_client_that_empties_its_header_table_is_charged_as_any_other() {
    let app = app(Limits::default(), hello);
    let client = Two::new(&app);
    for _ in 0..5 {
        assert_eq!(client.get("/").status, 200);
    }
    wait_until("only the connection is charged", || {
        app.server.budget().used(Share::Connections) == 80 << 10
    });
}

#[test]
fn a_body_that_is_too_large_is_answered_before_it_has_come() {
    let app = app(Limits { max_body_size: 100_000, ..Limits::default() }, hello);
    // A body is rejected by its announced length. The client gets the response, and the information
    // that the rest of the body is not needed (RFC 9113, 8.1).
    let mut peer = Peer::new(&app);
    peer.begin(1, &[&post("/")[..], &[("content-length", "1000000")]].concat());
    assert_eq!(peer.outcome(1), Heard::Status(413));
    assert_eq!(peer.data(1), b"413 Content Too Large\n");
    peer.begin(3, &post("/"));
    for _ in 0..7 {
        peer.send(frame(kind::DATA, 0, 3, &[7; 16_000]));
    }
    assert_eq!(peer.outcome(3), Heard::Status(413));
    for _ in 0..2 {
        let reset = peer.frame_of(kind::RST_STREAM).unwrap();
        assert_eq!(reset.payload, code::NO_ERROR.to_be_bytes());
    }
    peer.ask(5, GET);
    assert_eq!(peer.outcome(5), Heard::Status(200));
    assert_eq!(app.requests(), 1);
}

#[test]
fn a_client_that_waits_for_100_hears_it_when_the_body_is_wanted() {
    let (app_heads, refuse) = {
        let handler: Handler = Box::new(|link, event| match event {
            Event::Head(mut exchange) if exchange.path() == b"/no" => {
                exchange.begin_response(403);
                link.send(Down::Respond(exchange));
            }
            Event::Head(exchange) => link.send(Down::ReadBody(exchange)),
            Event::Request(mut exchange) => {
                hello(&mut exchange);
                link.send(Down::Respond(exchange));
            }
            _ => {}
        });
        let site = ListenerConfig { sees_heads: true, ..site(settings(&["localhost"])) };
        (App::with(Config::default(), site, handler), "/no")
    };
    let expect = [("expect", "100-continue"), ("content-length", "5")];
    let mut peer = Peer::new(&app_heads);
    peer.begin(1, &[&post("/")[..], &expect].concat());
    // The status 100 is not in the static table, so it is a literal.
    let interim = peer.frame_of(kind::HEADERS).unwrap();
    assert_eq!(interim.flags & END_STREAM, 0);
    assert!(interim.payload[0] & 0xF0 != 0x80, "{interim:?}");
    peer.send(frame(kind::DATA, END_STREAM, 1, b"Hello"));
    assert_eq!(peer.outcome(1), Heard::Status(200));
    peer.begin(3, &[&post(refuse)[..], &expect].concat());
    assert_eq!(peer.outcome(3), Heard::Status(403));
    assert_eq!(peer.frame_of(kind::RST_STREAM).unwrap().payload, code::NO_ERROR.to_be_bytes());
}

#[test]
fn many_requests_at_a_time_over_one_connection() {
    let app = app(Limits::default(), mirror);
    let client = Two::new(&app);
    client.runtime.block_on(async {
        let all = (0..300usize).map(|at| {
            let request = post_of(vec![at as u8; at * 100], &[]);
            tokio::spawn(ask(client.requests.clone(), request))
        });
        for (at, answer) in all.collect::<Vec<_>>().into_iter().enumerate() {
            let answer = tokio::time::timeout(TEST_TIMEOUT, answer)
                .await
                .expect("in time")
                .unwrap()
                .unwrap();
            assert!(answer.status == 200 && answer.body == vec![at as u8; at * 100], "{at}");
        }
    });
    assert_eq!(app.listener().connections(), 1);
}

/// Returns an application that responds with streams. `/pull` is pulled, and has a hundred chunks
/// of 10,000 bytes. `/push` gets one chunk, and the test sends what follows.
fn pieces(limits: Limits) -> (App, std::sync::mpsc::Receiver<u64>) {
    let (opened, opens) = channel();
    let mut counts = std::collections::HashMap::new();
    let mut flows = std::collections::HashMap::new();
    let handler: Handler = Box::new(move |link, event| match event {
        Event::Request(mut exchange) => {
            let is_pulled = exchange.path() == b"/pull";
            let stream = link.stream(StreamOptions { is_pulled, ..StreamOptions::default() });
            exchange.begin_response(200);
            exchange.set_response_stream(stream.clone());
            let id = exchange.id();
            flows.insert(id, stream.clone());
            link.send(Down::Respond(exchange));
            if !is_pulled {
                stream.flow.admit(5);
                link.send(Down::Chunk {
                    stream: id,
                    payload: Payload::Pooled(b"first".to_vec()),
                    is_pushing: false,
                });
            }
            let _ = opened.send(id);
        }
        Event::Pull { stream, .. } => {
            let count = counts.entry(stream).or_insert(0u32);
            *count += 1;
            if *count > 100 {
                return link.send(Down::EndStream { stream });
            }
            flows[&stream].flow.admit(10_000);
            let payload = Payload::Pooled(vec![*count as u8; 10_000]);
            link.send(Down::Chunk { stream, payload, is_pushing: false });
        }
        _ => {}
    });
    (
        App::with(Config { limits, ..Config::default() }, site(settings(&["localhost"])), handler),
        opens,
    )
}

#[test]
fn who_does_not_take_a_stream_is_not_asked_for_more_of_it() {
    let (app, opens) = pieces(Limits::default());
    // The client's window is 0, so that the application's chunks wait.
    let mut peer = Peer::with(&app, &setting(4, 0));
    peer.ask(1, &get("/pull"));
    opens.recv_timeout(TEST_TIMEOUT).unwrap();
    assert_eq!(peer.outcome(1), Heard::Status(200));
    std::thread::sleep(Duration::from_millis(300));
    let wants = || app.log.lock().unwrap().iter().filter(|line| *line == "want").count();
    let asked = wants();
    assert!(asked as u64 * 10_000 <= 2 * PULL_HIGH_MARK as u64, "{asked}");
    // Another stream of the connection is served meanwhile, and the first one continues when the
    // client opens its window.
    peer.ask(3, &ordinary("HEAD", "/pull"));
    assert_eq!(peer.outcome(3), Heard::Status(200));
    peer.send(frame(kind::WINDOW_UPDATE, 0, 1, &2_000_000u32.to_be_bytes()));
    peer.send(frame(kind::WINDOW_UPDATE, 0, 0, &2_000_000u32.to_be_bytes()));
    assert_eq!(peer.data(1).len(), 1_000_000);
}

#[test]
fn a_client_that_gives_a_stream_up_is_noticed() {
    let (app, opens) = pieces(Limits::default());
    let mut peer = Peer::new(&app);
    peer.ask(1, &get("/push"));
    opens.recv_timeout(TEST_TIMEOUT).unwrap();
    assert_eq!(peer.outcome(1), Heard::Status(200));
    peer.reset(1);
    app.await_event("departed Client");
    peer.ask(3, &get("/push"));
    opens.recv_timeout(TEST_TIMEOUT).unwrap();
    drop(peer);
    wait_until("both are told", || {
        app.log.lock().unwrap().iter().filter(|line| *line == "departed Client").count() == 2
    });
}

#[test]
fn a_drain_says_goodbye_and_serves_what_has_begun() {
    let (answer, told) = channel::<()>();
    let handler: Handler = Box::new(move |link, event| {
        if let Event::Request(mut exchange) = event {
            if exchange.path() == b"/slow" {
                let _ = told.recv();
            }
            hello(&mut exchange);
            link.send(Down::Respond(exchange));
        }
    });
    let app = App::with(Config::default(), site(settings(&["localhost"])), handler);
    let mut idle = Peer::new(&app);
    idle.ask(1, GET);
    assert_eq!(idle.outcome(1), Heard::Status(200));
    let mut busy = Peer::new(&app);
    busy.ask(1, &get("/slow"));
    app.await_event("request /slow");
    app.listener().drain();
    for peer in [&mut idle, &mut busy] {
        let goaway = peer.frame_of(kind::GOAWAY).expect("GOAWAY");
        assert_eq!(goaway.payload[4..8], code::NO_ERROR.to_be_bytes());
        // The server pings the client to find out whether it has received the GOAWAY.
        let ping = peer.frame_of(kind::PING).expect("PING");
        peer.send(frame(kind::PING, 1, 0, &ping.payload));
    }
    assert_eq!(idle.goodbye(), Some(code::NO_ERROR));
    answer.send(()).unwrap();
    assert_eq!(busy.outcome_past_goaway(1), Heard::Status(200));
    assert_eq!(busy.goodbye(), Some(code::NO_ERROR));
    wait_until("all have gone", || app.listener().connections() == 0);
}

#[test]
fn a_peer_that_never_hears_of_the_end_is_closed_all_the_same() {
    let app =
        app(Limits { ws_close_timeout: Duration::from_millis(400), ..Limits::default() }, hello);
    let mut peer = Peer::new(&app);
    peer.ask(1, GET);
    assert_eq!(peer.outcome(1), Heard::Status(200));
    app.listener().drain();
    assert_eq!(peer.goodbye(), Some(code::NO_ERROR));
}

#[test]
fn a_rejected_request_has_a_line_in_the_access_log() {
    let app = app(Limits::default(), hello);
    let lines = Lines::default();
    let log = AccessLog::written(lines.clone(), Format::Common).unwrap();
    app.server.set_access_log(Some(Arc::new(log)));
    let mut peer = Peer::new(&app);
    peer.ask(1, &get("*"));
    assert_eq!(peer.outcome(1), Heard::Status(400));
    wait_until("a line", || !lines.text().is_empty());
    assert!(lines.text().contains("\"GET * HTTP/2.0\" 400 "), "{}", lines.text());
}

/// The beginning of a header field that is never indexed (RFC 7541, 6.2.3): the byte 0x10, and the
/// length and text of the Huffman-coded name `x-request-id`.
const NAME: &[u8] = &[0x10, 0x89, 0xf2, 0xb5, 0x85, 0xed, 0x69, 0x50, 0x95, 0x8d, 0x27];

#[test]
fn request_ids_are_not_added_to_the_compression_table() {
    let tells = ListenerConfig { sends_request_id: true, ..site(settings(&["localhost"])) };
    let app = App::with(Config::default(), tells, echo(hello));
    let mut peer = Peer::with(&app, &setting(1, 4096));
    let blocks = [1, 3, 5].map(|stream| {
        peer.ask(stream, GET);
        peer.frame_of(kind::HEADERS).expect("a response").payload
    });
    // If a response had added the field to the dynamic table, a later one would send its index.
    for block in &blocks {
        let has_literal = block.windows(NAME.len()).any(|bytes| bytes == NAME);
        assert!(has_literal, "{block:02x?}");
    }
}

#[test]
fn http_1_is_spoken_where_http_2_is_not_wanted() {
    let only = TlsSettings { only_http1: true, ..settings(&["localhost"]) };
    let app = App::with(Config::default(), site(only), echo(hello));
    let mut config = rookery_test_support::tls::client_config(None);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let mut client =
        crate::support::Client::connect_tls(app.address, &Arc::new(config), "localhost")
            .expect("a handshake");
    assert_eq!(client.tls.as_ref().unwrap().alpn_protocol(), Some(&b"http/1.1"[..]));
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn a_host_that_tls_was_told_another_name_for_is_misdirected() {
    let app = App::with(Config::default(), site(settings(&["localhost", "other"])), echo(hello));
    let mut peer = Peer::new(&app);
    peer.ask(1, GET);
    assert_eq!(peer.outcome(1), Heard::Status(200));
    peer.ask(3, &[&GET[..3], &[(":authority", "other.example")]].concat());
    assert_eq!(peer.outcome(3), Heard::Status(421));
    wait_until("it is reported", || app.server.reports().count(Rejection::Misdirected) == 1);
}

#[test]
fn curl_is_served() {
    let app = app(Limits::default(), mirror);
    let url = format!("https://localhost:{}/", app.address.port());
    let resolve = format!("localhost:{}:127.0.0.1", app.address.port());
    let dir = tempfile::tempdir().unwrap();
    let body: Vec<u8> = (0..1_000_000u32).map(|at| (at % 251) as u8).collect();
    fs::write(dir.path().join("up"), &body).unwrap();
    let mut command = Command::new("curl");
    command.args(["-sS", "--http2", "--resolve", &resolve, "--cacert"]).arg(tls_file("ca.pem"));
    command.arg("--data-binary").arg(format!("@{}", dir.path().join("up").display()));
    command.arg("-o").arg(dir.path().join("down")).args([
        "-w",
        "%{http_version} %{http_code}",
        &url,
    ]);
    let Ok(output) = command.output() else { return println!("NOT TESTED: there is no curl") };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "2 200", "{output:?}");
    assert!(fs::read(dir.path().join("down")).unwrap() == body);
}

#[test]
fn nghttp_is_served() {
    let app = app(Limits::default(), hello);
    let mut command = Command::new("nghttp");
    command.args(["-nv", &format!("https://127.0.0.1:{}/", app.address.port())]);
    let Ok(output) = command.output() else { return println!("NOT TESTED: there is no nghttp") };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("recv DATA frame") && !said.contains("GOAWAY (0x07) : error"), "{said}");
}
