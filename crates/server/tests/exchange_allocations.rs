//! Requests, rejections and WebSocket messages allocate nothing on the I/O thread at steady state,
//! although they are logged as JSON and counted by their routes.

#![allow(clippy::disallowed_methods, reason = "a test may panic")]

mod application;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rookery_exchange::{AppTimes, Command, Event};
use rookery_server::access_log::{AccessLog, Format};
use rookery_server::{Config, ListenerConfig, Server};
use rookery_test_support::allocator::{self, CountingAllocator};
use rookery_trace::{Settings, Tracer};
use rookery_worker_protocol::SharedScoreboard;

use self::application::{Application, NoWaker};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The number of requests in front of those whose allocations are counted.
const WARM_UP: usize = 4_000;

/// Sends `request` `n` times, each after the response to the previous one. All responses have the
/// same length.
fn ask(socket: &mut TcpStream, request: &[u8], answer_len: usize, n: usize) {
    let mut buffer = [0; 4096];
    for _ in 0..n {
        socket.write_all(request).unwrap();
        let mut got = 0;
        while got < answer_len {
            let read = socket.read(&mut buffer[got..]).unwrap();
            assert!(read > 0, "{}", String::from_utf8_lossy(&buffer[..got]));
            got += read;
        }
        assert_eq!(got, answer_len, "{}", String::from_utf8_lossy(&buffer[..got]));
    }
}

#[test]
fn steady_state_allocates_nothing() {
    allocator::process::exclude_current_thread();
    check(None, false);
    // The response has headers that the server adds.
    check(None, true);
    // A tracer costs nothing where it records nothing.
    let variables = |name: &str| {
        let value = match name {
            "OTEL_TRACES_EXPORTER" => "otlp",
            "OTEL_TRACES_SAMPLER" => "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG" => "0.000001",
            _ => return None,
        };
        Some(value.to_owned())
    };
    let settings = Settings::from_environment(&variables, "test", &[]).settings.unwrap();
    check(Some(Tracer::start(settings, |_| {}).unwrap()), false);
}

fn check(tracer: Option<Arc<Tracer>>, adds_headers: bool) {
    let server = Server::new(Config::default(), Box::new(NoWaker));
    server.set_tracer(tracer);
    let scoreboard = SharedScoreboard::private();
    let scoreboard = Arc::new(scoreboard);
    server.set_scoreboard(Some(Arc::clone(&scoreboard)));
    let log = AccessLog::written(std::io::sink(), Format::Json).unwrap();
    server.set_access_log(Some(Arc::new(log)));
    let site = ListenerConfig {
        sends_request_id: adds_headers,
        sends_timing: adds_headers,
        ..ListenerConfig::default()
    };
    let listener = server.listen_tcp("127.0.0.1:0".parse().unwrap(), site).unwrap();
    let app = Application::start(&server, move |link, event| {
        allocator::process::exclude_current_thread();
        match event {
            Event::Request(mut exchange) => {
                exchange.set_route(b"/a/<path>");
                let (queue, app) = (Duration::from_micros(5), Duration::from_millis(2));
                exchange.set_app_times(AppTimes { queue, app });
                exchange.begin_response(if exchange.is_upgrade() { 101 } else { 200 });
                exchange.push_response_header(b"Content-Type", b"text/plain").unwrap();
                if !adds_headers {
                    exchange.push_response_header(b"X-Request-Id", b"0123456789").unwrap();
                }
                exchange.set_response_body(b"Hello, World!");
                link.send(Command::Respond(exchange));
            }
            Event::Message { socket, kind, payload, .. } => {
                link.send(Command::Send { socket, kind, payload });
            }
            _ => {}
        }
    });
    let connect = || {
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket
    };
    let date = "Date: Sat, 21 Nov 2026 00:00:00 GMT\r\n".len();
    let added = if adds_headers {
        "01234567890123456789012345678901\r\nServer-Timing: queue;dur=0.005, r;dur=2.000"
    } else {
        "0123456789"
    };
    let hello = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Request-Id: \r\nContent-Length: 13\r\n\r\nHello, World!"
        .len()
        + added.len()
        + date;
    // hyper itself allocates for each request header with a name that is not standard.
    let get = b"GET /a/path?and=query HTTP/1.1\r\nHost: localhost\r\nUser-Agent: test\r\nAccept: */*\r\n\r\n";
    let post = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n0123456789";
    let frame = [0x82, 0x84, 0, 0, 0, 0, 1, 2, 3, 4];
    // hyper's channel between a connection and a request body is one allocation.
    for (what, request, answer_len, allowed) in
        [("GET", &get[..], hello, 0), ("POST", post, hello, 1), ("a message", &frame, 6, 0)]
    {
        let mut socket = connect();
        if what == "a message" {
            let handshake =
                b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
            socket.write_all(handshake).unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                socket.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
        }
        // The buffers reach their sizes.
        ask(&mut socket, request, answer_len, WARM_UP);
        let before = allocator::process::allocations();
        ask(&mut socket, request, answer_len, 2000);
        let spent = allocator::process::allocations() - before;
        // A timer wheel, the runtime's queue and the buffers of the log may grow once.
        assert!(spent <= allowed * 2000 + 4, "{what}: {spent} allocations in 2,000");
    }
    drop(app);
    let routes = scoreboard.routes().routes();
    // A request is counted after its response, so the last one may be missing.
    assert!(
        routes.len() == 1 && routes[0].1.requests.get() >= 2 * (WARM_UP as u64 + 2000),
        "{routes:?}"
    );
}
