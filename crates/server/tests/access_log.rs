//! The access log over real connections: one line for each request, whichever part of the server
//! has answered it.

#![allow(clippy::disallowed_methods, reason = "a test may panic")]
#![cfg_attr(not(unix), allow(unused_imports))] // Tests on Unix systems use them.

mod application;
mod refused_requests;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
#[cfg(unix)]
use std::os::{fd::OwnedFd, unix::net::UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rookery_exchange::{Command, Event, Payload, StreamEnd, StreamOptions};
use rookery_server::access_log::{AccessLog, Format, OwnedRecord};
use rookery_server::{Config, Listener, ListenerConfig, Server, TrustedProxies};
use rookery_test_support::Lines;
use socket2::SockRef;

use self::application::{Application, NoWaker};

/// A body that exceeds what the sockets buffer.
static LARGE: [u8; 16 << 20] = [7; 16 << 20];

/// A server whose application behaves by path: it does not respond to `/gone`, responds to `/large`
/// with 16 MiB and to `/slow` after 100 ms, accepts WebSockets, and responds to `/pieces...` with a
/// stream. The stream ends at `/pieces`, is cut off at `/pieces/cut`, and has no chunk at
/// `/pieces/none`. Other responses contain the path.
struct Fixture {
    _app: Application,
    _listener: Listener,
    server: Server,
    address: SocketAddr,
}

impl Fixture {
    fn new(log: &Arc<AccessLog>) -> Fixture {
        let server = Server::new(Config::default(), Box::new(NoWaker));
        server.set_access_log(Some(Arc::clone(log)));
        let listener =
            server.listen_tcp("127.0.0.1:0".parse().unwrap(), ListenerConfig::default()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut kept = Vec::new();
        let app = Application::start(&server, move |link, event| {
            let Event::Request(mut exchange) = event else { return };
            let path = exchange.path().to_vec();
            if path == b"/gone" {
                kept.push(exchange);
                return;
            }
            if path == b"/slow" {
                std::thread::sleep(Duration::from_millis(100));
            }
            if path.starts_with(b"/pieces") {
                let stream = link.stream(StreamOptions {
                    sends_head_first: path == b"/pieces/cut",
                    ..StreamOptions::default()
                });
                exchange.begin_response(200);
                exchange.set_response_stream(stream.clone());
                let id = exchange.id();
                link.send(Command::Respond(exchange));
                if path != b"/pieces/none" {
                    stream.flow.admit(path.len());
                    link.send(Command::Chunk {
                        stream: id,
                        payload: Payload::Pooled(path.clone()),
                        is_pushing: false,
                    });
                    link.flush();
                    std::thread::sleep(Duration::from_millis(100));
                    link.send(if path == b"/pieces" {
                        Command::EndStream { stream: id }
                    } else {
                        Command::AbortStream {
                            stream: id,
                            reason: StreamEnd::Error,
                            page: Vec::new(),
                        }
                    });
                }
                return;
            }
            exchange.begin_response(if exchange.is_upgrade() { 101 } else { 200 });
            exchange.set_response_body(if path == b"/large" { &LARGE } else { &path });
            link.send(Command::Respond(exchange));
        });
        Fixture { _app: app, _listener: listener, server, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Sends bytes, and reads up to the end of the connection.
    fn send(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Sends bytes in pieces that end `at` these positions, and reads up to the end of the
    /// connection.
    fn send_pieces(&self, request: &[u8], at: &[usize]) -> String {
        let mut stream = self.connect();
        stream.set_nodelay(true).unwrap();
        let mut begin = 0;
        for &end in at {
            stream.write_all(&request[begin..end]).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            begin = end;
        }
        let _ = stream.write_all(&request[begin..]);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }
}

/// Returns the next `count` records.
fn records(log: &AccessLog, count: usize) -> Vec<OwnedRecord> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut records = Vec::new();
    while records.len() < count && Instant::now() < deadline {
        match log.take() {
            Some(record) => records.push(record),
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
    assert_eq!(records.len(), count, "{records:?}");
    records
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The formats of the access log.
const FORMATS: [Format; 5] = [
    Format::Common,
    Format::CommonOfWorkers,
    Format::Combined,
    Format::Json,
    Format::Terminal { is_coloured: true },
];

#[test]
fn each_request_of_a_connection_has_its_line() {
    let log = Arc::new(AccessLog::read());
    let fixture = Fixture::new(&log);
    // The requests are pipelined, so that the next head has arrived before the previous response
    // was flushed.
    fixture.send(
        "GET /a?x=1 HTTP/1.1\r\nHost: h\r\n\r\nHEAD /bb HTTP/1.1\r\nHost: h\r\n\r\n\
         POST /slow HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
    );
    let records = records(&log, 3);
    let seen: Vec<_> = records
        .iter()
        .map(|r| (text(&r.method), text(&r.path), text(&r.query), r.status, r.bytes))
        .collect();
    assert_eq!(
        seen,
        [("GET", "/a", "?x=1", 200, 2), ("HEAD", "/bb", "", 200, 0), ("POST", "/slow", "", 200, 5)]
    );
    assert!(records[2].elapsed >= Duration::from_millis(100), "{:?}", records[2].elapsed);
    assert!(records.iter().all(|record| record.aborted.is_none()));
    assert!(records[0].request_id.len() == 32 && records[0].request_id != records[1].request_id);
    assert!(records[0].remote.unwrap().ip().is_loopback());
    assert_eq!(log.take(), None);
}

#[test]
fn what_the_server_refuses_is_logged() {
    let log = Arc::new(AccessLog::read());
    let fixture = Fixture::new(&log);
    assert!(fixture.send("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400 "));
    assert!(fixture.send("nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
    let records = records(&log, 2);
    assert_eq!((text(&records[0].path), records[0].status), ("/", 400));
    assert_eq!(
        (text(&records[1].method), text(&records[1].path), records[1].status),
        ("", "", 400)
    );
    assert!(records[1].bytes > 0);
}

#[test]
fn a_client_that_goes_away_is_logged_as_such() {
    let log = Arc::new(AccessLog::read());
    let fixture = Fixture::new(&log);
    let mut stream = fixture.connect();
    stream.write_all(b"GET /gone HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    // Unsent bytes are dropped, so that the close is a reset, which the server notices while the
    // application works.
    reset(stream);
    let records = records(&log, 1);
    assert_eq!((text(&records[0].path), records[0].status, records[0].bytes), ("/gone", 499, 0));
    assert_eq!(records[0].aborted, Some(StreamEnd::Client));
}

#[test]
fn a_request_that_the_end_of_the_server_cuts_off_is_not_blamed_on_the_client() {
    let log = Arc::new(AccessLog::read());
    let fixture = Fixture::new(&log);
    let mut stream = fixture.connect();
    stream.write_all(b"GET /gone HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    drop(fixture);
    let _ = stream.read_to_end(&mut Vec::new());
    let record = &records(&log, 1)[0];
    assert_eq!((text(&record.path), record.status, record.bytes), ("/gone", 502, 0));
    assert_eq!(record.aborted, Some(StreamEnd::Stop));
}

#[test]
fn a_request_whose_body_arrives_too_slowly_is_logged_once() {
    let log = Arc::new(AccessLog::read());
    let fixture = Fixture::new(&log);
    let mut stream = fixture.connect();
    stream.write_all(b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    fixture.server.advance_clock(Duration::from_secs(600));
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let record = &records(&log, 1)[0];
    let logged = (text(&record.method), text(&record.path), record.status, record.bytes);
    assert_eq!(logged, ("POST", "/p", 408, body.len() as u64));
    assert_eq!((record.aborted, log.take()), (None, None));
}

#[test]
fn a_client_that_leaves_within_a_reply_is_logged_as_such() {
    let log = Arc::new(AccessLog::read());
    let fixture = Fixture::new(&log);
    let mut stream = fixture.connect();
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 1000]).unwrap();
    reset(stream);
    let record = &records(&log, 1)[0];
    assert_eq!((record.status, record.aborted), (200, Some(StreamEnd::Client)));
    let whole = fixture.send("GET /large HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert!(whole.len() > LARGE.len());
    let record = &records(&log, 1)[0];
    assert_eq!((record.aborted, record.bytes), (None, LARGE.len() as u64));
}

#[test]
fn a_request_is_called_what_a_trusted_proxy_or_its_trace_calls_it() {
    let log = Arc::new(AccessLog::read());
    let server = Server::new(Config::default(), Box::new(NoWaker));
    server.set_access_log(Some(Arc::clone(&log)));
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let theirs = Arc::clone(&seen);
    let _app = Application::start(&server, move |link, event| {
        let Event::Request(mut exchange) = event else { return };
        theirs.lock().unwrap().push(text(exchange.request_id().as_bytes()).to_owned());
        exchange.begin_response(200);
        exchange.set_response_body(b"x");
        link.send(Command::Respond(exchange));
    });
    let trusting = TrustedProxies::parse(["127.0.0.1"]).unwrap();
    for (proxies, believes, tells) in [
        (TrustedProxies::default(), false, true),
        (trusting, true, true),
        (TrustedProxies::default(), false, false),
    ] {
        let site = ListenerConfig { proxies, sends_request_id: tells, ..ListenerConfig::default() };
        let listener = server.listen_tcp("127.0.0.1:0".parse().unwrap(), site).unwrap();
        for headers in [
            "",
            "X-Request-Id: from-the-proxy\r\n",
            "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n",
        ] {
            let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let head = format!("GET / HTTP/1.1\r\nHost: h\r\n{headers}Connection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            let id = seen.lock().unwrap().pop().unwrap();
            assert_eq!(text(&records(&log, 1)[0].request_id), id);
            assert_eq!(answer.contains(&format!("X-Request-Id: {id}\r\n")), tells, "{answer}");
            let expected = match headers.get(..1) {
                Some("X") if believes => "from-the-proxy",
                Some("t") => "0af7651916cd43dd8448eb211c80319c",
                _ => &id,
            };
            assert_eq!(id, expected);
            assert!(believes || id != "from-the-proxy");
        }
    }
}

#[test]
fn a_reply_in_pieces_is_logged_when_it_has_ended() {
    let log = Arc::new(AccessLog::read());
    let fixture = Fixture::new(&log);
    fixture.send("GET /pieces HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    fixture.send("GET /pieces/cut HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut stream = fixture.connect();
    stream.write_all(b"GET /pieces/none HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    drop(stream);
    let records = records(&log, 3);
    let seen: Vec<_> =
        records.iter().map(|r| (text(&r.path), r.status, r.bytes, r.aborted)).collect();
    assert_eq!(
        seen,
        [
            ("/pieces", 200, 7, None),
            ("/pieces/cut", 200, 11, Some(StreamEnd::Error)),
            ("/pieces/none", 499, 0, Some(StreamEnd::Client))
        ]
    );
    assert!(records[0].elapsed >= Duration::from_millis(100), "{:?}", records[0].elapsed);
}

#[test]
fn no_format_shows_credentials() {
    for format in FORMATS {
        let lines = Lines::default();
        let log = Arc::new(AccessLog::written(lines.clone(), format).unwrap());
        let fixture = Fixture::new(&log);
        let mut client = TcpStream::connect(fixture.address).unwrap();
        client
            .write_all(
                b"GET /a;token=S3CR3T?x=1&access_token=S3CR3T&next=https://ada:S3CR3T@b/ HTTP/1.1\r\n\
                  Host: h\r\nAuthorization: Basic S3CR3T\r\nCookie: id=S3CR3T\r\n\
                  Proxy-Authorization: S3CR3T\r\nX-Api-Key: S3CR3T\r\nUser-Agent: agent/1\r\n\
                  Referer: https://ada:S3CR3T@example.org/?password=S3CR3T\r\nConnection: close\r\n\r\n",
            )
            .unwrap();
        client.read_to_end(&mut Vec::new()).unwrap();
        drop(fixture);
        log.close();
        let text = lines.text();
        for shown in ["/a;token=<...>", "?x=1&access_token=<...>&next=https://<...>@b/"] {
            assert!(text.contains(shown), "{text}");
        }
        assert!(!text.contains("S3CR3T"), "{text}");
        let names_client = matches!(format, Format::Combined | Format::Json);
        assert_eq!(text.contains("agent/1"), names_client, "{text}");
        let referer = "https://<...>@example.org/?password=<...>";
        assert_eq!(text.contains(referer), names_client, "{text}");
    }
}

#[test]
fn a_websocket_is_logged_once_open() {
    let log = Arc::new(AccessLog::read());
    let fixture = Fixture::new(&log);
    let mut stream = fixture.connect();
    stream
        .write_all(
            b"GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
              Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )
        .unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 101");
    assert_eq!(records(&log, 1)[0].status, 101);
    stream.shutdown(Shutdown::Both).unwrap();
}

#[test]
fn the_end_of_a_websocket_is_a_line_of_a_json_log() {
    let lines = Lines::default();
    let log = AccessLog::written(lines.clone(), Format::Json).unwrap().with_app("chat");
    let log = Arc::new(log);
    let fixture = Fixture::new(&log);
    let mut stream = fixture.connect();
    stream
        .write_all(
            b"GET /ws;token=S3CR3T HTTP/1.1\r\nHost: h.example\r\nConnection: Upgrade\r\n\
              Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
              Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )
        .unwrap();
    // A text of five bytes, and a close frame with the code 1001. The mask is zero.
    stream.write_all(b"\x81\x85\0\0\0\0hello\x88\x82\0\0\0\0\x03\xe9").unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    drop(fixture);
    log.close();
    let text = lines.text();
    let ends: Vec<&str> = text.lines().filter(|line| line.contains("session_end")).collect();
    assert_eq!(ends.len(), 1, "{text}");
    for part in [
        ",\"event\":\"session_end\",\"remote\":\"127.0.0.1\",\"app\":\"chat\",\"host\":\"h.example\",",
        ",\"path\":\"/ws;token=<...>\",\"request_id\":\"",
        ",\"close_code\":1001,\"messages_received\":1,\"bytes_received\":5,",
    ] {
        assert!(ends[0].contains(part), "{part}: {}", ends[0]);
    }
}

#[test]
fn a_log_may_be_changed_while_the_server_runs() {
    let first = Arc::new(AccessLog::read());
    let fixture = Fixture::new(&first);
    let get = "GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    fixture.send(get);
    assert_eq!(records(&first, 1).len(), 1);
    fixture.server.set_access_log(None);
    fixture.send(get);
    let second = Arc::new(AccessLog::read());
    fixture.server.set_access_log(Some(Arc::clone(&second)));
    fixture.send(get);
    assert_eq!(records(&second, 1).len(), 1);
    assert_eq!((first.take(), second.take()), (None, None));
}

#[cfg(unix)]
#[test]
fn lines_go_to_a_file_descriptor() {
    let (mut reader, writer) = UnixStream::pair().unwrap();
    let log =
        Arc::new(AccessLog::written(File::from(OwnedFd::from(writer)), Format::Json).unwrap());
    let fixture = Fixture::new(&log);
    for _ in 0..3 {
        fixture.send("GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    }
    fixture.server.set_access_log(None);
    log.close();
    drop(log);
    let mut lines = String::new();
    reader.read_to_string(&mut lines).unwrap();
    assert_eq!(lines.lines().count(), 3, "{lines}");
    assert!(
        lines.lines().all(|line| line.contains("\"path\":\"/x\",\"query\":\"\",\"status\":200,\"bytes\":2,"))
    );
}

#[cfg(unix)]
#[test]
fn a_log_that_nobody_reads_costs_lines_and_holds_nobody_up() {
    let (mut reader, writer) = UnixStream::pair().unwrap();
    let log =
        Arc::new(AccessLog::written(File::from(OwnedFd::from(writer)), Format::Common).unwrap());
    let fixture = Fixture::new(&log);
    let mut client = fixture.connect();
    let target = format!("/{}", "a".repeat(2000));
    let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut answer = vec![0; 4096];
    // The lines have 3 MB. The socket buffers some hundred kilobytes, and the log 1 MiB.
    for _ in 0..1500 {
        client.write_all(request.as_bytes()).unwrap();
        let mut got = 0;
        while !answer[..got].ends_with(target.as_bytes()) {
            got += client.read(&mut answer[got..]).unwrap();
        }
    }
    // The last line is written after the client has read its response. The server is dropped before
    // its log.
    fixture.server.set_access_log(None);
    drop(fixture);
    // The output continues, and the log reports how many lines were lost.
    let reading = std::thread::spawn(move || {
        let mut lines = String::new();
        reader.read_to_string(&mut lines).unwrap();
        lines
    });
    log.close();
    drop(log);
    let lines = reading.join().unwrap();
    let written = lines.lines().filter(|line| line.contains("GET /aaa")).count();
    let lost = lines
        .lines()
        .filter_map(|line| line.strip_prefix("# ")?.split(' ').next()?.parse::<usize>().ok());
    assert_eq!(written + lost.sum::<usize>(), 1500);
    assert!(written < 1400, "{written} lines were kept");
}

/// Closes a connection by a reset instead of a FIN.
fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
}
